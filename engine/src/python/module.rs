//! The module: the build compiled for this machine, compiled once and cached.
//!
//! Owns the compiler's settings, the key of the cache and the list of imports that a module may
//! have. A module is stored as two files, from which its code is mapped (`linked.rs`). Loading
//! checks nothing, since they hold native code, so only files whose seals match (`seal.rs`) are
//! loaded. A module that another machine compiled comes as one file, whose hash the user pins
//! (`packed.rs`).

use std::fs::File;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use wasmer::sys::{CompilerConfig, Cranelift, EngineBuilder, Features, NativeEngineExt};
use wasmer::{Engine, Module};
use wasmer_types::CompilationProgressCallback;

use crate::cache::seal::Sealer;
use crate::cache::{CacheDir, remove_unfinished};
use crate::cause::{Cause, chain};
use crate::config::{PinnedModule, Progress, ProgressSink};
use crate::error::{CacheError, EngineError, ModuleError};
use crate::memory::GuestMemory;
use crate::memory::sys::FileView;
use crate::memory::tunables::GuestTunables;
use crate::python::distribution::WASM_SHA256;
use beginnings::Beginnings;
use deallocation::CountDeallocations;
use early::lazy::{FullModule, LazyFunctions};
use early::{Compilation, HotFunctions, LeaveOutLazy, first_functions};
use integers::WidenIntegers;
use kernels::CallKernels;
use linked::{HotModule, InitialData, Linked};
use locks::GrantLocks;
use native::{Loading, NativeEngine};
use packed::{Packed, Unpinned};
use safepoints::AddSafepoints;
use shape::ExportTable;
use threads::GiveThreads;
use throws::CountThrows;

mod beginnings;
mod blocks;
pub(crate) mod deallocation;
mod early;
pub(crate) mod imports;
mod integers;
pub(crate) mod kernels;
pub(crate) mod key;
mod linked;
mod locks;
pub(crate) mod native;
mod packed;
mod safepoints;
pub(crate) mod shape;
pub(crate) mod threads;
pub(crate) mod throws;
pub(crate) mod writes;

/// Returns a wasmer engine with our memory and Cranelift. It compiles WebAssembly exceptions, which
/// the build needs, and counts throws. Everything that it compiles can be stopped anywhere.
pub(crate) fn new_engine() -> NativeEngine {
    engine_for(&[], None)
}

/// Returns one that compiles all functions of `wasm`, or these first ones alone, and gives it
/// threads.
fn engine_for(wasm: &[u8], first: Option<&Arc<HotFunctions>>) -> NativeEngine {
    let mut features = Features::default();
    features.exceptions(true);
    let mut compiler = Cranelift::default();
    if let Some(first) = first {
        compiler.push_middleware(Arc::new(LeaveOutLazy { first: Arc::clone(first) }));
    }
    // Other builds of NumPy use the type in other ways. Without bytes, tests compile their own.
    let is_default = wasm.is_empty() || hex::encode(Sha256::digest(wasm)) == WASM_SHA256;
    if is_default {
        compiler.push_middleware(Arc::new(WidenIntegers::default()));
    }
    compiler.push_middleware(Arc::new(CountDeallocations::default()));
    compiler.push_middleware(Arc::new(AddSafepoints::default()));
    compiler.push_middleware(Arc::new(CountThrows::default()));
    compiler.push_middleware(Arc::new(Beginnings::new(GrantLocks)));
    if is_default {
        compiler.push_middleware(Arc::new(Beginnings::new(CallKernels)));
    }
    compiler.push_middleware(Arc::new(ExportTable));
    if !wasm.is_empty() {
        compiler.push_middleware(Arc::new(Beginnings::new(GiveThreads::to(wasm))));
    }
    linked::configure(&mut compiler);
    let builder = EngineBuilder::new(compiler).set_features(Some(features));
    let mut engine: Engine = builder.set_target(Some(key::target())).engine().into();
    engine.set_tunables(GuestTunables::new());
    NativeEngine::new(engine)
}

