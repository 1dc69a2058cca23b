//! The status of the scheduler, as callers see it.

use std::time::Duration;

use engine::{Outcome, Verdict};
use pool::{IsolationStatus, JobId, SessionId, SessionPlace, WorkerId, WorkerStatus, as_seconds};
use serde::Serialize;

use crate::decision::Decision;
use crate::job::Priority;

/// The scheduler after its last decision, with the present state of every worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SchedulerStatus {
    /// The version of Hatchery.
    pub version: &'static str,
    /// Whether jobs are admitted.
    pub phase: Phase,
    /// The time since the scheduler began.
    #[serde(rename = "uptime_seconds", serialize_with = "as_seconds")]
    pub uptime: Duration,
    /// Queued jobs. Copying a session's state counts as one while it waits for a worker.
    pub queue_depth: usize,
    /// Bytes of source, variables, arguments, environment, standard input and input files of the
    /// queued jobs.
    pub queued_bytes: usize,
    /// How long the oldest queued job has waited.
    #[serde(rename = "oldest_wait_seconds", serialize_with = "as_seconds")]
    pub oldest_wait: Option<Duration>,
    /// Running jobs.
    pub running: usize,
    /// Tenants with queued or running jobs, by name.
    pub tenants: Vec<TenantStatus>,
    /// Open sessions, by id.
    pub sessions: Vec<SessionStatus>,
    /// Sessions with open forks: the 20 trees of the most forks, the largest first.
    pub trees: Vec<TreeStatus>,
    /// How many sessions are in each place.
    pub places: SessionPlaces,
    /// The names of the Python builds, that of the default one first.
    pub pythons: Vec<String>,
    /// The modules that fresh interpreters of the default build have imported, and hide until a
    /// program imports them.
    pub hidden: Vec<String>,
    /// Where the workers run, and what the system doesn't do to confine them.
    pub isolation: IsolationStatus,
    /// Every worker, in the order of creation.
    pub workers: Vec<WorkerStatus>,
    /// What the pool's memory is used for.
    pub memory: MemoryStatus,
    /// How jobs have ended so far.
    pub totals: Totals,
    /// How long jobs that have ended took.
    pub latency: Latencies,
    /// The job that ended last, since the start or the last reset of the statistics.
    pub last_ended: Option<LastEnded>,
    /// Jobs that ended per second, over the last minute.
    pub jobs_per_second: f64,
    /// The last failures of the sandbox and of workers, the latest first; at most 10.
    pub last_errors: Vec<ErrorStatus>,
    /// The last errors that ended programs, the latest first; at most 10. Programs that a limit or
    /// their caller ended aren't among them.
    pub last_program_errors: Vec<ProgramErrorStatus>,
    /// The last decisions that weren't about single jobs, the latest first: evictions, retirements,
    /// retries, workers, sessions. At most 50.
    pub last_decisions: Vec<Decision>,
}

/// Whether the scheduler admits jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Jobs are admitted.
    #[default]
    Open,
    /// No more jobs are admitted; the present ones finish.
    Draining,
    /// Every job has ended.
    Drained,
}

/// A tenant with queued or running jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TenantStatus {
    /// Its name.
    pub tenant: String,
    /// Its weight.
    pub weight: u32,
    /// Its queued jobs by priority, the most urgent first.
    pub queued: [QueueDepth; 3],
    /// Bytes that its queued jobs hold.
    pub queued_bytes: usize,
    /// Its running jobs.
    pub running: usize,
}

/// The queued jobs of one tenant and one priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueDepth {
    /// The priority.
    pub priority: Priority,
    /// How many are queued.
    pub depth: usize,
}

/// One open session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionStatus {
    /// The session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// The tenant to whom it belongs.
    pub tenant: String,
    /// The name of its Python build.
    pub python: String,
    /// Its queued jobs.
    pub queue_depth: usize,
    /// How many turns have ended in it.
    pub turns: u64,
    /// From which session it was forked, if it was.
    pub fork: Option<ForkOrigin>,
    /// Where its state is.
    pub place: SessionPlace,
    /// Why it was last evicted, if it ever was.
    pub evicted: Option<String>,
}

/// How a session came to be a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ForkOrigin {
    /// The session that was forked, which may have ended since.
    pub parent: SessionId,
    /// Forks between this session and one that isn't a fork: 1 for its fork, 2 for a fork of that.
    pub depth: usize,
    /// How many turns had ended in the parent by then.
    pub turn: u64,
}

/// The open forks of a session that isn't a fork, those of its forks, and so on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TreeStatus {
    /// The name of the session that isn't a fork, which may have ended since.
    pub root: String,
    /// The tenant to whom they belong.
    pub tenant: String,
    /// Open forks of any depth.
    pub forks: usize,
    /// How many sessions these were forked from.
    pub parents: usize,
    /// The depth of the deepest open fork.
    pub depth: usize,
    /// Open forks by depth, from 1 to 10.
    pub levels: Vec<usize>,
}

