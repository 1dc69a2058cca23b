//! A job as it is submitted, and as the shell keeps it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use engine::{Entry, LimitHit, LimitKind, Limits, Outcome, Program, Value, Variables, Verdict};
use pool::{SessionId, Task, WorkerId};
use serde::Serialize;
use tokio::sync::oneshot;

/// The tenant of jobs that name none.
pub(crate) static DEFAULT_TENANT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("default"));

/// How urgent a job is among those of its tenant.
///
/// A job counts as submitted earlier or later by
/// [`SchedulerConfig::priority_step`](crate::SchedulerConfig::priority_step), so an urgent one
/// overtakes, and nothing waits for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
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
    /// What it may grow by while it runs.
    pub(crate) growth: Growth,
    /// Whether it may be tried again.
    pub(crate) is_idempotent: bool,
}

/// What a run may grow by at most, as its limits say or the memory that is left allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The guest's memory.
    pub(crate) memory_bytes: u64,
    /// Its files.
    pub(crate) file_bytes: u64,
}

impl Growth {
    /// The most that a guest of 32 bits can have.
    const MOST_MEMORY_BYTES: u64 = 4 << 30;

    fn of(limits: &Limits) -> Self {
        Self {
            memory_bytes: (limits.memory_bytes as u64).min(Self::MOST_MEMORY_BYTES),
            file_bytes: limits.file_bytes,
        }
    }

    pub(crate) fn bytes(self) -> u64 {
        self.memory_bytes.saturating_add(self.file_bytes)
    }

    /// So many bytes less: files give first, down to an eighth of what is left.
    pub(crate) fn cut_by(self, bytes: u64) -> Self {
        let left = self.bytes().saturating_sub(bytes);
        let file_bytes =
            self.file_bytes.min((left / 8).max(left.saturating_sub(self.memory_bytes)));
        Self { memory_bytes: left - file_bytes, file_bytes }
    }

    /// Limits that keep a run within this.
    fn within(self, limits: &Limits) -> Limits {
        let memory_bytes = usize::try_from(self.memory_bytes).unwrap_or(usize::MAX);
        Limits {
            memory_bytes: limits.memory_bytes.min(memory_bytes),
            file_bytes: limits.file_bytes.min(self.file_bytes),
            ..limits.clone()
        }
    }
}

impl JobRequest {
    /// What the model is to know of it.
    pub(crate) fn queued(&self) -> Queued {
        let has_functions = !self.program.functions.is_empty();
        Queued {
            bytes: self.bytes(),
            session: self.session,
            tenant: self.tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.clone()),
            priority: self.priority,
            deadline: self.deadline,
            output_bytes: self.limits.output_bytes.saturating_add(self.limits.display_bytes),
            growth: Growth::of(&self.limits),
            is_idempotent: self.idempotent.unwrap_or(self.session.is_none() && !has_functions),
        }
    }

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

impl Queued {
    /// The copy of a session's state, which counts as a job of that session.
    pub(crate) fn capture(session: SessionId) -> Self {
        Self {
            bytes: 0,
            session: Some(session),
            tenant: DEFAULT_TENANT.clone(),
            priority: Priority::High,
            deadline: None,
            output_bytes: 0,
            growth: Growth::default(),
            is_idempotent: false,
        }
    }
}

/// A job that has been admitted and has not ended. The shell keeps it whatever becomes of the
/// worker that runs it.
#[derive(Debug)]
pub(crate) struct LiveJob {
    /// What each try is made from.
    pub(crate) task: Task,
    pub(crate) tenant: Arc<str>,
    pub(crate) session: Option<SessionId>,
    pub(crate) deadline: Option<Duration>,
    /// Taken when the outcome is sent.
    pub(crate) reply: Option<oneshot::Sender<Outcome>>,
    pub(crate) submitted: Duration,
    /// When the present try was dispatched, and to which worker.
    pub(crate) dispatched: Option<(Duration, WorkerId)>,
    /// What the present try may grow by, if that is less than its limits.
    pub(crate) cut: Option<Growth>,
}

impl LiveJob {
    /// One try, which may take so long at most, and grow by so much if that is less than its limits.
    pub(crate) fn next_try(&mut self, due_in: Option<Duration>, cut: Option<Growth>) -> Task {
        self.cut = cut;
        let task = Task { due_in, ..self.task.clone() };
        match cut {
            None => task,
            Some(cut) => Task { limits: cut.within(&task.limits), ..task },
        }
    }

    /// The outcome as its caller is to see it: if the deadline ended the job, that is the limit, and
    /// if its limits were cut to the memory that was left, so is that.
    pub(crate) fn seen(&self, mut outcome: Outcome, now: Duration) -> Outcome {
        if self.cut.is_some() {
            let ended_it = match &mut outcome.verdict {
                Verdict::Limit(hit) => Some(hit),
                _ => None,
            };
            for hit in outcome.limits_met.iter_mut().chain(ended_it) {
                if matches!(hit.limit, LimitKind::Memory | LimitKind::FileBytes) {
                    hit.limit = LimitKind::PoolMemory;
                }
            }
        }
        if let (Verdict::Limit(hit), Some(deadline)) = (&mut outcome.verdict, self.deadline)
            && hit.limit == LimitKind::Deadline
        {
            *hit = LimitHit::deadline(deadline, now.saturating_sub(self.submitted));
        }
        outcome
    }
}

impl Drop for LiveJob {
    fn drop(&mut self) {
        // Also when the scheduler dies: nobody must wait for output that can't come.
        self.task.transcript.close();
    }
}
