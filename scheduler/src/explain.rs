//! Why a job waits: what is ahead of it, and how long that will take.

use std::time::Duration;

use pool::{SessionId, WorkerId};
use serde::Serialize;

use crate::job::Priority;
use crate::timer::{as_maybe_seconds, as_seconds};

/// Where a job is, and why. For a job that has ended there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The job.
    pub job: u64,
    /// Its tenant.
    pub tenant: String,
    /// How urgent it is among the tenant's jobs.
    pub priority: Priority,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// Tries that the sandbox failed.
    pub failed_attempts: u32,
    /// Where it is.
    #[serde(flatten)]
    pub state: JobState,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JobState {
    /// It waits.
    Waiting {
        /// For so long.
        #[serde(rename = "waited_seconds", serialize_with = "as_seconds")]
        waited: Duration,
        /// What it waits for, first of all.
        reason: WaitReason,
        /// Jobs of its tenant that go before it, by priority and age.
        ahead_in_tenant: usize,
        /// Jobs of other tenants that will probably go before it, by the shares of the tenants.
        ahead_of_others: usize,
        /// From now to its start, by the measured service times; `None` before any was measured.
        #[serde(rename = "estimate_seconds", serialize_with = "as_maybe_seconds")]
        estimate: Option<Duration>,
    },
    /// It runs.
    Running {
        /// On this worker.
        worker: WorkerId,
        /// For so long.
        #[serde(rename = "ran_seconds", serialize_with = "as_seconds")]
        ran: Duration,
    },
}

/// What keeps a job from running now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// No worker is ready yet; so many are being started or made ready.
    WorkersStarting {
        /// So many.
        starting: usize,
    },
    /// As many jobs run as may, or as there are workers for.
    WorkersBusy {
        /// Jobs that run.
        running: usize,
        /// Jobs that may.
        concurrent: usize,
    },
    /// As many jobs of its tenant run as may.
    TenantAtLimit {
        /// Jobs of the tenant that run.
        running: usize,
        /// Jobs of it that may.
        limit: usize,
    },
    /// Earlier jobs of its session come first, and a session runs one job at a time.
    SessionBusy {
        /// The session.
        session: SessionId,
        /// Jobs of the session that run or wait before it.
        turns_ahead: usize,
    },
    /// Memory is short until jobs that run have ended.
    NoMemory {
        /// Bytes in use.
        used: u64,
        /// Bytes that may be.
        limit: u64,
    },
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { job, tenant, state, .. } = self;
        write!(formatter, "job {job} of tenant `{tenant}` ")?;
        match state {
            JobState::Running { worker, ran } => {
                write!(formatter, "runs on {worker} for {:.3} s", ran.as_secs_f64())
            }
            JobState::Waiting { waited, reason, ahead_in_tenant, ahead_of_others, estimate } => {
                write!(
                    formatter,
                    "waits for {:.3} s: {reason}; {ahead_in_tenant} jobs of its tenant and about \
                     {ahead_of_others} of others go before it; ",
                    waited.as_secs_f64()
                )?;
                match estimate {
                    Some(time) => write!(formatter, "about {:.3} s to go", time.as_secs_f64()),
                    None => formatter.write_str("nothing was measured yet to tell how long"),
                }
            }
        }
    }
}

impl std::fmt::Display for WaitReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::WorkersStarting { starting } => {
                write!(formatter, "no worker is ready, {starting} are being made ready")
            }
            Self::WorkersBusy { running, concurrent } => {
                write!(formatter, "{running} jobs run and at most {concurrent} may")
            }
            Self::TenantAtLimit { running, limit } => {
                write!(formatter, "{running} jobs of its tenant run and at most {limit} may")
            }
            Self::SessionBusy { session, turns_ahead } => {
                write!(formatter, "{turns_ahead} jobs of {session} come first")
            }
            Self::NoMemory { used, limit } => {
                write!(formatter, "{used} of {limit} bytes of memory are in use")
            }
        }
    }
}
