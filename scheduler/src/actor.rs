//! The shell around the model: turns messages into events and executes effects, without deciding.
//!
//! It keeps every admitted job until its outcome is sent, because a worker's mailbox is lost when
//! the worker dies.
//!
//! The actor owns the shell's lifetime and supervises the pool. No job passes its mailbox, since
//! waking a task costs as much as a short job. Messages reach the shell through a combiner, on the
//! sending thread, and the actor handles those that senders leave. So nothing here may wait, or
//! rely on the current thread, task or span. `ARCHITECTURE.md` has a drawing.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use engine::{Cause, Outcome, chain};
use pool::{
    Builds, Command, GoneReason, JobId, Offer, Pool, PoolConfig, PoolEvent, SessionCell, SessionId,
    WorkerId, WorkerPermit,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use rustc_hash::FxHashMap;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::combiner::{Answer, Call, Combiner, EndsCombiner, Handler, deliver};
use crate::config::SchedulerConfig;
use crate::decision::{DecisionKind, EndReason, EvictedTo, EvictionReason, RetireReason};
use crate::effect::Effect;
use crate::job::{LiveJob, SHARED_DEFAULT_TENANT};
use crate::measures::Measures;
use crate::message::{CaptureReply, Owner, SchedulerMessage};
use crate::model::{Event, Fault, Model};
use crate::status::{ForkOrigin, Phase, Totals};
use crate::timer::{Alarm, Clock};
use publish::Changes;

pub(crate) use publish::Published;

mod jobs;
mod publish;
mod sessions;

/// What the scheduler is started with.
pub(crate) struct SchedulerArguments {
    pub(crate) config: SchedulerConfig,
    pub(crate) pool: PoolConfig,
    pub(crate) builds: Builds,
    pub(crate) published: Arc<Published>,
    pub(crate) combiner: Arc<Combiner<SchedulerMessage>>,
}

/// The scheduler's actor.
pub(crate) struct SchedulerActor;

struct SchedulerState {
    /// Where tasks are spawned, and time passes.
    runtime: Handle,
    actor: ActorRef<Call>,
    model: Model,
    pool: Pool,
    published: Arc<Published>,
    clock: Clock,
    /// When the current message arrived.
    now: Duration,
    alarm: Alarm,
    jobs: FxHashMap<JobId, Box<LiveJob>>,
    /// Requested copies of sessions' states. The model treats them as jobs of those sessions.
    captures: FxHashMap<JobId, Capture>,
    permits: FxHashMap<WorkerId, WorkerPermit>,
    sessions: FxHashMap<SessionId, OpenSession>,
    /// The session that was last opened under each name.
    names: HashMap<Arc<str>, SessionId>,
    /// Why the most recent sessions ended.
    ended: BTreeMap<SessionId, Cause>,
    changes: Changes,
    totals: Totals,
    next_job: u64,
    next_session: u64,
    answers: PendingAnswers,
    /// As many clones as there are outcomes that are still to be sent and jobs to be dropped.
    unsent: Arc<()>,
    draining: Vec<oneshot::Sender<()>>,
    /// Why the pool ends, once it does.
    ends: Option<EndReason>,
    is_closing: bool,
    has_lost_pool: bool,
}

/// Outcomes to send after a decision, and jobs to drop then, in the order of the decisions.
///
/// Waking a caller takes the system some 8 µs of CPU time, a sixth of a short job. So while more
/// jobs are queued than there are workers, outcomes of short jobs wait for each other.
#[derive(Default)]
struct PendingAnswers {
    answers: Vec<Answer>,
    /// Until when they wait; `None` if they are due.
    until: Option<Duration>,
}

impl PendingAnswers {
    /// The run time of jobs whose outcomes may wait.
    const SHORT: Duration = Duration::from_micros(500);
    /// How long an outcome waits at most.
    const PATIENCE: Duration = Duration::from_millis(1);
    /// The most answers that wait.
    const MOST: usize = 16;

    fn push(&mut self, answer: Answer, may_wait: bool, now: Duration) {
        let until = if self.answers.is_empty() {
            Some(now.saturating_add(Self::PATIENCE))
        } else {
            self.until
        };
        self.until = until.filter(|_| may_wait);
        self.answers.push(answer);
    }

    /// Returns until when they wait. They are due unless `is_saturated`: no worker waits for a job.
    fn wait_until(&mut self, is_saturated: bool, now: Duration) -> Option<Duration> {
        let may_wait = is_saturated && self.answers.len() < Self::MOST;
        self.until = self.until.filter(|until| may_wait && now < *until);
        self.until
    }

    fn take(&mut self) -> Vec<Answer> {
        self.until = None;
        std::mem::take(&mut self.answers)
    }
}

/// A session that the model has not ended.
struct OpenSession {
    name: Arc<str>,
    cell: Arc<SessionCell>,
    /// Turns that have ended in it.
    turns: u64,
    origin: Option<ForkOrigin>,
    tree: Arc<SessionTree>,
}

/// What a session and its forks have in common.
#[derive(Debug)]
struct SessionTree {
    /// The name of the first one.
    name: Arc<str>,
    tenant: Arc<str>,
    /// The number of the last fork that was named by it. The shell alone changes it.
    last: AtomicU64,
}

/// A requested copy of a session's state, which a worker is to make.
struct Capture {
    session: SessionId,
    cell: Arc<SessionCell>,
    /// Everyone who has asked for it so far.
    replies: Vec<CaptureReply>,
}

/// A worker's report of one try of a job.
struct Finished {
    outcome: Box<Outcome>,
    resume: Duration,
    memory_bytes: u64,
}

impl Actor for SchedulerActor {
    type Msg = Call;
    type State = EndsCombiner<SchedulerMessage>;
    type Arguments = SchedulerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let SchedulerArguments { config, pool, builds, published, combiner } = arguments;
        let model = Model::new(config, builds.shared_bytes());
        let ends = EndsCombiner(Arc::clone(&combiner));
        let pool = Pool::start(pool, builds, Owner::new(&combiner), myself.get_cell()).await?;
        let clock = published.clock;
        let set = published.pool.set(pool.clone());
        debug_assert!(set.is_ok(), "one scheduler publishes here");
        let alarmed = Arc::downgrade(&combiner);
        let alarm = Alarm::new(clock, move || {
            // Fails if the scheduler has ended; then nothing is due.
            let _ = alarmed
                .upgrade()
                .map(|combiner| combiner.send(SchedulerMessage::Event(Event::Tick)));
        });
        let mut state = SchedulerState {
            runtime: Handle::current(),
            actor: myself.clone(),
            model,
            pool,
            published,
            clock,
            now: clock.now(),
            alarm,
            jobs: FxHashMap::default(),
            captures: FxHashMap::default(),
            permits: FxHashMap::default(),
            sessions: FxHashMap::default(),
            names: HashMap::new(),
            ended: BTreeMap::new(),
            changes: Changes::default(),
            totals: Totals::default(),
            next_job: 1,
            next_session: 1,
            answers: PendingAnswers::default(),
            unsent: Arc::default(),
            draining: Vec::new(),
            ends: None,
            is_closing: false,
            has_lost_pool: false,
        };
        state.decide_and_publish(|state| {
            let effects = state.model.start();
            let asked = effects.iter().filter(|effect| **effect == Effect::AddWorker);
            state.record(DecisionKind::PoolStarting { workers: asked.count() });
            state.perform(effects);
        });
        combiner.begin(Box::new(state), move |call| {
            // Fails if the actor has ended, and then the combiner has, too.
            let _ = myself.cast(call);
        });
        Ok(ends)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        call: Self::Msg,
        ends: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match call {
            Call::Resume => ends.0.resume(),
            Call::Failed(panic) => resume_unwind(panic),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        ends: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let ended = match event {
            SupervisionEvent::ActorTerminated(_, _, reason) => {
                Cause::from(reason.unwrap_or_else(|| "it was stopped".to_owned()))
            }
            SupervisionEvent::ActorFailed(_, error) => Cause::new(error),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {
                return Ok(());
            }
        };
        // The pool's supervisor is the only child. Fails if the scheduler is ending anyway.
        let _ = ends.0.send(SchedulerMessage::PoolEnded(ended));
        Ok(())
    }
}

impl Handler<SchedulerMessage> for SchedulerState {
    fn handle(&mut self, message: SchedulerMessage) -> ControlFlow<()> {
        let runtime = self.runtime.clone();
        // For the clock and for tasks. If the runtime has ended, it takes tasks and drops them.
        let _in_runtime = runtime.enter();
        self.now = self.clock.now();
        self.decide_and_publish(|state| state.receive(message));
        if self.has_lost_pool {
            return ControlFlow::Break(());
        }
        self.finish_drain();
        let until = self.answers.wait_until(self.model.is_saturated(), self.now);
        self.alarm.set(self.model.next_wake().into_iter().chain(until).min());
        ControlFlow::Continue(())
    }

    fn answers(&mut self) -> Vec<Answer> {
        if self.answers.until.is_some() { Vec::new() } else { self.answers.take() }
    }
}

impl Drop for SchedulerState {
    fn drop(&mut self) {
        deliver(self.answers.take());
        self.published.decisions.close();
    }
}

impl SchedulerState {
    /// Lets `decide` change the model and answer callers, then publishes the result. Outcomes are
    /// sent later.
    ///
    /// The snapshot stays locked meanwhile. So a caller that has its answer sees its effect in the
    /// status: reading the status waits for the publication. Other callers don't wait.
    #[tracing::instrument(level = "debug", name = "decide", skip_all)]
    fn decide_and_publish(&mut self, decide: impl FnOnce(&mut Self)) {
        let published = Arc::clone(&self.published);
        let mut snapshot = published.snapshot.write();
        decide(self);
        let open = |id: SessionId| self.sessions.get(&id);
        snapshot.update(&mut self.changes, &self.model, open, self.totals);
    }

    /// Marks the queues that a job is in as changed.
    fn touch(&mut self, job: JobId) {
        let (session, tenant) = match (self.jobs.get(&job), self.captures.get(&job)) {
            (Some(live), _) => (live.session, &live.tenant),
            (None, Some(capture)) => (Some(capture.session), &*SHARED_DEFAULT_TENANT),
            (None, None) => return,
        };
        self.changes.tenant(tenant);
        session.into_iter().for_each(|session| self.changes.session(session));
    }

    /// Publishes a decision, and keeps it for the status.
    fn record(&self, kind: DecisionKind) {
        self.published.decisions.record(self.now, kind);
    }

    /// Publishes a decision about one job. These are too many to keep for the status.
    fn broadcast(&self, kind: impl FnOnce() -> DecisionKind) {
        self.published.decisions.broadcast(self.now, kind);
    }

    fn evicted(&mut self, session: SessionId, to: EvictedTo, reason: EvictionReason) {
        self.published.metrics.evicted(to, &reason);
        self.record(DecisionKind::Evicted { session, to, reason });
        self.changes.session(session);
    }

    fn retired(&mut self, worker: WorkerId, reason: RetireReason) {
        self.published.metrics.retired(&reason);
        self.record(DecisionKind::Retired { worker, reason });
    }

    fn receive(&mut self, message: SchedulerMessage) {
        match message {
            SchedulerMessage::Submit { request, transcript, admitted, reply } => {
                self.submit(request, transcript, admitted, reply);
            }
            SchedulerMessage::Event(event) => self.decide(event),
            SchedulerMessage::OpenSession { name, build, tenant, reply } => {
                let answer = self.open_session(name, build, tenant);
                let _ = reply.send(self.count_refusal(answer));
            }
            SchedulerMessage::Capture { session, reply } => self.capture(session, reply),
            SchedulerMessage::Adopt { name, build, state, tenant, reply } => {
                let answer = self.adopt(name, build, state, tenant);
                let _ = reply.send(self.count_refusal(answer));
            }
            SchedulerMessage::Fork(forks, reply) => {
                let answer = self.fork(*forks);
                // A caller that stops waiting wants no forks.
                for (session, _) in
                    reply.send(self.count_refusal(answer)).err().into_iter().flatten().flatten()
                {
                    self.decide(Event::SessionClosed(session));
                }
            }
            SchedulerMessage::Children(session, reply) => {
                let _ = reply.send(self.children(session));
            }
            SchedulerMessage::Replace { session, state, reply } => {
                let answer = self.replace(session, state);
                let _ = reply.send(self.count_refusal(answer));
            }
            SchedulerMessage::Explain { job, reply } => {
                let mut explanation = self.model.explain(job, self.now);
                let live = self.jobs.get(&job).filter(|live| live.dispatched.is_some());
                if let (Some(explanation), Some(live)) = (&mut explanation, live) {
                    let peer = live.task.program.egress.as_ref();
                    explanation.network = peer.map(|peer| peer.activity());
                }
                let _ = reply.send(explanation);
            }
            SchedulerMessage::Retire { worker, reply } => {
                let (decision, effects) = self.model.retire(worker, self.now);
                let _ = reply.send(decision);
                self.perform(effects);
            }
            SchedulerMessage::ResetStatistics(reply) => {
                self.totals = Totals::default();
                *self.published.measures.lock() = Measures::default();
                let _ = reply.send(());
            }
            SchedulerMessage::Pool(event) => self.pool_event(event),
            SchedulerMessage::PoolEnded(reason) => self.pool_ended(reason),
            SchedulerMessage::Drain { within, reply } => {
                self.draining.push(reply);
                self.drain(within, EndReason::Drained);
            }
            SchedulerMessage::Abort(reply) => {
                let reason = if reply.is_some() { EndReason::Aborted } else { EndReason::Dropped };
                self.draining.extend(reply);
                self.drain(Some(Duration::ZERO), reason);
                self.decide(Event::Tick);
            }
        }
    }

    fn pool_event(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::Ready(offer) => self.offered(offer),
            PoolEvent::Finished { worker, job, outcome, resume, memory_bytes, offer } => {
                self.finished(worker, job, Finished { outcome, resume, memory_bytes });
                offer.into_iter().for_each(|offer| self.offered(offer));
            }
            PoolEvent::Suspended { worker, job, result } => {
                self.touch(job);
                let session = self.session_of(job);
                self.answer_capture(job, result);
                self.note_loss(session);
                self.decide(Event::Captured { worker, job });
            }
            PoolEvent::SessionSuspended { session, bytes } => {
                self.decide(Event::SessionSuspended { session, bytes });
                self.changes.session(session);
            }
            PoolEvent::Offloaded { session, tier, result } => {
                if let Err(error) = &result {
                    let error = chain(error).to_string();
                    self.record(DecisionKind::NotEvicted { session, error });
                }
                self.decide(Event::Offloaded { session, tier, result });
                self.changes.session(session);
            }
            PoolEvent::Gone { worker, reason, is_replaced } => {
                self.permits.remove(&worker);
                self.worker_gone(worker, &reason, is_replaced);
                let fault = if reason == GoneReason::Stuck { Fault::Stuck } else { Fault::Sandbox };
                let reason = Cause::new(reason);
                let takes_session = self.is_state_gone_with(worker);
                self.decide(Event::Gone { worker, reason, is_replaced, takes_session, fault });
            }
        }
    }

    fn offered(&mut self, offer: Offer) {
        let Offer { permit, build, memory_bytes, kept_bytes, stays, reset } = offer;
        let worker = permit.worker();
        self.permits.insert(worker, permit);
        if let Some(reset) = reset {
            self.published.measures.lock().reset.record(reset);
            self.published.metrics.reset_time.record(reset);
        }
        self.decide(Event::Ready { worker, build, memory_bytes, kept_bytes, stays });
    }

    fn decide(&mut self, event: Event) {
        let effects = self.model.handle(event, self.now);
        self.perform(effects);
    }

    /// Carries out what the model asks for, in its order.
    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.perform_one(effect);
        }
    }

    fn perform_one(&mut self, effect: Effect) {
        match effect {
            Effect::Dispatch { job, worker, due_in, cut } => {
                self.dispatch(job, worker, due_in, cut);
            }
            Effect::Displace(session, reason) => {
                self.evicted(session, EvictedTo::Memory, reason);
            }
            Effect::Retry { job, attempt } => {
                self.retry(job, attempt, Fault::Sandbox, "its worker died".to_owned());
            }
            Effect::Settle(job, settlement) => self.settle(job, settlement),
            Effect::StopRun(job) => {
                if let Some(live) = self.jobs.get(&job) {
                    live.task.stop.stop(engine::StopReason::Cancelled);
                }
            }
            Effect::InterruptRun(job, reason) => {
                if let Some(live) = self.jobs.get(&job) {
                    live.task.stop.interrupt(reason);
                }
            }
            Effect::EndSession(session, reason) => self.end_session(session, reason),
            Effect::AddWorker => {
                self.pool.add_worker();
                self.record(DecisionKind::WorkerAdded);
            }
            Effect::DismissWorker(worker) => {
                self.permit(worker).send(Command::Dismiss);
                self.record(DecisionKind::WorkerDismissed { worker });
            }
            Effect::Retire(worker) => {
                self.permit(worker).send(Command::Dismiss);
                self.retired(worker, RetireReason::Requested);
            }
            Effect::Renew(worker, reason) => {
                self.permit(worker).send(Command::Renew);
                self.retired(worker, reason);
            }
            Effect::Vacate(worker, session, reason) => {
                self.permit(worker).send(Command::Vacate);
                self.evicted(session, EvictedTo::Memory, reason);
            }
            Effect::Offload(session, tier, reason) => self.offload(session, tier, reason),
            Effect::Record(kind) => {
                if let DecisionKind::PoolDegraded { reason } = &kind {
                    tracing::warn!(parent: None, %reason, "the pool is degraded");
                }
                self.record(kind);
            }
        }
    }

    fn permit(&mut self, worker: WorkerId) -> WorkerPermit {
        self.permits.remove(&worker).expect("S-7: the model uses only permits it was given")
    }

    fn drain(&mut self, within: Option<Duration>, reason: EndReason) {
        let until = within.map(|within| self.now.saturating_add(within));
        if self.model.phase == Phase::Open {
            self.record(DecisionKind::Draining { reason: reason.clone(), within });
        }
        // A drain that is aborted ends as if it had been aborted from the beginning.
        if self.ends.is_none() || reason != EndReason::Drained {
            self.ends = Some(reason);
        }
        self.decide(Event::Draining { until });
    }

    /// If the pool's supervisor ends unasked, its workers end with it, and so does the scheduler.
    fn pool_ended(&mut self, ended: Cause) {
        if self.model.phase == Phase::Drained {
            return;
        }
        let text = chain(&ended).to_string();
        if text == CANCELLED {
            tracing::debug!(parent: None, "the runtime ended before the pool was drained");
        } else {
            tracing::error!(parent: None, reason = text, "the pool's supervisor died");
        }
        let reason = Cause::because("the pool's supervisor died", ended);
        self.settle_everything(&reason);
        self.record(DecisionKind::PoolEnded { reason: EndReason::Died { error: text.clone() } });
        self.has_lost_pool = true;
        self.actor.stop(Some(text));
    }

    /// Once every job has ended: closes the pool, answers the drain calls, and stops this actor.
    fn finish_drain(&mut self) {
        if self.model.phase != Phase::Drained {
            return;
        }
        if std::mem::replace(&mut self.is_closing, true) {
            // Later drain calls are answered by this actor's end.
            return;
        }
        let waiting = std::mem::take(&mut self.draining);
        let (pool, actor) = (self.pool.clone(), self.actor.clone());
        let (unsent, published) = (Arc::clone(&self.unsent), Arc::clone(&self.published));
        let reason = self.ends.clone().unwrap_or(EndReason::Drained);
        // Closing waits for worker threads, whose last messages must still be received here.
        tokio::spawn(async move {
            if !pool.close().await {
                tracing::debug!("the pool was already closed");
            }
            // A thread may have been interrupted on its way to send an outcome. There will be no
            // new ones.
            while Arc::strong_count(&unsent) > OWN_COUNT {
                tokio::task::yield_now().await;
            }
            let ended = DecisionKind::PoolEnded { reason };
            published.decisions.record(published.clock.now(), ended);
            for reply in waiting {
                let _ = reply.send(());
            }
            actor.stop(None);
        });
    }
}

/// The reason that ractor gives for a cancelled task, which only the end of its runtime causes.
const CANCELLED: &str = "actor_task_cancelled";

/// Clones of [`SchedulerState::unsent`] besides those for outcomes and jobs, when the scheduler
/// ends. They are its own and that of the task that waits for the others.
const OWN_COUNT: usize = 2;
