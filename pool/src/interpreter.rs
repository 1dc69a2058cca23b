//! The seam to the engine: what a worker thread needs of an interpreter, and the pool of its
//! source.

use engine::{Afterwards, Outcome, StartError};

use crate::task::Task;

pub use parked::{Packed, Parked, ParkedState};

#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub(crate) mod parked;
mod real;

/// Starts interpreters, on the thread where they are to live.
pub trait InterpreterSource: Send + Sync + 'static {
    /// Starts one that nothing has run on. Blocks for as long as that takes.
    ///
    /// # Errors
    /// None can be started here and now.
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError>;

    /// Memory that all its interpreters share, in bytes.
    fn shared_bytes(&self) -> u64 {
        0
    }

    /// Makes bytes of a parked state. Blocks, and may take as much memory again for a moment.
    ///
    /// # Errors
    /// The state can't be packed, and stays what it is.
    fn pack(&self, parked: &Parked) -> Result<Packed, StartError>;

    /// The state that `pack` made bytes of: the same session, which goes on. Blocks.
    ///
    /// # Errors
    /// The bytes were damaged, or are no state of this source.
    fn unpack(&self, packed: &Packed) -> Result<Parked, StartError>;
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

    /// Memory that it has of its own, in bytes: of the real one, what its guest memory has grown by
    /// beyond the image, and the pages of the image that it had copied when it was last reset,
    /// parked or attached. Runs since then may have copied more, at most the image. Cheap.
    fn memory_bytes(&self) -> u64;
}
