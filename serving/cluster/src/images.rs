//! The image of a pool: what its workers' interpreters begin from, by digest, so that a worker needs
//! nothing on its disk but Hatchery and the Python build.
//!
//! The server keeps a recipe for each pool that has one: modules to import, a setup, packages, and the
//! image that this gives; packages and image are objects under their digests. A worker fetches them,
//! checks them, and puts the image into its cache, once; from then on it is mapped there. What is the
//! same for everybody is the key, which covers every byte that goes into an image: a worker whose key
//! isn't the recipe's has another build or another Hatchery, and must take nothing.
//!
//! Whoever may write `hatchery-POOL-image` decides what all programs of the pool begin with, in the
//! sandbox, and nothing beyond that: the cache keeps a fetched image under the digest of its bytes, which
//! only this pool asks for.

use std::path::{Path, PathBuf};

use hatchery::{Builder, image::ImageInfo};
use serde::{Deserialize, Serialize};

use crate::error::Error;

pub use store::Images;

mod store;

/// The version of recipes that this program writes and reads.
const VERSION: u32 = 1;
/// The most packages of a recipe.
const MOST_PACKAGES: usize = 256;
/// The largest package.
const LARGEST_PACKAGE: u64 = 256 << 20;
/// The largest image, before it is compressed.
const LARGEST_IMAGE: u64 = 1 << 30;

/// What an image is made of, on the disk of whoever publishes it.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ImageSource {
    /// Modules to import, in order.
    pub preload: Vec<String>,
    /// The source and the file name of a setup.
    pub setup: Option<(String, String)>,
    /// Wheels.
    pub packages: Vec<PathBuf>,
}

/// What the server keeps of a pool's image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Recipe {
    version: u32,
    /// The key of the image.
    key: String,
    /// The Python build and the Hatchery of whoever published it, for people.
    build: String,
    hatchery: String,
    preload: Vec<String>,
    setup: Option<Setup>,
    packages: Vec<Package>,
    /// `None` if it is too large to be sent: each worker makes it then.
    image: Option<ImageFile>,
}

/// The file of an image, compressed with zstd as an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ImageFile {
    /// The BLAKE3 digest of its bytes before they are compressed, which is the name of its object.
    digest: String,
    /// How many these are.
    bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Setup {
    source: String,
    filename: String,
}

/// A wheel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Package {
    /// The name of its file, which is part of the key.
    name: String,
    /// The BLAKE3 digest of its bytes, which is the name of its object.
    digest: String,
    bytes: u64,
}

impl Recipe {
    /// Reads a recipe; `None` if it isn't one, or asks for what it may not. It comes from the network.
    fn read(text: &[u8]) -> Option<Self> {
        let recipe: Self = serde_json::from_slice(text).ok()?;
        let mut names: Vec<&str> =
            recipe.packages.iter().map(|package| package.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let is_sound = recipe.version == VERSION
            && recipe.packages.len() <= MOST_PACKAGES
            && names.len() == recipe.packages.len()
            && recipe.packages.iter().all(Package::is_sound)
            && recipe.image.as_ref().is_none_or(ImageFile::is_sound);
        is_sound.then_some(recipe)
    }

    fn needs(&self, digest: &str) -> bool {
        self.packages.iter().any(|package| package.digest == digest)
            || self.image.as_ref().is_some_and(|image| image.digest == digest)
    }
}

impl ImageFile {
    fn is_sound(&self) -> bool {
        blake3::Hash::from_hex(&self.digest).is_ok() && self.bytes <= LARGEST_IMAGE
    }
}

impl Package {
    fn is_sound(&self) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+!".contains(&byte);
        self.name.len() <= 255
            && !self.name.starts_with('.')
            && self.name.ends_with(".whl")
            && self.name.bytes().all(is_plain)
            && blake3::Hash::from_hex(&self.digest).is_ok()
            && self.bytes <= LARGEST_PACKAGE
    }
}

/// The image that a pool's workers begin from, with its packages in a folder of this machine.
#[derive(Debug, Clone)]
pub struct PoolImage {
    pool: String,
    recipe: Recipe,
    packages: Vec<PathBuf>,
    /// The key of the fetched image in the cache; `None` if the image is made here.
    added: Option<String>,
}

