//! The Python build that every image begins from, and packages.

use std::path::Path;
use std::sync::Arc;

#[doc(inline)]
pub use engine::{BuildInfo, PackageInfo, PackageOrigin, WASMER_VERSION, WHEEL_REQUIREMENT};
use engine::{CacheDir, Engine, PythonBuild};

use crate::config::EngineConfig;
use crate::failure::Error;
use crate::progress::ProgressSink;

/// Returns the packages of the Python build that `config` names, which every image of it has, with
/// their versions. Installs the default build if the cache doesn't have it, which fetches 98 MB;
/// another build is started and asked. Blocks the thread.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use hatchery::config::EngineConfig;
/// use hatchery::progress::{ProgressSink, Silent};
///
/// let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
/// for package in hatchery::python::packages(&EngineConfig::from_env(), &progress)? {
///     println!("{} {}", package.name, package.version.unwrap_or_default());
/// }
/// # Ok::<(), hatchery::Error>(())
/// ```
///
/// # Errors
/// The cache can't be used, or the build can't be installed, compiled or started.
pub fn packages(
    config: &EngineConfig,
    progress: &Arc<dyn ProgressSink>,
) -> Result<Vec<PackageInfo>, Error> {
    if config.python.is_some() {
        return Ok(Engine::load(config, progress)?.packages()?);
    }
    let cache = CacheDir::open(config.cache_dir.as_deref())?;
    let build = PythonBuild::install(&cache, config.wheel.as_deref(), progress.as_ref())?;
    Ok(build.packages()?)
}

/// Loads and starts the Python build that `config` names, and returns its description and features.
/// Compiles it first, if the cache doesn't have it compiled. Blocks the thread.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use hatchery::config::EngineConfig;
/// use hatchery::progress::{ProgressSink, Silent};
///
/// let config = EngineConfig { python: Some("python.wasm".into()), ..EngineConfig::from_env() };
/// let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
/// let build = hatchery::python::describe(&config, &progress)?;
/// println!("{} is a {}", build.version, build.kind);
/// # Ok::<(), hatchery::Error>(())
/// ```
///
/// # Errors
/// The cache can't be used, or the build can't be read, compiled or started.
pub fn describe(
    config: &EngineConfig,
    progress: &Arc<dyn ProgressSink>,
) -> Result<BuildInfo, Error> {
    Ok(Engine::load(config, progress)?.describe_build()?)
}

/// A compiled Python build in a file, for other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedModule {
    /// The SHA-256 of the file in hexadecimal, which its users pin.
    pub sha256: String,
    /// The CPUs that it runs on: `x86-64-v3`, or the features of this one if it lacks some of
    /// those.
    pub target: String,
}

/// Writes the compiled Python build to a file of 35 MB. Machines with such a CPU and this version
/// of Hatchery start from it in seconds
/// ([`Builder::python_module`](crate::Builder::python_module)). Compiles the build, if the cache
/// doesn't have it, for 80 s on 2 cores; packing takes 15 s. Blocks the thread.
///
/// # Errors
/// The cache can't be used, the build can't be installed or compiled, or the file can't be written.
pub fn precompile(
    config: &EngineConfig,
    path: &Path,
    progress: &Arc<dyn ProgressSink>,
) -> Result<PackedModule, Error> {
    let sha256 = Engine::load(config, progress)?.pack_module(path)?;
    Ok(PackedModule { sha256, target: Engine::module_target() })
}

/// Returns the CPUs that builds are compiled for on this machine: `x86-64-v3`, or the features of
/// its CPU if that lacks some of those.
pub fn module_target() -> String {
    Engine::module_target()
}
