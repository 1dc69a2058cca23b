//! The compilation of the whole module behind an early one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use super::lazy::{FullModule, LazyFunctions};
use crate::cause::{Cause, chain};
use crate::config::{Progress, ProgressSink};
use crate::error::ModuleError;

/// How much the compilers' threads yield to those that run programs, as `nice` counts.
const NICENESS: i32 = 10;

/// A compilation on a thread of its own.
#[derive(Debug)]
pub(in super::super) struct Compilation {
    pub(super) rest: &'static LazyFunctions,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_awaited: Arc<AtomicBool>,
}

impl Compilation {
    /// Begins it; `rest` gets what `compile` returns.
    pub(in super::super) fn begin(
        rest: &'static LazyFunctions,
        compile: impl FnOnce(&Arc<dyn ProgressSink>) -> Result<FullModule, ModuleError> + Send + 'static,
        progress: &Arc<dyn ProgressSink>,
    ) -> Result<Self, ModuleError> {
        let is_awaited = Arc::new(AtomicBool::new(false));
        let sink = OnceAwaited { sink: Arc::clone(progress), is_awaited: Arc::clone(&is_awaited) };
        let sink: Arc<dyn ProgressSink> = Arc::new(sink);
        let thread = thread::Builder::new().name("hatchery-compile".to_owned()).spawn(move || {
            // The compilers' threads inherit it.
            if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
                tracing::debug!(%error, "compiling competes with programs");
            }
            let compiled = catch_unwind(AssertUnwindSafe(|| compile(&sink)));
            let whole = match compiled {
                Ok(compiled) => compiled.map_err(Cause::new),
                Err(_) => Err("the compiler panicked".into()),
            };
            rest.set(whole);
            if let Some(cause) = rest.failure() {
                // A caller that waits gets the error, and so does each program that needs it.
                tracing::debug!(error = %chain(cause), "can't compile the rest of Python");
            }
            sink.report(Progress::Ready);
        });
        let thread = thread.map_err(|error| ModuleError::Compile(Cause::new(error)))?;
        Ok(Self { rest, thread: Mutex::new(Some(thread)), is_awaited })
    }

    /// Waits for its end, and reports how far it is. The error says why it has failed.
    pub(in super::super) fn finish(&self) -> Result<(), Cause> {
        self.is_awaited.store(true, Ordering::Relaxed);
        // Other callers wait for the lock.
        if let Some(thread) = self.thread.lock().take() {
            thread.join().expect("it catches panics");
        }
        self.rest.failure().cloned().map_or(Ok(()), Err)
    }
}

/// Reports steps from when somebody waits for them.
struct OnceAwaited {
    sink: Arc<dyn ProgressSink>,
    is_awaited: Arc<AtomicBool>,
}

impl ProgressSink for OnceAwaited {
    fn report(&self, progress: Progress) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.sink.report(progress);
        }
    }
}
