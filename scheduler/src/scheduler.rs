//! The handle of a scheduler.

use std::sync::Arc;
use std::time::Duration;

use engine::Transcript;
use pool::{Branched, BuildId, Builds, JobId, PoolConfig, SessionId, Suspended, WorkerId};
use ractor::Actor;
use tokio::sync::oneshot;

use crate::actor::{Published, SchedulerActor, SchedulerArguments};
use crate::combiner::Combiner;
use crate::config::{SchedulerConfig, cpus};
use crate::decision::Decisions;
use crate::error::{Refusal, SchedulerStartError};
use crate::explain::Explanation;
use crate::job::JobRequest;
use crate::message::{ForkNames, Forks, Mailbox, SchedulerMessage};
use crate::model::{Event, StopKind};
use crate::status::{ForkOrigin, SchedulerStatus};
use crate::ticket::{OutcomeWaiters, Ticket};

/// A handle of a scheduler and its pool. Cheap to clone. Dropping the last handle and the last
/// ticket cancels all jobs.
#[derive(Debug, Clone)]
pub struct Scheduler {
    mailbox: Mailbox,
    published: Arc<Published>,
    waiters: Arc<OutcomeWaiters>,
    /// Whose the sessions are that this handle opens, and its jobs that don't say.
    tenant: Option<Arc<str>>,
}

/// A state of a session, from which forks continue. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Branch {
    parent: SessionId,
    captured: Option<Suspended>,
    turns: u64,
    branched: Option<Branched>,
}

impl Scheduler {
    /// Starts a scheduler with its own pool. Workers become ready afterwards.
    ///
    /// # Errors
    /// The configuration is invalid, or an actor can't be started.
    pub async fn start(
        config: SchedulerConfig,
        pool: PoolConfig,
        builds: Builds,
    ) -> Result<Self, SchedulerStartError> {
        config.validate()?;
        let published = Arc::<Published>::default();
        let combiner = Combiner::new();
        let arguments = SchedulerArguments {
            config,
            pool,
            builds,
            published: Arc::clone(&published),
            combiner: Arc::clone(&combiner),
        };
        let not_started = |error| SchedulerStartError::Spawn(pool::spawn_cause(error));
        Actor::spawn(None, SchedulerActor, arguments).await.map_err(not_started)?;
        Ok(Self {
            mailbox: Mailbox::new(combiner),
            published,
            waiters: OutcomeWaiters::new(cpus()),
            tenant: None,
        })
    }

    /// Returns a handle of the same scheduler whose sessions are this tenant's, and its jobs that
    /// name none.
    #[must_use]
    pub fn of_tenant(&self, tenant: impl Into<Arc<str>>) -> Self {
        Self { tenant: Some(tenant.into()), ..self.clone() }
    }

    /// Returns the tenant of jobs that name none, if it isn't the default one.
    pub fn tenant(&self) -> Option<Arc<str>> {
        self.tenant.clone()
    }

    /// Refuses to do anything in a forked child process. What sends messages checks that by itself.
    ///
    /// # Errors
    /// This isn't the process in which the scheduler was started.
    pub fn check_process(&self) -> Result<(), Refusal> {
        Refusal::unless_here(self.mailbox.owner())
    }

    /// Submits a job, and returns as soon as it is admitted or refused.
    ///
    /// # Errors
    /// The job is refused, with the reason.
    pub async fn submit(&self, request: impl Into<Box<JobRequest>>) -> Result<Ticket, Refusal> {
        let (admitted, admission) = oneshot::channel();
        let (reply, outcome) = oneshot::channel();
        let transcript = Arc::<Transcript>::default();
        let mut request = request.into();
        request.tenant = request.tenant.or_else(|| self.tenant.clone());
        let message = SchedulerMessage::Submit {
            request,
            transcript: Arc::clone(&transcript),
            admitted,
            reply,
        };
        self.mailbox.send(message)?;
        // A caller that stops waiting wants no job. After `close`, either the scheduler can't
        // answer any more, or the answer is here.
        let mut admission = scopeguard::guard(admission, |mut admission| {
            admission.close();
            if let Ok(Ok(job)) = admission.try_recv() {
                self.mailbox.stop(job, StopKind::Cancel);
            }
        });
        let job = (&mut *admission).await.map_err(|_| Refusal::ShuttingDown)??;
        let open = self.waiters.open();
        Ok(Ticket::new(job, self.mailbox.clone(), open, outcome, transcript))
    }

    /// Returns the session with this name and its build, and opens it on `build` if it isn't open.
    ///
    /// # Errors
    /// Too many sessions are open, or the scheduler is shutting down.
    pub async fn open_session(
        &self,
        name: &str,
        build: BuildId,
    ) -> Result<(SessionId, BuildId), Refusal> {
        let (name, tenant) = (Arc::from(name), self.tenant.clone());
        self.ask(|reply| SchedulerMessage::OpenSession { name, build, tenant, reply }).await
    }

