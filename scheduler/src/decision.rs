//! What the scheduler decided and why, as an event stream tells it.

use std::time::Duration;

use pool::{SessionId, Stowage, WorkerId};
use serde::Serialize;

use crate::timer::as_seconds;

/// One decision of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// Its place in the order of decisions: 1, 2, 3 and so on.
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
    /// A job was taken.
    Admitted {
        /// The job.
        job: u64,
        /// Its tenant.
        tenant: String,
    },
    /// A job or a session was not taken.
    Refused {
        /// The tenant of the job; `None` for a session.
        tenant: Option<String>,
        /// [`Refusal::name`](crate::Refusal::name).
        reason: &'static str,
        /// The whole of it.
        message: String,
    },
    /// A worker was given a job.
    Dispatched {
        /// The job.
        job: u64,
        /// The worker.
        worker: WorkerId,
    },
    /// A job has ended.
    Ended {
        /// The job.
        job: u64,
        /// How: `succeeded`, `failed`, `limited`, `cancelled` or `sandbox_failed`.
        how: &'static str,
    },
    /// A job that the sandbox failed is tried again.
    Retried {
        /// The job.
        job: u64,
        /// The try that failed, from 1.
        attempt: u32,
        /// What failed.
        reason: String,
    },
    /// A session had to make room, and lives on elsewhere.
    Evicted {
        /// The session.
        session: SessionId,
        /// Where it goes.
        to: EvictedTo,
        /// Why.
        reason: EvictionReason,
    },
    /// A session could not be put where it was to be. It stays in memory.
    NotEvicted {
        /// The session.
        session: SessionId,
        /// What failed.
        error: String,
    },
    /// A worker gets a new interpreter.
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
    /// A session is over.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// Why.
        reason: String,
    },
    /// Another worker is started.
    WorkerAdded,
    /// A worker that was idle for long ends.
    WorkerDismissed {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker is no more that was not told to end.
    WorkerGone {
        /// The worker.
        worker: WorkerId,
        /// Why.
        reason: String,
        /// Whether another one takes its place.
        is_replaced: bool,
    },
    /// No more jobs are taken.
    Draining,
    /// Every job has ended.
    Drained,
}

/// Where an evicted session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvictedTo {
    /// From its worker to memory.
    Memory,
    /// To memory, compressed.
    Compressed,
    /// To disk.
    Disk,
}

impl From<Stowage> for EvictedTo {
    fn from(stowage: Stowage) -> Self {
        match stowage {
            Stowage::Compressed => Self::Compressed,
            Stowage::Disk => Self::Disk,
        }
    }
}

/// Why a session had to make room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum EvictionReason {
    /// It rested for long.
    Idle {
        /// For so long.
        #[serde(rename = "rested_seconds", serialize_with = "as_seconds")]
        rested: Duration,
    },
    /// Too many sessions were in memory, and it had rested longest.
    TooManyInMemory {
        /// How many may be.
        limit: usize,
    },
    /// Memory was short, and it had rested longest.
    MemoryPressure {
        /// Bytes in use.
        used: u64,
        /// Bytes that may be.
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
                write!(formatter, "it rested for {:.1} s", rested.as_secs_f64())
            }
            Self::TooManyInMemory { limit } => {
                write!(
                    formatter,
                    "at most {limit} sessions may be in memory, and it rested longest"
                )
            }
            Self::MemoryPressure { used, limit } => {
                write!(formatter, "{used} of {limit} bytes were in use, and it rested longest")
            }
            Self::WorkerNeeded { worker } => write!(formatter, "{worker} was needed"),
        }
    }
}

/// Why a worker gets a new interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum RetireReason {
    /// A job had much memory.
    HighWater {
        /// So much, in bytes.
        bytes: u64,
        /// More than this is much.
        limit: u64,
    },
    /// The sandbox failed there.
    SandboxFailed,
}

impl std::fmt::Display for RetireReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HighWater { bytes, limit } => {
                write!(formatter, "a job had {bytes} bytes of memory, more than {limit}")
            }
            Self::SandboxFailed => formatter.write_str("the sandbox failed there"),
        }
    }
}
