//! The decisions. Pure: a model, an event, the time, and the effects that follow.
//!
//! Each event is taken in, and then everything that has become possible or due happens in the same
//! step: jobs are dispatched, sessions make room, workers come and go. So admission and eviction are
//! one decision, and no event can come between them. The rules are in `policy.rs`; `admission.rs`,
//! `dispatch.rs`, `ending.rs` and `upkeep.rs` apply them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pool::{JobId, SessionId, StowError, Stowage, WorkerId};

use crate::config::SchedulerConfig;
use crate::decision::{EvictionReason, RetireReason};
use crate::effect::{Effect, Settlement};
use crate::job::Queued;
use crate::policy::fleet::{Activity, Fleet};
use crate::policy::residency::{Place, Residency};
use crate::policy::shares::{Key, Shares, Waiting};
use crate::status::Phase;
use crate::timer::Time;

mod admission;
mod dispatch;
mod ending;
mod explaining;
mod invariants;
#[cfg(test)]
mod tests;
mod upkeep;
mod view;

/// How a caller wants a job to end that may run. One that waits is just taken out of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its program hears `KeyboardInterrupt`; what it makes of that is its outcome.
    Interrupt,
    /// Nobody wants its outcome; its session, if it has one, is to live on.
    Cancel,
    /// At once, whatever it costs.
    Stop,
}

/// What happens to the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A job comes. Its number is larger than every one before.
    Submitted { job: JobId, queued: Queued },
    /// A caller wants its job to end.
    EndWanted(JobId, Ending),
    /// A session is wanted that begins with a parked state of so many bytes, or with none. Its
    /// number is new.
    SessionOpened { session: SessionId, bytes: u64 },
    /// A session is no longer wanted.
    SessionClosed(SessionId),
    /// A session's state is gone. What waits for it can't run.
    SessionLost { session: SessionId, reason: String },
    /// A session's state was replaced while nothing of it ran. It is parked and takes so many
    /// bytes; no worker has it any more.
    SessionMoved { session: SessionId, bytes: u64 },
    /// A worker has put a session's state aside, which takes so many bytes. By then the session
    /// may be on another worker, or gone.
    SessionParked { session: SessionId, bytes: u64 },
    /// A session's state was put where it was to be and takes so many bytes there, or isn't there.
    /// It stays where it was, too, when the session has moved on meanwhile.
    Stowed { session: SessionId, stowage: Stowage, result: Result<u64, StowError> },
    /// A worker offers a seat. Its interpreter has so much memory of its own, and so much takes a
    /// copy of its session's state.
    Ready { worker: WorkerId, memory_bytes: u64, kept_bytes: u64 },
    /// A worker's job has ended.
    Finished { worker: WorkerId, job: JobId, report: Report },
    /// A copy of a session's state, which counted as a job of that session, is over.
    Captured { worker: WorkerId, job: JobId },
    /// A worker is no more; `takes_session` if the state that it had went with it.
    Gone { worker: WorkerId, reason: String, is_replaced: bool, takes_session: bool, fault: Fault },
    /// No more jobs are to be taken. When `until` has come, what waits is cancelled and what runs
    /// is stopped.
    Draining { until: Option<Time> },
    /// Something may be due.
    Tick,
}

/// Why a try came to nothing that another interpreter may do better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The sandbox failed, or the worker died.
    Sandbox,
    /// The agent's protocol was broken: most probably by the program, which will do it again.
    Tampering,
    /// The run didn't end when it was stopped. Another try would leave another thread behind.
    Stuck,
}

impl Fault {
    /// How often a job is tried again, if others are so often.
    pub(crate) fn most_retries(self, most: u32) -> u32 {
        match self {
            Self::Sandbox => most,
            Self::Tampering => most.min(1),
            Self::Stuck => 0,
        }
    }
}

/// What a job took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The run itself.
    pub(crate) wall: Duration,
    /// CPU time of the run.
    pub(crate) cpu: Duration,
    /// Bringing its state to the worker, or making it fresh.
    pub(crate) overhead: Duration,
    /// The most guest memory that it had, in bytes, with what all interpreters share.
    pub(crate) peak_memory_bytes: u64,
    /// What its interpreter had of its own at the end, in bytes, and what its files grew by at most.
    pub(crate) own_memory_bytes: u64,
    /// What went wrong that another interpreter may do better, if anything did.
    pub(crate) fault: Option<Fault>,
    /// Whether the job's session left the worker, in the state of before the job.
    pub(crate) session_left: bool,
    /// Whether the program never began, which says nothing of what such jobs take.
    pub(crate) never_ran: bool,
}

