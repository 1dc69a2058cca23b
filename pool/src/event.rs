//! The events that the pool sends to its owner. Defined here, so that the pool imports nothing from
//! the crates above it.
//!
//! This file and `worker/control.rs` depend on each other. An event carries a permit, a permit
//! sends a command, and its execution sends events. An owner may use a permit before `tell`
//! returns.

use std::time::Duration;

use engine::{Cause, Outcome};

use crate::ids::{BuildId, JobId, SessionId, WorkerId};
use crate::session::Tier;
use crate::worker::control::WorkerPermit;
use crate::worker::state::GoneReason;

/// Receives the events of a pool, in the order in which each thread sends them.
pub trait PoolOwner: Send + Sync {
    /// Takes an event. It may act on it at once, on this thread: use permits, and call the pool. The
    /// caller holds no lock.
    fn tell(&self, event: PoolEvent);

    /// Takes an event and has another thread act on it. For callers that must not be kept.
    fn leave(&self, event: PoolEvent);
}

/// A worker accepts a command.
#[derive(Debug)]
pub struct Offer {
    /// Sends the command.
    pub permit: WorkerPermit,
    /// The build of its interpreter.
    pub build: BuildId,
    /// The private memory of its interpreter, in bytes, as
    /// [`Interpreter::memory_bytes`](crate::Interpreter::memory_bytes) returns it.
    pub memory_bytes: u64,
    /// The size of the copy of its session's state, in bytes. If the copy follows the offer, it is
    /// that of the last one, and off by a few pages.
    pub kept_bytes: u64,
    /// Its session can't be suspended.
    pub stays: bool,
    /// How long it took to make the interpreter fresh. `None` if it was fresh already, a session
    /// stayed, or an earlier offer said so.
    pub reset: Option<Duration>,
}

/// An event of the pool.
///
/// # Order
///
/// A worker's thread sends its events directly to the owner, so they arrive in the order in which
/// they happened:
///
/// ```text
/// Ready, then for the command:
///    Run           SessionSuspended?  Finished, perhaps with the next offer
///    Suspend       SessionSuspended?  Suspended
///    Vacate        SessionSuspended?
///    Renew         SessionSuspended?
/// then Ready again, unless there was an offer, or SessionSuspended? and Gone
/// ```
///
/// `Gone` is sent exactly once for each worker, as its last event. The thread has been joined by
/// then, or left behind because it is stuck. A command that had no event by then died with the
/// worker. Events of different workers, and `Offloaded`, come in no particular order. But a
/// session's cell shows where the state is before the event that announces it.
#[derive(Debug)]
pub enum PoolEvent {
    /// A worker waits for a command.
    Ready(Offer),
    /// A worker's task has ended. The session's cell says whether its session is still alive.
    Finished {
        /// The worker.
        worker: WorkerId,
        /// The job of the task.
        job: JobId,
        /// How it ended.
        outcome: Box<Outcome>,
        /// The time from taking the task to the start of its run. The worker suspends its previous
        /// session then, and brings the state that the task needs.
        resume: Duration,
        /// The private memory of the worker's interpreter when the run ended, in bytes.
        memory_bytes: u64,
        /// The worker's next permit, if it will be ready so soon that it can be given its next command
        /// now.
        offer: Option<Offer>,
    },
    /// A worker has copied a session's state out: the state is in the session's cell, or lost.
    Suspended {
        /// The worker.
        worker: WorkerId,
        /// The job that this counted as.
        job: JobId,
        /// Why the state could not be copied; its session still has it.
        result: Result<(), Cause>,
    },
    /// A worker has suspended a session or unpacked an offloaded state, so that any worker can
    /// resume it. It makes room for another job, or is ending.
    SessionSuspended {
        /// The session.
        session: SessionId,
        /// The memory that its state takes now, in bytes; 0 if nothing has run in it.
        bytes: u64,
    },
    /// A request of [`Pool::offload`](crate::Pool::offload) has succeeded or failed.
    Offloaded {
        /// The session.
        session: SessionId,
        /// Where its state was to go.
        tier: Tier,
        /// The bytes that it takes there, or why it isn't there.
        result: Result<u64, OffloadError>,
    },
    /// A worker has ended. If its command had no event yet, none will follow.
    Gone {
        /// The worker.
        worker: WorkerId,
        /// Why it ended.
        reason: GoneReason,
        /// Whether another worker takes its place.
        is_replaced: bool,
    },
}

/// A session's state could not be offloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// It can't be written to disk: it stays in memory, compressed.
    #[error("it can't be offloaded, and is compressed in memory")]
    NotWritten {
        /// What failed.
        #[source]
        cause: Cause,
        /// The memory that it takes now, in bytes.
        bytes: u64,
    },
    /// The state is unchanged, or the session has moved on.
    #[error(transparent)]
    Unchanged(Cause),
}

impl OffloadError {
    pub(crate) fn unchanged(reason: &str) -> Self {
        Self::Unchanged(reason.into())
    }
}
