//! What the pool tells whoever owns it. Owned here, so that nothing is imported upwards.

use std::time::Duration;

use engine::Outcome;

use crate::error::StowError;
use crate::ids::{JobId, SessionId, WorkerId};
use crate::session::Stowage;
use crate::worker::seat::Seat;
use crate::worker::state::GoneReason;

/// What the pool tells its owner.
///
/// # Order
///
/// A worker's thread tells its owner directly, so what it says comes in the order in which it
/// happened:
///
/// ```text
/// Ready, then for what its seat took:
///    assign   SessionParked?  Finished
///    park     SessionParked?  Parked
///    vacate   SessionParked?
///    renew    SessionParked?
/// then Ready again, or SessionParked? and Gone
/// ```
///
/// `Gone` comes after the thread was joined, or left behind because it is stuck: it is the last of a
/// worker, and everything that its thread said comes before it. It comes for every worker, once. What a seat took and wasn't told
/// of by then died with the worker. What different workers say, and `Stowed`, comes in no order;
/// yet a session's state is where its cell says before anybody is told of it.
#[derive(Debug)]
pub enum PoolEvent {
    /// A worker waits for something to do.
    Ready {
        /// To give it something.
        seat: Seat,
        /// Memory that its interpreter has of its own, in bytes: what
        /// [`Interpreter::memory_bytes`](crate::Interpreter::memory_bytes) says.
        memory_bytes: u64,
        /// What the copy of its session's state takes, in bytes.
        kept_bytes: u64,
        /// How long it took to make the interpreter fresh after what ran last; `None` if nothing
        /// was to be done, or a session stays.
        reset: Option<Duration>,
    },
    /// A worker's task has ended. Whether its session lives on is to be seen in the session's cell.
    Finished {
        /// The worker.
        worker: WorkerId,
        /// The job of the task.
        job: JobId,
        /// How it ended.
        outcome: Box<Outcome>,
        /// From taking the task to the start of its run: what was there is put aside, and the state
        /// that it needs is brought.
        attach: Duration,
        /// What the worker's interpreter had of its own when the run was over, in bytes.
        memory_bytes: u64,
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
    /// A worker has put a session's state aside, where any worker can take it up: to make room for
    /// something else, or since it ends; or it has unpacked one that was stowed.
    SessionParked {
        /// The session.
        session: SessionId,
        /// The memory that its state takes now, in bytes; 0 if nothing has run in it.
        bytes: u64,
    },
    /// What [`Pool::stow`](crate::Pool::stow) asked for is done, or isn't.
    Stowed {
        /// The session.
        session: SessionId,
        /// Where its state was to go.
        stowage: Stowage,
        /// The bytes that it takes there, or why it isn't there.
        result: Result<u64, StowError>,
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