/// A tenant that has jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TenantView {
    pub(crate) weight: u32,
    /// Jobs that wait, by priority, the most urgent first.
    pub(crate) depths: [usize; 3],
    /// Bytes that these hold.
    pub(crate) queued_bytes: usize,
    pub(crate) running: usize,
}

/// The scheduler's view of everything.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    config: SchedulerConfig,
    /// The image and the compiled build.
    shared_bytes: u64,
    now: Time,
    phase: Phase,
    /// When draining ends jobs.
    drain_until: Option<Time>,
    /// Whether it has.
    is_aborted: bool,
    /// Every admitted job that has not ended. In order: those that come and those that are next are
    /// near each other in memory.
    jobs: BTreeMap<JobId, Box<Job>>,
    /// Those that wait.
    waiting: BTreeSet<JobId>,
    /// Those of them that have a deadline, by it.
    due: BTreeSet<(Time, JobId)>,
    queued_bytes: usize,
    running: usize,
    /// What running jobs hold and may still take.
    in_flight_bytes: u64,
    /// Bytes that something could not have in this step.
    shortage_bytes: u64,
    shares: Shares,
    fleet: Fleet,
    sessions: Residency,
}

#[derive(Debug, Clone)]
struct Job {
    queued: Queued,
    submitted: Time,
    /// Tries that the sandbox failed.
    failed_attempts: u32,
    run: Option<Run>,
}

/// A try of a job.
#[derive(Debug, Clone)]
struct Run {
    worker: WorkerId,
    since: Time,
    /// The CPU time that its tenant was charged with.
    charged: Duration,
    /// What it holds and may still take.
    bytes: u64,
    /// Whether it was told to end.
    is_unwanted: bool,
}

impl Job {
    /// When its outcome is due.
    fn due(&self) -> Option<Time> {
        self.submitted.checked_add(self.queued.deadline?)
    }
}

impl Model {
    pub(crate) fn new(config: SchedulerConfig, shared_bytes: u64) -> Self {
        Self {
            config,
            shared_bytes,
            now: Time::ZERO,
            phase: Phase::Open,
            drain_until: None,
            is_aborted: false,
            jobs: BTreeMap::new(),
            waiting: BTreeSet::new(),
            due: BTreeSet::new(),
            queued_bytes: 0,
            running: 0,
            in_flight_bytes: 0,
            shortage_bytes: 0,
            shares: Shares::default(),
            fleet: Fleet::default(),
            sessions: Residency::default(),
        }
    }

    /// Asks for the first workers.
    #[must_use]
    pub(crate) fn start(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.grow(&mut effects);
        effects
    }

    /// Takes one event in and says what is to be done about it.
    #[must_use]
    pub(crate) fn handle(&mut self, event: Event, now: Time) -> Vec<Effect> {
        self.now = self.now.max(now);
        self.shortage_bytes = 0;
        self.sessions.wake_disk(self.now);
        self.fleet.take_back(self.config.workers.retry_after, self.now);
        let mut effects = Vec::new();
        self.take_in(event, &mut effects);
        // What gives room back comes before what takes it.
        self.expire(&mut effects);
        self.close_resting(&mut effects);
        self.shrink(&mut effects);
        self.dispatch(&mut effects);
        self.finish_draining(&mut effects);
        self.rest(&mut effects);
        self.grow(&mut effects);
        debug_assert_eq!(self.check_invariants(), Ok(()));
        effects
    }

