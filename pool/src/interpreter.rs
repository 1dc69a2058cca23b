//! The seam to the engine: interpreters for worker threads, and sources of interpreters for the
//! pool.

use std::sync::Arc;

use engine::{Afterwards, Outcome, SessionError, StartError};

use crate::isolation::{IsolationStatus, WorkerProcess};
use crate::task::Task;

pub use suspended::{Branched, PackedBytes, Suspended, SuspendedState};

mod real;
pub(crate) mod suspended;

/// Starts interpreters on the threads that own them.
pub trait InterpreterSource: Send + Sync + 'static {
    /// Starts a fresh interpreter. Blocks meanwhile.
    ///
    /// # Errors
    /// No interpreter can be started.
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError>;

    /// Returns the memory that all its interpreters share, in bytes.
    fn shared_bytes(&self) -> u64 {
        0
    }

    /// Returns where its interpreters run.
    fn isolation(&self) -> IsolationStatus {
        IsolationStatus::default()
    }

    /// Converts a suspended state to bytes. Blocks, and may temporarily take as much memory again.
    ///
    /// # Errors
    /// The state can't be packed, and is unchanged; by default none can.
    fn pack(&self, _suspended: &Suspended) -> Result<PackedBytes, StartError> {
        Err(SessionError::NotSuspendable.into())
    }

    /// Restores a state that `pack` converted to bytes. Blocks.
    ///
    /// # Errors
    /// The bytes are damaged, or aren't a state of this source; by default none are.
    fn unpack(&self, _packed: &PackedBytes) -> Result<Suspended, StartError> {
        Err(SessionError::NotSuspendable.into())
    }
}

/// When an interpreter can take its next program after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Resetting or copying it takes no longer than handing a command to another thread. The worker
    /// accepts its next command before that.
    Soon {
        /// What its private memory will be then, in bytes.
        memory_bytes: u64,
    },
    /// It takes longer.
    Later,
    /// It can't be copied: its session has threads, and is lost if another one takes its place.
    Stays,
}

/// Runs programs on one thread.
///
/// After an error the interpreter is in an unknown state, and only `reset` and `resume` may be
/// called. A failed `suspend` or `snapshot` leaves it unchanged.
pub trait Interpreter {
    /// Runs one program to its end. `last` says that no other program will run on this state.
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards);

    /// Returns the interpreter to its image: nothing of what ran remains. Then compiles a program that
    /// was run repeatedly, if there is one.
    ///
    /// # Errors
    /// The interpreter can't be reset and must be replaced.
    fn reset(&mut self) -> Result<(), StartError>;

    /// Returns when it is reset (if `is_last`, as in the last run) or copied by `snapshot`.
    fn readiness(&self, _is_last: bool) -> Readiness {
        Readiness::Later
    }

    /// Copies its state out. The interpreter keeps its state too.
    ///
    /// # Errors
    /// The state can't be copied; by default none can.
    fn suspend(&mut self) -> Result<Suspended, StartError> {
        Err(SessionError::NotSuspendable.into())
    }

    /// Copies its state out between two turns of a session that stays, at the least cost for these
    /// turns. The copy may take more memory than one of `suspend`.
    ///
    /// # Errors
    /// As `suspend`.
    fn snapshot(&mut self) -> Result<Suspended, StartError> {
        self.suspend()
    }

    /// Replaces its state by a suspended one.
    ///
    /// # Errors
    /// The state can't be resumed; by default none can.
    fn resume(&mut self, _suspended: &Suspended) -> Result<(), StartError> {
        Err(SessionError::NotSuspendable.into())
    }

    /// Returns its private memory, in bytes. For a real interpreter these are the pages by which
    /// its guest memory has grown beyond the image. The pages of the image count that it had copied
    /// when last reset, suspended or resumed. Runs since then may have copied more, up to the size
    /// of the image. Cheap.
    fn memory_bytes(&self) -> u64;

    /// Returns its process, if it has one of its own.
    fn process(&self) -> Option<&Arc<dyn WorkerProcess>> {
        None
    }
}
