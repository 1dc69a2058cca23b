//! What the scheduler decided and why, as the stream of decisions carries it.

use std::collections::VecDeque;
use std::time::Duration;

use derive_more::Display;
use engine::{OwnerProcess, counted};
use parking_lot::Mutex;
use pool::{JobId, SessionId, Tier, WorkerId, as_seconds};
use serde::Serialize;
use strum::IntoStaticStr;
use tokio::sync::broadcast;

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
    /// A session could not be compressed or offloaded. It stays in memory.
    NotEvicted {
        /// The session.
        session: SessionId,
        /// What failed.
        error: String,
    },
    /// A worker gets a new interpreter. One that was retired on request ends, and another takes its
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
    /// Sessions were opened that continue from the state of another one. Their ids follow each
    /// other.
    SessionForked {
        /// The session that was forked.
        session: SessionId,
        /// How many forks were opened.
        count: usize,
        /// The first of them.
        first: SessionId,
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
        #[serde(rename = "within_seconds", serialize_with = "as_seconds")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
#[derive(Debug, Clone, PartialEq, Eq, Display, IntoStaticStr, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum EvictionReason {
    /// It was idle for long.
    #[display("it was idle for {:.1} s", rested.as_secs_f64())]
    Idle {
        /// How long it was idle.
        #[serde(rename = "rested_seconds", serialize_with = "as_seconds")]
        rested: Duration,
    },
    /// Too many sessions were in memory, and it had been idle longest.
    #[display(
        "at most {} may be in memory, and it had been idle longest",
        counted(limit, "session")
    )]
    TooManyInMemory {
        /// How many may be in memory.
        limit: usize,
    },
    /// Memory was short, and it had been idle longest.
    #[display("{used} of {limit} bytes were in use, and it had been idle longest")]
    MemoryPressure {
        /// Bytes in use.
        used: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Its worker was needed for another job, or ended.
    #[display("{worker} was needed")]
    WorkerNeeded {
        /// The worker.
        worker: WorkerId,
    },
}

/// Why a worker is retired.
#[derive(Debug, Clone, PartialEq, Eq, Display, IntoStaticStr, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum RetireReason {
    /// A job used too much memory to keep its interpreter.
    #[display("a job had {bytes} bytes of memory, more than {limit}")]
    HighWater {
        /// The peak memory of the job, in bytes.
        bytes: u64,
        /// The configured threshold, in bytes.
        limit: u64,
    },
    /// The sandbox failed on it.
    #[display("the sandbox failed there")]
    SandboxFailed,
    /// A caller asked for it.
    #[display("on request")]
    Requested,
}

/// Why a pool is degraded.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DegradedReason {
    /// Workers die again and again.
    #[display("{} died within {} s, the last one with: {error}", counted(count, "worker"), within.as_secs())]
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
    #[display("a worker couldn't start: {error}")]
    WorkersDoNotStart {
        /// How many places for workers were given up for now.
        given_up: usize,
        /// What the last one failed at.
        error: String,
    },
    /// Workers have failed to start again and again, and none is left, so jobs are refused.
    #[display("no worker is left: {error}")]
    NoWorkerLeft {
        /// What the last one failed at.
        error: String,
    },
}

/// Why a pool ends.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EndReason {
    /// It was drained.
    #[display("it was drained")]
    Drained,
    /// It was aborted.
    #[display("it was aborted")]
    Aborted,
    /// Its last handle was dropped.
    #[display("its last handle was dropped")]
    Dropped,
    /// What supervises its workers has died.
    #[display("the supervisor of its workers died: {error}")]
    Died {
        /// How.
        error: String,
    },
}

/// How many decisions a slow follower may be behind before it misses some.
const FOLLOWED: usize = 1024;

/// How many decisions are kept for the status.
const KEPT: usize = 50;

/// Sends decisions to followers, and keeps the last ones.
#[derive(Debug, Default)]
pub(crate) struct DecisionLog {
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    /// `None` once no more decisions will follow.
    sender: Option<broadcast::Sender<Decision>>,
    last: u64,
    kept: VecDeque<Decision>,
}

impl Default for LogState {
    fn default() -> Self {
        let sender = Some(broadcast::channel(FOLLOWED).0);
        Self { sender, last: 0, kept: VecDeque::new() }
    }
}

