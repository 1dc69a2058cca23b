//! A job as it is submitted, and as the shell keeps it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use engine::{
    LimitHit, LimitKind, Limits, Outcome, Program, ProgramEntry, Value, Variables, Verdict,
};
use pool::{BuildId, SessionId, Task, WorkerId};
use serde::Serialize;
use strum::IntoStaticStr;
use tokio::sync::oneshot;

/// The tenant of jobs that name none.
pub const DEFAULT_TENANT: &str = "default";

/// Its name as jobs share it.
pub(crate) static SHARED_DEFAULT_TENANT: LazyLock<Arc<str>> =
    LazyLock::new(|| Arc::from(DEFAULT_TENANT));

/// How urgent a job is among its tenant's jobs.
///
/// A job counts as submitted earlier or later by
/// [`SchedulerConfig::priority_step`](crate::SchedulerConfig::priority_step), so urgent jobs
/// overtake others without starving them.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, Serialize,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Priority {
    /// Somebody is waiting for the outcome.
    High,
    /// Everything else.
    #[default]
    Normal,
    /// Background work.
    Low,
}

impl Priority {
    /// Every priority, the most urgent first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Returns its name, as used in metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A job to submit.
#[derive(Debug, Clone, Default)]
pub struct JobRequest {
    /// The program to run.
    pub program: Program,
    /// The limits of its run.
    pub limits: Limits,
    /// The build of its fresh interpreter. A job in a session runs on the session's.
    pub build: BuildId,
    /// The session to run in. Without one, the job gets a fresh interpreter.
    pub session: Option<SessionId>,
    /// The tenant, whose weight decides its share. `None` is [`DEFAULT_TENANT`].
    pub tenant: Option<Arc<str>>,
    /// How urgent the job is among the tenant's jobs.
    pub priority: Priority,
    /// The time from submission by which the outcome is due. A job that would miss it is refused.
    /// One that is still queued or running at that time ends with the limit `deadline`.
    pub deadline: Option<Duration>,
    /// Whether running the job twice is harmless, so that it may be retried when the sandbox fails.
    /// `None` means yes for a job without a session, host functions and a network, since nobody can
    /// have seen the failed run.
    pub idempotent: Option<bool>,
    /// Whether it is a test of the pool itself: then no total, measure, metric or decision tells of
    /// it.
    pub is_self_test: bool,
    /// Receives the outcome before the caller does.
    pub observer: Option<JobObserver>,
}

/// Receives the outcome of a job, even if its ticket was dropped. It runs on a thread that decides,
/// so it must not block.
#[derive(Clone, derive_more::Debug)]
#[debug("JobObserver")]
pub struct JobObserver(Arc<OnOutcome>);

/// Gets an outcome, and whether the caller asked the job to end.
type OnOutcome = dyn Fn(&Outcome, bool) + Send + Sync;

impl JobObserver {
    /// Creates one from a function of the outcome, and of whether the caller asked the job to end.
    pub fn new(ended: impl Fn(&Outcome, bool) + Send + Sync + 'static) -> Self {
        Self(Arc::new(ended))
    }

    pub(crate) fn ended(&self, outcome: &Outcome, was_stopped: bool) {
        (self.0)(outcome, was_stopped);
    }
}

/// What the model knows of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Bytes of memory that it holds while it is queued.
    pub(crate) bytes: usize,
    pub(crate) build: BuildId,
    pub(crate) session: Option<SessionId>,
    pub(crate) tenant: Arc<str>,
    pub(crate) priority: Priority,
    /// The time from submission to the deadline.
    pub(crate) deadline: Option<Duration>,
    /// Bytes of memory that its output may take while it runs.
    pub(crate) output_bytes: usize,
    /// What it may grow by while it runs.
    pub(crate) growth: Growth,
    /// Whether it may be retried.
    pub(crate) is_idempotent: bool,
}

