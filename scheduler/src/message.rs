//! The messages of the scheduler, and the mailbox that sends them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::{Cause, Outcome, OwnerProcess, Transcript};
use pool::{Branched, BuildId, JobId, PoolEvent, PoolOwner, SessionId, Suspended, WorkerId};
use tokio::sync::oneshot;

use crate::combiner::{Combiner, Ended};
use crate::error::Refusal;
use crate::explain::Explanation;
use crate::job::JobRequest;
use crate::model::{Event, StopKind};

/// Where to send whether a job is admitted.
pub(crate) type AdmissionReply = oneshot::Sender<Result<JobId, Refusal>>;

/// Where to send a copy of a session's state, with the number of turns that have ended in it.
pub(crate) type CaptureReply = oneshot::Sender<Result<(Option<Suspended>, u64), Refusal>>;

/// Sessions to open with one state.
pub(crate) struct Forks {
    pub(crate) parent: SessionId,
    /// The state of the parent, as it was captured; `None` is that of a fresh interpreter.
    pub(crate) captured: Option<Suspended>,
    /// The turns of the parent that had ended then.
    pub(crate) turns: u64,
    /// The same state as one that is forked.
    pub(crate) branched: Option<Branched>,
    pub(crate) names: ForkNames,
}

/// The names of forks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkNames {
    /// These.
    Given(Vec<Arc<str>>),
    /// So many: the name of the first session of the tree, a tilde, and the next numbers.
    Numbered(usize),
}

impl ForkNames {
    /// Returns how many they are.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Given(names) => names.len(),
            Self::Numbered(count) => *count,
        }
    }
}

/// The ids and names of forks, in order.
pub(crate) type Forked = Vec<(SessionId, Arc<str>)>;

pub(crate) enum SchedulerMessage {
    /// From a caller, at any time. `admitted` is answered at once; if the job is admitted, `reply`
    /// is answered exactly once. If the scheduler dies, both are dropped, which callers treat as a
    /// sandbox failure.
    Submit {
        request: Box<JobRequest>,
        transcript: Arc<Transcript>,
        admitted: AdmissionReply,
        reply: oneshot::Sender<Box<Outcome>>,
    },
    /// From a ticket, a session, a timer or the embedding program. What the model decides as it is.
    Event(Event),
    /// From a caller. Answered with the session of this name and its build. If it isn't open, it is
    /// opened on this build.
    OpenSession {
        name: Arc<str>,
        build: BuildId,
        tenant: Option<Arc<str>>,
        reply: oneshot::Sender<Result<(SessionId, BuildId), Refusal>>,
    },
    /// From a caller, between the session's jobs. Answered with the session's state (`None`: that
    /// of a fresh interpreter). The answer comes at once if it is in memory, else when a worker has
    /// copied it. If the scheduler dies, `reply` is dropped.
    Capture { session: SessionId, reply: CaptureReply },
    /// From a caller. Opens a session with this state of an interpreter of this build, under a name
    /// that no open session has. Answered at once.
    Adopt {
        name: Arc<str>,
        build: BuildId,
        state: Option<Suspended>,
        tenant: Option<Arc<str>>,
        reply: oneshot::Sender<Result<SessionId, Refusal>>,
    },
    /// From a caller. Opens all of these sessions, or none. Answered at once.
    Fork(Box<Forks>, oneshot::Sender<Result<Forked, Refusal>>),
    /// From a caller, between the session's jobs. Replaces the session's state (`None`: that of a
    /// fresh interpreter). Answered at once.
    Replace {
        session: SessionId,
        state: Option<Suspended>,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// From a caller, at any time. Answered at once with the open sessions that were forked from
    /// this one, in order.
    Children(SessionId, oneshot::Sender<Forked>),
    /// From a caller, at any time. Answered at once with why a job waits; `None` if it has ended.
    Explain { job: JobId, reply: oneshot::Sender<Option<Explanation>> },
    /// From a caller, at any time. The worker ends after its present job. Answered at once.
    Retire { worker: WorkerId, reply: oneshot::Sender<Result<(), Refusal>> },
    /// From a caller, at any time. Totals, measured times and errors begin again.
    ResetStatistics(oneshot::Sender<()>),
    /// From the pool.
    Pool(PoolEvent),
    /// From the actor, once: the pool's supervisor has ended, for this reason.
    PoolEnded(Cause),
    /// From a caller. No more jobs are admitted, and those that have not ended `within` this time
    /// are cancelled. Answered when all have ended and the pool is closed.
    Drain { within: Option<Duration>, reply: oneshot::Sender<()> },
    /// From a caller, or from the last handle when it is dropped. Cancels every job, then acts as
    /// `Drain`.
    Abort(Option<oneshot::Sender<()>>),
}

/// Sends messages to the scheduler. Dropping the last clone sends `Abort`.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    combiner: Arc<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop {
    combiner: Arc<Combiner<SchedulerMessage>>,
    owner: OwnerProcess,
}

impl Mailbox {
    pub(crate) fn new(combiner: Arc<Combiner<SchedulerMessage>>) -> Self {
        Self { combiner: Arc::new(AbortOnDrop { combiner, owner: OwnerProcess::current() }) }
    }

    pub(crate) fn owner(&self) -> OwnerProcess {
        self.combiner.owner
    }

    /// Sends a message, and decides on it here if nothing else is being decided. Fails if the
    /// scheduler has ended, and in another process than its own.
    pub(crate) fn send(&self, message: SchedulerMessage) -> Result<(), Refusal> {
        // Before any lock, which a thread may have had that this process lacks.
        Refusal::unless_here(self.owner())?;
        self.combiner.combiner.send(message).map_err(|_| Refusal::ShuttingDown)
    }

    /// Sends a message that another thread decides on, for callers that expect nothing to happen
    /// here. Tickets may be dropped under locks that dropping a job's host functions takes. A job
    /// that ends is dropped on the thread that decides. Does nothing if the scheduler has ended or
    /// is another process's.
    pub(crate) fn leave(&self, message: SchedulerMessage) {
        self.combiner.post(message);
    }

    /// Asks for the end of a job, as `leave` does.
    pub(crate) fn stop(&self, job: JobId, kind: StopKind) {
        self.leave(SchedulerMessage::Event(Event::StopRequested(job, kind)));
    }
}

impl AbortOnDrop {
    fn post(&self, message: SchedulerMessage) {
        if self.owner.is_current() {
            // Fails if the scheduler has already ended.
            let _ = self.combiner.post(message);
        }
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.post(SchedulerMessage::Abort(None));
    }
}

/// The scheduler as the owner of its pool, which doesn't keep the scheduler.
pub(crate) struct Owner(Weak<Combiner<SchedulerMessage>>);

impl Owner {
    pub(crate) fn new(combiner: &Arc<Combiner<SchedulerMessage>>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(combiner)))
    }

    fn pass(
        &self,
        event: PoolEvent,
        how: fn(&Combiner<SchedulerMessage>, SchedulerMessage) -> Result<(), Ended>,
    ) {
        let passed = self.0.upgrade().map(|combiner| how(&combiner, SchedulerMessage::Pool(event)));
        if passed != Some(Ok(())) {
            tracing::debug!("the pool's owner is gone");
        }
    }
}

impl PoolOwner for Owner {
    fn tell(&self, event: PoolEvent) {
        self.pass(event, Combiner::send);
    }

    fn leave(&self, event: PoolEvent) {
        self.pass(event, Combiner::post);
    }
}
