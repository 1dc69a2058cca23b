//! The decisions. Pure: a model, an event, and the effects that follow.
//!
//! Time plays no part here yet: first come, first served needs only the order of job numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use engine::StopReason;
use pool::{JobId, SessionId, WorkerId};

use crate::config::SchedulerConfig;
use crate::effect::{Effect, Settlement};
use crate::error::Refusal;
use crate::status::Phase;

mod invariants;
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
    /// A session's state is gone. What waits for it can't run.
    SessionLost { session: SessionId, reason: String },
    /// No worker has a session's state any more: it was replaced while nothing of it ran.
    SessionMoved(SessionId),
    /// A worker offers a seat.
    Ready { worker: WorkerId },
    /// A worker's job has ended.
    Finished { worker: WorkerId, job: JobId },
    /// A worker is no more; `takes_session` if the state that it had went with it.
    Gone { worker: WorkerId, reason: String, is_replaced: bool, takes_session: bool },
    /// No more jobs are to be taken.
    Draining,
}

/// The scheduler's view of everything.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    config: SchedulerConfig,
    phase: Phase,
    /// Workers that live or will be replaced.
    workers: usize,
    /// Why the last one was given up.
    last_failure: String,
    /// Isolated jobs that wait, oldest first.
    waiting: BTreeSet<JobId>,
    /// Workers with an unused seat, the one that is idle longest first.
    idle: VecDeque<WorkerId>,
    sessions: HashMap<SessionId, Session>,
    /// The session whose state each worker has, or will have once it begins its job.
    residents: HashMap<WorkerId, SessionId>,
    /// Sessions that have a job and none that runs, by their oldest job.
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
    /// The worker that has its state. Until that worker is idle, only it can be waited for: it
    /// parks the state only when it is given something else.
    resident: Option<WorkerId>,
    /// The job by which it is among the runnable ones.
    listed: Option<JobId>,
    /// It ends when its last job has.
    is_closing: bool,
}