/// What to compile. The bytes are only read if the cache has no compiled module.
pub(crate) struct Source<'a> {
    /// Identifies the bytes; part of the key.
    pub(crate) hash: &'a str,
    /// Reads the bytes.
    pub(crate) read: &'a dyn Fn() -> Result<Bytes, EngineError>,
    /// Its compiled form, to be unpacked instead of compiling.
    pub(crate) pinned: Option<&'a PinnedModule>,
    /// Whether to begin with an early module, if the bytes are those of the default build.
    pub(crate) starts_early: bool,
}

#[derive(Debug)]
pub(crate) struct CompiledModule {
    module: Module,
    data: InitialData,
    /// The file that wasmer reads trap tables from; open, it marks the module as in use.
    _index: FileView,
    /// The compilation of the whole module, if this is an early one.
    compilation: Option<Compilation>,
}

impl CompiledModule {
    pub(crate) fn module(&self) -> &Module {
        &self.module
    }

    /// Returns whether the whole module is being compiled, or was after an early start.
    pub(crate) fn is_early(&self) -> bool {
        self.compilation.is_some()
    }

    /// Waits until the whole module is compiled and cached, and reports how far that is.
    pub(crate) fn finish(&self) -> Result<(), ModuleError> {
        let Some(compilation) = &self.compilation else { return Ok(()) };
        compilation.finish().map_err(ModuleError::Rest)
    }

    /// Fills the memory of a new instance, which wasmer has left empty; `None` if it is too small.
    pub(crate) fn initialize(&self, memory: &GuestMemory) -> Option<()> {
        self.data.put(memory)
    }
}

/// Loads the compiled form of `source` from the cache, or unpacks or compiles and caches it.
///
/// Concurrent calls, in this process and others, wait for each other. If the seal of a cached file
/// doesn't match, the module is compiled again.
pub(crate) fn load_or_compile(
    engine: &NativeEngine,
    cache: &CacheDir,
    source: &Source<'_>,
    progress: &Arc<dyn ProgressSink>,
) -> Result<CompiledModule, EngineError> {
    let folder = cache.folder("modules")?;
    let key = key::module_key(source.hash);
    let path = folder.join(file_name(source.hash));
    let sealer = Sealer::new(cache)?;

    progress.report(Progress::Loading);
    let find = || Ok::<_, EngineError>(load(engine, &sealer, &path, &key));
    let module = cache.find_or_make("modules", find, |lock| {
        remove_unfinished(&folder);
        if let Some(pinned) = source.pinned
            && unpack(pinned, &sealer, &path, &key, progress)?
        {
            let module = load(engine, &sealer, &path, &key);
            let useless = || io::Error::other("it can't be loaded");
            return module.ok_or_else(|| unreadable(pinned, useless()).into());
        }
        let wasm = (source.read)()?;
        if let Some(first) = first_functions(source.hash).filter(|_| source.starts_early) {
            match start_early(engine, &wasm, first, progress) {
                Ok((mut module, rest)) => {
                    let (engine, sealer) = (engine.clone(), Sealer::new(cache)?);
                    let (path, key) = (path.clone(), key.clone());
                    let compile = move |progress: &Arc<dyn ProgressSink>| {
                        // Other processes wait for it.
                        let _lock = lock;
                        compile_and_store(&engine, &wasm, &sealer, &path, &key, progress).map(
                            |whole| FullModule {
                                module: whole.module.clone(),
                                _kept: Box::new(whole),
                            },
                        )
                    };
                    module.compilation = Some(Compilation::begin(rest, compile, progress)?);
                    progress.report(Progress::StartedEarly);
                    return Ok(module);
                }
                Err(error) => tracing::warn!(error = %chain(&error), "no early start"),
            }
        }
        Ok(compile_and_store(engine, &wasm, &sealer, &path, &key, progress)?)
    })?;
    imports::check(module.module())?;
    Ok(module)
}

/// Compiles the first functions of a module, and loads them; the rest has yet to be set.
fn start_early(
    engine: &Engine,
    wasm: &[u8],
    first: &Arc<HotFunctions>,
    progress: &Arc<dyn ProgressSink>,
) -> Result<(CompiledModule, &'static LazyFunctions), ModuleError> {
    let compiled = compile_with(&engine_for(wasm, Some(first)), wasm, progress)?;
    let early = linked::split_early(&compiled, first);
    let HotModule { linked, word, functions } =
        early.map_err(|problem| ModuleError::Serialize(problem.into()))?;
    let rest = LazyFunctions::new(functions);
    let unreadable = || ModuleError::Serialize("what was written can't be loaded".into());
    let module = load_unnamed(engine, &linked, Some((word, rest))).ok_or_else(unreadable)?;
    Ok((module, rest))
}

