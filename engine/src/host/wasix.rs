//! wasmer-wasix as the host, fenced in.
//!
//! It gets no network, host streams, host files, threads or processes. Each of its functions passes
//! the gate, so a hard stop never meets host code that reads guest memory. `wasix/quota.rs` bounds
//! its files. Known limits of this host: it doesn't count open folders. Some malformed calls make
//! it panic, which loses the interpreter.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use wasmer::{Extern, Function, FunctionEnv, Imports, Instance, Memory, Module, Store, Value};
use wasmer_wasix::capabilities::Capabilities;
use wasmer_wasix::os::task::thread::WasiThreadError;
use wasmer_wasix::runtime::task_manager::TaskWasm;
use wasmer_wasix::virtual_fs::{
    ArcBoxFile, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufferFile, CombineFile, DualWriteFile,
    FileSystem, FsError, NullFile, StaticFile, VirtualFile,
};
use wasmer_wasix::{PluggableRuntime, VirtualTaskManager, WasiEnv, WasiFunctionEnv};

use super::GuestHost;
use super::call_channel::binding as call_channel;
use super::env::{Caller, GuestEnv, RunEffects, RunSetup, unwind};
use super::wasi::{BASE_ENVIRONMENT, binding};
use crate::cause::Cause;
use crate::error::StartError;
use crate::files::changes::{ChangeKind, ChangedFile};
use crate::host::wasi::HostState;
use crate::places::{MATPLOTLIB_DATA_PATH, WORKSPACE};
use crate::python::library::{Library, LibraryFile};
use crate::python::module::imports::{HOST, HOST_CALL, WASI, is_allowed};
use crate::python::module::native::NativeEngine;
use crate::run::outcome::{SandboxFailure, Verdict};
use crate::run::program::InputFile;
use crate::run::transcript::{Stream, Transcript};
use quota::QuotaFs;

mod quota;

/// The folder of matplotlib's data; the guest sees it at `MATPLOTLIB_DATA_PATH`.
const MATPLOTLIB_DATA_FOLDER: &str = "/usr/local/share/mpl-data";
const HOME: &str = "/home";
/// Functions that Hatchery serves here too. wasmer-wasix's `poll_oneoff` sleeps forever on a
/// timeout of zero. It compares real-time deadlines with the monotonic clock.
const OURS: [&str; 4] = ["poll_oneoff", "clock_time_get", "clock_res_get", "proc_exit"];

/// wasmer-wasix, serving one guest.
pub(crate) struct WasixHost {
    files: QuotaFs,
    stdin: ArcBoxFile,
    transcript: CurrentTranscript,
    engine: NativeEngine,
    library: Arc<Library>,
    function_env: Option<WasiFunctionEnv>,
    /// The hash of each workspace file when it was last read.
    known: HashMap<PathBuf, blake3::Hash>,
}

impl WasixHost {
    pub(crate) fn new(engine: NativeEngine, library: Arc<Library>) -> Self {
        Self {
            files: QuotaFs::default(),
            stdin: ArcBoxFile::new(Box::<BufferFile>::default()),
            transcript: Arc::default(),
            engine,
            library,
            function_env: None,
            known: HashMap::new(),
        }
    }

    fn lay_out_files(&self) -> Result<(), FsError> {
        for folder in ["/tmp", HOME, WORKSPACE] {
            self.make_folder(Path::new(folder))?;
        }
        self.make_folder(Path::new(MATPLOTLIB_DATA_FOLDER))?;
        for file in &self.library.files {
            self.lay_out_file(Path::new(&file.path), file)?;
        }
        for file in &self.library.matplotlib_data {
            self.lay_out_file(&Path::new(MATPLOTLIB_DATA_FOLDER).join(&file.path), file)?;
        }
        Ok(())
    }

    fn lay_out_file(&self, path: &Path, file: &LibraryFile) -> Result<(), FsError> {
        self.make_folder(path.parent().expect("the file is in a folder"))?;
        self.files.unbounded().insert_ro_file(path, file.contents.clone().into())
    }

