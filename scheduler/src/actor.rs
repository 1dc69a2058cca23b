//! The shell around the model: messages become events, effects are carried out. No decisions.
//!
//! It keeps every admitted job until its outcome is sent, whatever becomes of the worker that runs
//! it: a dead worker's mailbox is lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use engine::{Outcome, SandboxFailure, Stream, Verdict};
use parking_lot::RwLock;
use pool::{
    InterpreterSource, JobId, Pool, PoolConfig, PoolEvent, Seat, SessionCell, SessionId, Task,
    WorkerId,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::SchedulerConfig;
use crate::effect::{Effect, Settlement};
use crate::error::Refusal;
use crate::job::{JobRequest, LiveJob};
use crate::message::SchedulerMessage;
use crate::model::{Ending, Event, Model};
use crate::status::{Phase, Totals};
use crate::timer::now;

use sessions::{Capture, OpenSession};

mod sessions;

/// What ractor says of an actor whose task was cancelled, which only the end of its runtime does.
const CANCELLED: &str = "actor_task_cancelled";

/// What the scheduler is made from.
pub(crate) struct SchedulerArguments {
    pub(crate) config: SchedulerConfig,
    pub(crate) pool: PoolConfig,
    pub(crate) source: Arc<dyn InterpreterSource>,
    pub(crate) published: Arc<Published>,
}

/// What handles read without asking the actor.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) pool: OnceLock<Pool>,
    pub(crate) snapshot: RwLock<Snapshot>,
}

/// The scheduler after its last decision.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) phase: Phase,
    pub(crate) queue_depth: usize,
    pub(crate) queued_bytes: usize,
    pub(crate) oldest: Option<Instant>,
    pub(crate) running: usize,
    pub(crate) sessions: BTreeMap<SessionId, ShownSession>,
    pub(crate) totals: Totals,
}

/// One open session after the last decision; its cell says where its state is now.
#[derive(Debug, Clone)]
pub(crate) struct ShownSession {
    pub(crate) name: Arc<str>,
    pub(crate) queue_depth: usize,
    pub(crate) cell: Arc<SessionCell>,
}

/// The actor.
pub(crate) struct SchedulerActor;

pub(crate) struct SchedulerState {
    model: Model,
    pool: Pool,
    published: Arc<Published>,
    jobs: HashMap<JobId, Box<LiveJob>>,
    /// Copies of states that a worker is to make. To the model they are jobs of their sessions.
    captures: HashMap<JobId, Capture>,
    /// What the model is deciding on.
    applying: Option<Application>,
    seats: HashMap<WorkerId, Seat>,
    sessions: HashMap<SessionId, OpenSession>,
    /// The session that was opened last under each name.
    names: HashMap<Arc<str>, SessionId>,
    /// Sessions that are not as they were published. There may be too many to publish them all.
    touched: Vec<SessionId>,
    totals: Totals,
    next_job: u64,
    next_session: u64,
    draining: Vec<oneshot::Sender<()>>,
    is_closing: bool,
}

/// What is between submission and admission.
enum Application {
    Job { live: Box<LiveJob>, admitted: oneshot::Sender<Result<JobId, Refusal>> },
    Capture(Capture),
}

