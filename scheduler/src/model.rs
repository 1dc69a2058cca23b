//! The decisions, as pure functions from a model, an event and the time to effects.
//!
//! A submission, a worker's report and a request about a worker have their own functions:
//! [`Model::submit`], [`Model::finish`] and [`Model::retire`]. Their decision is about something
//! that the shell holds meanwhile, so they return it apart from the effects.
//!
//! After each event, all that has become possible or due happens in one step: dispatches,
//! evictions, and starts of workers. So admission and eviction are one decision, and no event can
//! come between them. The rules are in `policy.rs`; `admission.rs`, `dispatch.rs`, `ending.rs` and
//! `upkeep.rs` apply them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::Cause;
use pool::{BuildId, JobId, OffloadError, SessionId, Tier, WorkerId};

use crate::config::SchedulerConfig;
use crate::decision::{EvictionReason, RetireReason};
use crate::effect::{Effect, Finish, Settlement};
use crate::error::Refusal;
use crate::job::Queued;
use crate::policy::fair_queue::{FairQueue, Key, Waiting};
use crate::policy::health::Health;
use crate::policy::residency::{ForkedSessions, Residence, Residency, Session, Turn};
use crate::policy::workers::{Activity, Workers};
use crate::status::{MemoryStatus, Phase};
use crate::timer::Time;

mod admission;
mod dispatch;
mod ending;
mod explaining;
#[cfg(test)]
mod tests;
mod upkeep;

/// How a caller wants a job to end. A queued job is only removed from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopKind {
    /// Raises `KeyboardInterrupt` in the program, whose reaction decides the outcome.
    Interrupt,
    /// Discards the outcome, but keeps the session, if the job has one.
    Cancel,
    /// Stops the run at once, whatever that costs.
    Kill,
}

/// What happens to the scheduler, besides submissions and reports of finished jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A caller wants its job to end.
    StopRequested(JobId, StopKind),
    /// A session was opened, with a suspended state of `bytes` bytes; 0 means a fresh interpreter. Its
    /// id is new.
    SessionOpened { session: SessionId, tenant: Arc<str>, bytes: u64 },
    /// Sessions were forked from one.
    SessionsForked(ForkedSessions),
    /// A session is no longer wanted.
    SessionClosed(SessionId),
    /// A session's state is lost, so its queued jobs can't run.
    SessionLost { session: SessionId, reason: Cause },
    /// A session's state was replaced between its jobs. The new state is suspended and takes `bytes`
    /// bytes; no worker holds it.
    SessionMoved { session: SessionId, bytes: u64 },
    /// A worker has suspended a session's state, which takes `bytes` bytes. By now the session may be
    /// on another worker, or closed.
    SessionSuspended { session: SessionId, bytes: u64 },
    /// Offloading a session's state has succeeded, with its new size in bytes, or failed. If the
    /// session has moved on meanwhile, its state stayed where it was.
    Offloaded { session: SessionId, tier: Tier, result: Result<u64, OffloadError> },
    /// A worker is idle and offers its permit. Its interpreter is of `build` and has `memory_bytes` of
    /// its own; the copy of its session's state takes `kept_bytes`. The session `stays` if it can't
    /// be suspended.
    Ready { worker: WorkerId, build: BuildId, memory_bytes: u64, kept_bytes: u64, stays: bool },
    /// A worker has finished copying a session's state, which counted as a job of the session.
    Captured { worker: WorkerId, job: JobId },
    /// A worker has ended; `takes_session` if the state that it held is lost with it.
    Gone { worker: WorkerId, reason: Cause, is_replaced: bool, takes_session: bool, fault: Fault },
    /// No more jobs are admitted. At `until`, queued jobs are cancelled and running ones stopped.
    Draining { until: Option<Time> },
    /// The embedding program keeps at least this many bytes of the memory for itself from now on.
    Reserved(u64),
    /// Something may be due.
    Tick,
}

/// The failure of a try that another interpreter might avoid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The sandbox failed, or the worker died.
    Sandbox,
    /// The agent's protocol was violated, most probably by the program, which will do it again.
    Tampering,
    /// The run didn't end when it was stopped. Another try would leave another thread behind.
    Stuck,
}

impl Fault {
    /// How often a job may be retried, where `most` is the configured number.
    pub(crate) fn most_retries(self, most: u32) -> u32 {
        match self {
            Self::Sandbox => most,
            Self::Tampering => most.min(1),
            Self::Stuck => 0,
        }
    }
}