/// Compiles a module, and loads it from the cache, where it is stored.
fn compile_and_store(
    engine: &Engine,
    wasm: &[u8],
    sealer: &Sealer,
    path: &Path,
    key: &str,
    progress: &Arc<dyn ProgressSink>,
) -> Result<CompiledModule, ModuleError> {
    let linked = compile(wasm, progress)?;
    progress.report(Progress::Storing);
    let module = match store(sealer, path, key, &linked) {
        Ok(()) => load(engine, sealer, path, key),
        Err(error) => {
            // Unnamed files serve as well; only the next start compiles again.
            tracing::warn!(error = %chain(&error), "the compiled module can't be cached");
            load_unnamed(engine, &linked, None)
        }
    };
    module.ok_or_else(|| ModuleError::Serialize("what was written can't be loaded".into()))
}

/// Unpacks a module into the cache. The result is false if it was made for something else; then it
/// must be compiled.
fn unpack(
    pinned: &PinnedModule,
    sealer: &Sealer,
    path: &Path,
    key: &str,
    progress: &Arc<dyn ProgressSink>,
) -> Result<bool, EngineError> {
    progress.report(Progress::Unpacking);
    let packed = Packed::read(&pinned.path, &pinned.sha256).map_err(|unpinned| match unpinned {
        Unpinned::Unreadable(cause) => unreadable(pinned, cause),
        Unpinned::OtherHash(found) => {
            let (path, expected) = (pinned.path.clone(), pinned.sha256.clone());
            ModuleError::WrongHash { path, expected, found }
        }
    })?;
    if packed.key() != key.as_bytes() {
        progress.report(Progress::ForeignModule);
        return Ok(false);
    }
    let (index, mut code) = packed.unpack().map_err(|cause| unreadable(pinned, cause))?;
    let _ = Sealer::remove(path);
    sealer.write(&code_path(path), &code_label(key), |file| io::copy(&mut code, file).map(drop))?;
    sealer.write(path, key, |file| file.write_all(&index))?;
    Ok(true)
}

fn unreadable(pinned: &PinnedModule, cause: io::Error) -> ModuleError {
    ModuleError::Packed(pinned.path.clone(), cause)
}

/// Packs the cached compiled form of the bytes with this hash into a file, and returns its SHA-256
/// in hexadecimal.
pub(crate) fn pack(cache: &CacheDir, hash: &str, file: &mut File) -> Result<String, EngineError> {
    let (key, path) = (key::module_key(hash), cache.folder("modules")?.join(file_name(hash)));
    let sealer = Sealer::new(cache)?;
    let index = sealer.view(&path, &key);
    let code = sealer.view(&code_path(&path), &code_label(&key));
    let (Some(index), Some(code)) = (index, code) else {
        let cause = io::Error::from(io::ErrorKind::NotFound);
        return Err(CacheError::io("read", &path, cause).into());
    };
    let packed = packed::pack(file, &key, index.bytes(), code.bytes());
    Ok(packed.map_err(|cause| ModuleError::Serialize(Cause::new(cause)))?)
}

pub(crate) fn file_name(hash: &str) -> String {
    format!("{}.module", key::module_key(hash))
}

/// Returns the path of the code that belongs to the index at `path`.
pub(crate) fn code_path(path: &Path) -> PathBuf {
    path.with_extension("code")
}

/// Returns the length of the cached module's index in bytes; 0 if there is none.
pub(crate) fn cached_index_bytes(cache: &CacheDir, hash: &str) -> u64 {
    let Ok(folder) = cache.folder("modules") else { return 0 };
    std::fs::metadata(folder.join(file_name(hash))).map_or(0, |metadata| metadata.len())
}