    fn make_folder(&self, path: &Path) -> Result<(), FsError> {
        let mut folder = PathBuf::from("/");
        for part in path.components().skip(1) {
            folder.push(part);
            match self.files.unbounded().create_dir(&folder) {
                Ok(()) | Err(FsError::AlreadyExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wasi_env(&self) -> Result<WasiEnv, Box<dyn std::error::Error + Send + Sync>> {
        let mut runtime = PluggableRuntime::new(Arc::new(NoTasks));
        runtime.set_engine(wasmer::Engine::clone(&self.engine));
        runtime.http_client = None;
        let mut capabilities = Capabilities::default();
        // The guest's own thread counts.
        capabilities.threading.max_threads = Some(1);
        let builder = WasiEnv::builder("python")
            .disable_default_builtins(true)
            .runtime(Arc::new(runtime))
            .capabilities(capabilities)
            .envs(BASE_ENVIRONMENT)
            // What a guest writes to its standard input is refused.
            .stdin(Box::new(CombineFile::new(
                Box::new(StaticFile::new(bytes::Bytes::new())),
                Box::new(self.stdin.clone()),
            )))
            .stdout(output(Stream::Stdout, &self.transcript))
            .stderr(output(Stream::Stderr, &self.transcript))
            .fs(Arc::new(self.files.clone()) as Arc<dyn FileSystem + Send + Sync>)
            .preopen_build(|folder| {
                folder.directory(MATPLOTLIB_DATA_FOLDER).alias(MATPLOTLIB_DATA_PATH).read(true)
            })?
            .preopen_dir("/")?;
        Ok(builder.build()?)
    }
}

impl GuestHost for WasixHost {
    fn imports(
        &mut self,
        store: &mut Store,
        module: &Module,
        env: &FunctionEnv<GuestEnv>,
        _memory: Option<Memory>,
    ) -> Result<Imports, StartError> {
        self.lay_out_files().map_err(|error| StartError::Host(Cause::new(error)))?;
        let wasi_env = self.wasi_env().map_err(|error| StartError::Host(Cause::new(error)))?;
        let function_env = WasiFunctionEnv::new(store, wasi_env);
        let theirs = function_env
            .import_object(store, module)
            .map_err(|error| StartError::Host(Cause::new(error)))?;
        let mut imports = Imports::new();
        for import in module.imports() {
            let (namespace, name) = (import.module(), import.name());
            let refused =
                || StartError::Host(format!("nothing serves `{namespace}.{name}`").into());
            // Of WASIX itself, wasmer-wasix serves more than this host fences in.
            if !matches!(namespace, WASI | HOST) || !is_allowed(namespace, name) {
                return Err(refused());
            }
            let function = match (namespace, name) {
                (HOST, HOST_CALL) => call_channel::function(store, env),
                (WASI, name) if OURS.contains(&name) => {
                    binding::function(store, env, name).ok_or_else(refused)?
                }
                _ => match theirs.get_export(namespace, name) {
                    Some(Extern::Function(function)) => gated(store, env, function),
                    _ => return Err(refused()),
                },
            };
            imports.define(namespace, name, function);
        }
        self.function_env = Some(function_env);
        Ok(imports)
    }

    fn attach(&mut self, store: &mut Store, instance: &Instance) -> Result<(), StartError> {
        let function_env = self.function_env.as_mut().expect("imports are made before an instance");
        function_env
            .initialize(store, instance.clone())
            .map_err(|error| StartError::Host(Cause::new(error)))
    }

    fn begin_run(&mut self, setup: RunSetup<'_>) -> Result<(), Box<Verdict>> {
        let RunSetup { program, transcript, .. } = setup;
        let missing = [
            (!program.mounts.is_empty(), "mounted folders"),
            (program.beside.is_some(), "folders beside a program"),
            (program.workdir.is_some(), "working directories"),
            (program.is_read_only, "read-only jobs"),
            (program.deterministic.is_some(), "deterministic runs"),
        ];
        if let Some((_, what)) = missing.into_iter().find(|(is_wanted, _)| *is_wanted) {
            let cause = format!("the wasmer-wasix host doesn't support {what}").into();
            let path = WORKSPACE.to_owned();
            let failure = SandboxFailure::Workspace { path, cause };
            return Err(Box::new(Verdict::SandboxFailed(failure)));
        }
        *self.transcript.lock() = Some(transcript);
        self.put_stdin(&program.stdin).map_err(|error| {
            let path = "/dev/stdin".to_owned();
            let failure = SandboxFailure::Workspace { path, cause: Cause::new(error) };
            Box::new(Verdict::SandboxFailed(failure))
        })?;
        let mut files = program.files.iter();
        files
            .try_for_each(|file| self.put_file(file))
            .map_err(|failure| Box::new(Verdict::SandboxFailed(failure)))
    }

    fn end_run(&mut self, commits: bool) -> RunEffects {
        let files = self.changed_files();
        let files = if commits { files } else { Vec::new() };
        RunEffects { files, ..RunEffects::default() }
    }

    /// Returns `None`: wasmer-wasix doesn't let its files be saved.
    fn state(&self) -> Option<HostState> {
        None
    }

    fn set_state(&mut self, _state: HostState) {
        unreachable!("`state` returns none");
    }
}

impl WasixHost {
    fn put_stdin(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdin.set_len(0).map_err(io::Error::other)?;
        at_once(self.stdin.rewind())??;
        at_once(self.stdin.write_all(bytes))??;
        at_once(self.stdin.rewind())?.map(drop)
    }

    fn put_file(&mut self, file: &InputFile) -> Result<(), SandboxFailure> {
        let path = Path::new(WORKSPACE).join(&file.path);
        let put = || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            self.make_folder(path.parent().expect("the file is in the workspace"))?;
            let mut options = self.files.unbounded().new_open_options();
            let mut opened = options.create(true).write(true).truncate(true).open(&path)?;
            at_once(opened.write_all(&file.contents))??;
            Ok(())
        };
        put().map_err(|error| SandboxFailure::Workspace {
            path: file.path.clone(),
            cause: Cause::new(error),
        })?;
        self.known.insert(path, blake3::hash(&file.contents));
        Ok(())
    }

    fn changed_files(&mut self) -> Vec<ChangedFile> {
        let mut changed = Vec::new();
        let mut folders = vec![PathBuf::from(WORKSPACE)];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = self.files.read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                // The type of the entry itself, so links are not followed.
                let Ok(metadata) = entry.metadata.clone() else { continue };
                if metadata.ft.dir {
                    folders.push(entry.path.clone());
                } else if metadata.ft.file {
                    changed.extend(self.read_if_changed(&entry.path));
                }
            }
        }
        changed.sort_by(|a, b| a.path.cmp(&b.path));
        changed
    }

    fn read_if_changed(&mut self, path: &Path) -> Option<ChangedFile> {
        let mut file = self.files.unbounded().new_open_options().read(true).open(path).ok()?;
        let mut contents = Vec::new();
        at_once(file.read_to_end(&mut contents)).ok()?.ok()?;
        let hash = blake3::hash(&contents);
        let before = self.known.insert(path.to_owned(), hash);
        let kind = match before {
            Some(before) if before == hash => return None,
            Some(_) => ChangeKind::Modified,
            None => ChangeKind::Created,
        };
        let relative = path.strip_prefix(WORKSPACE).ok()?.to_string_lossy().into_owned();
        Some(ChangedFile { path: relative, kind, contents })
    }
}

/// Wraps a function of wasmer-wasix so that it runs on the host's side of the gate.
fn gated(store: &mut Store, env: &FunctionEnv<GuestEnv>, inner: Function) -> Function {
    let ty = inner.ty(store);
    let gate = Arc::clone(&env.as_ref(store).gate);
    Function::new_with_env(store, env, ty, move |mut caller: Caller<'_>, arguments: &[Value]| {
        let called = gate.host(|| inner.call(&mut caller, arguments));
        called.map_err(unwind)?.map(|values| values.to_vec())
    })
}