/// Sessions that a caller wants to open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) count: usize,
    /// The memory that they take, which nothing else counts.
    pub(crate) bytes: u64,
    /// What their tenant holds by them, which nothing else counts.
    pub(crate) held_bytes: u64,
    /// Forks between them and a session that isn't one.
    pub(crate) depth: usize,
}

/// What a run cost and how it went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The duration of the run.
    pub(crate) wall: Duration,
    /// CPU time of the run.
    pub(crate) cpu: Duration,
    /// The time to bring the state to the worker or to reset it.
    pub(crate) overhead: Duration,
    /// Peak guest memory in bytes, including what all interpreters share.
    pub(crate) peak_memory_bytes: u64,
    /// The interpreter's own memory at the end, plus the most that the files grew by, in bytes.
    pub(crate) own_memory_bytes: u64,
    /// The fault, if another interpreter might avoid it.
    pub(crate) fault: Option<Fault>,
    /// Whether the job's session left the worker, with its state from before the job.
    pub(crate) session_left: bool,
    /// Whether the program never began. Such a run says nothing about the cost of jobs.
    pub(crate) never_ran: bool,
}

/// A tenant with queued or running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TenantView {
    pub(crate) weight: u32,
    /// Queued jobs by priority, the most urgent first.
    pub(crate) depths: [usize; 3],
    /// Bytes that the queued jobs hold.
    pub(crate) queued_bytes: usize,
    pub(crate) running: usize,
}

/// The state of all jobs, tenants, workers and sessions, as the scheduler knows it.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    config: SchedulerConfig,
    /// Bytes of the image and the compiled build, which all workers share.
    shared_bytes: u64,
    /// The part of them that the embedding program keeps for itself.
    reserved_bytes: u64,
    now: Time,
    pub(crate) phase: Phase,
    /// When draining aborts what is left.
    drain_until: Option<Time>,
    /// Whether draining has aborted.
    is_aborted: bool,
    /// Every admitted job that has not ended. Ordered by id, so new jobs are near each other in
    /// memory, and so are the next ones to run.
    jobs: BTreeMap<JobId, Box<Job>>,
    /// The queued jobs.
    waiting: BTreeSet<JobId>,
    /// The queued jobs that have a deadline, by deadline.
    due: BTreeSet<(Time, JobId)>,
    /// The queued jobs that wait before a retry, by its time.
    retries: BTreeSet<(Time, JobId)>,
    pub(crate) queued_bytes: usize,
    pub(crate) running: usize,
    /// What running jobs hold and may still grow by.
    in_flight_bytes: u64,
    /// The most bytes that something lacked in this step.
    shortage_bytes: u64,
    fair_queue: FairQueue,
    workers: Workers,
    health: Health,
    sessions: Residency,
}

#[derive(Debug, Clone)]
struct Job {
    queued: Queued,
    submitted: Time,
    /// Tries that a fault ended.
    failed_attempts: u32,
    /// Until when it waits before a retry, if it does.
    retry_at: Option<Time>,
    run: Option<Run>,
}

/// One try of a job.
#[derive(Debug, Clone)]
struct Run {
    worker: WorkerId,
    since: Time,
    /// The CPU time that the tenant was charged for it in advance.
    charged: Duration,
    /// What it holds and may still grow by.
    bytes: u64,
    /// Whether it was asked to end.
    is_stop_requested: bool,
}

impl Job {
    /// Returns the deadline of the job.
    fn due(&self) -> Option<Time> {
        self.submitted.checked_add(self.queued.deadline?)
    }
}

impl Model {
    pub(crate) fn new(config: SchedulerConfig, shared_bytes: u64) -> Self {
        Self {
            config,
            shared_bytes,
            reserved_bytes: 0,
            now: Time::ZERO,
            phase: Phase::Open,
            drain_until: None,
            is_aborted: false,
            jobs: BTreeMap::new(),
            waiting: BTreeSet::new(),
            due: BTreeSet::new(),
            retries: BTreeSet::new(),
            queued_bytes: 0,
            running: 0,
            in_flight_bytes: 0,
            shortage_bytes: 0,
            fair_queue: FairQueue::default(),
            workers: Workers::default(),
            health: Health::default(),
            sessions: Residency::default(),
        }
    }

