//! The messages of a worker actor.

use engine::{Afterwards, Outcome};

use crate::event::GoneReason;
use crate::task::{JobId, Task};

/// What a worker actor is told.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// From the holder of a seat, in `Ready`. `PoolEvent::Finished` follows, or the worker ends.
    Run(Task),
    /// From the supervisor, at any time. The present task runs to its end, then the worker ends.
    Stop,
    /// From the worker's own thread.
    Thread(ThreadEvent),
}

/// What a worker's thread says.
#[derive(Debug)]
pub(crate) enum ThreadEvent {
    /// The interpreter is up. Follows the thread's start, and each `Finished` of an isolated
    /// worker.
    Started,
    /// The task that was sent has ended.
    Finished {
        /// Its job.
        job: JobId,
        /// How it ended.
        outcome: Box<Outcome>,
        /// What became of the interpreter.
        afterwards: Afterwards,
    },
    /// The thread does nothing more, and has dropped its interpreter.
    Ended(GoneReason),
}
