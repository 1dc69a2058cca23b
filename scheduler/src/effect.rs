//! What the model wants the shell to do. Pure.

use std::time::Duration;

use engine::{Cause, StopReason};
use pool::{JobId, SessionId, Tier, WorkerId};

use crate::decision::{DecisionKind, EvictionReason, RetireReason};
use crate::job::Growth;

/// What the model asks the shell to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The worker's permit takes the job.
    Dispatch {
        job: JobId,
        worker: WorkerId,
        /// The time left to its deadline, which bounds the run; `None` without a deadline.
        due_in: Option<Duration>,
        /// What it may grow by, if less memory is free than its limits allow.
        cut: Option<Growth>,
    },
    /// The session is displaced by the worker's next job, whose start suspends it.
    Displace(SessionId, EvictionReason),
    /// The job's worker died: the job is queued for another try, and the failed one is forgotten.
    Retry {
        job: JobId,
        /// The number of the failed try, from 1.
        attempt: u32,
    },
    /// The job ends without an outcome from a worker.
    Settle(JobId, Settlement),
    /// The running job is stopped at once. Its outcome comes from the worker.
    StopRun(JobId),
    /// The running job's program is interrupted. Its outcome comes from the worker.
    InterruptRun(JobId, StopReason),
    /// The session ends for this reason. Its state is dropped.
    EndSession(SessionId, Cause),
    /// The pool starts another worker, which reports `Ready` or `Gone`.
    AddWorker,
    /// The idle worker ends. This uses its permit.
    DismissWorker(WorkerId),
    /// The idle worker, which holds no session, ends because that was requested. This uses its permit.
    Retire(WorkerId),
    /// The idle worker gets a new interpreter, and then reports `Ready`.
    Renew(WorkerId, RetireReason),
    /// The idle worker suspends the session that it holds, and then reports `Ready`.
    Vacate(WorkerId, SessionId, EvictionReason),
    /// The session's suspended state is compressed or offloaded. `Offloaded` follows.
    Offload(SessionId, Tier, EvictionReason),
    /// The pool's health has changed, or every job has ended and no more will come.
    Record(DecisionKind),
}

/// What becomes of a job after its worker's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// It ends with the reported outcome.
    Conclude,
    /// It is queued for another try, and the reported one is forgotten.
    Retry {
        /// The number of the failed try, from 1.
        attempt: u32,
    },
    /// Nothing: it no longer runs on that worker, so the report is outdated.
    Ignore,
}

/// How a job ends without an outcome from a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Its caller cancelled it.
    Cancelled,
    /// Its deadline passed while it was queued.
    DeadlinePassed {
        /// The time from submission to the deadline.
        allowed: Duration,
        /// The time from submission until now.
        waited: Duration,
    },
    /// The worker that ran it died.
    WorkerDied(Cause),
    /// The pool ended, with every worker and session.
    PoolDied(Cause),
    /// No worker is left to run it.
    NoWorker(Cause),
    /// Its session's state is lost.
    SessionLost(Cause),
}
