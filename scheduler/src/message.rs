//! The messages of the scheduler.

use std::sync::Arc;
use std::time::Duration;

use engine::{Outcome, Transcript};
use pool::{JobId, Parked, PoolEvent, SessionId};
use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::explain::Explanation;
use crate::job::JobRequest;
use crate::model::Ending;

/// Who wants to have a session's state.
pub(crate) type CaptureReply = oneshot::Sender<Result<Option<Parked>, Refusal>>;

/// What the scheduler is told.
pub(crate) enum SchedulerMessage {
    /// From a caller, at any time. `admitted` is answered at once; after a yes, `reply` is
    /// answered exactly once. If the scheduler dies, both are dropped, which callers read as a
    /// failure of the sandbox.
    Submit {
        request: Box<JobRequest>,
        transcript: Arc<Transcript>,
        admitted: oneshot::Sender<Result<JobId, Refusal>>,
        reply: oneshot::Sender<Outcome>,
    },
    /// From a ticket, at any time; nothing happens if the job has ended.
    End(JobId, Ending),
    /// From a caller. The session with this name, opened if it isn't open.
    OpenSession { name: Arc<str>, reply: oneshot::Sender<Result<SessionId, Refusal>> },
    /// From a caller: no further jobs; it ends once its jobs have.
    CloseSession(SessionId),
    /// From a caller, between the session's jobs. Answered with its state, `None` being that of a
    /// fresh interpreter: at once if that is at hand, else when a worker has copied it. If the
    /// scheduler dies, `reply` is dropped.
    Capture { session: SessionId, reply: CaptureReply },
    /// From a caller: a new session under a name that no open one has, with this state. Answered at
    /// once.
    Adopt {
        name: Arc<str>,
        state: Option<Parked>,
        reply: oneshot::Sender<Result<SessionId, Refusal>>,
    },
    /// From a caller, between the session's jobs: it goes on from this state, `None` being that of
    /// a fresh interpreter. Answered at once.
    Replace {
        session: SessionId,
        state: Option<Parked>,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// From a caller, at any time: why a job waits. Answered at once; `None` if it has ended.
    Explain { job: JobId, reply: oneshot::Sender<Option<Explanation>> },
    /// From the pool.
    Pool(PoolEvent),
    /// From a timer: something is due.
    Tick,
    /// From a caller: no more jobs are taken; what has not ended `within` that time is ended.
    /// Answered when all have ended and the pool is closed.
    Drain { within: Option<Duration>, reply: oneshot::Sender<()> },
    /// From a caller, or the last handle as it goes: every job is cancelled, then as `Drain`.
    Abort(Option<oneshot::Sender<()>>),
}

/// Sends messages to the scheduler. Dropping the last copy sends `Abort`.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    actor: Arc<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(ActorRef<SchedulerMessage>);

impl Mailbox {
    pub(crate) fn new(actor: ActorRef<SchedulerMessage>) -> Self {
        Self { actor: Arc::new(AbortOnDrop(actor)) }
    }

    /// Fails if the scheduler has ended.
    pub(crate) fn send(&self, message: SchedulerMessage) -> Result<(), Refusal> {
        self.actor.0.cast(message).map_err(|_| Refusal::ShuttingDown)
    }

    /// Ends a job, if the scheduler still runs.
    pub(crate) fn end(&self, job: JobId, ending: Ending) {
        let _ = self.send(SchedulerMessage::End(job, ending));
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        // Fails if the scheduler has ended already.
        let _ = self.0.cast(SchedulerMessage::Abort(None));
    }
}

impl From<PoolEvent> for SchedulerMessage {
    fn from(event: PoolEvent) -> Self {
        Self::Pool(event)
    }
}

impl TryFrom<SchedulerMessage> for PoolEvent {
    type Error = ();

    fn try_from(message: SchedulerMessage) -> Result<Self, ()> {
        match message {
            SchedulerMessage::Pool(event) => Ok(event),
            SchedulerMessage::Submit { .. }
            | SchedulerMessage::End(..)
            | SchedulerMessage::OpenSession { .. }
            | SchedulerMessage::CloseSession(_)
            | SchedulerMessage::Capture { .. }
            | SchedulerMessage::Adopt { .. }
            | SchedulerMessage::Replace { .. }
            | SchedulerMessage::Explain { .. }
            | SchedulerMessage::Tick
            | SchedulerMessage::Drain { .. }
            | SchedulerMessage::Abort(_) => Err(()),
        }
    }
}