impl DecisionLog {
    /// Sends a decision, and keeps it for the status.
    pub(crate) fn record(&self, at: Duration, kind: DecisionKind) {
        let mut state = self.state.lock();
        if state.kept.len() == KEPT {
            state.kept.pop_front();
        }
        let decision = state.send(at, kind);
        state.kept.push_back(decision);
    }

    /// Sends a decision. If there are no followers, it is only counted.
    pub(crate) fn broadcast(&self, at: Duration, kind: impl FnOnce() -> DecisionKind) {
        let mut state = self.state.lock();
        if state.sender.as_ref().is_some_and(|sender| sender.receiver_count() > 0) {
            state.send(at, kind());
        } else {
            state.last += 1;
        }
    }

    /// Ends the stream of decisions.
    pub(crate) fn close(&self) {
        self.state.lock().sender = None;
    }

    pub(crate) fn follow(&self) -> Decisions {
        let receiver = match &self.state.lock().sender {
            Some(sender) => sender.subscribe(),
            None => return Decisions::none(),
        };
        Decisions { receiver, owner: OwnerProcess::current() }
    }

    /// Returns the last decisions that were kept, the latest first.
    pub(crate) fn last(&self) -> Vec<Decision> {
        self.state.lock().kept.iter().rev().cloned().collect()
    }
}

impl LogState {
    /// Called with the lock held, so that followers receive decisions in the order of their
    /// numbers.
    fn send(&mut self, at: Duration, kind: DecisionKind) -> Decision {
        self.last += 1;
        let decision = Decision { sequence: self.last, at, kind };
        if let Some(sender) = &self.sender {
            // Fails if there are no followers.
            let _ = sender.send(decision.clone());
        }
        decision
    }
}

/// Receives the scheduler's decisions from when it was created. It blocks nobody: a follower that
/// is more than 1,024 decisions behind misses some, and learns how many.
#[derive(Debug)]
#[must_use = "a follower that isn't read receives nothing"]
pub struct Decisions {
    receiver: broadcast::Receiver<Decision>,
    owner: OwnerProcess,
}

/// What a follower receives next: a decision or a gap, and nothing else ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextDecision {
    /// A decision.
    Decision(Decision),
    /// The follower was too slow and missed this many decisions.
    Missed(u64),
}

impl Decisions {
    /// Receives nothing.
    pub(crate) fn none() -> Self {
        Self { receiver: broadcast::channel(1).1, owner: OwnerProcess::current() }
    }

    /// Returns the next decision; `None` once the scheduler has ended and all were received, and in
    /// a forked child process. Cancel-safe.
    pub async fn next(&mut self) -> Option<NextDecision> {
        if !self.owner.is_current() {
            return None;
        }
        match self.receiver.recv().await {
            Ok(decision) => Some(NextDecision::Decision(decision)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(NextDecision::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use pool::JobId;

    use super::*;

    fn ended(job: u64) -> DecisionKind {
        DecisionKind::Ended { job: JobId(job), how: "succeeded" }
    }

    #[tokio::test]
    async fn followers_receive_everything_since_they_came_or_how_much_they_missed() {
        let log = DecisionLog::default();
        log.broadcast(Duration::ZERO, || ended(1));
        let (mut quick, mut slow) = (log.follow(), log.follow());
        for job in 2..2000 {
            log.broadcast(Duration::ZERO, || ended(job));
            let Some(NextDecision::Decision(decision)) = quick.next().await else { panic!() };
            assert_eq!((decision.sequence, decision.kind), (job, ended(job)));
        }
        assert_eq!(slow.next().await, Some(NextDecision::Missed(1998 - FOLLOWED as u64)));
        log.close();
        assert_eq!(quick.next().await, None);
        assert_eq!(log.follow().next().await, None);
    }

    #[test]
    fn the_last_ones_are_kept_but_not_those_about_single_jobs() {
        let log = DecisionLog::default();
        for _ in 0..KEPT + 3 {
            log.record(Duration::ZERO, DecisionKind::WorkerAdded);
            log.broadcast(Duration::ZERO, || ended(1));
        }
        let last = log.last();
        assert_eq!(last.len(), KEPT);
        assert_eq!(last[0].sequence, 2 * (KEPT as u64 + 3) - 1);
    }
}
