//! A simulation of everything around a model, which behaves as the shell and the pool promise to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pool::{BuildId, JobId, SessionId, Tier, WorkerId};

use super::Random;
use crate::config::SchedulerConfig;
use crate::decision::DecisionKind;
use crate::effect::{Effect, Finish};
use crate::job::{Growth, Priority, Queued};
use crate::model::{Event, Fault, Model, Report, StopKind};
use crate::status::Phase;
use crate::timer::Time;

mod steps;

const TENANTS: [&str; 4] = ["ants", "bees", "cats", "dogs"];

pub(super) struct World {
    pub(super) model: Model,
    pub(super) now: Time,
    random: Random,
    next_job: u64,
    next_session: u64,
    next_worker: u64,
    /// Workers that were asked for.
    coming: usize,
    /// Workers that are about to be ready.
    preparing: Vec<WorkerId>,
    idle: BTreeSet<WorkerId>,
    running: BTreeMap<WorkerId, JobId>,
    /// Workers that are to end before they run another job.
    retiring: BTreeSet<WorkerId>,
    /// Whether the pool was last told to be ready; `None` before anything was told.
    was_ready: Option<bool>,
    session_of: BTreeMap<JobId, SessionId>,
    /// The worker that holds each session's state, for sessions on workers.
    states: BTreeMap<SessionId, WorkerId>,
    /// States that workers are about to suspend.
    leaving: VecDeque<SessionId>,
    offloading: Option<(SessionId, Tier)>,
    captures: BTreeSet<JobId>,
    idempotent: BTreeSet<JobId>,
    attempts: BTreeMap<JobId, u32>,
    retries: u32,
    pub(super) admitted: BTreeSet<JobId>,
    pub(super) ended: BTreeSet<JobId>,
    pub(super) refused: usize,
    /// The kinds of decisions and effects so far, one bit each.
    pub(super) asked: u32,
}

/// The number of kinds of decisions and effects.
pub(super) const KINDS: u32 = 18;

// The kinds of decisions; `kind` has those of effects. A retry is either.
const ADMITTED: u32 = 0;
const REFUSED: u32 = 1;
const CONCLUDED: u32 = 3;
const RETRIED: u32 = 4;

fn kind(effect: &Effect) -> u32 {
    match effect {
        Effect::Dispatch { .. } => 2,
        Effect::Retry { .. } => RETRIED,
        Effect::Settle(..) => 5,
        Effect::StopRun(_) => 6,
        Effect::InterruptRun(..) => 7,
        Effect::EndSession(..) => 8,
        Effect::AddWorker => 9,
        Effect::DismissWorker(_) => 10,
        Effect::Renew(..) => 11,
        Effect::Vacate(..) => 12,
        Effect::Offload(..) => 13,
        Effect::Record(DecisionKind::Drained) => 14,
        Effect::Displace(..) => 15,
        Effect::Retire(_) => 16,
        Effect::Record(_) => 17,
    }
}

impl World {
    pub(super) fn new(config: SchedulerConfig, seed: u64) -> Self {
        let retries = config.retries;
        let mut world = Self {
            model: Model::new(config, 100),
            now: Time::ZERO,
            random: Random(seed),
            next_job: 1,
            next_session: 1,
            next_worker: 1,
            coming: 0,
            preparing: Vec::new(),
            idle: BTreeSet::new(),
            running: BTreeMap::new(),
            retiring: BTreeSet::new(),
            was_ready: None,
            session_of: BTreeMap::new(),
            states: BTreeMap::new(),
            leaving: VecDeque::new(),
            offloading: None,
            captures: BTreeSet::new(),
            idempotent: BTreeSet::new(),
            attempts: BTreeMap::new(),
            retries,
            admitted: BTreeSet::new(),
            ended: BTreeSet::new(),
            refused: 0,
            asked: 0,
        };
        let effects = world.model.start();
        world.perform(effects);
        world
    }