impl Actor for SchedulerActor {
    type Msg = SchedulerMessage;
    type State = SchedulerState;
    type Arguments = SchedulerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let SchedulerArguments { config, pool, source, published } = arguments;
        let model = Model::new(config, pool.workers);
        let pool = Pool::start(pool, source, myself.get_derived()).await?;
        let set = published.pool.set(pool.clone());
        debug_assert!(set.is_ok(), "one scheduler publishes here");
        Ok(SchedulerState {
            model,
            pool,
            published,
            jobs: HashMap::new(),
            captures: HashMap::new(),
            applying: None,
            seats: HashMap::new(),
            sessions: HashMap::new(),
            names: HashMap::new(),
            touched: Vec::new(),
            totals: Totals::default(),
            next_job: 1,
            next_session: 1,
            draining: Vec::new(),
            is_closing: false,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.decide_and_publish(|state| state.receive(message));
        state.finish_drain(&myself);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let ended = match event {
            SupervisionEvent::ActorTerminated(_, _, reason) => reason.unwrap_or_default(),
            SupervisionEvent::ActorFailed(_, error) => error.to_string(),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {
                return Ok(());
            }
        };
        // The pool's supervisor is the only child. When it ends by itself, workers end with it.
        if state.model.phase() != Phase::Drained {
            if ended == CANCELLED {
                tracing::debug!("the runtime ended before the pool was drained");
            } else {
                tracing::error!(reason = ended, "the pool's supervisor died");
            }
            let reason = format!("the pool's supervisor died: {ended}");
            state.decide_and_publish(|state| state.settle_everything(&reason));
            myself.stop(Some(ended));
        }
        Ok(())
    }
}

impl SchedulerState {
    fn receive(&mut self, message: SchedulerMessage) {
        match message {
            SchedulerMessage::Submit { request, stop, transcript, admitted, reply } => {
                let job = self.new_job();
                let (bytes, session) = (request.bytes(), request.session);
                let JobRequest { program, limits, .. } = *request;
                let task = Task {
                    job,
                    program: Arc::new(program),
                    limits,
                    transcript: Arc::clone(&transcript),
                    stop: stop.clone(),
                    session: session.and_then(|id| self.cell(id)),
                };
                let live = LiveJob {
                    task: Some(task),
                    session,
                    stop,
                    transcript,
                    reply: Some(reply),
                    submitted: now(),
                    dispatched: None,
                };
                self.applying = Some(Application::Job { live: Box::new(live), admitted });
                self.decide(Event::Submitted { job, bytes, session });
            }
            SchedulerMessage::End(job, ending) => self.decide(Event::EndWanted(job, ending)),
            SchedulerMessage::OpenSession { name, reply } => {
                let _ = reply.send(self.open_session(name));
            }
            SchedulerMessage::CloseSession(session) => self.decide(Event::SessionClosed(session)),
            SchedulerMessage::Capture { session, reply } => self.capture(session, reply),
            SchedulerMessage::Adopt { name, state, reply } => {
                let _ = reply.send(self.adopt(name, state));
            }
            SchedulerMessage::Replace { session, state, reply } => {
                let _ = reply.send(self.replace(session, state));
            }
            SchedulerMessage::Pool(event) => self.pool_event(event),
            SchedulerMessage::Drain(reply) => {
                self.draining.push(reply);
                self.decide(Event::Draining);
            }
            SchedulerMessage::Abort(reply) => {
                self.draining.extend(reply);
                self.decide(Event::Draining);
                let mut jobs: Vec<_> = self.jobs.keys().copied().collect();
                jobs.sort_unstable();
                for job in jobs {
                    self.decide(Event::EndWanted(job, Ending::Stop));
                }
            }
        }
    }

    fn new_job(&mut self) -> JobId {
        let job = JobId(self.next_job);
        self.next_job += 1;
        job
    }

    fn pool_event(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::Ready(seat) => {
                let worker = seat.worker();
                self.seats.insert(worker, seat);
                self.decide(Event::Ready { worker });
            }
            PoolEvent::Finished { worker, job, outcome } => {
                let session = self.session_of(job);
                self.end(job, *outcome);
                self.finished(worker, job, session);
            }
            PoolEvent::Parked { worker, job, result } => {
                let session = self.session_of(job);
                self.answer_capture(job, result);
                self.finished(worker, job, session);
            }
            PoolEvent::Gone { worker, reason, is_replaced } => {
                self.seats.remove(&worker);
                let reason = reason.to_string();
                let takes_session = self.is_state_gone_with(worker);
                self.decide(Event::Gone { worker, reason, is_replaced, takes_session });
            }
        }
    }

    fn finished(&mut self, worker: WorkerId, job: JobId, session: Option<SessionId>) {
        if let Some(session) = session
            && let Some(reason) = self.loss_of(session)
        {
            self.decide(Event::SessionLost { session, reason });
        }
        self.decide(Event::Finished { worker, job });
    }

    fn session_of(&self, job: JobId) -> Option<SessionId> {
        match self.jobs.get(&job) {
            Some(live) => live.session,
            None => self.captures.get(&job).map(|capture| capture.session),
        }
    }