    fn take_in(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Submitted { job, queued } => self.submitted(job, queued, effects),
            Event::EndWanted(job, ending) => self.end_wanted(job, ending, effects),
            Event::SessionOpened { session, bytes } => self.sessions.open(session, bytes, self.now),
            Event::SessionClosed(session) => {
                self.sessions.change(session, |session| session.is_closing = true);
                self.end_session_if_done(session, effects);
            }
            Event::SessionLost { session, reason } => {
                self.lose_session(session, &reason, effects);
            }
            Event::SessionMoved { session, bytes } => self.moved(session, bytes),
            Event::SessionParked { session, bytes } => {
                self.sessions.change(session, |session| session.has_left(Some(bytes)));
            }
            Event::Stowed { session, stowage, result } => {
                self.sessions.stowed(session, stowage, result, self.now);
            }
            Event::Ready { worker, memory_bytes, kept_bytes } => {
                self.ready(worker, memory_bytes, kept_bytes, effects);
            }
            Event::Finished { worker, job, report } => {
                self.finished(worker, job, &report, effects);
            }
            Event::Captured { worker, job } => self.captured(worker, job, effects),
            Event::Gone { worker, reason, is_replaced, takes_session, fault } => {
                self.gone(worker, &reason, is_replaced, takes_session, fault, effects);
            }
            Event::Draining { until } => self.drain(until),
            Event::Tick => {}
        }
    }

    /// A worker is idle: it gets a new interpreter if it needs one, or waits for a job.
    fn ready(
        &mut self,
        worker: WorkerId,
        memory_bytes: u64,
        kept_bytes: u64,
        effects: &mut Vec<Effect>,
    ) {
        let left = self.fleet.take_leaving(worker);
        self.has_left(worker, left);
        let retire = self.fleet.ready(worker, memory_bytes, kept_bytes, self.now);
        let resident = self.resident(worker);
        if let Some(id) = resident {
            self.sessions.change(id, |session| session.is_at_rest = true);
            self.reoffer(id);
        }
        let Some(reason) = retire else { return };
        match resident {
            None => {
                self.fleet.renew(worker);
                effects.push(Effect::Renew(worker, reason));
            }
            // A session would bring its memory along: the slot is renewed once it holds none.
            Some(_) if matches!(reason, RetireReason::HighWater { .. }) => {}
            // Then the worker is ready again.
            Some(id) if self.load(id) == 0 => {
                self.vacate(worker, id, EvictionReason::WorkerNeeded { worker }, effects);
            }
            // It is renewed once no job needs what it has.
            Some(_) => {}
        }
    }

    fn moved(&mut self, id: SessionId, bytes: u64) {
        if let Some(worker) = self.sessions.get(id).and_then(|session| session.worker()) {
            self.fleet.house(worker, None);
        }
        let now = self.now;
        self.sessions.change(id, |session| {
            session.place = if bytes == 0 { Place::Fresh } else { Place::Parked };
            session.bytes = bytes;
            session.rests_since = now;
            session.is_unmovable = false;
            session.is_stowing = false;
            session.is_at_rest = false;
        });
        self.reoffer(id);
    }

    /// What a worker was to put aside it has put aside, or lost, or never had: it says something
    /// that comes after that.
    fn has_left(&mut self, worker: WorkerId, session: Option<SessionId>) {
        let Some(id) = session else { return };
        self.sessions.change(id, |session| {
            if session.leaves == Some(worker) {
                session.has_left(None);
            }
        });
    }

    fn drain(&mut self, until: Option<Time>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
        self.drain_until = self.drain_until.into_iter().chain(until).min();
    }

    /// Puts a job where it waits.
    fn enqueue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Queued { tenant, session, bytes, .. } = &job.queued;
        let waiting = self.as_waiting(id, job);
        self.waiting.insert(id);
        self.due.extend(job.due().map(|due| (due, id)));
        self.queued_bytes += bytes;
        self.shares.enqueue(tenant, waiting, self.config.of_tenant(tenant));
        match *session {
            None => self.shares.offer(tenant, waiting.key),
            Some(session) => {
                self.sessions.change(session, |session| {
                    session.waiting.insert(id);
                });
                self.reoffer(session);
            }
        }
    }

    /// Takes a job out of where it waits, except for the tenant's part.
    fn take_out(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        self.waiting.remove(&id);
        if let Some(due) = job.due() {
            self.due.remove(&(due, id));
        }
        self.queued_bytes -= job.queued.bytes;
        if let Some(session) = job.queued.session {
            self.sessions.change(session, |session| {
                session.waiting.remove(&id);
                session.offered.take_if(|(_, (_, offered))| *offered == id);
            });
        }
    }

    /// Offers the job of a session that could run, as the session is now.
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
            self.shares.withdraw(&tenant, key);
        }
        if let Some((tenant, key)) = next {
            self.shares.offer(&tenant, key);
        }
    }

    /// When a job counts as submitted among those of its tenant.
    fn key(&self, id: JobId, job: &Job) -> Key {
        let later = self.config.priority_step.saturating_mul(job.queued.priority as u32);
        (job.submitted.saturating_add(later), id)
    }

    fn as_waiting(&self, id: JobId, job: &Job) -> Waiting {
        let Queued { priority, bytes, .. } = job.queued;
        Waiting { key: self.key(id, job), priority, bytes }
    }

    /// Has an idle worker put its session aside.
    fn vacate(
        &mut self,
        worker: WorkerId,
        session: SessionId,
        reason: EvictionReason,
        effects: &mut Vec<Effect>,
    ) {
        self.move_out(worker, reason.clone());
        self.fleet.occupy(worker, Activity::Preparing);
        effects.push(Effect::Vacate(worker, session, reason));
    }

    /// The session whose state an idle worker has leaves it.
    fn move_out(&mut self, worker: WorkerId, reason: EvictionReason) {
        let Some(id) = self.resident(worker) else { return };
        self.fleet.vacate(worker);
        self.sessions.change(id, |session| {
            session.place = Place::Leaving;
            session.leaves = Some(worker);
            session.is_at_rest = false;
            session.evicted = Some(reason);
        });
        self.reoffer(id);
    }
}
