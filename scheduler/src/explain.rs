//! Why a job waits: what is ahead of it, and for how long.

use std::time::Duration;

use derive_more::Display;
use engine::{NetworkActivity, counted};
use pool::{BuildId, JobId, SessionId, WorkerId, as_seconds};
use serde::Serialize;

use crate::job::Priority;

/// Where a job that has not ended is, and why.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize)]
#[display("job {} of tenant `{tenant}` {state}{}{}", job.0, network.as_ref().map_or_else(String::new, |network| format!("; {network}")), imported(hidden))]
#[non_exhaustive]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// Its tenant.
    pub tenant: String,
    /// How urgent it is among the tenant's jobs.
    pub priority: Priority,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// Tries that a sandbox failure ended.
    pub failed_attempts: u32,
    /// The build of its interpreter.
    #[serde(skip)]
    pub build: BuildId,
    /// The modules that the image of its interpreter has imported, and hides until the program imports
    /// them. The scheduler leaves this empty.
    pub hidden: Vec<String>,
    /// What it is doing on the network, if it runs and may make requests.
    pub network: Option<NetworkActivity>,
    /// Where it is.
    #[serde(flatten)]
    pub state: JobState,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// It is queued.
    #[display("waits for {:.3} s: {reason}; before it: {} of its tenant, about {ahead_of_others} of others; {}", waited.as_secs_f64(), counted(ahead_in_tenant, "job"), to_go(*estimate))]
    Waiting {
        /// How long it has been queued.
        #[serde(rename = "waited_seconds", serialize_with = "as_seconds")]
        waited: Duration,
        /// What it waits for first.
        reason: WaitReason,
        /// Jobs of its tenant that go before it, by priority and age.
        ahead_in_tenant: usize,
        /// Estimated jobs of other tenants that go before it, by the tenants' shares.
        ahead_of_others: usize,
        /// Estimated time to its start, by the measured service times; `None` before any was
        /// measured.
        #[serde(rename = "estimate_seconds", serialize_with = "as_seconds")]
        estimate: Option<Duration>,
    },
    /// It runs.
    #[display("runs on {worker} for {:.3} s", ran.as_secs_f64())]
    Running {
        /// The worker that runs it.
        worker: WorkerId,
        /// How long it has run.
        #[serde(rename = "ran_seconds", serialize_with = "as_seconds")]
        ran: Duration,
    },
}

/// What keeps a job from running now.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// No worker is ready yet.
    #[display("no worker is ready, {} to start", counted(starting, "worker"))]
    WorkersStarting {
        /// Workers that are starting or preparing their interpreters.
        starting: usize,
    },
    /// All workers are busy, or as many jobs run as may.
    #[display("{} running, at most {concurrent} allowed", counted(running, "job"))]
    WorkersBusy {
        /// Running jobs.
        running: usize,
        /// How many may run.
        concurrent: usize,
    },
    /// As many jobs of its tenant run as may.
    #[display("{} of its tenant running, at most {limit} allowed", counted(running, "job"))]
    TenantAtLimit {
        /// Running jobs of the tenant.
        running: usize,
        /// How many of them may run.
        limit: usize,
    },
    /// Earlier jobs of its session come first; a session runs one job at a time.
    #[display("{} of {session} before it", counted(turns_ahead, "job"))]
    SessionBusy {
        /// The session.
        session: SessionId,
        /// Jobs of the session that run or are queued before it.
        turns_ahead: usize,
    },
    /// The sandbox failed it, and it waits before the next try, as other workers may fail, too.
    #[display("the sandbox failed in {}, the next follows in {:.3} s", counted(failed_attempts, "attempt"), remaining.as_secs_f64())]
    BackingOff {
        /// Tries that a sandbox failure ended.
        failed_attempts: u32,
        /// The time until it may run again.
        #[serde(rename = "remaining_seconds", serialize_with = "as_seconds")]
        remaining: Duration,
    },
    /// Memory is short until running jobs have ended.
    #[display("{used} of {limit} bytes of memory are in use")]
    NoMemory {
        /// Bytes in use.
        used: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

fn to_go(estimate: Option<Duration>) -> String {
    match estimate {
        Some(time) => format!("about {:.3} s to go", time.as_secs_f64()),
        None => "there is no estimate yet of how long".to_owned(),
    }
}

fn imported(hidden: &[String]) -> String {
    match hidden.len() {
        0 => String::new(),
        count => format!("; its image has imported {}", counted(count, "module")),
    }
}
