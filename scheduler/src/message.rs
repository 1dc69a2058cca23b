//! The messages of the scheduler, and the mailbox that sends them.

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

/// Where to send whether a job is admitted.
pub(crate) type AdmissionReply = oneshot::Sender<Result<JobId, Refusal>>;

/// Where to send a copy of a session's state.
pub(crate) type CaptureReply = oneshot::Sender<Result<Option<Parked>, Refusal>>;

/// A message to the scheduler.
pub(crate) enum SchedulerMessage {
    /// From a caller, at any time. `admitted` is answered at once; if the job is admitted, `reply`
    /// is answered exactly once. If the scheduler dies, both are dropped, which callers treat as a
    /// sandbox failure.
    Submit {
        request: Box<JobRequest>,
        transcript: Arc<Transcript>,
        admitted: AdmissionReply,
        reply: oneshot::Sender<Outcome>,
    },
    /// From a ticket, at any time. Does nothing if the job has ended.
    End(JobId, Ending),
    /// From a caller. Answered with the session of this name, which is opened if it isn't open.
    OpenSession { name: Arc<str>, reply: oneshot::Sender<Result<SessionId, Refusal>> },
    /// From a caller. The session takes no more jobs, and ends once its jobs have ended.
    CloseSession(SessionId),
    /// From a caller, between the session's jobs. Answered with the session's state (`None`: that
    /// of a fresh interpreter), at once if it is in memory, else when a worker has copied it. If
    /// the scheduler dies, `reply` is dropped.
    Capture { session: SessionId, reply: CaptureReply },
    /// From a caller. Opens a session with this state, under a name that no open session has.
    /// Answered at once.
    Adopt {
        name: Arc<str>,
        state: Option<Parked>,
        reply: oneshot::Sender<Result<SessionId, Refusal>>,
    },
    /// From a caller, between the session's jobs. Replaces the session's state (`None`: that of a
    /// fresh interpreter). Answered at once.
    Replace {
        session: SessionId,
        state: Option<Parked>,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// From a caller, at any time. Answered at once with why a job waits; `None` if it has ended.
    Explain { job: JobId, reply: oneshot::Sender<Option<Explanation>> },
    /// From the pool.
    Pool(PoolEvent),
    /// From a timer. Something is due.
    Tick,
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
    actor: Arc<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(ActorRef<SchedulerMessage>);

impl Mailbox {
    pub(crate) fn new(actor: ActorRef<SchedulerMessage>) -> Self {
        Self { actor: Arc::new(AbortOnDrop(actor)) }
    }

    /// Sends a message; fails if the scheduler has ended.
    pub(crate) fn send(&self, message: SchedulerMessage) -> Result<(), Refusal> {
        self.actor.0.cast(message).map_err(|_| Refusal::ShuttingDown)
    }

    /// Asks for the end of a job. Does nothing if the scheduler has ended.
    pub(crate) fn end(&self, job: JobId, ending: Ending) {
        let _ = self.send(SchedulerMessage::End(job, ending));
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        // Fails if the scheduler has already ended.
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
