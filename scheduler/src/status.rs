//! What the scheduler shows of itself.

use std::time::Duration;

use engine::{Outcome, Verdict};
use pool::{SessionId, SessionPlace, WorkerId, WorkerStatus};
use serde::Serialize;

use crate::decision::Decision;
use crate::job::Priority;
use crate::timer::{as_maybe_seconds, as_seconds};

/// The scheduler as it was after its last decision, with every worker as it is now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SchedulerStatus {
    /// The version of Hatchery.
    pub version: &'static str,
    /// Whether jobs are taken.
    pub phase: Phase,
    /// Since the scheduler began.
    #[serde(rename = "uptime_seconds", serialize_with = "as_seconds")]
    pub uptime: Duration,
    /// Jobs that wait. Copying a session's state counts as one if it has to wait for a worker.
    pub queue_depth: usize,
    /// Bytes of source, variables, arguments, environment, standard input and input files that
    /// wait.
    pub queued_bytes: usize,
    /// How long the oldest of them has waited.
    #[serde(rename = "oldest_wait_seconds", serialize_with = "as_maybe_seconds")]
    pub oldest_wait: Option<Duration>,
    /// Jobs that run.
    pub running: usize,
    /// Tenants with jobs that wait or run, by name.
    pub tenants: Vec<TenantStatus>,
    /// Open sessions, by id.
    pub sessions: Vec<SessionStatus>,
    /// How many sessions are where.
    pub places: SessionPlaces,
    /// Every worker, in the order in which they were made.
    pub workers: Vec<WorkerStatus>,
    /// What the memory that everything may take is used for.
    pub memory: MemoryStatus,
    /// What became of the jobs so far.
    pub totals: Totals,
    /// How long jobs took that have ended.
    pub latency: Latencies,
    /// Jobs that ended in the last minute, a second.
    pub jobs_per_second: f64,
    /// The last failures of the sandbox and of workers, the latest first; at most 10.
    pub last_errors: Vec<ErrorStatus>,
    /// The last errors that ended programs, the latest first; at most 10. What limits ended and
    /// what callers cancelled isn't among them.
    pub last_program_errors: Vec<ProgramErrorStatus>,
    /// The last decisions that were not about single jobs, the latest first: evictions,
    /// retirements, retries, workers, sessions. At most 50.
    pub last_decisions: Vec<Decision>,
}

/// Whether the scheduler takes jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It does.
    #[default]
    Open,
    /// It doesn't, and finishes what it has.
    Draining,
    /// It has finished.
    Drained,
}

/// A tenant with jobs that wait or run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TenantStatus {
    /// Its name.
    pub tenant: String,
    /// Its weight.
    pub weight: u32,
    /// Its jobs that wait, by priority, the most urgent first.
    pub queued: [QueueDepth; 3],
    /// Bytes that these hold.
    pub queued_bytes: usize,
    /// Its jobs that run.
    pub running: usize,
}

/// Jobs of one tenant and one priority that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct QueueDepth {
    /// The priority.
    pub priority: Priority,
    /// So many.
    pub depth: usize,
}

/// One open session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionStatus {
    /// The session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// Jobs that wait for it.
    pub queue_depth: usize,
    /// Where its state is.
    pub place: SessionPlace,
    /// Why it last had to make room, if it did.
    pub evicted: Option<String>,
}

/// How many sessions are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SessionPlaces {
    /// Open, and nothing has run in them.
    pub fresh: usize,
    /// On a worker, at work or at rest.
    pub on_workers: usize,
    /// Parked in memory.
    pub parked: usize,
    /// Parked in memory, compressed.
    pub compressed: usize,
    /// Spilled to disk.
    pub on_disk: usize,
    /// Gone; nobody has asked for them since.
    pub lost: usize,
}

