//! The images in a cache: which there are, and removing them; and what every image has.

use std::path::Path;

use engine::{CacheDir, EngineConfig, ImageInfo, PackageInfo, ProgressSink, PythonBuild};

use crate::error::Error;

/// Every image in the cache that is whole and was made by this user, newest first. The cache is
/// the one that [`Builder::cache_dir`](crate::Builder::cache_dir) names, or the default one.
///
/// # Errors
/// The cache can't be used.
pub fn images(cache_dir: Option<&Path>) -> Result<Vec<ImageInfo>, Error> {
    Ok(engine::images(&CacheDir::open(cache_dir)?)?)
}

/// The keys of all images in the cache, also of those that are damaged or of another version.
///
/// # Errors
/// The cache can't be used.
pub fn image_keys(cache_dir: Option<&Path>) -> Result<Vec<String>, Error> {
    Ok(engine::image_keys(&CacheDir::open(cache_dir)?)?)
}

/// The one image whose key begins with `prefix`.
///
/// # Errors
/// None has, or several have, or the cache can't be used.
pub fn find_image(cache_dir: Option<&Path>, prefix: &str) -> Result<ImageInfo, Error> {
    Ok(engine::find_image(&CacheDir::open(cache_dir)?, prefix)?)
}

/// Removes the image whose key begins with `prefix`, also a damaged one. Processes that use it go on using it.
///
/// # Errors
/// None has, or several have, or the file can't be removed.
pub fn remove_image(cache_dir: Option<&Path>, prefix: &str) -> Result<(), Error> {
    Ok(engine::remove_image(&CacheDir::open(cache_dir)?, prefix)?)
}

/// The packages of the Python build, which every image has, with their versions. Gets the build if
/// the cache doesn't have it, which fetches 98 MB; blocks the thread.
///
/// # Errors
/// The cache can't be used, or the build can't be had.
pub fn build_packages(
    config: &EngineConfig,
    progress: &dyn ProgressSink,
) -> Result<Vec<PackageInfo>, Error> {
    let cache = CacheDir::open(config.cache_dir.as_deref())?;
    let build = PythonBuild::install(&cache, config.wheel.as_deref(), progress)?;
    Ok(build.packages()?)
}
