//! What the pool tells whoever owns it. Owned here, so that nothing is imported upwards.

use engine::Outcome;

use crate::task::{JobId, WorkerId};
use crate::worker::Seat;

/// What the pool tells its owner.
///
/// Order: for one worker, `Ready`, then `Finished` or `Parked` for what its seat took, then `Ready`
/// again or `Gone`. After `Gone` a worker is never heard of again.
#[derive(Debug)]
pub enum PoolEvent {
    /// A worker waits for something to do.
    Ready(Seat),
    /// A worker's task has ended. Whether its session lives on is to be seen in the session's cell.
    Finished {
        /// The worker.
        worker: WorkerId,
        /// The job of the task.
        job: JobId,
        /// How it ended.
        outcome: Box<Outcome>,
    },
    /// A worker has copied a session's state out: it is at hand in the session's cell, or lost.
    Parked {
        /// The worker.
        worker: WorkerId,
        /// The job that this counted as.
        job: JobId,
        /// Why the state could not be copied; its session has it still.
        result: Result<(), String>,
    },
    /// A worker is no more. What its seat took died with it, if that has not been told of.
    Gone {
        /// The worker.
        worker: WorkerId,
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
    /// No interpreter could be started.
    StartFailed(String),
    /// Its thread or its actor died.
    Died(String),
}

impl std::fmt::Display for GoneReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => formatter.write_str("it was stopped"),
            Self::StartFailed(detail) => write!(formatter, "its interpreter can't start: {detail}"),
            Self::Died(detail) => write!(formatter, "it died: {detail}"),
        }
    }
}
