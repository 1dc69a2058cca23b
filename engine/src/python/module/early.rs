//! The early module, which runs while the build is still being compiled.
//!
//! Few of a build's functions run before a program needs a package. So a first start compiles these
//! alone, into a module with stubs for the other functions. The whole build is compiled in the
//! background. A stub jumps to the function with its index in the whole module, with the same
//! arguments. Before that function is compiled, the stub waits for it (`early/lazy.rs`).
//!
//! Both modules have the same description, so that instances are laid out alike. Functions get
//! their instance as an argument, and find memory, tables, globals and imports by it. So the code
//! of either works on an instance of the other. Each module brings its own tables for traps and
//! unwinding.
//!
//! The early module is never stored: the next start finds the whole one, or compiles early again.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use wasmer::sys::wasmparser::Operator;
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer_types::LocalFunctionIndex;

use super::blocks::{OpenBlocks, Unchanged};
use crate::cause::{Cause, chain};
use crate::config::{Progress, ProgressSink};
use crate::error::ModuleError;
use crate::python::distribution::WASM_SHA256;
use lazy::{FullModule, LazyFunctions};

pub(super) mod lazy;

/// The functions of the default build that its start and plain programs call, and those beside
/// them. Each line is a range of indices. `the_first_functions` in `early/tests.rs` records them.
const OF_THE_DEFAULT_BUILD: &str = include_str!("early/hot-functions.txt");

/// Returns which functions of the build with this hash are compiled first, if that is known.
pub(super) fn first_functions(hash: &str) -> Option<&'static Arc<HotFunctions>> {
    static FIRST: LazyLock<Option<Arc<HotFunctions>>> =
        LazyLock::new(|| HotFunctions::parse(OF_THE_DEFAULT_BUILD).map(Arc::new));
    #[cfg(test)]
    if let Some(none) = tests::recorded(hash) {
        return Some(none);
    }
    let has_stubs = cfg!(target_arch = "x86_64");
    FIRST.as_ref().filter(|_| has_stubs && hash == WASM_SHA256)
}

/// Some functions of a module, by their local indices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HotFunctions {
    /// In order, and apart from each other.
    ranges: Vec<Range<u32>>,
}

impl HotFunctions {
    /// Parses ranges in order, each as its first and its last index.
    fn parse(text: &str) -> Option<Self> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for line in text.lines() {
            let (first, last) = line.split_once(' ')?;
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            let is_next = ranges.last().is_none_or(|before| before.end <= first);
            (is_next && first <= last).then_some(())?;
            ranges.push(first..last.checked_add(1)?);
        }
        Some(Self { ranges })
    }

    pub(super) fn contains(&self, function: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= function);
        after.checked_sub(1).is_some_and(|at| self.ranges[at].contains(&function))
    }
}

/// Makes an engine leave out all functions but the first ones. What is compiled of each other one
/// only traps, and has room for a stub.
#[derive(Debug)]
pub(super) struct LeaveOutLazy {
    pub(super) first: Arc<HotFunctions>,
}

impl ModuleMiddleware for LeaveOutLazy {
    fn generate_function_middleware<'a>(
        &self,
        function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        match self.first.contains(function.as_u32()) {
            true => Box::new(Unchanged),
            false => Box::new(LazyBody { open_blocks: OpenBlocks::of_function() }),
        }
    }
}

#[derive(Debug)]
struct LazyBody {
    open_blocks: OpenBlocks,
}

impl<'a> FunctionMiddleware<'a> for LazyBody {
    fn feed(
        &mut self,
        operator: Operator<'a>,
        state: &mut MiddlewareReaderState<'a>,
    ) -> Result<(), MiddlewareError> {
        if self.open_blocks.end_with(&operator) {
            state.extend([Operator::Unreachable, Operator::End]);
        }
        Ok(())
    }
}

/// What a stub takes; functions begin at multiples of it.
pub(super) const STUB_BYTES: usize = 16;

/// Returns the stub for `function` at the address `at`, for a word at the address `word`. Returns
/// `None` if that is too far away.
pub(super) fn stub(function: u32, at: u64, word: u64) -> Option<[u8; STUB_BYTES]> {
    let mut stub = [0; STUB_BYTES];
    // mov r11d, function
    stub[..2].copy_from_slice(&[0x41, 0xbb]);
    stub[2..6].copy_from_slice(&function.to_le_bytes());
    // mov r10, [rip + distance]
    let distance = word.checked_signed_diff(at + 13)?;
    stub[6..9].copy_from_slice(&[0x4c, 0x8b, 0x15]);
    stub[9..13].copy_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
    // jmp [r10]
    stub[13..].copy_from_slice(&[0x41, 0xff, 0x22]);
    Some(stub)
}

/// How much the compilers' threads yield to those that run programs, as `nice` counts.
const NICENESS: i32 = 10;

/// A compilation on a thread of its own.
#[derive(Debug)]
pub(super) struct Compilation {
    rest: &'static LazyFunctions,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_awaited: Arc<AtomicBool>,
}

impl Compilation {
    /// Begins it; `rest` gets what `compile` returns.
    pub(super) fn begin(
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
    pub(super) fn finish(&self) -> Result<(), Cause> {
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

#[cfg(test)]
mod tests;
