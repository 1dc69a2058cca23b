//! Why a scheduler does not start, and why a job or a session is refused.

use std::time::Duration;

use engine::{Cause, OwnerProcess, counted};
use pool::WorkerId;

/// Why a scheduler could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerStartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An actor could not be started.
    #[error("the scheduler could not be started")]
    Spawn(#[source] Cause),
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No job may run.
    #[error("`concurrent` is 0, so no job would ever run: set it to at least 1")]
    NothingRuns,
    /// No worker may exist.
    #[error("`workers.max` is 0, so no job would ever run: set it to at least 1")]
    NoWorkers,
    /// A tenant could never run a job.
    #[error(
        "`{field}` of {} is 0, so it would never run a job: set it to at least 1",
        tenant.as_ref().map_or("every tenant".to_owned(), |name| format!("tenant `{name}`"))
    )]
    TenantNeverRuns {
        /// The tenant; `None` for the default of all tenants.
        tenant: Option<String>,
        /// The field that is 0.
        field: &'static str,
    },
    /// A value is larger than another one that bounds it.
    #[error(
        "`{small}` is {small_value} and `{large}` is {large_value}: lower the first or raise the \
         second"
    )]
    Contradiction {
        /// The field that is too large.
        small: &'static str,
        /// Its value.
        small_value: usize,
        /// The field that bounds it.
        large: &'static str,
        /// Its value.
        large_value: usize,
    },
}

/// Why a job, a session or a request about a worker was refused. What led to it is the `source()`, for the few refusals that
/// have one.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// Too many jobs are queued: of all tenants, or of one.
    #[error(
        "the queue{} is full: {} waiting, at most {limit} allowed; try again {}",
        of(tenant.as_deref()), counted(queued, "job"), later(*retry_after)
    )]
    QueueFull {
        /// The tenant; `None` if it is the queue of all.
        tenant: Option<String>,
        /// The number of queued jobs.
        queued: usize,
        /// How many may be queued.
        limit: usize,
        /// When there may be room, by the measured service times.
        retry_after: Option<Duration>,
    },
    /// The queued jobs hold too many bytes: those of all tenants, or of one.
    #[error(
        "the queue{} is full: with this job of {job} bytes, {queued} bytes would wait and at most \
         {limit} may; try again {}",
        of(tenant.as_deref()), later(*retry_after)
    )]
    QueueBytes {
        /// The tenant; `None` if it is the queue of all.
        tenant: Option<String>,
        /// Bytes of this job.
        job: usize,
        /// Bytes that would be queued with it.
        queued: usize,
        /// How many bytes may be queued.
        limit: usize,
        /// When there may be room, by the measured service times.
        retry_after: Option<Duration>,
    },
    /// By the measured service times, the job would end after its deadline.
    #[error(
        "the job would end after its deadline: {}; {}",
        too_soon(*due_in, *estimate), sooner_or_more(*retry_after)
    )]
    #[strum(serialize = "deadline")]
    DeadlineTooSoon {
        /// The time to the deadline.
        due_in: Duration,
        /// The estimated time to the end of the job.
        estimate: Duration,
        /// When the deadline may be met, by the measured service times. `None` if it probably can't
        /// be met even on an idle pool.
        retry_after: Option<Duration>,
    },
    /// The memory limit is reached.
    #[error(
        "no memory is left: {used} of {limit} bytes are in use and {needed} more are needed; try \
         again {}, close sessions, or give the pool more memory",
        later(*retry_after)
    )]
    #[strum(serialize = "memory")]
    NoMemory {
        /// Bytes in use.
        used: u64,
        /// Bytes that were asked for.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
        /// When there may be room, by the measured service times.
        retry_after: Option<Duration>,
    },
    /// This many sessions are open, and no more may be.
    #[error(
        "no more than {} may be open: close one, or let the pool have more",
        counted(.0, "session")
    )]
    #[strum(serialize = "sessions")]
    TooManySessions(usize),
    /// A tenant has this many sessions open, and may not have so many more.
    #[error(
        "tenant `{tenant}` has {} open and wants {wanted} more, at most {limit} may be: close some, \
         or let the tenant have more (`TenantConfig::sessions`, `--tenant-sessions`)",
        counted(*open, "session")
    )]
    TenantSessions {
        /// The tenant.
        tenant: String,
        /// Its open sessions.
        open: usize,
        /// How many were to be opened.
        wanted: usize,
        /// How many may be open.
        limit: usize,
    },
    /// The states of a tenant's sessions take too many bytes.
    #[error(
        "the sessions of tenant `{tenant}` take {used} of {limit} bytes and {needed} more are \
         needed: close some, or let the tenant have more (`TenantConfig::session_bytes`, \
         `--tenant-session-bytes`)"
    )]
    TenantSessionBytes {
        /// The tenant.
        tenant: String,
        /// Bytes that their states take.
        used: u64,
        /// Bytes that were asked for.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The fork would be deeper than this below a session that isn't a fork.
    #[error(
        "forks may be {0} deep: fork a session that is nearer to the first, or allow more \
         (`SessionsConfig::depth`, `--fork-depth`)"
    )]
    #[strum(serialize = "fork_depth")]
    TooDeep(usize),
    /// The forks that an exploration keeps take as many bytes as it may.
    #[error(
        "the forks that were kept take {used} of {limit} bytes: keep fewer, close some, or allow \
         more"
    )]
    ForkBytes {
        /// Bytes that their states take beside what they share.
        used: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The session is not open, or its state was lost.
    #[error("the session is gone (open it again for a fresh one)")]
    SessionGone(#[source] Cause),
    /// A turn of the session is running or queued.
    #[error(
        "a turn of the session is running or queued: copy, restore or reset the session and read \
         its files once its turns have ended"
    )]
    SessionBusy,
    /// The session's state can't be copied out of its interpreter, where it remains.
    #[error("the session's state can't be copied")]
    NotCaptured(#[source] Cause),
    /// An open session has this name.
    #[error("a session named `{0}` is open already: close it, or take another name")]
    SessionExists(String),
    /// Workers have failed to start again and again, and none is left.
    #[error("no worker is left{}", until_next_try(*retry_after))]
    NoWorker {
        /// The last failure.
        #[source]
        cause: Cause,
        /// When another start is tried; `None` if never.
        retry_after: Option<Duration>,
    },
    /// No worker has this id, or it has not started yet, or it is ending.
    #[error(
        "there is no {0} to retire: it has ended or has not started (the pool's \
         status lists the workers)"
    )]
    NoSuchWorker(WorkerId),
    /// This process was forked from the one with this id, in which the pool was started. It has a
    /// copy of the pool's memory, but none of its threads.
    #[error("this pool belongs to process {0}: start one in this process")]
    OtherProcess(u32),
    /// The pool admits no more jobs.
    #[error("the pool is shutting down and takes no more jobs")]
    ShuttingDown,
}