    /// Ends a session once its jobs have ended. Its state is dropped.
    pub fn close_session(&self, session: SessionId) {
        self.mailbox.leave(SchedulerMessage::Event(Event::SessionClosed(session)));
    }

    /// Copies a session's state between two of its jobs; `None` is that of a fresh interpreter.
    ///
    /// # Errors
    /// A job of the session is queued or running, the session is gone, or its state can't be
    /// copied.
    pub async fn capture(&self, session: SessionId) -> Result<Option<Suspended>, Refusal> {
        let (state, _) = self.ask(|reply| SchedulerMessage::Capture { session, reply }).await?;
        Ok(state.map(Suspended::compact))
    }

    /// Prepares forks of a session's present state.
    ///
    /// # Errors
    /// As `capture`.
    pub async fn branch(&self, session: SessionId) -> Result<Branch, Refusal> {
        let (state, turns) = self.ask(|reply| SchedulerMessage::Capture { session, reply }).await?;
        // Here, since it may take a while.
        let branched = state.clone().map(|state| state.compact().branch());
        Ok(Branch { parent: session, captured: state, turns, branched })
    }

    /// Opens sessions that continue from a branch: all of them, or none. Returns their ids and
    /// names, in order.
    ///
    /// # Errors
    /// The forked session has ended, a session has one of the names, or opening fails as in
    /// `open_session`.
    pub async fn fork(
        &self,
        branch: &Branch,
        names: ForkNames,
    ) -> Result<Vec<(SessionId, Arc<str>)>, Refusal> {
        let Branch { parent, captured, turns, branched } = branch.clone();
        let forks = Box::new(Forks { parent, captured, turns, branched, names });
        self.ask(|reply| SchedulerMessage::Fork(forks, reply)).await
    }

    /// Returns the open sessions that were forked from this one, in order, with their names.
    pub async fn children(&self, session: SessionId) -> Vec<(SessionId, Arc<str>)> {
        let (reply, answer) = oneshot::channel();
        if self.mailbox.send(SchedulerMessage::Children(session, reply)).is_err() {
            return Vec::new();
        }
        answer.await.unwrap_or_default()
    }

    /// Returns how an open session came to be a fork, if it is one.
    pub fn origin(&self, session: SessionId) -> Option<ForkOrigin> {
        self.published.snapshot.read().sessions.get(&session)?.origin
    }

    /// Returns how many workers there are.
    pub fn worker_count(&self) -> usize {
        self.published.pool.get().map_or(0, |pool| pool.workers().len())
    }

    /// Returns the name of an open session.
    pub fn session_name(&self, session: SessionId) -> Option<Arc<str>> {
        Some(Arc::clone(&self.published.snapshot.read().sessions.get(&session)?.name))
    }

    /// Returns the bytes that the states of these sessions take, as last copied, without what forks
    /// share.
    pub fn state_bytes(&self, sessions: impl IntoIterator<Item = SessionId>) -> u64 {
        let cells: Vec<_> = {
            let snapshot = self.published.snapshot.read();
            let cell = |session| Some(Arc::clone(&snapshot.sessions.get(&session)?.cell));
            sessions.into_iter().filter_map(cell).collect()
        };
        cells.iter().map(|cell| cell.bytes()).sum()
    }

    /// Opens a session with this state of an interpreter of `build`; `None` is that of a fresh one.
    ///
    /// # Errors
    /// A session with this name is open, or opening fails as in `open_session`.
    pub async fn adopt(
        &self,
        name: &str,
        build: BuildId,
        state: Option<Suspended>,
    ) -> Result<SessionId, Refusal> {
        let (name, tenant) = (Arc::from(name), self.tenant.clone());
        self.ask(|reply| SchedulerMessage::Adopt { name, build, state, tenant, reply }).await
    }

    /// Replaces a session's state; `None` is that of a fresh interpreter.
    ///
    /// # Errors
    /// A job of the session is queued or running, or the session is gone.
    pub async fn replace(
        &self,
        session: SessionId,
        state: Option<Suspended>,
    ) -> Result<(), Refusal> {
        self.ask(|reply| SchedulerMessage::Replace { session, state, reply }).await
    }

    /// Returns the present state of the scheduler and its workers. Waits at most for the decision
    /// that is being made. In a forked child process it is that of a scheduler that has ended.
    pub fn status(&self) -> SchedulerStatus {
        if !self.mailbox.owner().is_current() {
            return SchedulerStatus::ended();
        }
        SchedulerStatus::of(&self.published)
    }

    /// Explains why a job waits, and estimates for how long; `None` if it has ended or never
    /// existed.
    pub async fn explain(&self, job: JobId) -> Option<Explanation> {
        let (reply, answer) = oneshot::channel();
        self.mailbox.send(SchedulerMessage::Explain { job, reply }).ok()?;
        answer.await.ok().flatten()
    }

    /// Ends a worker after its present job. A session
    /// that it holds is suspended first, and another worker takes its place if it is needed.
    ///
    /// # Errors
    /// There is no such worker, or it has not started.
    pub async fn retire(&self, worker: WorkerId) -> Result<(), Refusal> {
        self.ask(|reply| SchedulerMessage::Retire { worker, reply }).await
    }

