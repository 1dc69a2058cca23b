//! The seam to the engine: what a worker thread needs of an interpreter.

use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use engine::{Afterwards, Outcome, StartError};

use crate::task::Task;

#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod real;

/// Starts interpreters, on the thread where they are to live.
pub trait InterpreterSource: Send + Sync + 'static {
    /// Starts one that nothing has run on. Blocks for as long as that takes.
    ///
    /// # Errors
    /// None can be started here and now.
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError>;
}

/// Runs programs on one thread.
///
/// After an error the interpreter may hold anything, and only `reset` and `attach` make sense; but
/// a failed `park` leaves it as it was.
pub trait Interpreter {
    /// Runs one program to its end. `last` says that no other will follow on this state.
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards);

    /// Goes back to where it started: nothing of what ran remains.
    ///
    /// # Errors
    /// It can't; another interpreter is needed.
    fn reset(&mut self) -> Result<(), StartError>;

    /// Copies its state out, and keeps it too.
    ///
    /// # Errors
    /// The state can't be copied.
    fn park(&mut self) -> Result<Parked, StartError>;

    /// Takes a parked state in place of whatever it holds, which is dropped.
    ///
    /// # Errors
    /// The state can't be taken.
    fn attach(&mut self, parked: &Parked) -> Result<(), StartError>;
}

/// The state of a session as its interpreter left it. Nothing changes it; clones share it.
#[derive(Clone)]
pub struct Parked {
    state: Arc<dyn Any + Send + Sync>,
    bytes: u64,
}

impl Parked {
    /// Wraps what an interpreter copied out, which takes this many bytes of memory.
    pub fn new<T: Any + Send + Sync>(state: Arc<T>, bytes: u64) -> Self {
        Self { state, bytes }
    }

    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was wrapped, if it is a `T`.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.state.downcast_ref()
    }
}

impl Debug for Parked {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Parked").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