impl Refusal {
    /// The refusal for a session that isn't open, unless the reason is remembered.
    pub(crate) fn not_open() -> Self {
        let cause = "it was closed, or a run that was ended took its state".into();
        Self::SessionGone(cause)
    }

    /// The refusal in a forked child process.
    ///
    /// # Errors
    /// This isn't the pool's process.
    pub(crate) fn unless_here(owner: OwnerProcess) -> Result<(), Self> {
        match owner.is_current() {
            true => Ok(()),
            false => Err(Self::OtherProcess(owner.id())),
        }
    }

    /// Returns the reason in one word, as metrics and decisions carry it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::QueueFull { tenant: Some(_), .. } => "tenant_queue_full",
            Self::QueueBytes { tenant: Some(_), .. } => "tenant_queue_bytes",
            other => other.into(),
        }
    }

    /// Whether the same call may succeed later, under less load.
    pub fn is_overload(&self) -> bool {
        self.overload().is_some()
    }

    /// Returns when the same call may succeed, by the measured service times. `None` if nothing was
    /// measured yet, or if waiting doesn't help. For `NoWorker`, which isn't caused by load, it is
    /// when another worker start is tried.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NoWorker { retry_after, .. } => *retry_after,
            _ => self.overload().flatten(),
        }
    }

    /// The retry time of a refusal that load caused; `None` for every other one.
    fn overload(&self) -> Option<Option<Duration>> {
        match self {
            Self::QueueFull { retry_after, .. }
            | Self::QueueBytes { retry_after, .. }
            | Self::DeadlineTooSoon { retry_after, .. }
            | Self::NoMemory { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

fn of(tenant: Option<&str>) -> String {
    tenant.map_or_else(String::new, |tenant| format!(" of tenant `{tenant}`"))
}

fn later(after: Option<Duration>) -> String {
    after.map_or_else(|| "later".to_owned(), |after| format!("in {}", seconds(after)))
}

fn until_next_try(after: Option<Duration>) -> String {
    after.map_or_else(String::new, |after| format!(" (another is tried in {})", seconds(after)))
}

fn too_soon(due_in: Duration, estimate: Duration) -> String {
    if due_in.is_zero() {
        return "it is due already".to_owned();
    }
    format!("it is due in {} and would end in about {}", seconds(due_in), seconds(estimate))
}

fn sooner_or_more(after: Option<Duration>) -> String {
    let again = after.map(|after| format!("try again in {}, or ", seconds(after)));
    format!("{}give it more time", again.unwrap_or_default())
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 0.001 => format!("{} µs", time.as_micros()),
        seconds if seconds < 1.0 => format!("{} ms", time.as_millis()),
        seconds => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_can_not_be_met_says_by_how_much_and_what_helps() {
        let message = |due_in, estimate, retry_after| {
            let [due_in, estimate] = [due_in, estimate].map(Duration::from_micros);
            let retry_after = Option::map(retry_after, Duration::from_micros);
            Refusal::DeadlineTooSoon { due_in, estimate, retry_after }.to_string()
        };
        let start = "the job would end after its deadline: it";
        assert_eq!(
            message(100, 1_700, None),
            format!("{start} is due in 100 µs and would end in about 1 ms; give it more time")
        );
        assert_eq!(
            message(20_000, 2_500_000, Some(900_000)),
            format!(
                "{start} is due in 20 ms and would end in about 2.5 s; try again in 900 ms, or \
                 give it more time"
            )
        );
        assert_eq!(message(0, 0, None), format!("{start} is due already; give it more time"));
    }
}
