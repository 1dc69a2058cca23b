//! A job as it is submitted, and as the shell keeps it.

use std::sync::Arc;
use std::time::Duration;

use engine::{Entry, Limits, Outcome, Program, Value, Variables};
use pool::{SessionId, Task};
use serde::Serialize;
use tokio::sync::oneshot;

/// The tenant of jobs that name none.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// How urgent a job is among those of its tenant.
///
/// A job counts as submitted earlier or later by
/// [`SchedulerConfig::priority_step`](crate::SchedulerConfig::priority_step), so an urgent one
/// overtakes, and nothing waits for ever.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Somebody waits for it.
    High,
    /// Everything that isn't said to be something else.
    #[default]
    Normal,
    /// Whenever there is nothing better to do.
    Low,
}

impl Priority {
    /// Every priority, the most urgent first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Its name, as metrics carry it.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

/// A job as it is submitted.
#[derive(Debug, Clone, Default)]
pub struct JobRequest {
    /// What to run.
    pub program: Program,
    /// What it may use.
    pub limits: Limits,
    /// The session to run in; without one, a state of its own.
    pub session: Option<SessionId>,
    /// Who wants it: what tenants use is shared by their weights. `None` is the tenant `default`.
    pub tenant: Option<Arc<str>>,
    /// How urgent it is among the tenant's jobs.
    pub priority: Priority,
    /// From submission: when its outcome is due. A job that can't make it is refused, one that
    /// still waits then ends with the limit `deadline`, and so does one that still runs.
    pub deadline: Option<Duration>,
    /// Whether running it twice does no harm, so that it may be tried again when the sandbox fails.
    /// `None` is yes for a job without a session and without host functions, whose failed run
    /// nobody can have seen.
    pub idempotent: Option<bool>,
}

/// What the model is told of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queued {
    /// What it holds in memory while it waits.
    pub(crate) bytes: usize,
    pub(crate) session: Option<SessionId>,
    pub(crate) tenant: Arc<str>,
    pub(crate) priority: Priority,
    /// From submission.
    pub(crate) deadline: Option<Duration>,
    /// What its output may take in memory while it runs.
    pub(crate) output_bytes: usize,
    /// Whether it may be tried again.
    pub(crate) is_idempotent: bool,
}

impl JobRequest {
    /// What the job holds in memory while it waits, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let Program { source, filename, args, env, stdin, files, variables, entry, .. } =
            &self.program;
        let files: usize = files.iter().map(|file| file.path.len() + file.contents.len()).sum();
        let env: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
        let args: usize = args.iter().map(String::len).sum();
        let filename = filename.as_ref().map_or(0, String::len);
        let named = |values: &Variables| -> usize {
            values.iter().map(|(name, value)| name.len() + value.bytes()).sum()
        };
        let call = match entry {
            Entry::Call(call) => {
                call.args.iter().map(Value::bytes).sum::<usize>() + named(&call.keywords)
            }
            _ => 0,
        };
        source.len() + filename + args + env + stdin.len() + files + named(variables) + call
    }
}

/// A job that has been admitted and has not ended. The shell keeps it whatever becomes of the
/// worker that runs it.
#[derive(Debug)]
pub(crate) struct LiveJob {
    /// Taken when the job is dispatched.
    pub(crate) task: Option<Task>,
    pub(crate) session: Option<SessionId>,
    pub(crate) stop: engine::StopHandle,
    pub(crate) transcript: Arc<engine::Transcript>,
    /// Taken when the outcome is sent.
    pub(crate) reply: Option<oneshot::Sender<Outcome>>,
    pub(crate) submitted: Instant,
    pub(crate) dispatched: Option<Instant>,
}

impl Drop for LiveJob {
    fn drop(&mut self) {
        // Also when the scheduler dies: nobody must wait for output that can't come.
        self.transcript.close();
    }
}
