//! Where images live: files in the cache, under a key of everything that went into them.
//!
//! An image is found by its key alone, so nothing is ever asked whether it is up to date. What is
//! damaged, foreign or of another version is made again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{self, Header, ImageContents};
use super::{Image, ImageInfo, template};
use crate::build::packages;
use crate::build::python::PythonBuild;
use crate::build::spec::ImageSpec;
use crate::cache::seal::Sealer;
use crate::cache::{CacheDir, remove_unfinished};
use crate::config::{Progress, ProgressSink};
use crate::error::{CacheError, EngineError, ImageError};
use crate::guest::agent;
use crate::guest::recursion;
use crate::host::layout::Layout;
use crate::host::wasi::BASE_ENVIRONMENT;
use crate::interpreter::engine::Engine;
use crate::memory::sys::FileView;

/// The folder in the cache, and the lock on it.
const FOLDER: &str = "images";
const EXTENSION: &str = "image";
/// Changes whenever something goes into images otherwise than before: the layout of the guest's
/// files, its environment, what a template does.
const SETTINGS: &str = "own-host 3";

impl Image {
    /// Finds the image in the cache, or makes it: that takes what starting Python and importing
    /// the modules takes. Concurrent calls, in this process and others, wait for one another.
    ///
    /// # Errors
    /// The packages don't go together, a module can't be imported, the setup fails, or the system
    /// refuses memory. If only the cache can't be written to, the image is made all the same.
    #[tracing::instrument(level = "info", name = "load_image", skip_all)]
    pub fn load_or_build(
        engine: &Engine,
        spec: &ImageSpec,
        progress: &Arc<dyn ProgressSink>,
    ) -> Result<Self, ImageError> {
        spec.check()?;
        load_or_build(engine, spec, progress.as_ref())
    }
}

fn load_or_build(
    engine: &Engine,
    spec: &ImageSpec,
    progress: &dyn ProgressSink,
) -> Result<Image, ImageError> {
    let key = key(engine.build(), spec);
    let path = path_of(engine.cache(), &key);
    let sealer = Sealer::new(engine.cache())?;
    let layout = engine.layout(&spec.packages);
    if let Some(image) = load(engine, &layout, &sealer, &path, &key) {
        return Ok(image);
    }
    // A cache that can only be read has no locks, and nobody writes to it.
    let lock = engine.cache().lock(FOLDER);
    if lock.is_ok() {
        // Another process may have made it while this one waited.
        if let Some(image) = load(engine, &layout, &sealer, &path, &key) {
            return Ok(image);
        }
        remove_unfinished(&engine.cache().root().join(FOLDER));
    }
    let captured = template::capture(engine, &layout, spec, &key, progress)?;
    progress.report(Progress::BuildingImage { what: "writing the image" });
    let build = engine.build().name();
    let warnings = warnings(engine, spec)?;
    let header = Header::new(&key, spec, build, &warnings, &captured);
    let write = |file: &mut File| {
        captured
            .memory
            .with_all(|memory| format::write(file, &header, memory))
            .ok_or_else(|| std::io::Error::other("the template's memory is gone"))?
    };
    let (_lock, written) = match lock {
        Ok(lock) => {
            let folder = engine.cache().folder(FOLDER);
            (Some(lock), folder.and_then(|_| sealer.write_with(&path, &key, write)))
        }
        Err(error) => (None, Err(error)),
    };
    match written {
        Ok(()) => {
            let made = load(engine, &layout, &sealer, &path, &key);
            made.ok_or_else(|| {
                ImageError::Store(std::io::Error::other("it was written and isn't there"))
            })
        }
        Err(error) => {
            // It is as good from a file without a name; only the next start makes it again.
            tracing::warn!(%error, "the image can't be cached");
            let (info, contents) = without_name(&layout, write).map_err(ImageError::Store)?;
            Ok(Image::new(engine, layout, info, contents))
        }
    }
}

