//! Loads that let a hard stop reach code which touches no memory.
//!
//! A stop takes the guest's memory away and waits for the next access. A loop that keeps its values
//! in registers makes none, and would run to its end. So the modules that an engine compiles get
//! safepoints, loads of the memory's first byte:
//!
//! - at the head of each loop that can go round without an access (`safepoints/paths.rs`);
//! - at the entry of each function that can reach a call without one, since recursion is a loop too.
//!
//! In a loop a store counts. A load doesn't, since Cranelift may know its result from before the
//! loop. Neither does a call, whose callee is unknown. A safepoint costs nothing beside a call.
//!
//! The safepoint is an atomic load. Cranelift never removes it, since it orders memory, and it is a
//! plain `mov` on x86-64.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmer::sys::wasmparser::{MemArg, Operator};
use wasmer::sys::{FunctionMiddleware, MiddlewareError, MiddlewareReaderState, ModuleMiddleware};
use wasmer_types::{LocalFunctionIndex, ModuleInfo};

use super::blocks::OpenBlocks;
use paths::Safepoints;

mod paths;
#[cfg(test)]
mod tests;

/// The version of the rules above; a part of the key of compiled modules.
pub(super) const SAFEPOINTS_VERSION: u32 = 4;

/// Adds safepoints to the modules that an engine compiles, one module at a time.
#[derive(Debug, Default)]
pub(super) struct AddSafepoints {
    /// Whether the module being compiled has a memory. Without one, a stop has nothing to take
    /// away.
    has_memory: AtomicBool,
}

impl ModuleMiddleware for AddSafepoints {
    fn transform_module_info(&self, info: &mut ModuleInfo) -> Result<(), MiddlewareError> {
        self.has_memory.store(!info.memories.is_empty(), Ordering::Release);
        Ok(())
    }

    fn generate_function_middleware<'a>(
        &self,
        _function: LocalFunctionIndex,
    ) -> Box<dyn FunctionMiddleware<'a> + 'a> {
        Box::new(AddSafepointsIn {
            has_memory: self.has_memory.load(Ordering::Acquire),
            operators: Vec::new(),
            open_blocks: OpenBlocks::of_function(),
        })
    }
}

/// Buffers one function until it is known where its safepoints go.
#[derive(Debug)]
struct AddSafepointsIn<'a> {
    has_memory: bool,
    operators: Vec<Operator<'a>>,
    open_blocks: OpenBlocks,
}

impl<'a> FunctionMiddleware<'a> for AddSafepointsIn<'a> {
    fn feed(
        &mut self,
        operator: Operator<'a>,
        state: &mut MiddlewareReaderState<'a>,
    ) -> Result<(), MiddlewareError> {
        if !self.has_memory {
            state.push_operator(operator);
            return Ok(());
        }
        let is_over = self.open_blocks.end_with(&operator);
        self.operators.push(operator);
        if !is_over {
            return Ok(());
        }
        let operators = mem::take(&mut self.operators);
        let safepoints = Safepoints::of(&operators)?;
        if safepoints.at_entry {
            state.extend(safepoint());
        }
        let mut at_loop = safepoints.at_loops.into_iter();
        for operator in operators {
            let is_loop = matches!(operator, Operator::Loop { .. });
            state.push_operator(operator);
            if is_loop && at_loop.next() == Some(true) {
                state.extend(safepoint());
            }
        }
        Ok(())
    }
}

/// One byte, since wider atomic loads check their alignment.
fn safepoint<'a>() -> [Operator<'a>; 3] {
    let memarg = MemArg { align: 0, max_align: 0, offset: 0, memory: 0 };
    [Operator::I32Const { value: 0 }, Operator::I32AtomicLoad8U { memarg }, Operator::Drop]
}
