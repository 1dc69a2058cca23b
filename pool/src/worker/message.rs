//! The messages of a worker actor, and the orders that its thread takes.

use std::sync::Arc;

use super::state::{GoneReason, Input};
use crate::ids::JobId;
use crate::session::SessionCell;
use crate::task::Task;

/// What a worker actor is told.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// From the supervisor, at any time. The present order is carried out, then the worker ends.
    Stop,
    /// From the worker's own thread, which does nothing more and has dropped its interpreter; or from
    /// the watchdog, which says that the thread is stuck. The actor ends.
    Ended(GoneReason),
}

/// What a worker's thread is to do: straight from the holder of its seat.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time for each worker, and a box would cost every job an allocation"
)]
pub(super) enum Order {
    /// Run a task. `PoolEvent::Finished` follows.
    Run(Task),
    /// Copy the state of a session out, to where its cell shows it. `PoolEvent::Parked` follows.
    Park {
        /// The job that this counts as.
        job: JobId,
        /// The session.
        session: Arc<SessionCell>,
    },
    /// Put the session aside that is there.
    Vacate,
    /// The same, and go on with another interpreter.
    Renew,
    /// The same, and end.
    Dismiss,
}

impl Order {
    /// What it is to the worker's state.
    pub(super) fn input(&self) -> Input {
        match self {
            Self::Run(Task { job, .. }) | Self::Park { job, .. } => Input::Assigned(*job),
            Self::Vacate | Self::Renew => Input::Cleared,
            Self::Dismiss => Input::Dismissed,
        }
    }

    /// The session that it needs.
    pub(super) fn session(&self) -> Option<&Arc<SessionCell>> {
        match self {
            Self::Run(task) => task.session.as_ref(),
            Self::Park { session, .. } => Some(session),
            Self::Vacate | Self::Renew | Self::Dismiss => None,
        }
    }
}