    /// Asks for the first workers.
    #[must_use]
    pub(crate) fn start(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.grow(&mut effects);
        self.update_health(&mut effects);
        effects
    }

    /// Decides whether a new job is admitted, and will therefore end, or why it is refused. Its id
    /// is larger than all earlier ones. The effects follow once its caller has been told.
    pub(crate) fn submit(
        &mut self,
        job: JobId,
        queued: Queued,
        now: Time,
    ) -> (Result<(), Refusal>, Vec<Effect>) {
        self.step(now, |model, _| model.submitted(job, queued))
    }

    /// Decides what becomes of a job that its worker has finished. The effects follow once that has
    /// happened.
    #[must_use]
    pub(crate) fn finish(
        &mut self,
        worker: WorkerId,
        job: JobId,
        report: &Report,
        now: Time,
    ) -> (Finish, Vec<Effect>) {
        self.step(now, |model, effects| model.finished(worker, job, report, effects))
    }

    /// Applies one event and returns the effects that follow.
    #[must_use]
    pub(crate) fn handle(&mut self, event: Event, now: Time) -> Vec<Effect> {
        self.step(now, |model, effects| model.apply(event, effects)).1
    }

    /// Makes one decision, and then does everything that has become possible or due.
    fn step<T>(
        &mut self,
        now: Time,
        decide: impl FnOnce(&mut Self, &mut Vec<Effect>) -> T,
    ) -> (T, Vec<Effect>) {
        self.now = self.now.max(now);
        self.shortage_bytes = 0;
        self.sessions.wake_disk(self.now);
        self.workers.take_back(self.config.workers.retry_after, self.now);
        self.offer_retries();
        let mut effects = Vec::new();
        let decision = decide(self, &mut effects);
        // Steps that free resources come before those that take them.
        self.expire(&mut effects);
        self.close_idle(&mut effects);
        self.shrink(&mut effects);
        self.dispatch(&mut effects);
        self.finish_draining(&mut effects);
        self.evict_idle(&mut effects);
        self.grow(&mut effects);
        self.update_health(&mut effects);
        (decision, effects)
    }

