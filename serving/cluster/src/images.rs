//! The image of a pool, by digest. A worker needs only Hatchery and the Python build on its disk.
//!
//! The server keeps a recipe for each pool that has one. It names modules to import, a setup, packages,
//! and the image that they make. Packages and image are objects under their digests. A worker fetches
//! them, checks them, and puts the image into its cache once. The key covers every byte that goes
//! into an image. A worker whose key isn't the recipe's has another build or another Hatchery, and
//! must not take jobs.
//!
//! The right to write `hatchery-POOL-image` decides what all programs of the pool start from, in
//! the sandbox, and nothing else. The cache keeps a fetched image under the digest of its bytes,
//! which only this pool requests.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use futures_util::StreamExt;
use hatchery::Builder;
use hatchery::error::chain;
use hatchery::image::{self, ImageInfo};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::clock::sleep;
use crate::connect::Connection;
use crate::error::{Cause, Error};
use crate::names::{PoolName, Subjects};
use crate::stores::{Objects, found};
use crate::streams::Settings;

/// The version of recipes that this program writes and reads.
const VERSION: u32 = 1;
/// The most packages of a recipe.
const MOST_PACKAGES: usize = 256;
/// The largest package.
const LARGEST_PACKAGE: u64 = 256 << 20;
/// The largest image, before it is compressed.
const LARGEST_IMAGE: u64 = 1 << 30;

/// What an image is made of, on the disk of its publisher.
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
    /// The publisher's Python build and Hatchery version, for people.
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
        let names: HashSet<&str> =
            recipe.packages.iter().map(|package| package.name.as_str()).collect();
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
        let builder = self.added.iter().fold(builder, Builder::added_image);
        let setup = self.recipe.setup.iter();
        setup.fold(builder, |builder, setup| builder.setup(&setup.source, &setup.filename))
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
        let named = |key: &str, hatchery: &str, build: &str| {
            format!("{key}, of Hatchery {hatchery} on {build}")
        };
        let here = image.map(|image| named(&image.key, env!("CARGO_PKG_VERSION"), &image.build));
        let Recipe { key, hatchery, build, .. } = &self.recipe;
        let there = named(key, hatchery, build);
        let here = here.unwrap_or_else(|| "none".to_owned());
        Err(Error::OtherImage { pool: self.pool.clone(), there, here })
    }
}

/// Returns the name of a wheel's file.
fn wheel_name(path: &Path) -> Result<String, Error> {
    let unfit = || Error::NoWheel(path.to_owned());
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unfit)?;
    let package =
        Package { name: name.to_owned(), digest: blake3::hash(b"").to_hex().to_string(), bytes: 0 };
    if path.is_file() && package.is_sound() { Ok(package.name) } else { Err(unfit()) }
}

/// The name of the recipe among the objects. No digest is like it.
const RECIPE: &str = "recipe";
/// The largest recipe.
const LARGEST_RECIPE: u64 = 1 << 20;
/// How often a recipe is read whose packages are gone: somebody has replaced it meanwhile.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// How much zstd tries: images shrink to a fifth of their size, in some tenths of a second.
const LEVEL: i32 = 3;

/// The images of pools on a server.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use hatchery::Hatchery;
/// use cluster::{Connection, Images, PoolName};
///
/// let connection = Connection::new("nats://127.0.0.1:4222");
/// let images = Images::connect(&connection, PoolName::new("default")?).await?;
/// let folder = std::env::temp_dir();
/// let mut builder = Hatchery::builder();
/// let image = images.fetch(&folder, None).await?;
/// if let Some(image) = &image {
///     builder = image.give(builder);
/// }
/// let pool = builder.start().await?;
/// if let Some(image) = &image {
///     image.check(pool.image())?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Images {
    context: Context,
    subjects: Subjects,
}

