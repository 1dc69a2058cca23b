//! The Python build that every image begins from, and packages.

use engine::{CacheDir, PythonBuild};
#[doc(inline)]
pub use engine::{PackageInfo, PackageOrigin, WHEEL_REQUIREMENT};

use crate::config::EngineConfig;
use crate::failure::Error;
use crate::progress::ProgressSink;

/// Returns the packages of the Python build, which every image has, with their versions. Installs
/// the build if the cache doesn't have it, which fetches 98 MB. Blocks the thread.
///
/// ```no_run
/// use hatchery::config::EngineConfig;
/// use hatchery::progress::Silent;
///
/// for package in hatchery::python::packages(&EngineConfig::from_env(), &Silent)? {
///     println!("{} {}", package.name, package.version.unwrap_or_default());
/// }
/// # Ok::<(), hatchery::Error>(())
/// ```
///
/// # Errors
/// The cache can't be used, or the build can't be installed.
pub fn packages(
    config: &EngineConfig,
    progress: &dyn ProgressSink,
) -> Result<Vec<PackageInfo>, Error> {
    let cache = CacheDir::open(config.cache_dir.as_deref())?;
    let build = PythonBuild::install(&cache, config.wheel.as_deref(), progress)?;
    Ok(build.packages()?)
}