/// Loads a module from its files in the cache, if both are there and whole.
fn load(engine: &Engine, sealer: &Sealer, path: &Path, key: &str) -> Option<CompiledModule> {
    let index = sealer.view(path, key)?;
    let code = sealer.view(&code_path(path), &code_label(key))?;
    load_from(engine, Some(path), index, code, None)
}

/// Loads a module from files without names.
fn load_unnamed(
    engine: &Engine,
    linked: &Linked,
    rest: Option<(u64, &'static LazyFunctions)>,
) -> Option<CompiledModule> {
    let unnamed = |write: &dyn Fn(&mut File) -> std::io::Result<()>| {
        let mut file = tempfile::tempfile()?;
        write(&mut file)?;
        FileView::new(file)
    };
    let index = unnamed(&|file| file.write_all(&linked.index));
    let code = index.and_then(|index| Ok((index, unnamed(&|file| linked.code.write(file))?)));
    let (index, code) =
        code.inspect_err(|error| tracing::warn!(%error, "no room for the compiled module")).ok()?;
    load_from(engine, None, index, code, rest)
}

#[expect(unsafe_code, reason = "loading a compiled module is loading native code")]
fn load_from(
    engine: &Engine,
    path: Option<&Path>,
    index: FileView,
    code: FileView,
    rest: Option<(u64, &'static LazyFunctions)>,
) -> Option<CompiledModule> {
    // SAFETY: this version of wasmer made both files with these settings on a machine with these
    // CPU features. The key names all of these. Either this process has just made the files, or
    // their seal needed the secret of this user's private directory. Files of the cache are never
    // written to in place, by the contract of `FileView::new`.
    let loaded = unsafe { linked::load(engine, path, &index, code, rest) };
    let (module, data) = loaded
        .inspect_err(|error| tracing::warn!(%error, "a cached module can't be loaded"))
        .ok()?;
    Some(CompiledModule { module, data, _index: index, compilation: None })
}

/// Stores the files of a module. A kill in between leaves no index, and so no module.
fn store(sealer: &Sealer, path: &Path, key: &str, linked: &Linked) -> Result<(), CacheError> {
    let _ = Sealer::remove(path);
    sealer.write(&code_path(path), &code_label(key), |file| linked.code.write(file))?;
    sealer.write(path, key, |file| file.write_all(&linked.index))
}

fn code_label(key: &str) -> String {
    format!("{key} code")
}

#[tracing::instrument(level = "info", name = "compile_module", skip_all)]
fn compile(wasm: &[u8], progress: &Arc<dyn ProgressSink>) -> Result<Linked, ModuleError> {
    // An engine of its own, since engines keep what they compiled as long as they live.
    let compiled = compile_with(&engine_for(wasm, None), wasm, progress)?;
    linked::split(&compiled).map_err(|problem| ModuleError::Serialize(problem.into()))
}

fn compile_with(
    engine: &Engine,
    wasm: &[u8],
    progress: &Arc<dyn ProgressSink>,
) -> Result<impl Deref<Target = [u8]> + use<>, ModuleError> {
    let sink = Arc::clone(progress);
    let highest = AtomicU64::new(0);
    let callback = CompilationProgressCallback::new(move |step| {
        if let (Some(total), Some(done)) = (step.phase_step_count(), step.phase_step()) {
            // Threads report out of order; a progress bar only advances.
            let before = highest.fetch_max(done, Ordering::Relaxed);
            if done > before {
                sink.report(Progress::Compiling { done, total });
            }
        }
        Ok(())
    });
    let _loading = Loading::begin();
    engine
        .new_module_with_progress(wasm, callback)
        .map_err(|error| ModuleError::Compile(Cause::new(error)))?
        .serialize()
        .map_err(|error| ModuleError::Serialize(Cause::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Silent;
    use sha2::{Digest, Sha256};
    use std::sync::atomic::AtomicUsize;
    use std::{fs, thread};

    const SMALL: &str =
        r#"(module (memory (export "memory") 1) (func (export "f") (result i32) i32.const 7))"#;

    fn silent() -> Arc<dyn ProgressSink> {
        Arc::new(Silent)
    }

    /// Puts this in place of a file. Another test may keep the old one mapped (`native.rs`), and
    /// whatever unwinds reads it, so it isn't truncated.
    fn damage(path: &Path, contents: &[u8]) {
        fs::remove_file(path).unwrap();
        fs::write(path, contents).unwrap();
    }

    struct Cached {
        _folder: tempfile::TempDir,
        cache: CacheDir,
        compiles: AtomicUsize,
    }

    impl Cached {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let cache = CacheDir::open(Some(folder.path())).unwrap();
            Self { _folder: folder, cache, compiles: AtomicUsize::new(0) }
        }

        fn load(&self) -> CompiledModule {
            let read = || {
                self.compiles.fetch_add(1, Ordering::SeqCst);
                Ok(wat::parse_str(SMALL).unwrap().into())
            };
            let source = Source { hash: "small", read: &read, pinned: None, starts_early: false };
            load_or_compile(&new_engine(), &self.cache, &source, &silent()).unwrap()
        }

        fn load_pinned(&self, pinned: &PinnedModule) -> Result<CompiledModule, EngineError> {
            let read = || {
                self.compiles.fetch_add(1, Ordering::SeqCst);
                Ok(wat::parse_str(SMALL).unwrap().into())
            };
            let source =
                Source { hash: "small", read: &read, pinned: Some(pinned), starts_early: false };
            load_or_compile(&new_engine(), &self.cache, &source, &silent())
        }

        /// Packs what is cached under the hash of `SMALL`.
        fn pack(&self) -> (tempfile::NamedTempFile, PinnedModule) {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let sha256 = pack(&self.cache, "small", file.as_file_mut()).unwrap();
            let pinned = PinnedModule { path: file.path().to_owned(), sha256 };
            (file, pinned)
        }

        fn compiles(&self) -> usize {
            self.compiles.load(Ordering::SeqCst)
        }

        fn file(&self) -> std::path::PathBuf {
            let mut files = fs::read_dir(self.cache.root().join("modules")).unwrap().flatten();
            files
                .find(|file| file.path().extension().is_some_and(|e| e == "module"))
                .unwrap()
                .path()
        }
    }

    #[test]
    fn the_second_load_comes_from_the_cache() {
        let cached = Cached::new();
        assert_eq!(cached.load().module().exports().count(), 3);
        assert_eq!(cached.load().module().exports().count(), 3);
        assert_eq!(cached.compiles(), 1);
    }

    #[test]
    fn loads_that_start_together_compile_once() {
        let cached = Cached::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| cached.load());
            }
        });
        assert_eq!(cached.compiles(), 1);
    }

    #[test]
    fn another_machine_unpacks_what_this_one_compiled() {
        let here = Cached::new();
        here.load();
        let (_file, pinned) = here.pack();
        let there = Cached::new();
        assert_eq!(there.load_pinned(&pinned).unwrap().module().exports().count(), 3);
        assert_eq!(there.load().module().exports().count(), 3);
        assert_eq!(there.compiles(), 0);
        // It is sealed there, and so unpacked again when it is damaged.
        damage(&there.file(), b"");
        assert!(there.load_pinned(&pinned).is_ok());
        assert_eq!(there.compiles(), 0);
        // A module that is cached needs no other one.
        let missing = PinnedModule { path: "missing".into(), sha256: String::new() };
        assert!(there.load_pinned(&missing).is_ok());
    }

    #[test]
    fn only_the_pinned_module_is_unpacked() {
        let here = Cached::new();
        here.load();
        let (file, pinned) = here.pack();
        let whole = fs::read(file.path()).unwrap();
        let there = Cached::new();
        let message = |pinned: &PinnedModule| {
            let error = there.load_pinned(pinned).map(drop).unwrap_err();
            chain(&error).to_string()
        };
        let wrong = PinnedModule { sha256: "00".repeat(32), ..pinned.clone() };
        assert!(message(&wrong).contains(&pinned.sha256), "{}", message(&wrong));
        let pin = |bytes: &[u8]| {
            fs::write(file.path(), bytes).unwrap();
            let sha256 = hex::encode(Sha256::digest(bytes));
            PinnedModule { sha256, ..pinned.clone() }
        };
        // Pinned, and yet no such file.
        assert!(message(&pin(b"junk")).contains("precompile"));
        assert!(message(&pin(&whole[..whole.len() / 2])).contains("can't"));
        assert_eq!(there.compiles(), 0);
        // Of another version or another CPU.
        let mut other = whole.clone();
        other[8..40].fill(b'0');
        assert!(there.load_pinned(&pin(&other)).is_ok());
        assert_eq!(there.compiles(), 1);
    }

    #[test]
    fn damaged_modules_are_compiled_again() {
        let cached = Cached::new();
        cached.load();
        let mut compiles = 1;
        for file in [cached.file(), code_path(&cached.file())] {
            let whole = fs::read(&file).unwrap();
            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 1;
            for damaged in [&whole[..whole.len() / 2], &flipped, b""] {
                damage(&file, damaged);
                cached.load();
                compiles += 1;
                assert_eq!(cached.compiles(), compiles);
                assert_eq!(fs::read(&file).unwrap().len(), whole.len());
            }
            fs::remove_file(&file).unwrap();
            cached.load();
            compiles += 1;
            cached.load();
            assert_eq!(cached.compiles(), compiles);
        }
    }

    #[test]
    fn a_module_that_cannot_be_stored_is_loaded_all_the_same() {
        let cached = Cached::new();
        cached.load();
        // Neither can be replaced by a file.
        for path in [cached.file(), code_path(&cached.file())] {
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
        }
        assert_eq!(cached.load().module().exports().count(), 3);
        assert_eq!(cached.compiles(), 2);
    }

    #[test]
    fn what_a_killed_compile_left_is_repaired() {
        let cached = Cached::new();
        cached.load();
        let modules = cached.cache.root().join("modules");
        let seal = format!("{}.seal", cached.file().display());
        // Killed between renaming and sealing the module, and while writing.
        fs::remove_file(&seal).unwrap();
        fs::write(modules.join(".unfinished-x"), b"half").unwrap();
        cached.load();
        assert_eq!(cached.compiles(), 2);
        assert!(!modules.join(".unfinished-x").exists());
        cached.load();
        assert_eq!(cached.compiles(), 2);
    }

    /// wasmer alone panics here, and then at every later load (`native.rs`).
    #[test]
    fn modules_come_and_go_on_many_threads() {
        let linked = compile(&wat::parse_str(SMALL).unwrap(), &silent()).unwrap();
        let come_and_go = || {
            for _ in 0..200 {
                let engine = new_engine();
                let module = load_unnamed(&engine, &linked, None).unwrap();
                assert_eq!(module.module().exports().count(), 3);
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(come_and_go);
            }
        });
    }

    /// The other half of the next test: a process that is killed while it compiles.
    #[test]
    fn compiling_until_killed() {
        let Some(folder) = std::env::var_os(KILLED_VARIABLE) else { return };
        let cache = CacheDir::open(Some(Path::new(&folder))).unwrap();
        let read = || {
            fs::write(cache.root().join("modules/.unfinished-module"), b"half").unwrap();
            fs::write(cache.root().join("compiling"), b"").unwrap();
            loop {
                thread::park();
            }
        };
        let source = Source { hash: "small", read: &read, pinned: None, starts_early: false };
        let _ = load_or_compile(&new_engine(), &cache, &source, &silent());
    }

    const KILLED_VARIABLE: &str = "HATCHERY_TEST_COMPILE_UNTIL_KILLED";

    #[test]
    fn a_process_killed_while_it_compiles_holds_nobody_up() {
        let cached = Cached::new();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "python::module::tests::compiling_until_killed"])
            .env(KILLED_VARIABLE, cached.cache.root())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while !cached.cache.root().join("compiling").exists() {
            assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        cached.load();
        assert_eq!(cached.compiles(), 1);
        assert!(!cached.cache.root().join("modules/.unfinished-module").exists());
    }

    #[test]
    fn bytes_that_are_no_module_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::open(Some(folder.path())).unwrap();
        let source = Source {
            hash: "junk",
            read: &|| Ok(Bytes::from_static(b"junk")),
            pinned: None,
            starts_early: false,
        };
        let error = load_or_compile(&new_engine(), &cache, &source, &silent()).err().unwrap();
        assert!(error.to_string().contains("compile"), "{error}");
    }
}