/// What the memory that everything may take is used for, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStatus {
    /// What may be used.
    pub limit_bytes: u64,
    /// The image and the compiled build, which all workers share.
    pub shared_bytes: u64,
    /// What the workers' interpreters have of their own.
    pub slot_bytes: u64,
    /// Sessions that are parked in memory, compressed ones included.
    pub session_bytes: u64,
    /// Jobs that wait.
    pub queued_bytes: u64,
    /// What jobs that run hold and may still take: their input, output, and the memory that jobs
    /// of their tenant took before.
    pub in_flight_bytes: u64,
    /// Sessions that are spilled. They take no memory, but space on disk.
    pub disk_bytes: u64,
}

impl MemoryStatus {
    /// What is used, in bytes.
    pub fn used_bytes(&self) -> u64 {
        let Self { shared_bytes, slot_bytes, session_bytes, queued_bytes, in_flight_bytes, .. } =
            *self;
        [shared_bytes, slot_bytes, session_bytes, queued_bytes, in_flight_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// What became of jobs since the start. Their sum is the number of jobs ever submitted, less those
/// that wait or run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The program ran to its end, or left with code 0.
    pub succeeded: u64,
    /// The program raised, or left with another code.
    pub failed: u64,
    /// A limit ended the program.
    pub limited: u64,
    /// The caller ended it.
    pub cancelled: u64,
    /// The sandbox failed.
    pub sandbox_failed: u64,
    /// It was not taken.
    pub refused: u64,
    /// Tries beyond the first, which are no jobs of their own.
    pub retried: u64,
}

/// How long jobs took that have ended, by step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// From submission to a worker, of those that had one.
    pub queue: Percentiles,
    /// Bringing the state of a session to the worker, or making it fresh for a job.
    pub attach: Percentiles,
    /// The run itself.
    pub run: Percentiles,
    /// Making the worker's interpreter fresh again after it.
    pub reset: Percentiles,
}

/// The distribution of a time since the start, to three digits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// How often it was measured.
    pub count: u64,
    /// Half took at most this.
    #[serde(rename = "p50_seconds", serialize_with = "as_seconds")]
    pub p50: Duration,
    /// Of 20, 19 took at most this.
    #[serde(rename = "p95_seconds", serialize_with = "as_seconds")]
    pub p95: Duration,
    /// Of 100, 99 took at most this.
    #[serde(rename = "p99_seconds", serialize_with = "as_seconds")]
    pub p99: Duration,
    /// The longest.
    #[serde(rename = "max_seconds", serialize_with = "as_seconds")]
    pub max: Duration,
}

/// A failure of the sandbox or of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorStatus {
    /// How long ago.
    #[serde(rename = "age_seconds", serialize_with = "as_seconds")]
    pub age: Duration,
    /// The job that it was in, if it was in one.
    pub job: Option<u64>,
    /// The worker that failed or ran that job, if one did.
    pub worker: Option<WorkerId>,
    /// What failed.
    pub message: String,
}

/// An exception that ended a program, or a code other than 0 that it left with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramErrorStatus {
    /// How long ago.
    #[serde(rename = "age_seconds", serialize_with = "as_seconds")]
    pub age: Duration,
    /// The job.
    pub job: u64,
    /// The worker that ran it, if one did.
    pub worker: Option<WorkerId>,
    /// The job's tenant.
    pub tenant: String,
    /// The name of the exception's type, such as `ValueError`; `SystemExit` for a code, `tampered`
    /// where the program damaged its interpreter. At most 100 bytes of it.
    pub exception: String,
    /// What it says, as the program wrote it, or the code. At most 500 bytes of it.
    pub message: String,
}

impl Totals {
    /// Counts a job that ended, and says how it did.
    pub(crate) fn count(&mut self, outcome: &Outcome) -> &'static str {
        let (counter, name) = match &outcome.verdict {
            _ if outcome.is_success() => (&mut self.succeeded, "succeeded"),
            Verdict::Limit(_) => (&mut self.limited, "limited"),
            Verdict::Cancelled => (&mut self.cancelled, "cancelled"),
            Verdict::SandboxFailed(_) => (&mut self.sandbox_failed, "sandbox_failed"),
            _ => (&mut self.failed, "failed"),
        };
        *counter += 1;
        name
    }
}
