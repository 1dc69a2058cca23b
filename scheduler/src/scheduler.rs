//! The handle of a scheduler.

use std::sync::Arc;

use engine::{StopHandle, Transcript};
use pool::{InterpreterSource, JobId, PoolConfig, SessionId};
use ractor::{Actor, ActorRef};
use tokio::sync::oneshot;

use crate::actor::{Published, SchedulerActor, SchedulerArguments};
use crate::config::SchedulerConfig;
use crate::error::{Refusal, SchedulerStartError};
use crate::job::JobRequest;
use crate::message::SchedulerMessage;
use crate::model::Ending;
use crate::status::{SchedulerStatus, SessionStatus};
use crate::ticket::Ticket;
use crate::timer::now;

/// The handle of a scheduler and its pool. Cheap to clone. When the last handle and the last
/// ticket are dropped, everything that still runs is cancelled.
#[derive(Debug, Clone)]
pub struct Scheduler {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    actor: ActorRef<SchedulerMessage>,
    published: Arc<Published>,
}

/// An open session, as the scheduler names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionRef {
    /// The session.
    pub session: SessionId,
}

impl Scheduler {
    /// Starts a scheduler with a pool of its own. Workers become ready afterwards.
    ///
    /// # Errors
    /// The configuration makes no sense, or an actor can't be started.
    pub async fn start(
        config: SchedulerConfig,
        pool: PoolConfig,
        source: Arc<dyn InterpreterSource>,
    ) -> Result<Self, SchedulerStartError> {
        config.validate()?;
        let published = Arc::<Published>::default();
        let arguments =
            SchedulerArguments { config, pool, source, published: Arc::clone(&published) };
        let (actor, _) = Actor::spawn(None, SchedulerActor, arguments)
            .await
            .map_err(|error| SchedulerStartError::Spawn(error.to_string()))?;
        Ok(Self { inner: Arc::new(Inner { actor, published }) })
    }

    /// Submits a job. Answers as soon as it is known whether the job is taken.
    ///
    /// # Errors
    /// The job is refused, with the reason.
    pub async fn submit(&self, request: JobRequest) -> Result<Ticket, Refusal> {
        let (admitted, admission) = oneshot::channel();
        let (reply, outcome) = oneshot::channel();
        let transcript = Arc::<Transcript>::default();
        let message = SchedulerMessage::Submit {
            request: Box::new(request),
            stop: StopHandle::default(),
            transcript: Arc::clone(&transcript),
            admitted,
            reply,
        };
        self.send(message)?;
        let job = Admission { scheduler: self, answer: admission }.wait().await?;
        Ok(Ticket::new(job, self.clone(), outcome, transcript))
    }

    /// The session with this name, opened if it isn't open.
    ///
    /// # Errors
    /// Too many sessions are open, or the scheduler is shutting down.
    pub async fn open_session(&self, name: &str) -> Result<SessionRef, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.send(SchedulerMessage::OpenSession { name: Arc::from(name), reply })?;
        let session = answer.await.map_err(|_| Refusal::ShuttingDown)??;
        Ok(SessionRef { session })
    }

    /// Ends a session once its jobs have ended. Its state is dropped.
    pub fn close_session(&self, session: SessionRef) {
        let _ = self.send(SchedulerMessage::CloseSession(session.session));
    }

    /// The scheduler and its workers as they are now. Never waits for anybody.
    pub fn status(&self) -> SchedulerStatus {
        let snapshot = self.inner.published.snapshot.read().clone();
        let workers = self.inner.published.pool.get().map(pool::Pool::workers).unwrap_or_default();
        SchedulerStatus {
            phase: snapshot.phase,
            queue_depth: snapshot.queue_depth,
            queued_bytes: snapshot.queued_bytes,
            oldest_wait: snapshot.oldest.map(|oldest| now().saturating_duration_since(oldest)),
            running: snapshot.running,
            sessions: snapshot
                .sessions
                .into_iter()
                .map(|(session, name, queue_depth)| SessionStatus {
                    session,
                    name: name.to_string(),
                    queue_depth,
                })
                .collect(),
            workers,
            totals: snapshot.totals,
        }
    }

    /// Takes no more jobs, finishes those it has, and ends every worker.
    pub async fn drain(&self) {
        let (reply, done) = oneshot::channel();
        if self.send(SchedulerMessage::Drain(reply)).is_ok() {
            let _ = done.await;
        }
    }

    /// Takes no more jobs, cancels those it has, and ends every worker.
    pub async fn abort(&self) {
        let (reply, done) = oneshot::channel();
        if self.send(SchedulerMessage::Abort(Some(reply))).is_ok() {
            let _ = done.await;
        }
    }

    pub(crate) fn end(&self, job: JobId, ending: Ending) {
        let _ = self.send(SchedulerMessage::End(job, ending));
    }

    fn send(&self, message: SchedulerMessage) -> Result<(), Refusal> {
        self.inner.actor.cast(message).map_err(|_| Refusal::ShuttingDown)
    }
}

/// A submission that has not been answered, or whose answer was not taken yet.
struct Admission<'a> {
    scheduler: &'a Scheduler,
    answer: oneshot::Receiver<Result<JobId, Refusal>>,
}

impl Admission<'_> {
    async fn wait(mut self) -> Result<JobId, Refusal> {
        (&mut self.answer).await.map_err(|_| Refusal::ShuttingDown)?
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        // A caller that stops waiting wants no job. Either the scheduler finds nobody to answer, or
        // its answer is here.
        self.answer.close();
        if let Ok(Ok(job)) = self.answer.try_recv() {
            self.scheduler.end(job, Ending::Cancel);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Fails if the scheduler has ended, which is as well.
        let _ = self.actor.cast(SchedulerMessage::Abort(None));
    }
}