/// The image that `write` wrote into a file without a name.
fn without_name(
    layout: &Layout,
    write: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> std::io::Result<(ImageInfo, ImageContents)> {
    let mut file = tempfile::tempfile()?;
    write(&mut file)?;
    let unread = || std::io::Error::other("what was written can't be read back as an image");
    format::read(FileView::new(file)?, layout).ok_or_else(unread)
}

fn load(
    engine: &Engine,
    layout: &Layout,
    sealer: &Sealer,
    path: &Path,
    key: &str,
) -> Option<Image> {
    let view = sealer.view(path, key)?;
    let (info, contents) = format::read(view, layout)?;
    (info.key == key).then(|| Image::new(engine, layout.clone(), in_file(info, path), contents))
}

/// What is strange about the packages; said once, when the image is made.
fn warnings(engine: &Engine, spec: &ImageSpec) -> Result<Vec<String>, ImageError> {
    if spec.packages.is_empty() {
        return Ok(Vec::new());
    }
    let inventory = engine.inventory().map_err(EngineError::from)?;
    let warnings = packages::warnings(&spec.packages, &inventory);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    Ok(warnings)
}

/// Every image in the cache that is whole and was made by this user, newest first.
///
/// # Errors
/// The cache can't be used.
pub fn list(cache: &CacheDir) -> Result<Vec<ImageInfo>, CacheError> {
    let sealer = Sealer::new(cache)?;
    let mut images = Vec::new();
    for key in keys(cache)? {
        let path = path_of(cache, &key);
        let info = sealer.look_at(&path, &key).and_then(|view| format::read_info(view.bytes()));
        images.extend(info.map(|info| in_file(info, &path)));
    }
    images.sort_by(|a, b| (b.created, &b.key).cmp(&(a.created, &a.key)));
    Ok(images)
}

/// The one image whose key begins with `prefix`.
///
/// # Errors
/// None has, or several have, or the cache can't be used.
pub fn find(cache: &CacheDir, prefix: &str) -> Result<ImageInfo, ImageError> {
    let mut found: Vec<_> =
        list(cache)?.into_iter().filter(|image| image.key.starts_with(prefix)).collect();
    match (found.pop(), found.len()) {
        (Some(image), 0) => Ok(image),
        (last, others) => {
            let found = others + usize::from(last.is_some());
            Err(ImageError::NoSuchImage { prefix: prefix.to_owned(), found })
        }
    }
}

/// Removes the image whose key begins with `prefix`, also one that is damaged or of another
/// version. Processes that use it go on using it.
///
/// # Errors
/// None has, or several have, or the file can't be removed.
pub fn remove(cache: &CacheDir, prefix: &str) -> Result<(), ImageError> {
    let mut keys = keys(cache)?;
    keys.retain(|key| key.starts_with(prefix));
    let [key] = keys.as_slice() else {
        return Err(ImageError::NoSuchImage { prefix: prefix.to_owned(), found: keys.len() });
    };
    let _lock = cache.lock(FOLDER)?;
    Ok(Sealer::remove(&path_of(cache, key))?)
}

/// The key of every image in the cache, in order, also of those that are damaged or of another
/// version.
///
/// # Errors
/// The cache can't be used.
pub fn keys(cache: &CacheDir) -> Result<Vec<String>, CacheError> {
    let folder = cache.root().join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| CacheError::io("read", &folder, source))?,
    };
    let key = |path: PathBuf| {
        let is_image = path.extension() == Some(OsStr::new(EXTENSION));
        path.file_stem().and_then(OsStr::to_str).filter(|_| is_image).map(str::to_owned)
    };
    let mut keys: Vec<_> = entries.flatten().filter_map(|entry| key(entry.path())).collect();
    keys.sort_unstable();
    Ok(keys)
}

fn path_of(cache: &CacheDir, key: &str) -> PathBuf {
    cache.root().join(FOLDER).join(key).with_extension(EXTENSION)
}

fn in_file(info: ImageInfo, path: &Path) -> ImageInfo {
    use std::os::unix::fs::MetadataExt;
    // Blocks are of 512 bytes, whatever the file system's are.
    let file_bytes = fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
    ImageInfo { path: Some(PathBuf::from(path)), file_bytes, ..info }
}

/// The key of an image: everything that goes into it, hashed.
fn key(build: &PythonBuild, spec: &ImageSpec) -> String {
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
    part(agent::identity().as_bytes());
    let prepared = (&spec.preload, &spec.setup);
    part(&postcard::to_stdvec(&prepared).expect("names and text have a form"));
    part(&packages::identity(&spec.packages));
    part(format!("{BASE_ENVIRONMENT:?}").as_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::library::Library;
    use std::io::Write;

    #[test]
    fn an_image_that_can_not_be_read_back_is_told_as_that() {
        let library = Library { archive: std::sync::Arc::default(), matplotlib_data: Vec::new() };
        let layout = Layout::new(&library);
        let cut = without_name(&layout, |file| file.write_all(&format::MAGIC));
        let error = ImageError::Store(cut.err().unwrap()).to_string();
        assert!(error.contains("can't be read back"), "{error}");
        let full = |_: &mut File| Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        let error = without_name(&layout, full).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
}