/// How many sessions are in each place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionPlaces {
    /// Nothing has run in them yet.
    pub fresh: usize,
    /// On a worker, running or idle.
    pub on_workers: usize,
    /// Suspended in memory.
    pub suspended: usize,
    /// Suspended in memory, compressed.
    pub compressed: usize,
    /// Offloaded to disk.
    pub on_disk: usize,
    /// Lost; nobody has used them since.
    pub lost: usize,
}

/// What the pool's memory is used for, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryStatus {
    /// The limit.
    pub limit_bytes: u64,
    /// The image and the compiled build, which all workers share, and memory reserved for the
    /// embedding program.
    pub shared_bytes: u64,
    /// What the workers' interpreters have of their own.
    pub slot_bytes: u64,
    /// Sessions that are suspended in memory, including compressed ones.
    pub session_bytes: u64,
    /// Queued jobs.
    pub queued_bytes: u64,
    /// What running jobs hold and may still take: their input, their output, and the growth that
    /// their limits allow.
    pub in_flight_bytes: u64,
    /// Offloaded sessions. They take space on disk, not memory.
    pub disk_bytes: u64,
}

impl MemoryStatus {
    /// Returns the bytes of memory in use.
    pub fn used_bytes(&self) -> u64 {
        let Self { shared_bytes, slot_bytes, session_bytes, queued_bytes, in_flight_bytes, .. } =
            *self;
        [shared_bytes, slot_bytes, session_bytes, queued_bytes, in_flight_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// How jobs have ended since the start. The sum, without `retried`, is the number of jobs ever
/// submitted, less those that are queued or running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// The program ran to its end, or exited with code 0.
    pub succeeded: u64,
    /// The program raised, or exited with another code.
    pub failed: u64,
    /// A limit ended the program.
    pub limited: u64,
    /// The caller ended it.
    pub cancelled: u64,
    /// The sandbox failed.
    pub sandbox_failed: u64,
    /// The job was refused.
    pub refused: u64,
    /// Tries beyond the first, which aren't jobs of their own.
    pub retried: u64,
}

/// How long jobs that have ended took, by step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Latencies {
    /// From submission to dispatch, for jobs that were dispatched.
    pub queue: Percentiles,
    /// Bringing the state of a session to the worker, or resetting it for a job.
    pub resume: Percentiles,
    /// The run itself.
    pub run: Percentiles,
    /// Resetting the worker's interpreter afterwards.
    pub reset: Percentiles,
}

/// The distribution of a duration since the start, to three digits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Percentiles {
    /// How often it was measured.
    pub count: u64,
    /// The median.
    #[serde(rename = "p50_seconds", serialize_with = "as_seconds")]
    pub p50: Duration,
    /// The 95th percentile.
    #[serde(rename = "p95_seconds", serialize_with = "as_seconds")]
    pub p95: Duration,
    /// The 99th percentile.
    #[serde(rename = "p99_seconds", serialize_with = "as_seconds")]
    pub p99: Duration,
    /// The longest.
    #[serde(rename = "max_seconds", serialize_with = "as_seconds")]
    pub max: Duration,
}

/// A failure of the sandbox or of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ErrorStatus {
    /// How long ago it was.
    #[serde(rename = "age_seconds", serialize_with = "as_seconds")]
    pub age: Duration,
    /// The job that failed, if there was one.
    pub job: Option<JobId>,
    /// The worker that failed or ran that job, if there was one.
    pub worker: Option<WorkerId>,
    /// The session of that job, which may have been closed since.
    pub session: Option<SessionId>,
    /// What failed.
    pub message: String,
}

/// When a job ended, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LastEnded {
    /// How long ago it was.
    #[serde(rename = "age_seconds", serialize_with = "as_seconds")]
    pub age: Duration,
    /// Which of the [`Totals`] counts it, such as `succeeded`.
    pub outcome: &'static str,
}

/// An exception that ended a program, or a nonzero code that it exited with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProgramErrorStatus {
    /// How long ago it was.
    #[serde(rename = "age_seconds", serialize_with = "as_seconds")]
    pub age: Duration,
    /// The job.
    pub job: JobId,
    /// The worker that ran it, if there was one.
    pub worker: Option<WorkerId>,
    /// Its session, which may have been closed since.
    pub session: Option<SessionId>,
    /// The job's tenant.
    pub tenant: String,
    /// The name of the exception's type, such as `ValueError`; `SystemExit` for a code, `tampered`
    /// if the program damaged its interpreter. At most 100 bytes.
    pub exception: String,
    /// The exception's message, as the program wrote it, or the code. At most 500 bytes.
    pub message: String,
    /// The end of the exception's traceback, at most 4,000 bytes.
    pub traceback: Option<String>,
}

impl Totals {
    /// Counts a job that ended, and returns the name of the counter.
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
