//! Random histories that must keep every promise.

use std::collections::{HashMap, HashSet};

use pool::{JobId, SessionId, WorkerId};
use proptest::prelude::*;

use super::model;
use crate::effect::Effect;
use crate::model::{Ending, Event, Model};

/// One step of a random history.
#[derive(Debug, Clone)]
enum Move {
    Submit { bytes: usize, session: Option<u64> },
    Cancel(prop::sample::Index),
    Finish(prop::sample::Index),
    Start(prop::sample::Index),
    Kill { which: prop::sample::Index, is_replaced: bool, takes_session: bool },
    Open,
    Close(u64),
    Restore(u64),
    Drain,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let any_index = || any::<prop::sample::Index>();
    let one = prop_oneof![
        8 => (0..500_usize, prop::option::of(1..6_u64))
            .prop_map(|(bytes, session)| Move::Submit { bytes, session }),
        3 => any_index().prop_map(Move::Cancel),
        8 => any_index().prop_map(Move::Finish),
        6 => any_index().prop_map(Move::Start),
        1 => (any_index(), any::<bool>(), any::<bool>()).prop_map(
            |(which, is_replaced, takes_session)| Move::Kill { which, is_replaced, takes_session },
        ),
        1 => Just(Move::Open),
        1 => (1..6_u64).prop_map(Move::Close),
        1 => (1..6_u64).prop_map(Move::Restore),
    ];
    (prop::collection::vec(one, 1..80), any::<bool>()).prop_map(|(mut moves, drains)| {
        if drains {
            moves.push(Move::Drain);
        }
        moves
    })
}

/// Everything around the model, behaving as the shell and the pool promise to.
struct World {
    model: Model,
    next_job: u64,
    next_session: u64,
    next_worker: u64,
    /// Workers that start, or are reset.
    starting: Vec<WorkerId>,
    idle: Vec<WorkerId>,
    running: HashMap<WorkerId, JobId>,
    /// The session of each job that has one.
    session_of: HashMap<JobId, SessionId>,
    /// Where the state of each session is; nowhere if it is parked. Tells whether a worker would
    /// wait for a state that no other is about to park.
    states: HashMap<SessionId, WorkerId>,
    admitted: HashSet<JobId>,
    ended: HashSet<JobId>,
}

impl World {
    fn new() -> Self {
        Self {
            model: model(2, 5),
            next_job: 1,
            next_session: 1,
            next_worker: 3,
            starting: vec![WorkerId(1), WorkerId(2)],
            idle: Vec::new(),
            running: HashMap::new(),
            session_of: HashMap::new(),
            states: HashMap::new(),
            admitted: HashSet::new(),
            ended: HashSet::new(),
        }
    }

    fn tell(&mut self, event: Event) {
        for effect in self.model.handle(event) {
            match effect {
                Effect::Admit(job) => assert!(self.admitted.insert(job)),
                Effect::Refuse(job, _) => assert!(!self.admitted.contains(&job)),
                Effect::Dispatch(job, worker) => self.dispatch(job, worker),
                Effect::Settle(job, _) => self.end(job),
                Effect::StopRun(job) | Effect::InterruptRun(job, _) => {
                    assert!(self.running.values().any(|running| *running == job));
                }
                Effect::EndSession(session, _) => {
                    self.states.remove(&session);
                }
                Effect::Drained => assert_eq!(self.admitted, self.ended),
            }
        }
        assert_eq!(self.model.check_invariants(), Ok(()));
    }

    fn dispatch(&mut self, job: JobId, worker: WorkerId) {
        let at = self.idle.iter().position(|idle| *idle == worker);
        self.idle.remove(at.expect("the worker had a seat"));
        assert!(self.running.insert(worker, job).is_none());
        assert!(self.admitted.contains(&job) && !self.ended.contains(&job));
        // The thread parks what it has, and then takes what it needs.
        self.states.retain(|_, on| *on != worker);
        if let Some(session) = self.session_of.get(&job) {
            let elsewhere = self.states.insert(*session, worker);
            assert_eq!(elsewhere, None, "no worker waits for a state that another keeps");
        }
    }

    fn end(&mut self, job: JobId) {
        assert!(self.admitted.contains(&job), "only admitted jobs end");
        assert!(self.ended.insert(job), "a job ends once");
    }

    fn play(&mut self, step: Move) {
        match step {
            Move::Submit { bytes, session } => {
                let job = JobId(self.next_job);
                self.next_job += 1;
                let session = session.map(SessionId);
                self.session_of.extend(session.map(|session| (job, session)));
                self.tell(Event::Submitted { job, bytes, session });
            }
            Move::Cancel(which) if self.next_job > 1 => {
                let job = JobId(1 + which.index(self.next_job as usize - 1) as u64);
                self.tell(Event::EndWanted(job, Ending::Cancel));
            }
            Move::Finish(which) if !self.running.is_empty() => {
                let mut workers: Vec<_> = self.running.keys().copied().collect();
                workers.sort_unstable();
                self.finish(workers[which.index(workers.len())]);
            }
            Move::Start(which) if !self.starting.is_empty() => {
                let worker = self.starting.remove(which.index(self.starting.len()));
                self.is_ready(worker);
            }
            Move::Kill { which, is_replaced, takes_session } if !self.running.is_empty() => {
                let mut workers: Vec<_> = self.running.keys().copied().collect();
                workers.sort_unstable();
                let worker = workers[which.index(workers.len())];
                self.running.remove(&worker);
                self.states.retain(|_, on| *on != worker);
                if is_replaced {
                    self.starting.push(WorkerId(self.next_worker));
                    self.next_worker += 1;
                }
                let reason = "killed".to_owned();
                self.tell(Event::Gone { worker, reason, is_replaced, takes_session });
            }
            Move::Open if self.model.refuses_session().is_none() => {
                let session = SessionId(self.next_session);
                self.next_session += 1;
                self.tell(Event::SessionOpened(session));
            }
            Move::Close(session) => self.tell(Event::SessionClosed(SessionId(session))),
            Move::Restore(session) if self.model.load(SessionId(session)) == 0 => {
                self.states.remove(&SessionId(session));
                self.tell(Event::SessionMoved(SessionId(session)));
            }
            Move::Drain => self.tell(Event::Draining),
            Move::Cancel(_)
            | Move::Finish(_)
            | Move::Start(_)
            | Move::Kill { .. }
            | Move::Open
            | Move::Restore(_) => {}
        }
    }

    fn is_ready(&mut self, worker: WorkerId) {
        self.idle.push(worker);
        self.tell(Event::Ready { worker });
    }

    fn finish(&mut self, worker: WorkerId) {
        let job = self.running.remove(&worker).expect("it runs");
        self.end(job);
        // Every third run costs its session.
        if let Some(session) = self.session_of.get(&job).copied()
            && job.0.is_multiple_of(3)
        {
            self.tell(Event::SessionLost { session, reason: "lost".to_owned() });
        }
        self.tell(Event::Finished { worker, job });
        self.starting.push(worker);
    }

    /// Lets everything go on until nothing moves.
    fn settle(&mut self) {
        loop {
            if let Some(worker) = self.starting.pop() {
                self.is_ready(worker);
            } else if let Some(worker) = self.running.keys().next().copied() {
                self.finish(worker);
            } else {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_admitted_job_ends_exactly_once(moves in moves()) {
        let mut world = World::new();
        for step in moves {
            world.play(step);
        }
        world.settle();
        prop_assert_eq!(&world.admitted, &world.ended);
    }
}
