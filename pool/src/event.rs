//! What the pool tells whoever owns it. Owned here, so that nothing is imported upwards.

use engine::{Afterwards, Outcome};

use crate::task::{JobId, WorkerId, WorkerKind};
use crate::worker::Seat;

/// What the pool tells its owner.
///
/// Order: for one worker, `Ready`, then `Finished` for the task that its seat took, then `Ready`
/// again or `Gone`. After `Gone` a worker is never heard of again.
#[derive(Debug)]
pub enum PoolEvent {
    /// A worker waits for a task.
    Ready(Seat),
    /// A worker's task has ended.
    Finished {
        /// The worker.
        worker: WorkerId,
        /// The job of the task.
        job: JobId,
        /// How it ended.
        outcome: Box<Outcome>,
        /// Whether the interpreter, and with it a session's state, lives on.
        afterwards: Afterwards,
    },
    /// A worker is no more. If it had taken a task and no `Finished` came, that task died with it.
    Gone {
        /// The worker.
        worker: WorkerId,
        /// What it was for.
        kind: WorkerKind,
        /// Why.
        reason: GoneReason,
        /// Whether another worker takes its place.
        is_replaced: bool,
    },
}

/// Why a worker is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoneReason {
    /// It was told to stop.
    Stopped,
    /// Its interpreter was lost in a run that `Finished` told of; session workers only.
    InterpreterLost,
    /// No interpreter could be started.
    StartFailed(String),
    /// Its thread or its actor died.
    Died(String),
}

impl std::fmt::Display for GoneReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => formatter.write_str("it was stopped"),
            Self::InterpreterLost => formatter.write_str("its interpreter was lost"),
            Self::StartFailed(detail) => write!(formatter, "its interpreter can't start: {detail}"),
            Self::Died(detail) => write!(formatter, "it died: {detail}"),
        }
    }
}