    /// Begins the statistics again: totals, measured times and the last errors. Returns when the
    /// status says so. Metrics continue, since counters of Prometheus never go back.
    pub async fn reset_statistics(&self) {
        self.done(SchedulerMessage::ResetStatistics).await;
    }

    /// Counts bytes of memory that the embedding program keeps for itself; further calls can only
    /// raise their number. Does nothing if the scheduler has ended.
    pub fn reserve_memory(&self, bytes: u64) {
        let _ = self.mailbox.send(SchedulerMessage::Event(Event::Reserved(bytes)));
    }

    /// Follows the decisions from now on.
    pub fn decisions(&self) -> Decisions {
        if !self.mailbox.owner().is_current() {
            return Decisions::none();
        }
        self.published.decisions.follow()
    }

    /// Refuses new jobs, finishes the admitted ones, and ends every worker.
    pub async fn drain(&self) {
        self.done(|reply| SchedulerMessage::Drain { within: None, reply }).await;
    }

    /// Refuses new jobs, finishes those that end within `time`, cancels the others, and ends every
    /// worker.
    pub async fn drain_for(&self, time: Duration) {
        self.done(|reply| SchedulerMessage::Drain { within: Some(time), reply }).await;
    }

    /// Refuses new jobs, cancels the admitted ones, and ends every worker.
    pub async fn abort(&self) {
        self.done(|reply| SchedulerMessage::Abort(Some(reply))).await;
    }

    /// Sends a message and waits until it is done, or the scheduler has ended.
    async fn done(&self, message: impl FnOnce(oneshot::Sender<()>) -> SchedulerMessage) {
        let (reply, done) = oneshot::channel();
        if self.mailbox.send(message(reply)).is_ok() {
            let _ = done.await;
        }
    }

    async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> SchedulerMessage,
    ) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.mailbox.send(message(reply))?;
        answer.await.map_err(|_| Refusal::ShuttingDown)?
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::thread::{self, JoinHandle};

    use engine::Program;
    use test_support::fake::FakeSource;

    use super::*;
    use crate::config::WorkersConfig;

    async fn start() -> Scheduler {
        let config = SchedulerConfig {
            concurrent: 1,
            workers: WorkersConfig::fixed(1),
            ..SchedulerConfig::default()
        };
        let source = Builds::new(Arc::new(FakeSource::default()));
        Scheduler::start(config, PoolConfig::default(), source).await.unwrap()
    }

    fn long_job() -> JobRequest {
        let program = Program { source: "wait".to_owned(), ..Program::default() };
        JobRequest { program, ..JobRequest::default() }
    }

    /// Has another thread decide on something, which takes until the guard is dropped.
    fn keep_deciding(scheduler: &Scheduler) -> (impl Sized, JoinHandle<Result<(), Refusal>>) {
        // A decision waits for readers of the last one's result.
        let reading = scheduler.published.snapshot.read();
        let mailbox = scheduler.mailbox.clone();
        let deciding = thread::spawn(move || mailbox.send(SchedulerMessage::Event(Event::Tick)));
        while scheduler.published.snapshot.try_read().is_some() {
            thread::yield_now();
        }
        (reading, deciding)
    }

    async fn until(scheduler: &Scheduler, condition: impl Fn(&SchedulerStatus) -> bool) {
        tokio::time::timeout(Duration::from_secs(20), async {
            while !condition(&scheduler.status()) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("it happens in time");
    }

    #[tokio::test]
    async fn an_outcome_that_is_here_is_found_at_the_first_poll() {
        let scheduler = start().await;
        let ticket = scheduler.submit(long_job()).await.unwrap();
        ticket.stop();
        until(&scheduler, |status| status.totals.cancelled == 1).await;
        // Outcomes are sent before the next decision is made.
        scheduler.abort().await;
        let mut ticket = pin!(ticket.into_future());
        let polled = ticket.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready());
    }

    #[tokio::test]
    async fn a_submission_that_is_dropped_undecided_is_cancelled() {
        let scheduler = start().await;
        let deciding = {
            let (_reading, deciding) = keep_deciding(&scheduler);
            let mut submission = pin!(scheduler.submit(long_job()));
            let polled = submission.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending));
            deciding
        };
        deciding.join().unwrap().unwrap();
        until(&scheduler, |status| status.totals.cancelled == 1).await;
        scheduler.abort().await;
    }

    #[tokio::test]
    async fn a_submission_that_is_dropped_with_its_answer_is_cancelled() {
        let scheduler = start().await;
        {
            let (reading, deciding) = keep_deciding(&scheduler);
            let mut submission = pin!(scheduler.submit(long_job()));
            let polled = submission.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending));
            drop(reading);
            deciding.join().unwrap().unwrap();
            until(&scheduler, |status| status.queue_depth + status.running == 1).await;
        }
        until(&scheduler, |status| status.totals.cancelled == 1).await;
        scheduler.abort().await;
    }
}