impl Model {
    pub(crate) fn new(config: SchedulerConfig, workers: usize) -> Self {
        Self {
            config,
            phase: Phase::Open,
            workers,
            last_failure: String::new(),
            waiting: BTreeSet::new(),
            idle: VecDeque::new(),
            sessions: HashMap::new(),
            residents: HashMap::new(),
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
        // S-4: a session with a job is runnable, or resident on a worker that is not idle.
        let residents = self.residents.values().filter_map(|id| self.sessions.get(id));
        let in_residents = residents.filter_map(|session| session.waiting.first());
        self.next_job().into_iter().chain(in_residents.copied()).min()
    }

    /// Jobs that wait for `session`; `None` if it isn't open.
    pub(crate) fn session_depth(&self, session: SessionId) -> Option<usize> {
        self.sessions.get(&session).map(|session| session.waiting.len())
    }

    /// Whether `session` takes jobs.
    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| !session.is_closing)
    }

    /// Jobs of `session` that wait or run.
    pub(crate) fn load(&self, session: SessionId) -> usize {
        let load = |session: &Session| session.waiting.len() + usize::from(self.runs(session));
        self.sessions.get(&session).map_or(0, load)
    }

    /// The session whose state `worker` has.
    pub(crate) fn resident(&self, worker: WorkerId) -> Option<SessionId> {
        self.residents.get(&worker).copied()
    }

    /// Whether another session may be opened.
    pub(crate) fn refuses_session(&self) -> Option<Refusal> {
        if self.phase != Phase::Open {
            return Some(Refusal::ShuttingDown);
        }
        (self.sessions.len() >= self.config.sessions)
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
            }
            Event::SessionClosed(id) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.is_closing = true;
                }
                self.end_session_if_done(id, &mut effects);
            }
            Event::SessionLost { session, reason } => {
                self.lose_session(session, &reason, &mut effects);
            }
            Event::SessionMoved(id) => {
                if let Some(worker) = self.sessions.get(&id).and_then(|session| session.resident) {
                    self.move_out(worker);
                }
            }
            Event::Ready { worker } => {
                self.idle.push_back(worker);
                if let Some(id) = self.resident(worker) {
                    self.relist(id);
                }
            }
            Event::Finished { worker, job } => {
                self.running.remove(&worker);
                if let Some(session) = self.jobs.remove(&job).and_then(|job| job.session) {
                    self.end_session_if_done(session, &mut effects);
                }
            }
            Event::Gone { worker, reason, is_replaced, takes_session } => {
                self.gone(worker, &reason, is_replaced, takes_session, &mut effects);
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
            let sessions: Vec<_> = self.sessions.keys().copied().collect();
            for id in sessions {
                self.end_session(id, "the pool has shut down", &mut effects);
            }
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
        match session {
            None => {
                self.waiting.insert(job);
            }
            Some(id) => {
                let session = self.sessions.get_mut(&id).expect("closed sessions refuse");
                session.waiting.insert(job);
                self.relist(id);
            }
        }
    }

    fn refuses(&self, bytes: usize, session: Option<SessionId>) -> Option<Refusal> {
        if self.phase != Phase::Open {
            return Some(Refusal::ShuttingDown);
        }
        if let Some(session) = session
            && !self.is_open(session)
        {
            return Some(Refusal::not_open());
        }
        if self.workers == 0 {
            return Some(Refusal::NoWorker { reason: self.last_failure.clone() });
        }
        // S-6: while a worker is idle and more may run, whatever waits can't run before this job.
        let has_seat = self.running.len() < self.config.concurrent && !self.idle.is_empty();
        let session = session.and_then(|id| self.sessions.get(&id));
        let can_run_now = has_seat && session.is_none_or(|session| self.is_ready(session));
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
        if let Some(session) = self.settle(job, Settlement::Cancelled, effects) {
            self.end_session_if_done(session, effects);
        }
    }

    fn gone(
        &mut self,
        worker: WorkerId,
        reason: &str,
        is_replaced: bool,
        takes_session: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.idle.retain(|idle| *idle != worker);
        if let Some(job) = self.running.remove(&worker) {
            self.jobs.remove(&job);
            effects.push(Effect::Settle(job, Settlement::WorkerDied(reason.to_owned())));
        }
        if let Some(id) = self.resident(worker) {
            if takes_session {
                self.lose_session(id, reason, effects);
            } else {
                self.move_out(worker);
                self.end_session_if_done(id, effects);
            }
        }
        if is_replaced {
            return;
        }
        self.workers -= 1;
        reason.clone_into(&mut self.last_failure);
        if self.workers == 0 {
            while let Some(job) = self.oldest() {
                let none = Settlement::NoWorker(reason.to_owned());
                if let Some(session) = self.settle(job, none, effects) {
                    self.end_session_if_done(session, effects);
                }
            }
        }
    }

    /// Ends a job that waits. Gives its session.
    fn settle(
        &mut self,
        job: JobId,
        settlement: Settlement,
        effects: &mut Vec<Effect>,
    ) -> Option<SessionId> {
        self.unqueue(job);
        effects.push(Effect::Settle(job, settlement));
        self.jobs.remove(&job)?.session
    }

    /// Ends a session at once; what waits for it can't run.
    fn lose_session(&mut self, id: SessionId, reason: &str, effects: &mut Vec<Effect>) {
        let waiting = self.sessions.get(&id).map(|session| session.waiting.clone());
        for job in waiting.unwrap_or_default() {
            let _ = self.settle(job, Settlement::SessionLost(reason.to_owned()), effects);
        }
        self.end_session(id, reason, effects);
    }

    /// A closing session ends once no job of it waits or runs.
    fn end_session_if_done(&mut self, id: SessionId, effects: &mut Vec<Effect>) {
        let is_closing = self.sessions.get(&id).is_some_and(|session| session.is_closing);
        if is_closing && self.load(id) == 0 {
            self.end_session(id, "it was closed", effects);
        }
    }

    /// Ends a session for which nothing waits.
    fn end_session(&mut self, id: SessionId, reason: &str, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        if let Some(worker) = session.resident {
            self.residents.remove(&worker);
        }
        effects.push(Effect::EndSession(id, reason.to_owned()));
    }

    /// Starts the oldest jobs that can run now.
    fn dispatch(&mut self, effects: &mut Vec<Effect>) {
        while self.running.len() < self.config.concurrent
            && let Some(job) = self.next_job()
        {
            let session = self.jobs[&job].session;
            let Some(worker) = self.take_seat(session) else { return };
            self.unqueue(job);
            self.jobs.get_mut(&job).expect("S-2: what waits is a job").is_running = true;
            self.running.insert(worker, job);
            // Whatever state the worker has makes way for this job's.
            self.move_out(worker);
            if let Some(id) = session {
                self.move_in(id, worker);
            }
            effects.push(Effect::Dispatch(job, worker));
        }
    }

    /// The oldest job that an idle worker could run.
    fn next_job(&self) -> Option<JobId> {
        self.waiting.first().into_iter().chain(self.runnable_sessions.keys().next()).min().copied()
    }

    /// Takes the seat where a job costs least: where its session is, else where no session is, else
    /// where the session is that rested longest.
    fn take_seat(&mut self, session: Option<SessionId>) -> Option<WorkerId> {
        let home = session.and_then(|id| self.sessions.get(&id)?.resident);
        let at = match home {
            Some(home) => self.idle.iter().position(|worker| *worker == home)?,
            None => {
                let is_vacant = |worker: &WorkerId| !self.residents.contains_key(worker);
                self.idle.iter().position(is_vacant).unwrap_or(0)
            }
        };
        self.idle.remove(at)
    }

    /// Notes that no session's state is on this worker.
    fn move_out(&mut self, worker: WorkerId) {
        let Some(id) = self.residents.remove(&worker) else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.resident = None;
        }
        self.relist(id);
    }

    /// Notes that this session's state is on this worker.
    fn move_in(&mut self, id: SessionId, worker: WorkerId) {
        self.residents.insert(worker, id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.resident = Some(worker);
        }
        self.relist(id);
    }

    /// Whether a job of this session runs.
    fn runs(&self, session: &Session) -> bool {
        session.resident.is_some_and(|worker| self.running.contains_key(&worker))
    }

    /// Whether this session could run a job on an idle worker. Where its state is on a worker that
    /// isn't idle, a job of it runs, or has just ended.
    fn is_ready(&self, session: &Session) -> bool {
        session.resident.is_none_or(|worker| self.idle.contains(&worker))
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
        self.relist(id);
    }

    /// Puts a session among the runnable ones, or takes it out, as it is now.
    fn relist(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let next = session.waiting.first().copied().filter(|_| self.is_ready(session));
        let session = self.sessions.get_mut(&id).expect("it was there");
        let before = std::mem::replace(&mut session.listed, next);
        if let Some(job) = before {
            self.runnable_sessions.remove(&job);
        }
        if let Some(job) = next {
            self.runnable_sessions.insert(job, id);
        }
    }
}