/// Finishes a future that never waits, such as those of in-memory files.
fn at_once<F: Future>(future: F) -> io::Result<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(io::Error::other("an in-memory file was not ready")),
    }
}

/// Refuses every task: a guest has no threads or processes, and the engine does its sleeping.
#[derive(Debug)]
struct NoTasks;

impl VirtualTaskManager for NoTasks {
    fn sleep_now(
        &self,
        _time: Duration,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + Sync + 'static>> {
        Box::pin(std::future::ready(()))
    }

    fn task_shared(
        &self,
        _task: Box<
            dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> + Send + 'static,
        >,
    ) -> Result<(), WasiThreadError> {
        Err(WasiThreadError::Unsupported)
    }

    fn task_wasm(&self, _task: TaskWasm) -> Result<(), WasiThreadError> {
        Err(WasiThreadError::Unsupported)
    }

    fn task_dedicated(
        &self,
        _task: Box<dyn FnOnce() + Send + 'static>,
    ) -> Result<(), WasiThreadError> {
        Err(WasiThreadError::Unsupported)
    }

    fn thread_parallelism(&self) -> Result<usize, WasiThreadError> {
        Ok(1)
    }
}

/// Where the output of the current run leads.
type CurrentTranscript = Arc<Mutex<Option<Arc<Transcript>>>>;

/// Returns standard output or error, which writes to the transcript.
fn output(stream: Stream, transcript: &CurrentTranscript) -> Box<DualWriteFile> {
    let transcript = Arc::clone(transcript);
    Box::new(DualWriteFile::new(Box::<NullFile>::default(), move |bytes| {
        if let Some(transcript) = &*transcript.lock() {
            transcript.append(stream, bytes);
        }
    }))
}
