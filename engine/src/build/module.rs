//! The module: the build compiled for this machine, compiled once and cached.
//!
//! Owns the compiler's settings, the key of the cache and the list of imports that a module may
//! have. Loading a compiled module checks nothing, since it is native code, so only a file whose
//! seal matches (`seal.rs`) is loaded.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use wasmer::sys::{CompilerConfig, Cranelift, EngineBuilder, Features, NativeEngineExt};
use wasmer::{Engine, Module};
use wasmer_types::CompilationProgressCallback;

use crate::cache::seal::Sealer;
use crate::cache::{CacheDir, remove_unfinished};
use crate::cause::{Cause, chain};
use crate::config::{Progress, ProgressSink};
use crate::error::{EngineError, ModuleError};
use crate::memory::tunables::GuestTunables;
use locks::GrantLocks;
use safepoints::AddSafepoints;
use throws::CountThrows;

pub(crate) mod imports;
mod key;
mod locks;
mod safepoints;
pub(crate) mod throws;
pub(crate) mod writes;

/// Returns a wasmer engine with our memory and Cranelift. It compiles WebAssembly exceptions, which
/// the build needs, and counts throws. Everything that it compiles can be stopped anywhere.
pub(crate) fn new_engine() -> Engine {
    let mut features = Features::default();
    features.exceptions(true);
    let mut compiler = Cranelift::default();
    compiler.push_middleware(Arc::new(AddSafepoints::default()));
    compiler.push_middleware(Arc::new(CountThrows::default()));
    compiler.push_middleware(Arc::new(GrantLocks::default()));
    let mut engine: Engine =
        EngineBuilder::new(compiler).set_features(Some(features)).engine().into();
    engine.set_tunables(GuestTunables::new());
    engine
}

/// What to compile. The bytes are only read if the cache has no compiled module.
pub(crate) struct Source<'a> {
    /// Identifies the bytes; part of the key.
    pub(crate) hash: &'a str,
    /// Reads the bytes.
    pub(crate) read: &'a dyn Fn() -> Result<Vec<u8>, EngineError>,
}

/// Loads the compiled form of `source` from the cache, or compiles and caches it.
///
/// Concurrent calls, in this process and others, wait for each other. A cached file whose seal
/// doesn't match is compiled again.
pub(crate) fn load_or_compile(
    engine: &Engine,
    cache: &CacheDir,
    source: &Source<'_>,
    progress: &Arc<dyn ProgressSink>,
) -> Result<Module, EngineError> {
    let folder = cache.folder("modules")?;
    let key = key::module_key(source.hash);
    let path = folder.join(file_name(source.hash));
    let sealer = Sealer::new(cache)?;

    progress.report(Progress::Loading);
    let find = || {
        let module = load(engine, &sealer, &path, &key);
        module.as_ref().map(imports::check).transpose()?;
        Ok(module)
    };
    cache.find_or_make("modules", find, || {
        remove_unfinished(&folder);
        let module = compile(engine, &(source.read)()?, progress)?;
        imports::check(&module)?;
        progress.report(Progress::Storing);
        let compiled =
            module.serialize().map_err(|error| ModuleError::Serialize(Cause::new(error)))?;
        if let Err(error) = sealer.write(&path, &key, &compiled) {
            // The module is usable without its file; only the next start compiles again.
            tracing::warn!(error = %chain(&error), "the compiled module can't be cached");
        }
        Ok(module)
    })
}

/// Returns the file name of the compiled form of the bytes with this hash.
pub(crate) fn file_name(hash: &str) -> String {
    format!("{}.module", key::module_key(hash))
}

/// Returns the length of the cached compiled form in bytes; 0 if there is none.
pub(crate) fn cached_bytes(cache: &CacheDir, hash: &str) -> u64 {
    let Ok(folder) = cache.folder("modules") else { return 0 };
    std::fs::metadata(folder.join(file_name(hash))).map_or(0, |metadata| metadata.len())
}

#[expect(unsafe_code, reason = "loading a compiled module is loading native code")]
fn load(engine: &Engine, sealer: &Sealer, path: &Path, key: &str) -> Option<Module> {
    // Mapped, so 400 MB aren't copied, and processes share them.
    let compiled = Bytes::from_owner(sealer.view(path, key)?);
    // SAFETY: the bytes were serialised by this version of wasmer with these settings on a machine
    // with these CPU features, all of which the key names, and nobody without the secret of this
    // user's private directory could have sealed them. The checked bytes are the loaded ones: files
    // of the cache are never written to in place, by the contract of `FileView::new`.
    let loaded = unsafe { Module::deserialize_unchecked(engine, compiled) };
    loaded.inspect_err(|error| tracing::warn!(%error, "a cached module can't be loaded")).ok()
}

#[tracing::instrument(level = "info", name = "compile_module", skip_all)]
fn compile(
    engine: &Engine,
    wasm: &[u8],
    progress: &Arc<dyn ProgressSink>,
) -> Result<Module, ModuleError> {
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
    engine
        .new_module_with_progress(wasm, callback)
        .map_err(|error| ModuleError::Compile(Cause::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Silent;
    use std::sync::atomic::AtomicUsize;
    use std::{fs, thread};

    const SMALL: &str =
        r#"(module (memory (export "memory") 1) (func (export "f") (result i32) i32.const 7))"#;

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

        fn load(&self) -> Module {
            let read = || {
                self.compiles.fetch_add(1, Ordering::SeqCst);
                Ok(wat::parse_str(SMALL).unwrap())
            };
            let source = Source { hash: "small", read: &read };
            let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
            load_or_compile(&new_engine(), &self.cache, &source, &progress).unwrap()
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
        assert_eq!(cached.load().exports().count(), 3);
        assert_eq!(cached.load().exports().count(), 3);
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
    fn damaged_modules_are_compiled_again() {
        let cached = Cached::new();
        cached.load();
        let whole = fs::read(cached.file()).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for (number, damaged) in [&whole[..whole.len() / 2], &flipped, b""].iter().enumerate() {
            fs::write(cached.file(), damaged).unwrap();
            cached.load();
            assert_eq!(cached.compiles(), number + 2);
            assert_eq!(fs::read(cached.file()).unwrap(), whole);
        }
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
        let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
        let source = Source { hash: "small", read: &read };
        let _ = load_or_compile(&new_engine(), &cache, &source, &progress);
    }

    const KILLED_VARIABLE: &str = "HATCHERY_TEST_COMPILE_UNTIL_KILLED";

    #[test]
    fn a_process_killed_while_it_compiles_holds_nobody_up() {
        let cached = Cached::new();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "build::module::tests::compiling_until_killed"])
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
        let source = Source { hash: "junk", read: &|| Ok(b"junk".to_vec()) };
        let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
        let error = load_or_compile(&new_engine(), &cache, &source, &progress).unwrap_err();
        assert!(error.to_string().contains("compile"), "{error}");
    }
}
