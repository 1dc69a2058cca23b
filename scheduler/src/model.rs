//! The decisions. Pure: a model, an event, and the effects that follow.
//!
//! Time plays no part here yet: first come, first served needs only the order of job numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use engine::StopReason;
use pool::{JobId, SessionId, WorkerId, WorkerKind};

use crate::config::SchedulerConfig;
use crate::effect::{Effect, Settlement};
use crate::error::Refusal;
use crate::status::Phase;

#[cfg(test)]
mod tests;

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
    Submitted { job: JobId, bytes: usize, session: Option<SessionId> },
    /// A caller wants its job to end.
    EndWanted(JobId, Ending),
    /// A session is wanted. Its number is new.
    SessionOpened(SessionId),
    /// A session is no longer wanted.
    SessionClosed(SessionId),
    /// A worker offers a seat.
    Ready { worker: WorkerId, kind: WorkerKind },
    /// A worker's task has ended; `is_lost` if its interpreter is gone, and with it a session.
    Finished { worker: WorkerId, job: JobId, is_lost: bool },
    /// A worker is no more.
    Gone { worker: WorkerId, kind: WorkerKind, reason: String, is_replaced: bool },
    /// No more jobs are to be taken.
    Draining,
}

/// The scheduler's view of everything.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    config: SchedulerConfig,
    phase: Phase,
    /// Isolated workers that live or will be replaced.
    isolated_workers: usize,
    /// Why the last one was given up.
    last_failure: String,
    /// Isolated jobs that wait, oldest first.
    waiting: BTreeSet<JobId>,
    /// Isolated workers with an unused seat, longest idle last used.
    idle: BTreeSet<WorkerId>,
    sessions: HashMap<SessionId, Session>,
    /// Workers of sessions that have been asked for and are not gone, also of closed sessions.
    session_workers: usize,
    /// Sessions that have both a seat and a job, by their oldest job.
    runnable_sessions: BTreeMap<JobId, SessionId>,
    /// Every admitted job that has not ended.
    jobs: HashMap<JobId, Job>,
    queued_count: usize,
    queued_bytes: usize,
    running: HashMap<WorkerId, JobId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Job {
    bytes: usize,
    session: Option<SessionId>,
    is_running: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Session {
    /// Jobs that wait, oldest first.
    waiting: BTreeSet<JobId>,
    worker: Option<WorkerId>,
    /// Its worker has an unused seat.
    has_seat: bool,
    /// It ends when its last job has.
    is_closing: bool,
}

impl Model {
    pub(crate) fn new(config: SchedulerConfig, isolated_workers: usize) -> Self {
        Self {
            config,
            phase: Phase::Open,
            isolated_workers,
            last_failure: String::new(),
            waiting: BTreeSet::new(),
            idle: BTreeSet::new(),
            sessions: HashMap::new(),
            session_workers: 0,
            runnable_sessions: BTreeMap::new(),
            jobs: HashMap::new(),
            queued_count: 0,
            queued_bytes: 0,
            running: HashMap::new(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn queue_depth(&self) -> usize {
        self.queued_count
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// The oldest job that waits.
    pub(crate) fn oldest(&self) -> Option<JobId> {
        let in_sessions = self.sessions.values().filter_map(|session| session.waiting.first());
        self.waiting.first().into_iter().chain(in_sessions).min().copied()
    }

    /// Jobs that wait for `session`; `None` if it isn't open.
    pub(crate) fn session_depth(&self, session: SessionId) -> Option<usize> {
        self.sessions.get(&session).map(|session| session.waiting.len())
    }

    /// Whether `session` takes jobs.
    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| !session.is_closing)
    }

    /// Whether another session may be opened.
    pub(crate) fn refuses_session(&self) -> Option<Refusal> {
        if self.phase != Phase::Open {
            return Some(Refusal::ShuttingDown);
        }
        (self.session_workers >= self.config.sessions)
            .then_some(Refusal::TooManySessions { limit: self.config.sessions })
    }

    /// Takes one event in and says what is to be done about it.
    #[must_use]
    pub(crate) fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Submitted { job, bytes, session } => {
                self.submitted(job, bytes, session, &mut effects);
            }
            Event::EndWanted(job, ending) => self.end_wanted(job, ending, &mut effects),
            Event::SessionOpened(session) => {
                self.sessions.insert(session, Session::default());
                self.session_workers += 1;
                effects.push(Effect::StartSession(session));
            }
            Event::SessionClosed(session) => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.is_closing = true;
                }
                self.end_session_if_done(session, &mut effects);
            }
            Event::Ready { worker, kind } => self.ready(worker, kind, &mut effects),
            Event::Finished { worker, job, is_lost } => {
                self.finished(worker, job, is_lost, &mut effects);
            }
            Event::Gone { worker, kind, reason, is_replaced } => {
                self.gone(worker, kind, &reason, is_replaced, &mut effects);
            }
            Event::Draining => {
                if self.phase == Phase::Open {
                    self.phase = Phase::Draining;
                }
            }
        }
        self.dispatch(&mut effects);
        if self.phase == Phase::Draining && self.jobs.is_empty() {
            self.phase = Phase::Drained;
            effects.push(Effect::Drained);
        }
        debug_assert_eq!(self.check_invariants(), Ok(()));
        effects
    }

    fn submitted(
        &mut self,
        job: JobId,
        bytes: usize,
        session: Option<SessionId>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(refusal) = self.refuses(bytes, session) {
            effects.push(Effect::Refuse(job, refusal));
            return;
        }
        effects.push(Effect::Admit(job));
        self.jobs.insert(job, Job { bytes, session, is_running: false });
        self.queued_count += 1;
        self.queued_bytes += bytes;
        match session.and_then(|id| Some((id, self.sessions.get_mut(&id)?))) {
            Some((_, session)) => {
                session.waiting.insert(job);
            }
            None => {
                self.waiting.insert(job);
            }
        }
        if let Some(session) = session {
            self.mark_runnable(session);
        }
    }

    fn refuses(&self, bytes: usize, session: Option<SessionId>) -> Option<Refusal> {
        if self.phase != Phase::Open {
            return Some(Refusal::ShuttingDown);
        }
        if let Some(session) = session
            && !self.is_open(session)
        {
            let reason = "it was closed, or a run that was ended took its interpreter".to_owned();
            return Some(Refusal::SessionGone { reason });
        }
        if session.is_none() && self.isolated_workers == 0 {
            return Some(Refusal::NoWorker { reason: self.last_failure.clone() });
        }
        let can_run_now = match session {
            None => self.waiting.is_empty() && !self.idle.is_empty(),
            Some(id) => self
                .sessions
                .get(&id)
                .is_some_and(|session| session.has_seat && session.waiting.is_empty()),
        } && self.running.len() < self.config.concurrent;
        if can_run_now {
            return None;
        }
        if self.queued_count >= self.config.queued_count {
            let (queued, limit) = (self.queued_count, self.config.queued_count);
            return Some(Refusal::QueueFull { queued, limit });
        }
        let queued = self.queued_bytes.saturating_add(bytes);
        let limit = self.config.queued_bytes;
        (queued > limit).then_some(Refusal::QueueBytes { job: bytes, queued, limit })
    }

    fn end_wanted(&mut self, job: JobId, ending: Ending, effects: &mut Vec<Effect>) {
        let Some(found) = self.jobs.get(&job) else { return };
        if found.is_running {
            // A session is worth the grace period that an interrupt gives; an interpreter that
            // nobody will use again is not.
            effects.push(match (ending, found.session) {
                (Ending::Interrupt, _) => Effect::InterruptRun(job, StopReason::Interrupted),
                (Ending::Cancel, Some(_)) => Effect::InterruptRun(job, StopReason::Cancelled),
                (Ending::Cancel, None) | (Ending::Stop, _) => Effect::StopRun(job),
            });
            return;
        }
        let session = found.session;
        self.unqueue(job);
        self.jobs.remove(&job);
        effects.push(Effect::Settle(job, Settlement::Cancelled));
        if let Some(session) = session {
            self.end_session_if_done(session, effects);
        }
    }

    fn ready(&mut self, worker: WorkerId, kind: WorkerKind, effects: &mut Vec<Effect>) {
        match kind {
            WorkerKind::Isolated => {
                self.idle.insert(worker);
            }
            WorkerKind::Session(id) => {
                let Some(session) = self.sessions.get_mut(&id) else {
                    // It was closed while its worker started.
                    effects.push(Effect::StopWorker(worker));
                    return;
                };
                session.worker = Some(worker);
                session.has_seat = true;
                self.mark_runnable(id);
                self.end_session_if_done(id, effects);
            }
        }
    }

    fn finished(&mut self, worker: WorkerId, job: JobId, is_lost: bool, effects: &mut Vec<Effect>) {
        self.running.remove(&worker);
        let Some(session) = self.jobs.remove(&job).and_then(|job| job.session) else { return };
        if is_lost {
            // Its worker ends by itself. The name is free for a fresh session from now on.
            let lost = Settlement::SessionLost("a run that was ended took its state".to_owned());
            self.drop_session(session, &lost, effects);
        } else {
            self.end_session_if_done(session, effects);
        }
    }

    fn gone(
        &mut self,
        worker: WorkerId,
        kind: WorkerKind,
        reason: &str,
        is_replaced: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.idle.remove(&worker);
        if let Some(job) = self.running.remove(&worker) {
            self.jobs.remove(&job);
            effects.push(Effect::Settle(job, Settlement::WorkerDied(reason.to_owned())));
        }
        match kind {
            WorkerKind::Session(session) => {
                self.session_workers -= 1;
                let lost = Settlement::SessionLost(reason.to_owned());
                self.drop_session(session, &lost, effects);
            }
            WorkerKind::Isolated if is_replaced => {}
            WorkerKind::Isolated => {
                self.isolated_workers -= 1;
                reason.clone_into(&mut self.last_failure);
                if self.isolated_workers == 0 {
                    for job in std::mem::take(&mut self.waiting) {
                        self.forget_queued(job);
                        let none = Settlement::NoWorker(reason.to_owned());
                        effects.push(Effect::Settle(job, none));
                    }
                }
            }
        }
    }

    fn drop_session(&mut self, id: SessionId, why: &Settlement, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        if let Some(first) = session.waiting.first() {
            self.runnable_sessions.remove(first);
        }
        for job in session.waiting {
            self.forget_queued(job);
            effects.push(Effect::Settle(job, why.clone()));
        }
    }

    /// A closing session ends once no job of it waits or runs.
    fn end_session_if_done(&mut self, id: SessionId, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get(&id) else { return };
        let runs = session.worker.is_some_and(|worker| self.running.contains_key(&worker));
        if !session.is_closing || !session.waiting.is_empty() || runs {
            return;
        }
        // A worker that is still starting is stopped when it is ready.
        if let Some(worker) = session.worker {
            effects.push(Effect::StopWorker(worker));
        }
        self.sessions.remove(&id);
    }

    /// Starts the oldest jobs that can run now.
    fn dispatch(&mut self, effects: &mut Vec<Effect>) {
        while self.running.len() < self.config.concurrent {
            let isolated = self.waiting.first().filter(|_| !self.idle.is_empty()).copied();
            let in_session = self.runnable_sessions.first_key_value().map(|(job, id)| (*job, *id));
            let (job, worker) = match (isolated, in_session) {
                (Some(job), Some((other, _))) if job < other => (job, self.take_idle()),
                (Some(job), None) => (job, self.take_idle()),
                (_, Some((job, session))) => (job, self.take_session_seat(session)),
                (None, None) => return,
            };
            self.unqueue(job);
            self.jobs.get_mut(&job).expect("S-2: what waits is a job").is_running = true;
            self.running.insert(worker, job);
            effects.push(Effect::Dispatch(job, worker));
        }
    }

    fn take_idle(&mut self) -> WorkerId {
        self.idle.pop_first().expect("checked by the caller")
    }

    fn take_session_seat(&mut self, id: SessionId) -> WorkerId {
        let session = self.sessions.get_mut(&id).expect("S-4: runnable sessions are open");
        session.has_seat = false;
        if let Some(first) = session.waiting.first() {
            self.runnable_sessions.remove(first);
        }
        session.worker.expect("S-4: runnable sessions have a worker")
    }

    /// Takes a job out of the queue that it waits in.
    fn unqueue(&mut self, job: JobId) {
        let Some(found) = self.jobs.get(&job) else { return };
        self.queued_count -= 1;
        self.queued_bytes -= found.bytes;
        let Some(id) = found.session else {
            self.waiting.remove(&job);
            return;
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.waiting.remove(&job);
        }
        self.runnable_sessions.remove(&job);
        self.mark_runnable(id);
    }

    /// Forgets a job whose queue has been taken apart.
    fn forget_queued(&mut self, job: JobId) {
        if let Some(found) = self.jobs.remove(&job) {
            self.queued_count -= 1;
            self.queued_bytes -= found.bytes;
        }
    }

    /// Notes a session that has both a seat and a job.
    fn mark_runnable(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get(&id)
            && session.has_seat
            && let Some(first) = session.waiting.first()
        {
            self.runnable_sessions.insert(*first, id);
        }
    }

    /// Says which invariant is broken, if one is. The ids are those of `docs/invariants.md`.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let ensure = |holds: bool, text: &str| if holds { Ok(()) } else { Err(text.to_owned()) };
        ensure(self.running.len() <= self.config.concurrent, "S-1: no more run than may")?;
        let waiting = self.waiting.iter().chain(self.sessions.values().flat_map(|s| &s.waiting));
        let waiting: BTreeSet<_> = waiting.collect();
        let queued: BTreeSet<_> =
            self.jobs.iter().filter(|(_, job)| !job.is_running).map(|(id, _)| id).collect();
        ensure(waiting == queued, "S-2: what waits is exactly what was admitted and doesn't run")?;
        let bytes: usize = queued.iter().map(|id| self.jobs[id].bytes).sum();
        ensure(
            (self.queued_count, self.queued_bytes) == (queued.len(), bytes),
            "S-3: the queue's counters are its sums",
        )?;
        let runnable: BTreeMap<_, _> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.has_seat && session.worker.is_some())
            .filter_map(|(id, session)| Some((*session.waiting.first()?, *id)))
            .collect();
        ensure(
            runnable == self.runnable_sessions,
            "S-4: runnable sessions are those with a seat and a job, by their oldest job",
        )?;
        let running: BTreeSet<_> = self.running.values().collect();
        let marked: BTreeSet<_> =
            self.jobs.iter().filter(|(_, job)| job.is_running).map(|(id, _)| id).collect();
        ensure(
            running == marked && running.len() == self.running.len(),
            "S-5: a job runs on exactly one worker",
        )?;
        let could_run = self.running.len() < self.config.concurrent
            && (!self.runnable_sessions.is_empty()
                || (!self.waiting.is_empty() && !self.idle.is_empty()));
        ensure(!could_run, "S-6: nothing waits while a worker that could run it is idle")
    }
}
