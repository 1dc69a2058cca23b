//! What the scheduler decided and why, as the stream of decisions carries it.

use std::time::Duration;

use engine::counted;
use pool::{JobId, SessionId, Tier, WorkerId};
use serde::Serialize;

use crate::timer::{as_maybe_seconds, as_seconds};

/// One decision of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// Its number in the order of decisions, from 1.
    pub sequence: u64,
    /// When it was made, since the scheduler began.
    #[serde(rename = "at_seconds", serialize_with = "as_seconds")]
    pub at: Duration,
    /// What was decided.
    #[serde(flatten)]
    pub kind: DecisionKind,
}

/// What the scheduler decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecisionKind {
    /// A job was admitted.
    Admitted {
        /// The job.
        job: JobId,
        /// Its tenant.
        tenant: String,
    },
    /// A job or a session was refused.
    Refused {
        /// The tenant of the job; `None` for a session.
        tenant: Option<String>,
        /// The value of [`Refusal::name`](crate::Refusal::name).
        reason: &'static str,
        /// The refusal's message.
        message: String,
    },
    /// A worker was given a job.
    Dispatched {
        /// The job.
        job: JobId,
        /// The worker.
        worker: WorkerId,
    },
    /// A job has ended.
    Ended {
        /// The job.
        job: JobId,
        /// How: `succeeded`, `failed`, `limited`, `cancelled` or `sandbox_failed`.
        how: &'static str,
    },
    /// A job is retried because its try failed.
    Retried {
        /// The job.
        job: JobId,
        /// The number of the failed try, from 1.
        attempt: u32,
        /// What failed.
        reason: String,
    },
    /// A session was evicted. It stays open.
    Evicted {
        /// The session.
        session: SessionId,
        /// Where its state goes.
        to: EvictedTo,
        /// Why.
        reason: EvictionReason,
    },
    /// A session could not be compressed or spilled. It stays in memory.
    NotEvicted {
        /// The session.
        session: SessionId,
        /// What failed.
        error: String,
    },
    /// A worker gets a new interpreter; one that was retired on request ends, and another takes its
    /// place if it is needed.
    Retired {
        /// The worker.
        worker: WorkerId,
        /// Why.
        reason: RetireReason,
    },
    /// A session was opened.
    SessionOpened {
        /// The session.
        session: SessionId,
    },
    /// A session has ended.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// Why.
        reason: String,
    },
    /// Another worker is started.
    WorkerAdded,
    /// A worker that idled for long ends.
    WorkerDismissed {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker ended without being told to.
    WorkerGone {
        /// The worker.
        worker: WorkerId,
        /// Why.
        reason: String,
        /// Whether another worker takes its place.
        is_replaced: bool,
    },
    /// The pool starts.
    PoolStarting {
        /// The number of workers that it asks for.
        workers: usize,
    },
    /// The pool is ready: its first worker has started, or what had degraded it is over.
    PoolReady {
        /// The number of workers that are alive.
        workers: usize,
    },
    /// The pool can't do all that it should.
    PoolDegraded {
        /// Why.
        reason: DegradedReason,
    },
    /// No more jobs are admitted.
    Draining {
        /// Why.
        reason: EndReason,
        /// The time after which jobs are cancelled; `None` if they may take any.
        #[serde(rename = "within_seconds", serialize_with = "as_maybe_seconds")]
        within: Option<Duration>,
    },
    /// Every job has ended.
    Drained,
    /// The pool has ended, with every worker. No decision follows.
    PoolEnded {
        /// Why.
        reason: EndReason,
    },
}

/// Where an evicted session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EvictedTo {
    /// From its worker to memory.
    Memory,
    /// To memory, compressed.
    Compressed,
    /// To disk.
    Disk,
}

impl From<Tier> for EvictedTo {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Compressed => Self::Compressed,
            Tier::Disk => Self::Disk,
        }
    }
}

/// Why a session was evicted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EvictionReason {
    /// It was idle for long.
    Idle {
        /// How long it was idle.
        #[serde(rename = "rested_seconds", serialize_with = "as_seconds")]
        rested: Duration,
    },
    /// Too many sessions were in memory, and it had been idle longest.
    TooManyInMemory {
        /// How many may be in memory.
        limit: usize,
    },
    /// Memory was short, and it had been idle longest.
    MemoryPressure {
        /// Bytes in use.
        used: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Its worker was needed for another job, or ended.
    WorkerNeeded {
        /// The worker.
        worker: WorkerId,
    },
}

impl std::fmt::Display for EvictionReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Idle { rested } => {
                write!(formatter, "it was idle for {:.1} s", rested.as_secs_f64())
            }
            Self::TooManyInMemory { limit } => {
                write!(
                    formatter,
                    "at most {} may be in memory, and it had been idle longest",
                    counted(limit, "session")
                )
            }
            Self::MemoryPressure { used, limit } => {
                write!(
                    formatter,
                    "{used} of {limit} bytes were in use, and it had been idle longest"
                )
            }
            Self::WorkerNeeded { worker } => write!(formatter, "{worker} was needed"),
        }
    }
}

/// Why a worker is retired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetireReason {
    /// A job used too much memory to keep its interpreter.
    HighWater {
        /// The peak memory of the job, in bytes.
        bytes: u64,
        /// The configured threshold, in bytes.
        limit: u64,
    },
    /// The sandbox failed on it.
    SandboxFailed,
    /// A caller asked for it.
    Requested,
}

impl std::fmt::Display for RetireReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HighWater { bytes, limit } => {
                write!(formatter, "a job had {bytes} bytes of memory, more than {limit}")
            }
            Self::SandboxFailed => formatter.write_str("the sandbox failed there"),
            Self::Requested => formatter.write_str("on request"),
        }
    }
}

/// Why a pool is degraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DegradedReason {
    /// Workers die again and again.
    WorkersDie {
        /// How many died.
        count: usize,
        /// Within which time.
        #[serde(rename = "within_seconds", serialize_with = "as_seconds")]
        within: Duration,
        /// Why the last one did.
        error: String,
    },
    /// A worker couldn't start, and none has started since.
    WorkersDoNotStart {
        /// How many places for workers were given up for now.
        given_up: usize,
        /// What the last one failed at.
        error: String,
    },
    /// Workers have failed to start again and again, and none is left, so jobs are refused.
    NoWorkerLeft {
        /// What the last one failed at.
        error: String,
    },
}

impl std::fmt::Display for DegradedReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::WorkersDie { count, within, error } => {
                let within = within.as_secs();
                write!(
                    formatter,
                    "{} died within {within} s, the last one so: {error}",
                    counted(count, "worker")
                )
            }
            Self::WorkersDoNotStart { error, .. } => {
                write!(formatter, "a worker couldn't start: {error}")
            }
            Self::NoWorkerLeft { error } => write!(formatter, "no worker is left: {error}"),
        }
    }
}

/// Why a pool ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EndReason {
    /// It was drained.
    Drained,
    /// It was aborted.
    Aborted,
    /// Its last handle was dropped.
    Dropped,
    /// What supervises its workers has died.
    Died {
        /// How.
        error: String,
    },
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drained => formatter.write_str("it was drained"),
            Self::Aborted => formatter.write_str("it was aborted"),
            Self::Dropped => formatter.write_str("its last handle was dropped"),
            Self::Died { error } => write!(formatter, "what supervises its workers died: {error}"),
        }
    }
}