impl Images {
    /// Connects to the server of a pool.
    ///
    /// # Errors
    /// There is no server, or it refuses the credentials.
    pub async fn connect(connection: &Connection, pool: PoolName) -> Result<Self, Error> {
        let (client, _) = connection.connect().await?;
        Ok(Self { context: jetstream::new(client), subjects: Subjects(pool) })
    }

    /// Makes the image of this source that of the pool. `image` is what a pool has made of it.
    ///
    /// # Errors
    /// A package isn't a wheel, it or the image can't be read, or the server can't keep it.
    pub async fn publish(
        &self,
        source: &ImageSource,
        image: &ImageInfo,
        settings: &Settings,
    ) -> Result<(), Error> {
        if source.packages.len() > MOST_PACKAGES {
            return Err(unkept(format!("it has more than {MOST_PACKAGES} packages")));
        }
        let bucket = self.subjects.store("image");
        let store = Objects::open(&self.context, bucket, Duration::ZERO, settings.replicas).await?;
        let mut packages = Vec::new();
        for path in &source.packages {
            let name = wheel_name(path)?;
            let read = |source| Error::Read(path.clone(), source);
            let bytes = tokio::fs::read(path).await.map_err(read)?;
            if bytes.len() as u64 > LARGEST_PACKAGE {
                return Err(unkept(format!("`{name}` has more than {LARGEST_PACKAGE} bytes")));
            }
            let digest = blake3::hash(&bytes).to_hex().to_string();
            store.keep(&digest, &bytes).await.map_err(unkept)?;
            packages.push(Package { name, digest, bytes: bytes.len() as u64 });
        }
        let file = match &image.path {
            Some(path) => keep_image(&store, path).await?,
            None => None,
        };
        let setup = source.setup.clone();
        let recipe = Recipe {
            version: VERSION,
            key: image.key.clone(),
            build: image.build.clone(),
            hatchery: env!("CARGO_PKG_VERSION").to_owned(),
            preload: source.preload.clone(),
            setup: setup.map(|(source, filename)| Setup { source, filename }),
            packages,
            image: file,
        };
        // Plain data can always be written.
        let text = serde_json::to_vec(&recipe).unwrap_or_default();
        store.put(RECIPE, &text).await.map_err(unkept)?;
        forget(&store, &recipe).await.map_err(unkept)
    }

    /// Returns the image of the pool, with its packages in this folder; `None` if it has none. The image
    /// itself goes into the cache, whose directory is that of
    /// [`Builder::cache_dir`](hatchery::Builder::cache_dir), and by default the default one.
    ///
    /// # Errors
    /// The server doesn't answer, what it has is damaged, or the disk can't be written to.
    pub async fn fetch(
        &self,
        folder: &Path,
        cache_dir: Option<&Path>,
    ) -> Result<Option<PoolImage>, Error> {
        let bucket = self.subjects.store("image");
        let stream = found(&self.context, &format!("OBJ_{bucket}")).await.map_err(failed)?;
        if stream.is_none() {
            return Ok(None);
        }
        let store = self.context.get_object_store(&bucket).await;
        let store = Objects(store.map_err(failed)?);
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.fetch_from(&store, folder, cache_dir).await {
                Err(Error::Damaged(..)) if attempts < ATTEMPTS => sleep(PAUSE).await,
                fetched => return fetched,
            }
        }
    }

    async fn fetch_from(
        &self,
        store: &Objects,
        folder: &Path,
        cache_dir: Option<&Path>,
    ) -> Result<Option<PoolImage>, Error> {
        let text = store.get(RECIPE, LARGEST_RECIPE).await.map_err(failed)?;
        let Some(text) = text else { return Ok(None) };
        let recipe = Recipe::read(&text).ok_or_else(damaged)?;
        let mut packages = Vec::new();
        for package in &recipe.packages {
            let bytes = store.get(&package.digest, LARGEST_PACKAGE).await.map_err(failed)?;
            let bytes = bytes.filter(|bytes| is_of(&package.digest, bytes)).ok_or_else(damaged)?;
            let path = folder.join(&package.name);
            let write = |source| Error::Write(path.clone(), source);
            tokio::fs::write(&path, bytes).await.map_err(write)?;
            packages.push(path);
        }
        let added = match &recipe.image {
            Some(file) => fetch_image(store, file, &recipe.key, cache_dir).await?,
            None => None,
        };
        Ok(Some(PoolImage { pool: self.subjects.0.to_string(), recipe, packages, added }))
    }
}

