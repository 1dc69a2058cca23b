//! Where images are stored: files in the cache, under a key of everything that they were built
//! from.
//!
//! The key alone finds an image, so nothing has to be checked for staleness. An image that is
//! damaged, foreign or of another version is built again.
//!
//! Images of other machines are stored under the hash of their bytes. Only a spec that names this
//! hash starts from one. The sender of an image can't make it that of other specs, whatever key it
//! claims to have.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{self, ImageContents, ImageHeader};
use super::{Image, ImageInfo, template};
use crate::cache::seal::Sealer;
use crate::cache::{CacheDir, remove_unfinished};
use crate::cause::chain;
use crate::config::{Progress, ProgressSink};
use crate::error::{CacheError, ImageError};
use crate::guest::agent;
use crate::guest::recursion;
use crate::host::layout::Layout;
use crate::host::wasi::BASE_ENVIRONMENT;
use crate::interpreter::engine::Engine;
use crate::memory::sys::FileView;
use crate::python::distribution::Build;
use crate::python::spec::ImageSpec;
use crate::python::{packages, prune};

/// The folder in the cache, and the lock on it.
const FOLDER: &str = "images";
const EXTENSION: &str = "image";
/// The most images with hidden modules in the cache: each set of programs may have its own.
const MOST_HIDING: usize = 6;
/// Changes whenever the same inputs build a different image. Causes are the layout of the guest's
/// files, its environment, or what a template does.
const SETTINGS: &str = "own-host 3";

impl Image {
    /// Whether the image is in the cache.
    pub fn is_cached(engine: &Engine, spec: &ImageSpec) -> bool {
        path_of(engine.cache(), &key(&engine.inner.build, spec)).exists()
    }

    /// Finds the image in the cache or builds it, which takes as long as starting Python and
    /// importing the modules. Concurrent calls, in this process and others, wait for each other.
    ///
    /// # Errors
    /// The packages conflict, a module can't be imported, the setup fails, or the system refuses
    /// memory. If only the cache can't be written to, the image is built all the same.
    #[tracing::instrument(level = "info", name = "load_image", skip_all)]
    pub fn load_or_build(
        engine: &Engine,
        spec: &ImageSpec,
        progress: &Arc<dyn ProgressSink>,
    ) -> Result<Self, ImageError> {
        spec.check()?;
        let key = key(&engine.inner.build, spec);
        let sealer = Sealer::new(engine.cache())?;
        let layout = engine.layout(&spec.packages);
        if let Some(added) = &spec.added {
            if let Some(image) = load(engine, &layout, &sealer, added, &key) {
                return Ok(image);
            }
            tracing::warn!(added, "the added image is missing, damaged or made of something else");
        }
        if let Some(image) = load(engine, &layout, &sealer, &key, &key) {
            return Ok(image);
        }
        // A read-only cache has no locks, and nobody writes to it.
        let lock = engine.cache().lock(FOLDER);
        if lock.is_ok() {
            // Another process may have built it while this one waited.
            if let Some(image) = load(engine, &layout, &sealer, &key, &key) {
                return Ok(image);
            }
            remove_unfinished(&engine.cache().root().join(FOLDER));
        }
        let visible = ImageSpec { hidden: Vec::new(), ..spec.clone() };
        let visible_key = self::key(&engine.inner.build, &visible);
        let captured = template::capture(engine, &layout, spec, &visible_key, progress.as_ref())?;
        progress.report(Progress::BuildingImage("writing the image"));
        let build = engine.inner.build.name();
        let warnings = warnings(engine, spec)?;
        let header = ImageHeader::new(&key, visible_key, spec, build, warnings, &captured);
        let write = |file: &mut File| {
            captured
                .memory
                .with_all(|memory| format::write(file, &header, memory))
                .ok_or_else(|| std::io::Error::other("the template's memory is gone"))?
        };
        let (_lock, written) = match lock {
            Ok(lock) => {
                let folder = engine.cache().folder(FOLDER);
                let path = path_of(engine.cache(), &key);
                (Some(lock), folder.and_then(|_| sealer.write(&path, &key, write)))
            }
            Err(error) => (None, Err(error)),
        };
        match written {
            Ok(()) => {
                let made = load(engine, &layout, &sealer, &key, &key);
                // The new one is in use by now.
                if !spec.hidden.is_empty() {
                    let images = list(engine.cache()).unwrap_or_default().into_iter();
                    let hiding = images.filter(|image| !image.hidden.is_empty());
                    let (paths, bytes) = (
                        hiding.filter_map(|image| image.path).collect(),
                        engine.inner.config.cache_bound_bytes,
                    );
                    prune::bound_images(engine.cache(), paths, MOST_HIDING, bytes);
                }
                made.ok_or_else(|| {
                    ImageError::Store(std::io::Error::other("it is missing after it was written"))
                })
            }
            Err(error) => {
                // An unnamed file serves as well; only the next start has to build the image again.
                tracing::warn!(error = %chain(&error), "the image can't be cached");
                let (info, contents) = without_name(&layout, write).map_err(ImageError::Store)?;
                Ok(Image::new(engine, layout, info, contents))
            }
        }
    }
}

