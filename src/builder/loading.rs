//! Loads the builds of a pool, and finds or builds their images.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    CacheDir, Cause, Engine, EngineConfig, Image, ImageError, ImageSpec, Package, PackageInfo,
    PackageOrigin, Progress, ProgressSink, PythonTarget, Silent,
};
use pool::BuildId;
use process::{Helper, ProcessError, ProcessSource};
use serde::{Deserialize, Serialize};

use super::Builder;
use crate::failure::Error;
use crate::imports::{ProgramImports, at_once};
use crate::learning::{LearnedImage, Learner};
use crate::network::NetworkError;
use crate::pythons::{InvalidPython, Python, Pythons, check_name};

/// Where packages of an image come from; read when the image is loaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum PackageSource {
    /// A wheel or a folder.
    Path(PathBuf),
    /// A requirements file that names wheels.
    Requirements(PathBuf),
    /// Where requirements files find packages, too.
    Index(PathBuf),
    /// The common packages.
    Common,
}

impl Builder {
    /// Loads every build with its image.
    pub(super) async fn load(self) -> Result<Pythons, Error> {
        let mut names = BTreeSet::new();
        for (name, _) in &self.pythons {
            check_name(name)?;
            if !names.insert(name) {
                return Err(InvalidPython::Twice(name.clone()).into());
            }
        }
        let Self { engine: config, pythons, image, imports, learns, packages, progress, .. } = self;
        let scheduler = self.scheduler;
        let (connects, memory_bytes) = (!self.network.is_empty(), scheduler.memory_bytes);
        let isolation = self.isolation.map_or_else(Isolation::from_env, Ok)?;
        if connects && isolation != Isolation::Threads {
            return Err(NetworkError::Isolation.into());
        }
        // Processes load what is cached.
        let starts_early = config.starts_early && isolation == Isolation::Threads;
        let config = EngineConfig { starts_early, ..config };
        let loading = tokio::task::spawn_blocking(move || -> Result<_, Error> {
            let load = |config: &EngineConfig,
                        image: &ImageSpec,
                        imports: Option<&ProgramImports>| {
                let imports = imports.map(|imports| (imports, memory_bytes / IMAGE_PART));
                let (python, spec) = load(config, image, imports, &packages, &progress)?;
                let python = isolated(python, &isolation, config, &spec, &packages, memory_bytes)?;
                Ok((python, spec))
            };
            let (default, spec) = load(&config, &image, imports.as_ref())?;
            let mut loaded = Pythons::new(default);
            // Modules and images of other machines are of the default build.
            let image = ImageSpec { added: None, ..image };
            for (name, path) in pythons {
                let config = EngineConfig {
                    python: Some(path),
                    module: None,
                    // The default build has reported it.
                    cache_bound_bytes: u64::MAX,
                    ..config.clone()
                };
                let (python, _) = load(&config, &image, None).map_err(|source| Error::Build {
                    name: name.clone(),
                    source: Box::new(source),
                })?;
                loaded = loaded.with(&name, python);
            }
            if connects {
                loaded.check_connects()?;
            }
            if learns
                && spec.added.is_none()
                && let Some(image) = loaded.image(BuildId::default())
            {
                let (engine, has_common) = (image.engine().clone(), has_common(&spec));
                let before = (imports.unwrap_or_default(), image.info().hidden.clone());
                let make = move |hidden: &[String], most_bytes| {
                    let silent: Arc<dyn ProgressSink> = Arc::new(Silent);
                    let image = hiding(&engine, &spec, hidden, most_bytes, &silent)?;
                    let bytes = image.info().memory_bytes + config.code_cache_bytes as u64;
                    let image = Python::Image { image, processes: None };
                    let python =
                        isolated(image, &isolation, &config, &spec, &packages, memory_bytes);
                    let source = python.inspect_err(|error| warn(error)).ok()?.source();
                    Some(LearnedImage { source, bytes })
                };
                let (most_bytes, progress) = (memory_bytes / IMAGE_PART, Arc::clone(&progress));
                loaded = loaded.learning(|builds| {
                    Learner::new(builds, before, has_common, most_bytes, progress, make)
                });
            }
            progress.report(Progress::Ready);
            Ok(loaded)
        });
        loading.await.map_err(|error| Error::Load(Cause::new(error)))?
    }
}

fn load(
    config: &EngineConfig,
    image: &ImageSpec,
    imports: Option<(&ProgramImports, u64)>,
    packages: &[PackageSource],
    progress: &Arc<dyn ProgressSink>,
) -> Result<(Python, ImageSpec), Error> {
    let open = |target: &PythonTarget| -> Result<ImageSpec, Error> {
        let mut image = image.clone();
        let cache = CacheDir::open(config.cache_dir.as_deref())?;
        let index = packages.iter().rev().find_map(|source| match source {
            PackageSource::Index(path) => Some(path.as_path()),
            _ => None,
        });
        for source in packages {
            let progress = progress.as_ref();
            image.packages.extend(match source {
                PackageSource::Path(path) => vec![Package::open(path, target)?],
                PackageSource::Requirements(path) => {
                    Package::from_requirements(&cache, path, index, target, progress)?
                }
                PackageSource::Index(_) => Vec::new(),
                PackageSource::Common => Package::common(&cache, target, progress)?,
            });
        }
        image.check()?;
        Ok(image)
    };
    let mut opened = None;
    let engine = Engine::load_with(config, progress, |target| {
        Ok::<_, Error>(opened.insert(open(target)?).packages.clone())
    })?;
    let image = match opened {
        Some(image) => image,
        None if packages.is_empty() => open(&PythonTarget::default())?,
        None => open(&engine.target()?)?,
    };
    let python = match engine.takes_images() {
        true => {
            let hiding =
                imports.filter(|_| image.added.is_none()).and_then(|(imports, most_bytes)| {
                    let is_cached =
                        |hidden: &[String]| Image::is_cached(&engine, &with_hidden(&image, hidden));
                    let hidden = imports.hidden(has_common(&image), at_once(), is_cached);
                    let image = hiding(&engine, &image, &hidden, most_bytes, progress)?;
                    progress.report(Progress::Hiding(hidden.len()));
                    Some(image)
                });
            let image = match hiding {
                Some(image) => image,
                None => Image::load_or_build(&engine, &image, progress)?,
            };
            Python::Image { image, processes: None }
        }
        false if image == ImageSpec::default() => Python::Engine(engine),
        false => return Err(ImageError::Host.into()),
    };
    Ok((python, image))
}