/// The most that a run may grow by, according to its limits or to the memory that is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The guest's memory.
    pub(crate) memory_bytes: u64,
    /// The run's files.
    pub(crate) file_bytes: u64,
}

impl Growth {
    /// The address space of a 32-bit guest.
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

    /// Reduces the growth by `bytes`: the files' part first, down to an eighth of the rest.
    pub(crate) fn cut_by(self, bytes: u64) -> Self {
        let left = self.bytes().saturating_sub(bytes);
        let file_bytes =
            self.file_bytes.min((left / 8).max(left.saturating_sub(self.memory_bytes)));
        Self { memory_bytes: left - file_bytes, file_bytes }
    }

    /// Lowers `limits` to keep a run within this growth.
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
    /// Extracts what the model needs to know of the job.
    pub(crate) fn queued(&self) -> Queued {
        let has_effects = !self.program.functions.is_empty()
            || !self.program.network.is_empty()
            || self.program.egress.is_some();
        Queued {
            bytes: self.bytes(),
            build: self.build,
            session: self.session,
            tenant: self.tenant.clone().unwrap_or_else(|| SHARED_DEFAULT_TENANT.clone()),
            priority: self.priority,
            deadline: self.deadline,
            // Each of the two streams may write as much.
            output_bytes: self
                .limits
                .output_bytes
                .saturating_mul(2)
                .saturating_add(self.limits.display_bytes),
            growth: Growth::of(&self.limits),
            is_idempotent: self.idempotent.unwrap_or(self.session.is_none() && !has_effects),
        }
    }

    /// Bytes of memory that the job holds while it is queued.
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
            ProgramEntry::Call(call) => {
                call.args.iter().map(Value::bytes).sum::<usize>() + named(&call.keywords)
            }
            _ => 0,
        };
        source.len() + filename + args + env + stdin.len() + files + named(variables) + call
    }
}

impl Queued {
    /// Describes the copy of a session's state, which counts as a job of that session.
    pub(crate) fn capture(session: SessionId, build: BuildId) -> Self {
        Self {
            build,
            session: Some(session),
            tenant: SHARED_DEFAULT_TENANT.clone(),
            priority: Priority::High,
            ..Self::default()
        }
    }
}

/// An admitted job that has not ended. The shell keeps it even if its worker dies.
#[derive(Debug)]
pub(crate) struct LiveJob {
    /// The template of each try.
    pub(crate) task: Task,
    pub(crate) tenant: Arc<str>,
    pub(crate) session: Option<SessionId>,
    pub(crate) deadline: Option<Duration>,
    /// Taken when the outcome is sent.
    pub(crate) reply: Option<oneshot::Sender<Box<Outcome>>>,
    pub(crate) observer: Option<JobObserver>,
    pub(crate) submitted: Duration,
    /// When the present try was dispatched, and to which worker.
    pub(crate) dispatched: Option<(Duration, WorkerId)>,
    /// What the present try may grow by, if that is less than its limits.
    pub(crate) cut: Option<Growth>,
}

impl LiveJob {
    /// Creates the task of the next try, with its remaining time and reduced growth, if any.
    pub(crate) fn next_try(&mut self, due_in: Option<Duration>, cut: Option<Growth>) -> Task {
        self.cut = cut;
        let task = Task { due_in, ..self.task.clone() };
        match cut {
            None => task,
            Some(cut) => Task { limits: cut.within(&task.limits), ..task },
        }
    }

    /// Adjusts the outcome for the caller: names the deadline if that ended the job. Names the
    /// pool's memory if the job reached limits that were cut to it. Advice is in the caller's
    /// words.
    pub(crate) fn adjust(&self, outcome: &mut Outcome, now: Duration) {
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
        outcome.word_for(self.task.program.interface.unwrap_or_default());
    }
}

impl Drop for LiveJob {
    fn drop(&mut self) {
        // Also runs when the scheduler dies, so that nobody waits for output that can't come.
        self.task.transcript.close();
    }
}
