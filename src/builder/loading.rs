//! Loads the builds of a pool, and finds or builds their images.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    CacheDir, Cause, Engine, EngineConfig, Image, ImageError, ImageSpec, Package, Progress,
    ProgressSink,
};

use crate::failure::Error;
use crate::pythons::{InvalidPython, Python, Pythons, check_name};

/// Where packages of an image come from; read when the image is loaded.
#[derive(Debug, Clone)]
pub(super) enum PackageSource {
    /// A wheel or a folder.
    Path(PathBuf),
    /// A requirements file that names wheels.
    Requirements(PathBuf),
}

/// What a pool's builds are loaded from.
pub(super) struct Plan {
    /// The default build.
    pub(super) config: EngineConfig,
    /// Builds beside it, by name.
    pub(super) pythons: Vec<(String, PathBuf)>,
    /// What goes into the image of each build, and the packages that do.
    pub(super) image: ImageSpec,
    pub(super) packages: Vec<PackageSource>,
    pub(super) progress: Arc<dyn ProgressSink>,
}

impl Plan {
    /// Loads every build with its image.
    pub(super) async fn load(self) -> Result<Pythons, Error> {
        let mut names = BTreeSet::new();
        for (name, _) in &self.pythons {
            check_name(name)?;
            if !names.insert(name) {
                return Err(InvalidPython::Twice { name: name.clone() }.into());
            }
        }
        let Self { config, pythons, image, packages, progress } = self;
        let loading = tokio::task::spawn_blocking(move || -> Result<_, Error> {
            let mut loaded = Pythons::new(load(&config, &image, &packages, &progress)?);
            for (name, path) in pythons {
                let config = EngineConfig {
                    python: Some(path),
                    // It is one of the default build.
                    module: None,
                    // The default build has reported it.
                    cache_bound_bytes: u64::MAX,
                    ..config.clone()
                };
                let python = load(&config, &image, &packages, &progress).map_err(|source| {
                    Error::Build { name: name.clone(), source: Box::new(source) }
                })?;
                loaded = loaded.with(&name, python);
            }
            progress.report(Progress::Ready);
            Ok(loaded)
        });
        loading.await.map_err(|error| Error::Load(Cause::new(error)))?
    }
}

/// Loads one build.
fn load(
    config: &EngineConfig,
    image: &ImageSpec,
    packages: &[PackageSource],
    progress: &Arc<dyn ProgressSink>,
) -> Result<Python, Error> {
    let engine = Engine::load(config, progress)?;
    let mut image = image.clone();
    if !packages.is_empty() {
        let target = engine.target()?;
        for source in packages {
            match source {
                PackageSource::Path(path) => image.packages.push(Package::open(path, &target)?),
                PackageSource::Requirements(path) => {
                    let cache = CacheDir::open(config.cache_dir.as_deref())?;
                    let progress = progress.as_ref();
                    let named = Package::from_requirements(&cache, path, &target, progress)?;
                    image.packages.extend(named);
                }
            }
        }
    }
    image.check()?;
    Ok(match engine.takes_images() {
        true => Python::Image(Image::load_or_build(&engine, &image, progress)?),
        false if image == ImageSpec::default() => Python::Engine(engine),
        false => return Err(ImageError::Host.into()),
    })
}