/// The part of a pool's memory that images with the programs' imports may take: one of so many.
const IMAGE_PART: u64 = 4;

/// Returns an image of at most so many bytes that has imported modules and hides them, if there are any.
fn hiding(
    engine: &Engine,
    spec: &ImageSpec,
    hidden: &[String],
    most_bytes: u64,
    progress: &Arc<dyn ProgressSink>,
) -> Option<Image> {
    if hidden.is_empty() {
        return None;
    }
    let image = Image::load_or_build(engine, &with_hidden(spec, hidden), progress);
    let image = image.inspect_err(|error| warn(error)).ok()?;
    (image.info().memory_bytes <= most_bytes).then_some(image)
}

fn with_hidden(spec: &ImageSpec, hidden: &[String]) -> ImageSpec {
    ImageSpec { hidden: hidden.to_vec(), ..spec.clone() }
}

/// Returns whether an image has the common packages.
fn has_common(spec: &ImageSpec) -> bool {
    let is_common = |info: &PackageInfo| matches!(info.origin, PackageOrigin::Common(_));
    spec.packages.iter().flat_map(Package::infos).any(is_common)
}

/// Notes that there is no such image. Programs run without it, too.
fn warn(error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error = %engine::chain(error), "the programs' modules can't be imported ahead");
}

/// Where interpreters run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// On threads of this process: the fastest. WebAssembly is the wall between a program and the
    /// host.
    #[default]
    Threads,
    /// In separate processes, forked by a helper. A program that breaks out of WebAssembly is in a
    /// confined process, and a worker that dies fails only its job.
    Process {
        /// The program that becomes the helper.
        helper: Helper,
    },
    /// As `Process`, but the pool refuses to start if this system lacks a layer of confinement. The
    /// error names it.
    ProcessStrict {
        /// The program that becomes the helper.
        helper: Helper,
    },
}

impl Isolation {
    /// Returns what `$HATCHERY_ISOLATION` asks for, by default threads. The helper of processes is
    /// the program `$HATCHERY_HELPER`, else this one.
    fn from_env() -> Result<Self, ProcessError> {
        let Some(wanted) = std::env::var_os("HATCHERY_ISOLATION") else { return Ok(Self::Threads) };
        match wanted.to_str() {
            Some("" | "threads") => Ok(Self::Threads),
            Some("process") => Ok(Self::Process { helper: Helper::from_env() }),
            Some("process-strict") => Ok(Self::ProcessStrict { helper: Helper::from_env() }),
            _ => {
                let value = wanted.to_string_lossy().into_owned();
                Err(ProcessError::UnknownIsolation { value })
            }
        }
    }
}

/// What a helper loads: the same as the pool that starts it.
#[derive(Debug, Serialize, Deserialize)]
struct Load {
    config: EngineConfig,
    image: ImageSpec,
    packages: Vec<PackageSource>,
}

/// Moves a build's interpreters to processes, if that is wanted.
fn isolated(
    python: Python,
    isolation: &Isolation,
    config: &EngineConfig,
    spec: &ImageSpec,
    packages: &[PackageSource],
    memory_bytes: u64,
) -> Result<Python, Error> {
    let (helper, is_strict) = match isolation {
        Isolation::Threads => return Ok(python),
        Isolation::Process { helper } => (helper, false),
        Isolation::ProcessStrict { helper } => (helper, true),
    };
    let Python::Image { image, .. } = python else { return Err(ImageError::Host.into()) };
    if image.info().path.is_none() {
        return Err(ProcessError::NoFile.into());
    }
    let config = EngineConfig { cache_bound_bytes: u64::MAX, ..config.clone() };
    let spec = ImageSpec { hidden: image.info().hidden.clone(), ..spec.clone() };
    let load = Load { config, image: spec, packages: packages.to_vec() };
    let load = serde_json::to_vec(&load).map_err(|error| Error::Load(Cause::new(error)))?;
    let processes = ProcessSource::start(&image, helper, load, is_strict, memory_bytes)?;
    Ok(Python::Image { image, processes: Some(Arc::new(processes)) })
}

/// Makes this process a helper for worker processes if a pool started it as one, and then never
/// returns. Else does nothing.
///
/// A program that has pools with [`Isolation::Process`] or [`Isolation::ProcessStrict`] calls it
/// first in its `main`: before it starts threads, or uses standard input or output.
pub fn be_helper() {
    process::be_helper(|load| {
        let Load { config, image, packages } =
            serde_json::from_slice(load).map_err(|error| error.to_string())?;
        let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
        match self::load(&config, &image, None, &packages, &progress) {
            Ok((Python::Image { image, .. }, _)) => Ok(image),
            Ok((Python::Engine(_), _)) => Err("its host has no images".to_owned()),
            Err(error) => Err(engine::chain(&error).to_string()),
        }
    });
}
