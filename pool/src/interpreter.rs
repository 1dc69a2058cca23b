//! The seam to the engine: what a worker thread needs of an interpreter.

use engine::{Afterwards, Outcome, StartError};

use crate::task::Task;

#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod real;

/// Starts interpreters, on the thread where they are to live.
pub trait InterpreterSource: Send + Sync + 'static {
    /// Starts one. Blocks for as long as that takes.
    ///
    /// # Errors
    /// None can be started here and now.
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError>;
}

/// Runs programs on one thread.
pub trait Interpreter {
    /// Runs one program to its end. `last` says that no other will follow.
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards);
}