/// Puts the image of a pool into the cache and returns its key there. `None` if this machine has made
/// the same one, or must make it. A cache that can't be written to costs only time.
async fn fetch_image(
    store: &Objects,
    file: &ImageFile,
    made: &str,
    cache_dir: Option<&Path>,
) -> Result<Option<String>, Error> {
    let keys = image::keys(cache_dir).unwrap_or_default();
    if keys.iter().any(|key| key == made) {
        return Ok(None);
    }
    if let Some(key) = keys.into_iter().find(|key| file.digest.starts_with(key)) {
        return Ok(Some(key));
    }
    let packed = store.get(&file.digest, LARGEST_IMAGE).await.map_err(failed)?;
    let packed = packed.ok_or_else(damaged)?;
    let (file, cache_dir) = (file.clone(), cache_dir.map(Path::to_owned));
    let adding = spawn_blocking(move || {
        let bytes = unpack(&packed, &file).ok_or_else(damaged)?;
        let added = image::add(cache_dir.as_deref(), &bytes).map(|info| info.key);
        Ok(added
            .inspect_err(|error| {
                tracing::warn!(error = %chain(error), "the pool's image is made here, not fetched");
            })
            .ok())
    });
    adding.await.map_err(failed)?
}

/// Stores the file of an image; `None` if it is too large.
async fn keep_image(store: &Objects, path: &Path) -> Result<Option<ImageFile>, Error> {
    let path = path.to_owned();
    let packing = spawn_blocking(move || pack(&path));
    let Some((file, packed)) = packing.await.map_err(unkept)?? else { return Ok(None) };
    store.keep(&file.digest, &packed).await.map_err(unkept)?;
    Ok(Some(file))
}

/// Returns the file of an image, with its compressed bytes; `None` if it is too large.
fn pack(path: &Path) -> Result<Option<(ImageFile, Vec<u8>)>, Error> {
    let read = |source| Error::Read(path.to_owned(), source);
    if path.metadata().map_err(read)?.len() > LARGEST_IMAGE {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(read)?;
    let digest = blake3::hash(&bytes).to_hex().to_string();
    let packed = zstd::encode_all(bytes.as_slice(), LEVEL).map_err(read)?;
    Ok(Some((ImageFile { digest, bytes: bytes.len() as u64 }, packed)))
}

/// Returns the bytes of an image; `None` if they aren't those.
fn unpack(packed: &[u8], file: &ImageFile) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let decoder = zstd::Decoder::new(packed).ok()?;
    decoder.take(file.bytes + 1).read_to_end(&mut bytes).ok()?;
    is_of(&file.digest, &bytes).then_some(bytes)
}

fn is_of(digest: &str, bytes: &[u8]) -> bool {
    blake3::hash(bytes).to_hex().as_str() == digest
}

/// Deletes packages that the recipe doesn't need.
async fn forget(store: &Objects, recipe: &Recipe) -> Result<(), Cause> {
    let mut listed = store.0.list().await?;
    while let Some(info) = listed.next().await {
        let name = info?.name;
        if name != RECIPE && !recipe.needs(&name) {
            store.0.delete(&name).await?;
        }
    }
    Ok(())
}

fn damaged() -> Error {
    Error::Damaged("the image of the pool".to_owned())
}

fn failed(answer: impl Display) -> Error {
    Error::server("read the image of the pool", answer)
}

fn unkept(answer: impl Display) -> Error {
    Error::server("keep the image of the pool", answer)
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