    fn apply(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::StopRequested(job, kind) => self.stop_requested(job, kind, effects),
            Event::SessionOpened { session, tenant, bytes } => {
                self.sessions.open(session, &tenant, bytes, self.now);
            }
            Event::SessionsForked(forked) => self.forked(&forked),
            Event::SessionClosed(session) => {
                self.sessions.change(session, |session| session.is_closing = true);
                self.end_session_if_done(session, effects);
            }
            Event::SessionLost { session, reason } => {
                self.lose_session(session, &reason, effects);
            }
            Event::SessionMoved { session, bytes } => self.moved(session, bytes),
            Event::SessionSuspended { session, bytes } => {
                self.sessions.change(session, |session| session.note_suspended(Some(bytes)));
            }
            Event::Offloaded { session, tier, result } => {
                self.sessions.offloaded(session, tier, result, self.now);
            }
            Event::Ready { worker, build, memory_bytes, kept_bytes, stays } => {
                self.ready(worker, build, memory_bytes, kept_bytes, stays, effects);
            }
            Event::Captured { worker, job } => self.captured(worker, job, effects),
            Event::Gone { worker, reason, is_replaced, takes_session, fault } => {
                self.gone(worker, &reason, is_replaced, takes_session, fault, effects);
            }
            Event::Draining { until } => self.drain(until),
            Event::Reserved(bytes) => {
                let more = bytes.saturating_sub(self.reserved_bytes);
                self.reserved_bytes += more;
                self.shared_bytes = self.shared_bytes.saturating_add(more);
            }
            Event::Tick => {}
        }
    }

    /// An idle worker is retired if there is a reason to, or waits for a job.
    fn ready(
        &mut self,
        worker: WorkerId,
        build: BuildId,
        memory_bytes: u64,
        kept_bytes: u64,
        stays: bool,
        effects: &mut Vec<Effect>,
    ) {
        let left = self.workers.take_leaving(worker);
        self.note_vacated(worker, left);
        if self.workers.get(worker).is_none() {
            self.health.started();
        }
        let retire = self.workers.ready(worker, build, memory_bytes, kept_bytes, self.now);
        let resident = self.resident(worker);
        if let Some(id) = resident {
            self.sessions.change(id, |session| {
                session.set_turn(Turn::Idle);
                session.stays = stays;
                session.note_copied(kept_bytes);
            });
            self.reoffer(id);
        }
        if let Some(reason) = retire {
            self.retire_ready(worker, reason, effects);
        }
    }

    fn forked(&mut self, forked: &ForkedSessions) {
        self.sessions.fork(forked, self.now);
        let on = self.sessions.get(forked.parent).and_then(Session::worker);
        if let Some(worker) = on
            && forked.has_base
        {
            self.workers.keep(worker, 0);
        }
    }

    fn moved(&mut self, id: SessionId, bytes: u64) {
        self.sessions.unshare(id);
        if let Some(worker) = self.sessions.get(id).and_then(|session| session.worker()) {
            self.workers.house(worker, None);
        }
        let now = self.now;
        self.sessions.change(id, |session| {
            session.place = Residence::stored(bytes);
            session.bytes = bytes;
            session.rests_since = now;
        });
        self.reoffer(id);
    }

    /// Concludes from a worker's later message that it no longer has the session that it was to
    /// vacate.
    fn note_vacated(&mut self, worker: WorkerId, session: Option<SessionId>) {
        let Some(id) = session else { return };
        self.sessions.change(id, |session| {
            if session.leaving_worker == Some(worker) {
                session.note_suspended(None);
            }
        });
    }

    fn drain(&mut self, until: Option<Time>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
        self.drain_until = self.drain_until.into_iter().chain(until).min();
    }

    /// Adds a job to the queue.
    fn enqueue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Queued { tenant, session, bytes, .. } = &job.queued;
        let waiting = self.as_waiting(id, job);
        self.waiting.insert(id);
        self.due.extend(job.due().map(|due| (due, id)));
        self.queued_bytes += bytes;
        self.fair_queue.enqueue(tenant, waiting, self.config.of_tenant(tenant));
        match *session {
            None if job.retry_at.is_some() => {}
            None => self.fair_queue.offer(tenant, waiting.key),
            Some(session) => {
                self.sessions.change(session, |session| {
                    session.waiting.insert(id);
                });
                self.reoffer(session);
            }
        }
    }

    /// Removes a job from the queue, except from its tenant's.
    fn remove_from_queue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        self.waiting.remove(&id);
        if let Some(due) = job.due() {
            self.due.remove(&(due, id));
        }
        if let Some(at) = job.retry_at {
            self.retries.remove(&(at, id));
        }
        self.queued_bytes -= job.queued.bytes;
        if let Some(session) = job.queued.session {
            self.sessions.change(session, |session| {
                session.waiting.remove(&id);
                session.offered.take_if(|(_, (_, offered))| *offered == id);
            });
        }
    }

    /// Updates which job of the session is offered to its tenant's queue.
    fn reoffer(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        let next = session.waiting.first().filter(|_| session.is_ready());
        let next = next.and_then(|job| Some((job, self.jobs.get(job)?)));
        let next = next.map(|(id, job)| (job.queued.tenant.clone(), self.key(*id, job)));
        if next == session.offered {
            return;
        }
        let mut before = None;
        self.sessions.change(id, |session| {
            before = std::mem::replace(&mut session.offered, next.clone());
        });
        if let Some((tenant, key)) = before {
            self.fair_queue.withdraw(&tenant, key);
        }
        if let Some((tenant, key)) = next {
            self.fair_queue.offer(&tenant, key);
        }
    }

    /// Returns the job's key in its tenant's queue: its submission time, shifted by its priority.
    fn key(&self, id: JobId, job: &Job) -> Key {
        let later = self.config.priority_step.saturating_mul(job.queued.priority as u32);
        (job.submitted.saturating_add(later), id)
    }

    fn as_waiting(&self, id: JobId, job: &Job) -> Waiting {
        let Queued { priority, bytes, .. } = job.queued;
        Waiting { key: self.key(id, job), priority, bytes }
    }

    /// Has an idle worker suspend its session.
    fn vacate(
        &mut self,
        worker: WorkerId,
        session: SessionId,
        reason: EvictionReason,
        effects: &mut Vec<Effect>,
    ) {
        self.move_out(worker, reason.clone());
        self.workers.occupy(worker, Activity::Preparing);
        effects.push(Effect::Vacate(worker, session, reason));
    }

    /// Records that an idle worker's session leaves it.
    fn move_out(&mut self, worker: WorkerId, reason: EvictionReason) {
        let Some(id) = self.resident(worker) else { return };
        self.workers.vacate(worker);
        self.sessions.change(id, |session| {
            session.place = Residence::Leaving;
            session.leaving_worker = Some(worker);
            session.evicted = Some(reason);
        });
        self.reoffer(id);
    }

    /// Has a worker end after its present job, or says that there is none. The effects follow.
    pub(crate) fn retire(
        &mut self,
        worker: WorkerId,
        now: Time,
    ) -> (Result<(), Refusal>, Vec<Effect>) {
        self.step(now, |model, effects| model.retire_wanted(worker, effects))
    }

    /// Retires a worker that is ready, or has it suspend its session first.
    fn retire_ready(&mut self, worker: WorkerId, reason: RetireReason, effects: &mut Vec<Effect>) {
        match self.resident(worker) {
            _ if reason == RetireReason::Requested => self.retire_idle(worker, effects),
            None => {
                self.workers.renew(worker);
                effects.push(Effect::Renew(worker, reason));
            }
            // The session would keep its memory on a new interpreter, so renew the slot once it is
            // empty.
            Some(_) if matches!(reason, RetireReason::HighWater { .. }) => {}
            // Renew when the worker reports ready again, without the session.
            Some(id) if self.load(id) == 0 && !self.is_kept(worker) => {
                self.vacate(worker, id, EvictionReason::WorkerNeeded { worker }, effects);
            }
            // Renew once no job needs the session's state here, and it can be suspended.
            Some(_) => {}
        }
    }

    fn retire_wanted(
        &mut self,
        worker: WorkerId,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        match self.workers.retire(worker) {
            None => return Err(Refusal::NoSuchWorker(worker)),
            Some(Activity::Idle) => self.retire_idle(worker, effects),
            // Once it is ready.
            Some(Activity::Busy(_) | Activity::Preparing) => {}
        }
        Ok(())
    }

    /// Ends an idle worker on request. A session that it holds is suspended first, whatever waits for
    /// it: then its next job runs elsewhere.
    fn retire_idle(&mut self, worker: WorkerId, effects: &mut Vec<Effect>) {
        match self.resident(worker) {
            None => {
                self.workers.dismiss(worker);
                effects.push(Effect::Retire(worker));
            }
            Some(id) => {
                self.vacate(worker, id, EvictionReason::WorkerNeeded { worker }, effects);
            }
        }
    }

    pub(crate) fn queue_depth(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no worker is idle, and more queued jobs could run than there are workers.
    pub(crate) fn is_saturated(&self) -> bool {
        self.free_workers() == 0 && self.fair_queue.could_run > self.workers.living()
    }

    /// When the oldest queued job was submitted.
    pub(crate) fn oldest(&self) -> Option<Time> {
        let oldest = self.waiting.first().and_then(|id| self.jobs.get(id));
        oldest.map(|job| job.submitted)
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// Whether `session` takes jobs.
    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|session| !session.is_closing)
    }

    /// Queued and running jobs of `session`.
    pub(crate) fn load(&self, session: SessionId) -> usize {
        self.sessions.get(session).map_or(0, Session::load)
    }

    /// The session whose state `worker` holds.
    pub(crate) fn resident(&self, worker: WorkerId) -> Option<SessionId> {
        self.workers.get(worker)?.resident
    }

    /// A tenant's queue; `None` if it has no jobs.
    pub(crate) fn tenant(&self, name: &str) -> Option<TenantView> {
        let tenant = self.fair_queue.tenant(name)?;
        let view = TenantView {
            weight: tenant.weight,
            depths: tenant.depths,
            queued_bytes: tenant.queued_bytes,
            running: tenant.running,
        };
        (tenant.queued() > 0 || view.running > 0).then_some(view)
    }

    /// What memory is used for.
    pub(crate) fn memory(&self) -> MemoryStatus {
        MemoryStatus {
            limit_bytes: self.config.memory_bytes,
            shared_bytes: self.shared_bytes,
            slot_bytes: self.workers.slot_bytes(),
            session_bytes: self
                .sessions
                .memory_bytes
                .saturating_add(self.sessions.holdings.shared_bytes),
            queued_bytes: self.queued_bytes as u64,
            in_flight_bytes: self.in_flight_bytes,
            disk_bytes: self.sessions.disk_bytes,
        }
    }
}
