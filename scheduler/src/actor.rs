//! The shell around the model: messages become events, effects are carried out. No decisions.
//!
//! It keeps every admitted job until its outcome is sent, whatever becomes of the worker that runs
//! it: a dead worker's mailbox is lost.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use engine::{Afterwards, Outcome, SandboxFailure, Stream, Verdict};
use parking_lot::RwLock;
use pool::{
    InterpreterSource, JobId, Pool, PoolConfig, PoolEvent, Seat, SessionId, Task, WorkerId,
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
    pub(crate) sessions: Vec<(SessionId, Arc<str>, usize)>,
    pub(crate) totals: Totals,
}

/// The actor.
pub(crate) struct SchedulerActor;

pub(crate) struct SchedulerState {
    model: Model,
    pool: Pool,
    published: Arc<Published>,
    jobs: HashMap<JobId, LiveJob>,
    /// Jobs whose admission is being decided.
    applying: Option<(JobId, Application)>,
    seats: HashMap<WorkerId, Seat>,
    sessions: HashMap<Arc<str>, SessionId>,
    totals: Totals,
    next_job: u64,
    next_session: u64,
    draining: Vec<oneshot::Sender<()>>,
    is_closing: bool,
}

/// A job between submission and admission.
struct Application {
    live: LiveJob,
    admitted: oneshot::Sender<Result<JobId, Refusal>>,
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
        let model = Model::new(config, pool.isolated_workers);
        let pool = Pool::start(pool, source, myself.get_derived()).await?;
        let set = published.pool.set(pool.clone());
        debug_assert!(set.is_ok(), "one scheduler publishes here");
        Ok(SchedulerState {
            model,
            pool,
            published,
            jobs: HashMap::new(),
            applying: None,
            seats: HashMap::new(),
            sessions: HashMap::new(),
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
            tracing::error!(reason = ended, "the pool's supervisor died");
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
                let job = JobId(self.next_job);
                self.next_job += 1;
                let (bytes, session) = (request.bytes(), request.session);
                let JobRequest { program, limits, .. } = *request;
                let task = Task {
                    job,
                    program: Arc::new(program),
                    limits,
                    transcript: Arc::clone(&transcript),
                    stop: stop.clone(),
                };
                let live = LiveJob {
                    task: Some(task),
                    stop,
                    transcript,
                    reply: Some(reply),
                    submitted: now(),
                    dispatched: None,
                };
                self.applying = Some((job, Application { live, admitted }));
                self.decide(Event::Submitted { job, bytes, session });
            }
            SchedulerMessage::End(job, ending) => self.decide(Event::EndWanted(job, ending)),
            SchedulerMessage::OpenSession { name, reply } => {
                let _ = reply.send(self.open_session(name));
            }
            SchedulerMessage::CloseSession(session) => self.decide(Event::SessionClosed(session)),
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

    fn pool_event(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::Ready(seat) => {
                let (worker, kind) = (seat.worker(), seat.kind());
                self.seats.insert(worker, seat);
                self.decide(Event::Ready { worker, kind });
            }
            PoolEvent::Finished { worker, job, outcome, afterwards } => {
                self.end(job, *outcome);
                let is_lost = afterwards == Afterwards::Lost;
                self.decide(Event::Finished { worker, job, is_lost });
            }
            PoolEvent::Gone { worker, kind, reason, is_replaced } => {
                self.seats.remove(&worker);
                let reason = reason.to_string();
                self.decide(Event::Gone { worker, kind, reason, is_replaced });
            }
        }
    }

    fn open_session(&mut self, name: Arc<str>) -> Result<SessionId, Refusal> {
        if let Some(session) = self.sessions.get(&name)
            && self.model.is_open(*session)
        {
            return Ok(*session);
        }
        if let Some(refusal) = self.model.refuses_session() {
            return Err(refusal);
        }
        let session = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(name, session);
        self.decide(Event::SessionOpened(session));
        Ok(session)
    }

    fn decide(&mut self, event: Event) {
        for effect in self.model.handle(event) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Admit(job) => {
                let Some((_, application)) = self.applying.take() else { return };
                self.jobs.insert(job, application.live);
                if application.admitted.send(Ok(job)).is_err() {
                    // The caller went away before it heard; nobody will want the outcome.
                    self.decide(Event::EndWanted(job, Ending::Cancel));
                }
            }
            Effect::Refuse(_, refusal) => {
                self.totals.refused += 1;
                if let Some((_, application)) = self.applying.take() {
                    let _ = application.admitted.send(Err(refusal));
                }
            }
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
            Effect::StartSession(session) => {
                if let Err(error) = self.pool.start_session(session) {
                    tracing::error!(%error, ?session, "a session has no worker");
                }
            }
            Effect::StopWorker(worker) => {
                self.seats.remove(&worker);
                if let Err(error) = self.pool.stop(worker) {
                    tracing::debug!(%error, %worker, "a worker can't be told to stop");
                }
            }
            // `finish_drain` looks at the phase, which also holds when this came earlier.
            Effect::Drained => {}
        }
    }

    fn dispatch(&mut self, job: JobId, worker: WorkerId) {
        let seat = self.seats.remove(&worker).expect("S-7: the model uses only seats it was given");
        let live = self.jobs.get_mut(&job).expect("S-7: the model dispatches only live jobs");
        live.dispatched = Some(now());
        seat.assign(live.task.take().expect("S-7: a job is dispatched once"));
    }

    fn settle(&mut self, job: JobId, settlement: Settlement) {
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
        let jobs: Vec<_> = self.jobs.keys().copied().collect();
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
        *snapshot = self.snapshot();
    }

    fn snapshot(&mut self) -> Snapshot {
        let model = &self.model;
        self.sessions.retain(|_, session| model.session_depth(*session).is_some());
        let mut sessions: Vec<_> = self
            .sessions
            .iter()
            .filter_map(|(name, id)| Some((*id, Arc::clone(name), model.session_depth(*id)?)))
            .collect();
        sessions.sort_unstable_by_key(|(id, ..)| *id);
        Snapshot {
            phase: model.phase(),
            queue_depth: model.queue_depth(),
            queued_bytes: model.queued_bytes(),
            oldest: model.oldest().and_then(|job| Some(self.jobs.get(&job)?.submitted)),
            running: model.running(),
            sessions,
            totals: self.totals,
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
