//! The seam to the engine: what a worker thread needs of an interpreter, and the pool of a source
//! of interpreters.

use std::sync::Arc;

use engine::{Afterwards, Outcome, StartError};

use crate::isolation::{IsolationStatus, ProcessMemory};
use crate::task::Task;

pub use parked::{Packed, Parked, ParkedState};

#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub(crate) mod parked;
mod real;

/// Starts interpreters on the threads that own them.
pub trait InterpreterSource: Send + Sync + 'static {
    /// Starts a fresh interpreter. Blocks meanwhile.
    ///
    /// # Errors
    /// No interpreter can be started.
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError>;

    /// Returns how many tasks [`Interpreter::run_each`] should be given at most; at least 1.
    fn tasks_at_once(&self) -> usize {
        1
    }

    /// Returns the memory that all its interpreters share, in bytes.
    fn shared_bytes(&self) -> u64 {
        0
    }

    /// Returns where its interpreters run.
    fn isolation(&self) -> IsolationStatus {
        IsolationStatus::default()
    }

    /// Converts a parked state to bytes. Blocks, and may temporarily take as much memory again.
    ///
    /// # Errors
    /// The state can't be packed, and is unchanged.
    fn pack(&self, parked: &Parked) -> Result<Packed, StartError>;

    /// Restores a state that `pack` converted to bytes. Blocks.
    ///
    /// # Errors
    /// The bytes are damaged, or aren't a state of this source.
    fn unpack(&self, packed: &Packed) -> Result<Parked, StartError>;
}

/// What [`Interpreter::run_each`] tells of its runs, by the places of their tasks.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is told and gone, and a box would cost every run an allocation"
)]
pub enum EachRun {
    /// The run of this task has ended. These come in the order of the tasks.
    Ended(usize, Ended),
    /// The tasks from this one on don't begin. This may come before others end, and again for more
    /// tasks.
    Left(usize),
}

/// How one of several runs ended.
#[derive(Debug)]
pub struct Ended {
    /// Its outcome.
    pub outcome: Outcome,
    /// What it left of the interpreter.
    pub afterwards: Afterwards,
    /// The interpreter's private memory then, in bytes.
    pub memory_bytes: u64,
    /// Whether it found its program compiled.
    pub had_code: bool,
}

/// Runs programs on one thread.
///
/// After an error the interpreter is in an unknown state, and only `reset` and `attach` may be
/// called; but a failed `park` or `snapshot` leaves it unchanged.
pub trait Interpreter {
    /// Runs one program to its end. `last` says that no other program will run on this state.
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards);

    /// Runs programs one after another, each on the state of the image, and tells how each ends, or
    /// that it doesn't begin. A run that loses the interpreter is the last. None of the programs calls
    /// host functions or has mounts.
    ///
    /// For interpreters that go from one run to the next faster than their caller can ask for it. A
    /// program doesn't wait here behind another one that takes long: its task is left to the caller.
    fn run_each(&mut self, tasks: &[Task], tell: &mut dyn FnMut(EachRun)) {
        let Some(first) = tasks.first() else { return };
        tell(EachRun::Left(1));
        let (outcome, afterwards) = self.run(first, true);
        let (memory_bytes, had_code) = (self.memory_bytes(), self.had_code());
        tell(EachRun::Ended(0, Ended { outcome, afterwards, memory_bytes, had_code }));
    }

    /// Returns the interpreter to its image: nothing of what ran remains.
    ///
    /// # Errors
    /// The interpreter can't be reset and must be replaced.
    fn reset(&mut self) -> Result<(), StartError>;

    /// Returns what its private memory will be after `reset`, in bytes, if it has no work to do after
    /// that, and both take about as long as passing an order to another thread or less. It may then be
    /// given its next order before it is reset.
    fn resets_soon(&self) -> Option<u64> {
        None
    }

    /// Does work of its source that later runs gain from. Called only while nothing has run since
    /// it was started or reset; afterwards it is as after a reset.
    ///
    /// # Errors
    /// As `reset`.
    fn work_ahead(&mut self) -> Result<(), StartError> {
        Ok(())
    }

    /// Returns whether there is so much work for `work_ahead` that a session which rests here should
    /// be parked for it.
    fn has_much_work_ahead(&self) -> bool {
        false
    }

    /// Copies its state out. The interpreter keeps its state too.
    ///
    /// # Errors
    /// The state can't be copied.
    fn park(&mut self) -> Result<Parked, StartError>;

    /// Copies its state out between two turns of a session that stays, at the least cost for these
    /// turns. The copy may take more memory than one of `park`.
    ///
    /// # Errors
    /// As `park`.
    fn snapshot(&mut self) -> Result<Parked, StartError> {
        self.park()
    }

    /// Returns whether `snapshot` takes about as long as passing an order to another thread or less,
    /// and its result as much memory as the last one, but for a few pages. The interpreter may then be
    /// given its session's next order before that.
    fn copies_soon(&self) -> bool {
        false
    }

    /// Replaces its state by a parked one.
    ///
    /// # Errors
    /// The state can't be attached.
    fn attach(&mut self, parked: &Parked) -> Result<(), StartError>;

    /// Returns whether its process has ended, so that nothing can run on it any more. Cheap.
    fn has_ended(&self) -> bool {
        false
    }

    /// Returns its private memory, in bytes. For a real interpreter these are the pages by which
    /// its guest memory has grown beyond the image, and the pages of the image that it had copied
    /// when it was last reset, parked or attached. Runs since then may have copied more, up to the
    /// size of the image. Cheap.
    fn memory_bytes(&self) -> u64;

    /// Returns what tells the memory of its process, if it has one of its own.
    fn process_memory(&self) -> Option<Arc<dyn ProcessMemory>> {
        None
    }

    /// Returns whether the last run found its program compiled.
    fn had_code(&self) -> bool {
        false
    }
}
