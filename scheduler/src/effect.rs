//! What the model asks the shell to do.

use pool::{JobId, SessionId, WorkerId};

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
    /// The job runs; it is told to stop. Its outcome comes from the worker.
    StopRun(JobId),
    /// A worker for the session is needed.
    StartSession(SessionId),
    /// The worker is no longer needed.
    StopWorker(WorkerId),
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

/// Why a job or a session was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Too many jobs wait.
    #[error("the queue is full: {queued} jobs wait and at most {limit} may; try again later")]
    QueueFull {
        /// Jobs that wait.
        queued: usize,
        /// How many may.
        limit: usize,
    },
    /// Too many bytes of jobs wait.
    #[error(
        "the queue is full: with this job of {job} bytes, {queued} bytes would wait and at most \
         {limit} may; try again later"
    )]
    QueueBytes {
        /// Bytes of this job.
        job: usize,
        /// Bytes that would wait with it.
        queued: usize,
        /// How many may.
        limit: usize,
    },
    /// Too many sessions are open.
    #[error("{limit} sessions are open, and no more may be: close one, or raise the limit")]
    TooManySessions {
        /// How many may be.
        limit: usize,
    },
    /// The session is not open, or its state was lost.
    #[error("the session is gone: {reason}; open it again for a fresh one")]
    SessionGone {
        /// Why.
        reason: String,
    },
    /// No worker can be started on this machine.
    #[error("no worker is left: {reason}")]
    NoWorker {
        /// The last failure.
        reason: String,
    },
    /// The pool takes no more jobs.
    #[error("the pool is shutting down and takes no more jobs")]
    ShuttingDown,
}
