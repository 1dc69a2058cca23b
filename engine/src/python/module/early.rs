//! The early module, which runs while the build is still being compiled.
//!
//! Few of a build's functions run before a program needs a package. So a first start compiles these
//! alone, into a module with a stub in place of each other function, and has the whole build
//! compiled in the background. A stub jumps to the function with its index in the whole module, with
//! the same arguments; one that is called before that is there waits for it (`early/lazy.rs`).
//!
//! Both modules have the same description, so that instances are laid out alike, and the code of
//! either works on an instance of the other: functions get their instance as an argument, and find
//! memory, tables, globals and imports by it. Each module brings its own tables for traps and
//! unwinding.
//!
//! The early module is never stored: the next start finds the whole one, or compiles early again.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use wasmer::sys::wasmparser::Operator;
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer_types::LocalFunctionIndex;

use super::blocks::{OpenBlocks, Unchanged};
use crate::python::distribution::WASM_SHA256;

pub(super) mod compilation;
pub(super) mod lazy;

/// The functions of the default build that its start and plain programs call, and those beside them:
/// a range of indices in each line. `the_first_functions` in `early/tests.rs` records them.
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

/// Makes an engine leave out all functions but the first ones: what is compiled of each other one
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

#[cfg(test)]
mod tests;

/// What a stub takes; functions begin at multiples of it.
pub(super) const STUB_BYTES: usize = 16;

/// Returns the stub for `function` at the address `at`, for a word at the address `word`; `None` if
/// that is too far away.
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