    fn send(&mut self, event: Event) {
        let effects = self.model.handle(event.clone(), self.now);
        assert_eq!(self.model.check_invariants(), Ok(()), "after {event:?}: {effects:?}");
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.asked |= 1 << kind(&effect);
            match effect {
                Effect::Dispatch { job, worker, due_in, .. } => {
                    assert_ne!(due_in, Some(Duration::ZERO), "nothing runs beyond its deadline");
                    self.dispatch(job, worker);
                }
                // The following dispatch suspends the session.
                Effect::Displace(..) => {}
                Effect::Settle(job, _) => self.end(job),
                Effect::Retry { job, attempt } => self.retry(job, attempt),
                Effect::StopRun(job) | Effect::InterruptRun(job, _) => {
                    assert!(self.running.values().any(|running| *running == job));
                }
                Effect::EndSession(session, _) => {
                    self.states.remove(&session);
                }
                Effect::AddWorker => self.coming += 1,
                Effect::DismissWorker(worker) => {
                    self.use_seat(worker);
                    assert!(!self.states.values().any(|on| *on == worker));
                }
                Effect::Retire(worker) => {
                    self.use_seat(worker);
                    assert!(self.retiring.remove(&worker), "it was asked for");
                    assert!(!self.states.values().any(|on| *on == worker));
                }
                Effect::Renew(worker, _) => {
                    self.use_seat(worker);
                    assert!(!self.retiring.contains(&worker), "it would be needless");
                    assert!(!self.states.values().any(|on| *on == worker));
                    self.preparing.push(worker);
                }
                Effect::Vacate(worker, session, _) => {
                    self.use_seat(worker);
                    assert_eq!(self.states.remove(&session), Some(worker));
                    self.leaving.push_back(session);
                    self.preparing.push(worker);
                }
                Effect::Offload(session, tier, _) => {
                    assert!(self.model.is_open(session) && self.model.load(session) == 0);
                    assert!(!self.states.contains_key(&session));
                    assert!(self.offloading.replace((session, tier)).is_none(), "one at a time");
                }
                Effect::Record(DecisionKind::Drained) => {
                    assert_eq!(self.admitted, self.ended);
                    assert!(self.states.is_empty());
                }
                Effect::Record(news) => self.health_changes(&news),
            }
        }
    }

    fn health_changes(&mut self, news: &DecisionKind) {
        assert_eq!(self.model.phase, Phase::Open);
        let is_ready = matches!(news, DecisionKind::PoolReady { .. });
        assert!(!(is_ready && self.was_ready == Some(true)), "it is reported once");
        self.was_ready = Some(is_ready);
    }

    fn use_seat(&mut self, worker: WorkerId) {
        assert!(self.idle.remove(&worker), "the worker had a permit");
    }

    fn dispatch(&mut self, job: JobId, worker: WorkerId) {
        self.use_seat(worker);
        assert!(!self.retiring.contains(&worker), "a retired worker runs nothing more");
        assert!(self.running.insert(worker, job).is_none());
        assert!(self.admitted.contains(&job) && !self.ended.contains(&job));
        // The thread suspends what it holds, and then takes up what it needs.
        let session = self.session_of.get(&job).copied();
        let displaced: Vec<_> =
            self.states.extract_if(.., |id, on| *on == worker && Some(*id) != session).collect();
        self.leaving.extend(displaced.into_iter().map(|(id, _)| id));
        if let Some(session) = session {
            let elsewhere = self.states.insert(session, worker);
            let is_there = elsewhere.is_none_or(|on| on == worker);
            assert!(is_there, "no worker waits for a state that another keeps");
            let same = |id: &JobId| self.session_of.get(id) == Some(&session);
            assert_eq!(self.running.values().filter(|id| same(id)).count(), 1, "one at a time");
        }
    }

    fn end(&mut self, job: JobId) {
        assert!(self.admitted.contains(&job), "only admitted jobs end");
        assert!(self.ended.insert(job), "a job ends once");
    }

    fn retry(&mut self, job: JobId, attempt: u32) {
        assert!(self.idempotent.contains(&job) && !self.ended.contains(&job));
        let before = self.attempts.insert(job, attempt).unwrap_or(0);
        assert!(attempt == before + 1 && attempt <= self.retries, "retries are bounded");
    }

    /// Makes one random thing happen.
    pub(super) fn step(&mut self) {
        if self.random.one_in(4) {
            self.now += Duration::from_millis(self.random.below(2_000));
        }
        match self.random.below(41) {
            0..10 => self.submit(),
            10..13 => self.cancel(),
            13..22 => self.finish_one(),
            22..28 => self.make_ready(),
            28 => self.kill(),
            29 => self.open(),
            30 => self.fork(),
            31 => {
                let session = self.any_session();
                self.send(Event::SessionClosed(session));
            }
            32 => self.restore(),
            33 => self.capture(),
            34..36 => self.suspend(),
            36..38 => self.offloaded(),
            38 => self.wake(),
            39 => self.retire(),
            _ => self.send(Event::Tick),
        }
    }

    pub(super) fn drain(&mut self) {
        let until = self.random.one_in(2).then(|| self.now + Duration::from_secs(1));
        self.send(Event::Draining { until });
    }

    fn any_session(&mut self) -> SessionId {
        SessionId(1 + self.random.below(self.next_session))
    }

    fn submit(&mut self) {
        let session = self.random.one_in(2).then(|| self.any_session());
        let deadline = self.random.one_in(4).then(|| self.random.below(3_000));
        let queued = Queued {
            bytes: self.random.below(500) as usize,
            build: BuildId(session.map_or(self.next_job % 3, |session| session.0 % 3) as u16),
            session,
            tenant: Arc::from(TENANTS[self.random.below(4) as usize]),
            priority: Priority::ALL[self.random.below(3) as usize],
            deadline: deadline.map(Duration::from_millis),
            output_bytes: self.random.below(200) as usize,
            growth: Growth {
                memory_bytes: self.random.below(400),
                file_bytes: self.random.below(100),
            },
            is_idempotent: self.random.one_in(2),
        };
        let job = self.new_job(session);
        if queued.is_idempotent {
            self.idempotent.insert(job);
        }
        self.send_job(job, queued);
        assert!(self.model.explain(job, self.now).is_some() == self.is_live(job));
    }

    fn send_job(&mut self, job: JobId, queued: Queued) {
        let (decision, effects) = self.model.submit(job, queued, self.now);
        assert_eq!(self.model.check_invariants(), Ok(()), "after {job}: {decision:?}, {effects:?}");
        match decision {
            Ok(()) => {
                self.asked |= 1 << ADMITTED;
                assert!(self.admitted.insert(job));
            }
            Err(_) => {
                self.asked |= 1 << REFUSED;
                assert!(!self.admitted.contains(&job));
                self.refused += 1;
            }
        }
        self.perform(effects);
    }

    fn new_job(&mut self, session: Option<SessionId>) -> JobId {
        let job = JobId(self.next_job);
        self.next_job += 1;
        self.session_of.extend(session.map(|session| (job, session)));
        job
    }

    fn is_live(&self, job: JobId) -> bool {
        self.admitted.contains(&job) && !self.ended.contains(&job)
    }

    fn cancel(&mut self) {
        let job = JobId(1 + self.random.below(self.next_job));
        let endings = [StopKind::Interrupt, StopKind::Cancel, StopKind::Kill];
        let ending = endings[self.random.below(3) as usize];
        self.send(Event::StopRequested(job, ending));
    }

    fn busy(&mut self) -> Option<WorkerId> {
        let at = self.random.below(self.running.len() as u64) as usize;
        self.running.keys().nth(at).copied()
    }

    fn finish_one(&mut self) {
        if let Some(worker) = self.busy() {
            self.finish(worker);
        }
    }

    fn finish(&mut self, worker: WorkerId) {
        let job = self.running[&worker];
        let session = self.session_of.get(&job).copied();
        // Some runs cost their session.
        if let Some(session) = session
            && self.random.one_in(4)
        {
            self.send(Event::SessionLost { session, reason: "lost".into() });
        }
        self.running.remove(&worker);
        self.preparing.push(worker);
        if self.captures.remove(&job) {
            self.end(job);
            self.send(Event::Captured { worker, job });
            return;
        }
        // Some take their interpreter along, but leave their session behind.
        let session_left = session
            .is_some_and(|session| self.random.one_in(6) && self.states.remove(&session).is_some());
        let report = Report {
            wall: Duration::from_micros(self.random.below(1_000_000)),
            cpu: Duration::from_micros(self.random.below(1_000_000)),
            overhead: Duration::from_micros(self.random.below(1_000)),
            peak_memory_bytes: self.random.below(1_200),
            own_memory_bytes: self.random.below(1_200),
            fault: self.fault(),
            session_left,
            never_ran: self.random.below(8) == 0,
        };
        self.report(worker, job, &report);
    }

    fn report(&mut self, worker: WorkerId, job: JobId, report: &Report) {
        let (decision, effects) = self.model.finish(worker, job, report, self.now);
        assert_eq!(self.model.check_invariants(), Ok(()), "after {job}: {decision:?}, {effects:?}");
        match decision {
            Finish::Conclude => {
                self.asked |= 1 << CONCLUDED;
                self.end(job);
            }
            Finish::Retry { attempt } => {
                self.asked |= 1 << RETRIED;
                self.retry(job, attempt);
            }
            Finish::Ignore => panic!("{worker} runs {job}"),
        }
        self.perform(effects);
    }

    fn fault(&mut self) -> Option<Fault> {
        let faults = [Fault::Sandbox, Fault::Sandbox, Fault::Tampering, Fault::Stuck];
        faults.get(self.random.below(20) as usize).copied()
    }

    fn make_ready(&mut self) {
        if self.coming > 0 && (self.preparing.is_empty() || self.random.one_in(2)) {
            self.coming -= 1;
            let worker = WorkerId(self.next_worker);
            self.next_worker += 1;
            self.is_ready(worker);
        } else if !self.preparing.is_empty() {
            let at = self.random.below(self.preparing.len() as u64) as usize;
            let worker = self.preparing.swap_remove(at);
            self.is_ready(worker);
        }
    }

    fn is_ready(&mut self, worker: WorkerId) {
        self.idle.insert(worker);
        let memory_bytes = self.random.below(300);
        let kept_bytes = self.random.below(300);
        // Not always what its last job should have led to: that may have failed.
        let build = BuildId((worker.0 % 3) as u16);
        let stays = self.random.below(20) == 0;
        self.send(Event::Ready { worker, build, memory_bytes, kept_bytes, stays });
    }

    /// Continues until nothing moves.
    pub(super) fn settle(&mut self) {
        loop {
            while self.coming > 0 || !self.preparing.is_empty() {
                self.make_ready();
            }
            if let Some(worker) = self.running.keys().next().copied() {
                self.finish(worker);
            } else if !self.preparing.is_empty() {
                continue;
            } else if self.offloading.is_some() {
                self.offloaded();
            } else if self.model.queue_depth() > 0 && self.model.next_wake().is_some() {
                // Such a job waits before a retry.
                self.wake();
            } else {
                assert!(self.retiring.is_empty(), "each of them ends");
                return;
            }
        }
    }

    /// Checks that every admitted job has ended.
    pub(super) fn check_end(&self) {
        assert_eq!(self.admitted, self.ended, "every admitted job ends");
        assert_eq!((self.model.queue_depth(), self.model.running), (0, 0));
        let memory = self.model.memory();
        assert_eq!((memory.queued_bytes, memory.in_flight_bytes), (0, 0));
        assert_eq!(self.admitted.len() + self.refused, self.next_job as usize - 1);
        assert!(self.model.phase != Phase::Draining);
    }
}
