//! The messages of a worker actor, and the orders of its thread.

use std::sync::Arc;

use super::state::{GoneReason, Input};
use crate::ids::JobId;
use crate::session::SessionCell;
use crate::task::Task;

/// A message to a worker actor.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// From the supervisor, at any time. The worker finishes its current order, then ends.
    Stop,
    /// From the worker's own thread, which has finished and dropped its interpreter; or from the
    /// watchdog, which reports that the thread is stuck. The actor ends.
    Ended(GoneReason),
}

/// An order for a worker's thread, sent by the holder of its seat.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "each worker has at most one, and a box would cost every job an allocation"
)]
pub(super) enum Order {
    /// Run a task. `PoolEvent::Finished` follows.
    Run(Task),
    /// Copy a session's state out to its cell. `PoolEvent::Parked` follows.
    Park {
        /// The job that this counts as.
        job: JobId,
        /// The session.
        session: Arc<SessionCell>,
    },
    /// Park the session that the worker holds.
    Vacate,
    /// Park it and start a new interpreter.
    Renew,
    /// Park it and end.
    Dismiss,
}

impl Order {
    /// Returns the input that it is to the worker's state machine.
    pub(super) fn input(&self) -> Input {
        match self {
            Self::Run(Task { job, .. }) | Self::Park { job, .. } => Input::Assigned(*job),
            Self::Vacate | Self::Renew => Input::Cleared,
            Self::Dismiss => Input::Dismissed,
        }
    }

    /// Returns the session that it needs.
    pub(super) fn session(&self) -> Option<&Arc<SessionCell>> {
        match self {
            Self::Run(task) => task.session.as_ref(),
            Self::Park { session, .. } => Some(session),
            Self::Vacate | Self::Renew | Self::Dismiss => None,
        }
    }
}