    fn decide(&mut self, event: Event) {
        for effect in self.model.handle(event) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Admit(job) => self.admit(job),
            Effect::Refuse(_, refusal) => self.refuse(refusal),
            Effect::Dispatch(job, worker) => self.dispatch(job, worker),
            Effect::Settle(job, settlement) => self.settle(job, settlement),
            Effect::StopRun(job) => {
                if let Some(live) = self.jobs.get(&job) {
                    live.stop.stop(engine::StopReason::Cancelled);
                }
            }
            Effect::InterruptRun(job, reason) => {
                if let Some(live) = self.jobs.get(&job) {
                    live.stop.interrupt(reason);
                }
            }
            Effect::EndSession(session, reason) => self.end_session(session, &reason),
            // `finish_drain` looks at the phase, which also holds when this came earlier.
            Effect::Drained => {}
        }
    }

    fn admit(&mut self, job: JobId) {
        match self.applying.take() {
            Some(Application::Job { live, admitted }) => {
                self.jobs.insert(job, live);
                self.touch(job);
                if admitted.send(Ok(job)).is_err() {
                    // The caller went away before it heard; nobody will want the outcome.
                    self.decide(Event::EndWanted(job, Ending::Cancel));
                }
            }
            Some(Application::Capture(capture)) => {
                self.captures.insert(job, capture);
                self.touch(job);
            }
            None => {}
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        match self.applying.take() {
            Some(Application::Job { admitted, .. }) => {
                self.totals.refused += 1;
                let _ = admitted.send(Err(refusal));
            }
            Some(Application::Capture(capture)) => capture.answer(&Err(refusal)),
            None => {}
        }
    }

    fn dispatch(&mut self, job: JobId, worker: WorkerId) {
        self.touch(job);
        let seat = self.seats.remove(&worker).expect("S-7: the model uses only seats it was given");
        if let Some(capture) = self.captures.get(&job) {
            seat.park(job, Arc::clone(&capture.cell));
            return;
        }
        let live = self.jobs.get_mut(&job).expect("S-7: the model dispatches only live jobs");
        live.dispatched = Some(now());
        seat.assign(live.task.take().expect("S-7: a job is dispatched once"));
    }

    fn settle(&mut self, job: JobId, settlement: Settlement) {
        self.touch(job);
        if let Some(capture) = self.captures.remove(&job) {
            capture.settle(settlement);
            return;
        }
        let Some(live) = self.jobs.get(&job) else { return };
        let failed = Verdict::SandboxFailed;
        let verdict = match settlement {
            Settlement::Cancelled => Verdict::Cancelled,
            Settlement::WorkerDied(reason) => failed(SandboxFailure::WorkerDied(reason)),
            Settlement::NoWorker(reason) => failed(SandboxFailure::Start(reason)),
            Settlement::SessionLost(reason) => failed(SandboxFailure::SessionLost(reason)),
        };
        let transcript = &live.transcript;
        transcript.close();
        let outcome = Outcome {
            stdout: transcript.text_of(Stream::Stdout),
            stderr: transcript.text_of(Stream::Stderr),
            output_truncated: transcript.is_truncated(),
            ..Outcome::not_run(verdict)
        };
        self.end(job, outcome);
    }

    /// The only place where a job ends.
    fn end(&mut self, job: JobId, mut outcome: Outcome) {
        let Some(mut live) = self.jobs.remove(&job) else { return };
        let until = live.dispatched.unwrap_or_else(now);
        outcome.usage.queue_wait = until.saturating_duration_since(live.submitted);
        self.totals.count(&outcome);
        if let Some(reply) = live.reply.take() {
            // A caller that dropped its ticket doesn't want it.
            let _ = reply.send(outcome);
        }
    }

    fn settle_everything(&mut self, reason: &str) {
        let jobs: Vec<_> = self.jobs.keys().chain(self.captures.keys()).copied().collect();
        for job in jobs {
            self.settle(job, Settlement::WorkerDied(reason.to_owned()));
        }
    }

    /// Lets `decide` change the model and answer callers, and publishes the result.
    ///
    /// The snapshot is locked meanwhile, so that a caller that has its answer and asks for the status
    /// sees what it was told: it waits for the publication, and callers that don't ask never do.
    fn decide_and_publish(&mut self, decide: impl FnOnce(&mut Self)) {
        let published = Arc::clone(&self.published);
        let mut snapshot = published.snapshot.write();
        decide(self);
        self.publish(&mut snapshot);
    }

    /// Notes that the queue of a job's session changes.
    fn touch(&mut self, job: JobId) {
        self.touched.extend(self.session_of(job));
    }

    fn publish(&mut self, snapshot: &mut Snapshot) {
        for id in self.touched.drain(..) {
            match (self.sessions.get(&id), self.model.session_depth(id)) {
                (Some(open), Some(queue_depth)) => {
                    let (name, cell) = (Arc::clone(&open.name), Arc::clone(&open.cell));
                    snapshot.sessions.insert(id, ShownSession { name, queue_depth, cell });
                }
                (None, _) | (_, None) => {
                    snapshot.sessions.remove(&id);
                }
            }
        }
        snapshot.phase = self.model.phase();
        snapshot.queue_depth = self.model.queue_depth();
        snapshot.queued_bytes = self.model.queued_bytes();
        snapshot.oldest = self.model.oldest().and_then(|job| self.submitted(job));
        snapshot.running = self.model.running();
        snapshot.totals = self.totals;
    }

    fn submitted(&self, job: JobId) -> Option<Instant> {
        match self.jobs.get(&job) {
            Some(live) => Some(live.submitted),
            None => self.captures.get(&job).map(|capture| capture.submitted),
        }
    }

    /// Once everything has ended: closes the pool, answers those who wait, and ends.
    fn finish_drain(&mut self, myself: &ActorRef<SchedulerMessage>) {
        if self.model.phase() != Phase::Drained {
            return;
        }
        if std::mem::replace(&mut self.is_closing, true) {
            // Who asks again hears when this actor ends.
            return;
        }
        let waiting = std::mem::take(&mut self.draining);
        let (pool, myself) = (self.pool.clone(), myself.clone());
        // Closing waits for worker threads; their last words must still be received here.
        tokio::spawn(async move {
            if let Err(error) = pool.close().await {
                tracing::debug!(%error, "the pool was closed before");
            }
            for reply in waiting {
                let _ = reply.send(());
            }
            myself.stop(None);
        });
    }
}