impl PoolImage {
    /// Makes the interpreters of a pool begin from this image. The folder of the packages must stay
    /// until the pool has started.
    pub fn give(&self, builder: Builder) -> Builder {
        let builder = self.packages.iter().fold(builder, Builder::package);
        let builder = builder.preload(&self.recipe.preload);
        let builder = match &self.added {
            Some(key) => builder.added_image(key),
            None => builder,
        };
        match &self.recipe.setup {
            Some(setup) => builder.setup(setup.source.as_str(), setup.filename.as_str()),
            None => builder,
        }
    }

    /// Returns the key of the image.
    pub fn key(&self) -> &str {
        &self.recipe.key
    }

    /// Checks that a pool begins from this image.
    ///
    /// # Errors
    /// It begins from another one.
    pub fn check(&self, image: Option<&ImageInfo>) -> Result<(), Error> {
        if image.is_some_and(|image| image.key == self.recipe.key) {
            return Ok(());
        }
        let here = image.map_or_else(
            || "none".to_owned(),
            |image| {
                let (key, build) = (&image.key, &image.build);
                format!("{key}, of Hatchery {} on {build}", env!("CARGO_PKG_VERSION"))
            },
        );
        let Recipe { key, hatchery, build, .. } = &self.recipe;
        let there = format!("{key}, of Hatchery {hatchery} on {build}");
        Err(Error::OtherImage { pool: self.pool.clone(), there, here })
    }
}

/// Returns the name of a wheel's file.
fn wheel_name(path: &Path) -> Result<String, Error> {
    let unfit = || Error::NoWheel { path: path.to_owned() };
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unfit)?;
    let package =
        Package { name: name.to_owned(), digest: blake3::hash(b"").to_hex().to_string(), bytes: 0 };
    if path.is_file() && package.is_sound() { Ok(package.name) } else { Err(unfit()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(names: &[&str]) -> Recipe {
        let package = |name: &&str| Package {
            name: (*name).to_owned(),
            digest: blake3::hash(name.as_bytes()).to_hex().to_string(),
            bytes: 1,
        };
        Recipe {
            version: VERSION,
            key: "key".to_owned(),
            build: "CPython".to_owned(),
            hatchery: "0".to_owned(),
            preload: vec!["json".to_owned()],
            setup: None,
            packages: names.iter().map(package).collect(),
            image: None,
        }
    }

    fn reads(recipe: &Recipe) -> bool {
        Recipe::read(&serde_json::to_vec(recipe).unwrap()).as_ref() == Some(recipe)
    }

    #[test]
    fn recipes_whose_packages_would_go_elsewhere_are_refused() {
        assert!(reads(&recipe(&["a-1.0-py3-none-any.whl", "b-1!2+x-py3-none-any.whl"])));
        for name in ["../a.whl", "a/b.whl", ".a.whl", "a.zip", "", "a\0.whl", "a.whl/"] {
            assert!(!reads(&recipe(&[name])), "{name}");
        }
        assert!(!reads(&recipe(&["a.whl", "a.whl"])));
        let mut large = recipe(&["a.whl"]);
        large.packages[0].bytes = LARGEST_PACKAGE + 1;
        assert!(!reads(&large));
        let digest = blake3::hash(b"").to_hex().to_string();
        let image = |bytes| Some(ImageFile { digest: digest.clone(), bytes });
        assert!(reads(&Recipe { image: image(LARGEST_IMAGE), ..recipe(&[]) }));
        assert!(!reads(&Recipe { image: image(LARGEST_IMAGE + 1), ..recipe(&[]) }));
        let mut wrong = recipe(&["a.whl"]);
        wrong.packages[0].digest = "../x".to_owned();
        assert!(!reads(&wrong));
        assert!(!reads(&Recipe { version: VERSION + 1, ..recipe(&[]) }));
        assert_eq!(Recipe::read(b"{}"), None);
    }

    #[test]
    fn a_pool_with_another_image_is_told_both() {
        let (pool, packages) = ("p".to_owned(), Vec::new());
        let image = PoolImage { pool, recipe: recipe(&[]), packages, added: None };
        assert!(image.check(Some(&ImageInfo::new("key"))).is_ok());
        let error = image.check(Some(&ImageInfo::new("other"))).unwrap_err().to_string();
        assert!(
            error.contains("key, of Hatchery 0 on CPython") && error.contains("other"),
            "{error}"
        );
        assert!(image.check(None).is_err());
    }
}
