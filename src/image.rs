//! Lists and removes the images in a cache, and lists the packages that every image has.

use std::path::Path;

use engine::{CacheDir, EngineConfig, ImageInfo, PackageInfo, ProgressSink, PythonBuild};

use crate::error::Error;

/// Returns every intact image in the cache that this user made, newest first. `cache_dir` is the
/// directory of [`Builder::cache_dir`](crate::Builder::cache_dir); `None` is the default one.
///
/// # Errors
/// The cache can't be used.
pub fn images(cache_dir: Option<&Path>) -> Result<Vec<ImageInfo>, Error> {
    Ok(engine::images(&CacheDir::open(cache_dir)?)?)
}

/// Returns the keys of all images in the cache, including those that are damaged or have another
/// version.
///
/// # Errors
/// The cache can't be used.
pub fn image_keys(cache_dir: Option<&Path>) -> Result<Vec<String>, Error> {
    Ok(engine::image_keys(&CacheDir::open(cache_dir)?)?)
}

/// Returns the only image whose key begins with `prefix`.
///
/// # Errors
/// No image or several images match, or the cache can't be used.
pub fn find_image(cache_dir: Option<&Path>, prefix: &str) -> Result<ImageInfo, Error> {
    Ok(engine::find_image(&CacheDir::open(cache_dir)?, prefix)?)
}

/// Removes the image whose key begins with `prefix`, even if it is damaged. Processes that have
/// loaded it are not affected.
///
/// # Errors
/// No image or several images match, or the file can't be removed.
pub fn remove_image(cache_dir: Option<&Path>, prefix: &str) -> Result<(), Error> {
    Ok(engine::remove_image(&CacheDir::open(cache_dir)?, prefix)?)
}

/// Returns the packages of the Python build, which every image has, with their versions. Installs
/// the build if the cache doesn't have it, which fetches 98 MB. Blocks the thread.
///
/// # Errors
/// The cache can't be used, or the build can't be installed.
pub fn build_packages(
    config: &EngineConfig,
    progress: &dyn ProgressSink,
) -> Result<Vec<PackageInfo>, Error> {
    let cache = CacheDir::open(config.cache_dir.as_deref())?;
    let build = PythonBuild::install(&cache, config.wheel.as_deref(), progress)?;
    Ok(build.packages()?)
}
