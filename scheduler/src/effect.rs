//! What the model asks the shell to do.

use engine::StopReason;
use pool::{JobId, SessionId, WorkerId};

use crate::error::Refusal;

/// What the model asks the shell to do. The shell does it in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The job will end in an outcome; its caller is told so.
    Admit(JobId),
    /// The job won't be taken; its caller is told why, and that is all that ever comes of it.
    Refuse(JobId, Refusal),
    /// The worker's seat takes the job.
    Dispatch(JobId, WorkerId),
    /// The job ends without having run, or without having come back.
    Settle(JobId, Settlement),
    /// The job runs; it is stopped at once. Its outcome comes from the worker.
    StopRun(JobId),
    /// The job runs; its program is interrupted. Its outcome comes from the worker.
    InterruptRun(JobId, StopReason),
    /// The session is over, for this reason. Its state is dropped.
    EndSession(SessionId, String),
    /// Every job has ended, and none will come.
    Drained,
}

/// How a job ends that has no outcome from a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Its caller no longer wanted it.
    Cancelled,
    /// The worker that ran it died.
    WorkerDied(String),
    /// No worker is left that could run it.
    NoWorker(String),
    /// The session that it was for is gone.
    SessionLost(String),
}