/// Returns the image that `write` wrote, from a file without a name.
fn without_name(
    layout: &Layout,
    write: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> std::io::Result<(ImageInfo, ImageContents)> {
    let mut file = tempfile::tempfile()?;
    write(&mut file)?;
    let unread = || std::io::Error::other("what was written can't be read back as an image");
    format::read(FileView::new(file)?, layout).ok_or_else(unread)
}

/// Loads the image that is stored as `name`, if it was made of what gives `key`.
fn load(engine: &Engine, layout: &Layout, sealer: &Sealer, name: &str, key: &str) -> Option<Image> {
    let path = path_of(engine.cache(), name);
    let view = sealer.view(&path, name)?;
    let (info, contents) = format::read(view, layout)?;
    (info.key == key).then(|| Image::new(engine, layout.clone(), in_file(info, &path), contents))
}

/// Returns the problems of the packages and logs them, once, when the image is built.
fn warnings(engine: &Engine, spec: &ImageSpec) -> Result<Vec<String>, ImageError> {
    if spec.packages.is_empty() {
        return Ok(Vec::new());
    }
    let warnings = engine.with_inventory(|own| packages::warnings(&spec.packages, own))?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    Ok(warnings)
}

/// Returns every intact image in the cache that was built or added by this user, newest first.
/// Their keys are those under which they are stored.
///
/// # Errors
/// The cache can't be used.
pub fn list(cache: &CacheDir) -> Result<Vec<ImageInfo>, CacheError> {
    let sealer = Sealer::new(cache)?;
    let mut images = Vec::new();
    for key in keys(cache)? {
        let path = path_of(cache, &key);
        let info = sealer.look_at(&path, &key).and_then(|view| format::read_info(view.bytes()));
        images.extend(info.map(|info| in_file(ImageInfo { key, ..info }, &path)));
    }
    images.sort_by(|a, b| (b.created, &b.key).cmp(&(a.created, &a.key)));
    Ok(images)
}

/// Returns the one image whose key begins with `prefix`.
///
/// # Errors
/// No key or several keys begin with it, or the cache can't be used.
pub fn find(cache: &CacheDir, prefix: &str) -> Result<ImageInfo, ImageError> {
    one_of(list(cache)?, prefix, |image| &image.key)
}

/// Returns the one item whose key begins with `prefix`.
fn one_of<T>(mut items: Vec<T>, prefix: &str, key: fn(&T) -> &str) -> Result<T, ImageError> {
    items.retain(|item| key(item).starts_with(prefix));
    match (items.len(), items.pop()) {
        (1, Some(item)) => Ok(item),
        (found, _) => Err(ImageError::NoSuchImage { prefix: prefix.to_owned(), found }),
    }
}

/// Puts the bytes of an image's file into the cache. Its key is the hash of these bytes, which the
/// returned description has. Only a spec that names it begins from it ([`ImageSpec::added`]).
///
/// # Errors
/// The bytes are no image of this version, or the cache can't be written to.
pub fn add(cache: &CacheDir, bytes: &[u8]) -> Result<ImageInfo, ImageError> {
    let info = format::read_info(bytes).ok_or(ImageError::NoImage)?;
    let key = text(blake3::hash(bytes));
    let path = path_of(cache, &key);
    let sealer = Sealer::new(cache)?;
    let _lock = cache.lock(FOLDER)?;
    if sealer.look_at(&path, &key).is_none() {
        cache.folder(FOLDER)?;
        sealer.write(&path, &key, |file| format::write_at(file, 0, bytes))?;
    }
    Ok(in_file(ImageInfo { key, ..info }, &path))
}

/// Removes the image whose key begins with `prefix`, even if it is damaged or of another version.
/// Processes that use it continue to use it.
///
/// # Errors
/// No key or several keys begin with it, or the file can't be removed.
pub fn remove(cache: &CacheDir, prefix: &str) -> Result<(), ImageError> {
    let key = one_of(keys(cache)?, prefix, |key| key)?;
    let _lock = cache.lock(FOLDER)?;
    Ok(Sealer::remove(&path_of(cache, &key))?)
}

/// Returns the key of every image in the cache in order, including images that are damaged or of
/// another version.
///
/// # Errors
/// The cache can't be used.
pub fn keys(cache: &CacheDir) -> Result<Vec<String>, CacheError> {
    let key = |path: PathBuf| {
        let is_image = path.extension() == Some(OsStr::new(EXTENSION));
        path.file_stem().and_then(OsStr::to_str).filter(|_| is_image).map(str::to_owned)
    };
    let mut keys: Vec<_> = cache.paths(FOLDER)?.into_iter().filter_map(key).collect();
    keys.sort_unstable();
    Ok(keys)
}

fn path_of(cache: &CacheDir, key: &str) -> PathBuf {
    cache.root().join(FOLDER).join(key).with_extension(EXTENSION)
}

fn in_file(info: ImageInfo, path: &Path) -> ImageInfo {
    use std::os::unix::fs::MetadataExt;
    // Blocks have 512 bytes, whatever the file system uses.
    let file_bytes = fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
    ImageInfo { path: Some(PathBuf::from(path)), file_bytes, ..info }
}

/// Returns the key of an image: the hash of everything that it is built from.
fn key(build: &Build, spec: &ImageSpec) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(&format::MAGIC);
    part(SETTINGS.as_bytes());
    part(&recursion::C_STACK_BYTES.to_le_bytes());
    part(build.wasm_sha256().as_bytes());
    part(build.library_sha256().as_bytes());
    for text in agent::identity() {
        part(text.as_bytes());
    }
    let prepared = (&spec.preload, &spec.hidden, &spec.setup);
    part(&postcard::to_stdvec(&prepared).expect("names and text can be encoded"));
    part(&packages::identity(&spec.packages));
    part(format!("{BASE_ENVIRONMENT:?}").as_bytes());
    text(hasher.finalize())
}

fn text(hash: blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::library::Library;
    use std::io::Write;

    #[test]
    fn an_image_that_cannot_be_read_back_is_reported_as_such() {
        let layout = Layout::new(&Library::default());
        let cut = without_name(&layout, |file| file.write_all(&format::MAGIC));
        let error = chain(&ImageError::Store(cut.err().unwrap())).to_string();
        assert!(error.contains("can't be read back"), "{error}");
        let full = |_: &mut File| Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        let error = without_name(&layout, full).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
}
