//! What the model asks the shell to do. Pure.

use std::time::Duration;

use engine::StopReason;
use pool::{JobId, SessionId, Stowage, WorkerId};

use crate::decision::{EvictionReason, RetireReason};
use crate::error::Refusal;
use crate::job::Growth;

/// What the model asks the shell to do. The shell does it in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The job will end in an outcome; its caller is told so.
    Admit(JobId),
    /// The job won't be taken; its caller is told why, and that is all that ever comes of it.
    Refuse(JobId, Refusal),
    /// The worker's seat takes the job, whose program may run for so long at most.
    Dispatch {
        /// The job.
        job: JobId,
        /// The worker.
        worker: WorkerId,
        /// What is left to its deadline; `None` without one.
        due_in: Option<Duration>,
        /// What it may grow by, if memory is left for less than its limits allow.
        cut: Option<Growth>,
    },
    /// The session makes way for the job that the worker is given next, and is parked by that.
    Displace(SessionId, EvictionReason),
    /// The worker has said how the job ended, and that is its outcome.
    Conclude(JobId),
    /// The worker has said that the sandbox failed, or died: the job waits again, for another try.
    /// What came of it so far is forgotten.
    Retry {
        /// The job.
        job: JobId,
        /// The try that failed, from 1.
        attempt: u32,
    },
    /// The job ends without having run, or without having come back.
    Settle(JobId, Settlement),
    /// The job runs; it is stopped at once. Its outcome comes from the worker.
    StopRun(JobId),
    /// The job runs; its program is interrupted. Its outcome comes from the worker.
    InterruptRun(JobId, StopReason),
    /// The session is over, for this reason. Its state is dropped.
    EndSession(SessionId, String),
    /// Another worker is to be started. It says `Ready`, or is `Gone`.
    AddWorker,
    /// The worker, which is idle, ends. Its seat is used for that.
    DismissWorker(WorkerId),
    /// The worker, which is idle, gets a new interpreter, and then says `Ready`.
    Renew(WorkerId, RetireReason),
    /// The worker, which is idle, puts the session aside that it holds, and then says `Ready`.
    Vacate(WorkerId, SessionId, EvictionReason),
    /// The session's state, which is parked, is put where it takes less memory. `Stowed` follows.
    Stow(SessionId, Stowage, EvictionReason),
    /// Every job has ended, and none will come.
    Drained,
}

/// How a job ends that has no outcome from a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Its caller no longer wanted it.
    Cancelled,
    /// Its deadline passed while it waited.
    DeadlinePassed {
        /// From submission to the deadline.
        allowed: Duration,
        /// From submission to now.
        waited: Duration,
    },
    /// The worker that ran it died.
    WorkerDied(String),
    /// The pool ended, and every worker and session with it.
    PoolDied(String),
    /// No worker is left that could run it.
    NoWorker(String),
    /// The session that it was for is gone.
    SessionLost(String),
}
