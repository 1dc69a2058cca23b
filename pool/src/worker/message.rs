//! The messages of a worker actor, and what passes between it and its thread.

use std::sync::Arc;

use engine::Outcome;

use crate::event::GoneReason;
use crate::session::SessionCell;
use crate::task::{JobId, Task};

/// What a worker actor is told.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// From the holder of a seat, in `Ready`. `PoolEvent::Finished` or `PoolEvent::Parked` follows,
    /// or the worker ends.
    Order(Order),
    /// From the supervisor, at any time. The present order is carried out, then the worker ends.
    Stop,
    /// From the worker's own thread.
    Thread(ThreadEvent),
}

/// What a worker's thread is to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Run a task. `Finished` follows.
    Run(Task),
    /// Copy the state of a session out, to where its cell shows it. `Parked` follows.
    Park {
        /// The job that this counts as.
        job: JobId,
        /// The session.
        session: Arc<SessionCell>,
    },
}

impl Order {
    /// The job that it is, or counts as.
    pub(crate) fn job(&self) -> JobId {
        match self {
            Self::Run(task) => task.job,
            Self::Park { job, .. } => *job,
        }
    }

    /// The session that it needs.
    pub(crate) fn session(&self) -> Option<&Arc<SessionCell>> {
        match self {
            Self::Run(task) => task.session.as_ref(),
            Self::Park { session, .. } => Some(session),
        }
    }
}

/// What a worker's thread says.
#[derive(Debug)]
pub(crate) enum ThreadEvent {
    /// It waits for an order. Follows the start of its interpreter, and every order.
    Idle,
    /// The task that was ordered has ended.
    Finished {
        /// Its job.
        job: JobId,
        /// How it ended.
        outcome: Box<Outcome>,
    },
    /// The state that was ordered is where its cell shows it, or is lost, as its cell shows too.
    Parked {
        /// The job that this counts as.
        job: JobId,
        /// Why the state could not be copied; its session has it still.
        result: Result<(), String>,
    },
    /// The thread does nothing more, and has dropped its interpreter.
    Ended(GoneReason),
}
