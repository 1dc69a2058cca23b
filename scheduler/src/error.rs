//! Why a scheduler does not start, and why a job or a session is not taken.

/// The scheduler could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerStartError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An actor could not be started.
    #[error("the scheduler could not be started: {0}")]
    Spawn(String),
}

/// The configuration makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No job may run.
    #[error("`concurrent` is 0, so no job would ever run: set it to at least 1")]
    NothingRuns,
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
    /// A turn of the session runs or waits.
    #[error(
        "a turn of the session runs or waits; fork, save, checkpoint and restore work between turns"
    )]
    SessionBusy,
    /// The session's state can't be copied out of its interpreter. It lives on there.
    #[error("the session's state can't be copied: {reason}")]
    NotCaptured {
        /// Why.
        reason: String,
    },
    /// The name is that of an open session.
    #[error("a session named `{name}` is open already: close it, or take another name")]
    SessionExists {
        /// The name.
        name: String,
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

impl Refusal {
    /// For a session that takes no jobs, if nobody remembers why.
    pub(crate) fn not_open() -> Self {
        let reason = "it was closed, or a run that was ended took its state".to_owned();
        Self::SessionGone { reason }
    }
}
