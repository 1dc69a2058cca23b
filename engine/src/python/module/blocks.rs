//! What middlewares share: finding the end of a function, and leaving one unchanged.

use wasmer::sys::FunctionMiddleware;
use wasmer::sys::wasmparser::Operator;

/// The blocks that are open at an operator of a function, itself among them.
#[derive(Debug)]
pub(super) struct OpenBlocks(usize);

impl OpenBlocks {
    pub(super) fn of_function() -> Self {
        Self(1)
    }

    /// Counts the next operator. Returns whether it ends the function.
    pub(super) fn end_with(&mut self, operator: &Operator<'_>) -> bool {
        match operator {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::TryTable { .. } => self.0 += 1,
            Operator::End => self.0 -= 1,
            _ => {}
        }
        self.0 == 0
    }
}

/// Leaves a function as it is.
#[derive(Debug)]
pub(super) struct Unchanged;

impl FunctionMiddleware<'_> for Unchanged {}
