//! The model alone: decisions one by one, and random histories that must keep every promise.

use std::collections::{HashMap, HashSet};

use engine::StopReason;
use pool::{JobId, SessionId, WorkerId, WorkerKind};
use proptest::prelude::*;

use super::{Ending, Event, Model};
use crate::config::SchedulerConfig;
use crate::effect::{Effect, Settlement};
use crate::error::Refusal;
use crate::status::Phase;

const ISOLATED: WorkerKind = WorkerKind::Isolated;

fn model(concurrent: usize, queued_count: usize) -> Model {
    let config = SchedulerConfig { concurrent, queued_count, queued_bytes: 1000, sessions: 2 };
    Model::new(config, 2)
}

fn submit(model: &mut Model, job: u64) -> Vec<Effect> {
    model.handle(Event::Submitted { job: JobId(job), bytes: 10, session: None })
}

fn submit_to(model: &mut Model, job: u64, session: u64) -> Vec<Effect> {
    let session = Some(SessionId(session));
    model.handle(Event::Submitted { job: JobId(job), bytes: 10, session })
}

fn ready(model: &mut Model, worker: u64) -> Vec<Effect> {
    model.handle(Event::Ready { worker: WorkerId(worker), kind: ISOLATED })
}

fn session_ready(model: &mut Model, worker: u64, session: u64) -> Vec<Effect> {
    let kind = WorkerKind::Session(SessionId(session));
    model.handle(Event::Ready { worker: WorkerId(worker), kind })
}

fn finish(model: &mut Model, worker: u64, job: u64) -> Vec<Effect> {
    model.handle(Event::Finished { worker: WorkerId(worker), job: JobId(job), is_lost: false })
}

fn admit(job: u64) -> Effect {
    Effect::Admit(JobId(job))
}

fn dispatch(job: u64, worker: u64) -> Effect {
    Effect::Dispatch(JobId(job), WorkerId(worker))
}

#[test]
fn first_come_first_served() {
    let mut model = model(2, 10);
    assert_eq!(submit(&mut model, 1), [admit(1)]);
    assert_eq!(submit(&mut model, 2), [admit(2)]);
    assert_eq!(submit(&mut model, 3), [admit(3)]);
    assert_eq!(ready(&mut model, 1), [dispatch(1, 1)]);
    assert_eq!(ready(&mut model, 2), [dispatch(2, 2)]);
    assert_eq!(finish(&mut model, 2, 2), []);
    assert_eq!(ready(&mut model, 2), [dispatch(3, 2)]);
}

#[test]
fn a_full_queue_refuses_but_an_idle_worker_takes() {
    let mut model = model(2, 0);
    let refused = Refusal::QueueFull { queued: 0, limit: 0 };
    assert_eq!(submit(&mut model, 1), [Effect::Refuse(JobId(1), refused)]);
    let _ = ready(&mut model, 1);
    assert_eq!(submit(&mut model, 2), [admit(2), dispatch(2, 1)]);
}

#[test]
fn too_many_bytes_are_refused_and_freed_ones_taken_again() {
    let mut model = model(1, 10);
    let big = |job| Event::Submitted { job: JobId(job), bytes: 600, session: None };
    assert_eq!(model.handle(big(1)), [admit(1)]);
    let refused = Refusal::QueueBytes { job: 600, queued: 1200, limit: 1000 };
    assert_eq!(model.handle(big(2)), [Effect::Refuse(JobId(2), refused)]);
    let _ = model.handle(Event::EndWanted(JobId(1), Ending::Cancel));
    assert_eq!(model.handle(big(3)), [admit(3)]);
}

#[test]
fn cancelling_settles_what_waits_and_stops_what_runs() {
    let mut model = model(1, 10);
    let _ = submit(&mut model, 1);
    let _ = submit(&mut model, 2);
    let _ = ready(&mut model, 1);
    assert_eq!(
        model.handle(Event::EndWanted(JobId(1), Ending::Cancel)),
        [Effect::StopRun(JobId(1))]
    );
    let settled = Effect::Settle(JobId(2), Settlement::Cancelled);
    assert_eq!(model.handle(Event::EndWanted(JobId(2), Ending::Cancel)), [settled]);
    assert_eq!(model.handle(Event::EndWanted(JobId(2), Ending::Cancel)), []);
}

#[test]
fn a_session_is_interrupted_and_a_fresh_interpreter_stopped() {
    let mut model = model(2, 10);
    let _ = submit(&mut model, 1);
    let _ = ready(&mut model, 1);
    let _ = model.handle(Event::SessionOpened(SessionId(1)));
    let in_session = Event::Submitted { job: JobId(2), bytes: 1, session: Some(SessionId(1)) };
    let _ = model.handle(in_session);
    let kind = WorkerKind::Session(SessionId(1));
    let _ = model.handle(Event::Ready { worker: WorkerId(2), kind });
    let interrupted = |job, reason| Effect::InterruptRun(JobId(job), reason);
    for (job, ending, effect) in [
        (1, Ending::Interrupt, interrupted(1, StopReason::Interrupted)),
        (2, Ending::Interrupt, interrupted(2, StopReason::Interrupted)),
        (1, Ending::Cancel, Effect::StopRun(JobId(1))),
        (2, Ending::Cancel, interrupted(2, StopReason::Cancelled)),
        (1, Ending::Stop, Effect::StopRun(JobId(1))),
        (2, Ending::Stop, Effect::StopRun(JobId(2))),
    ] {
        assert_eq!(model.handle(Event::EndWanted(JobId(job), ending)), [effect], "{ending:?}");
    }
}

#[test]
fn a_session_runs_its_jobs_one_at_a_time_and_in_order() {
    let mut model = model(2, 10);
    let opened = model.handle(Event::SessionOpened(SessionId(1)));
    assert_eq!(opened, [Effect::StartSession(SessionId(1))]);
    assert_eq!(submit_to(&mut model, 1, 1), [admit(1)]);
    assert_eq!(submit_to(&mut model, 2, 1), [admit(2)]);
    assert_eq!(session_ready(&mut model, 7, 1), [dispatch(1, 7)]);
    assert_eq!(finish(&mut model, 7, 1), []);
    assert_eq!(session_ready(&mut model, 7, 1), [dispatch(2, 7)]);
}

#[test]
fn sessions_and_isolated_jobs_share_what_may_run_at_once() {
    let mut model = model(1, 10);
    let _ = model.handle(Event::SessionOpened(SessionId(1)));
    let _ = session_ready(&mut model, 7, 1);
    let _ = ready(&mut model, 1);
    assert_eq!(submit_to(&mut model, 1, 1), [admit(1), dispatch(1, 7)]);
    assert_eq!(submit(&mut model, 2), [admit(2)]);
    assert_eq!(finish(&mut model, 7, 1), [dispatch(2, 1)]);
}

#[test]
fn a_lost_session_settles_its_jobs_and_takes_no_more() {
    let mut model = model(2, 10);
    let _ = model.handle(Event::SessionOpened(SessionId(1)));
    let _ = session_ready(&mut model, 7, 1);
    let _ = submit_to(&mut model, 1, 1);
    let _ = submit_to(&mut model, 2, 1);
    let _ = finish(&mut model, 7, 1);
    let gone = Event::Gone {
        worker: WorkerId(7),
        kind: WorkerKind::Session(SessionId(1)),
        reason: "lost".to_owned(),
        is_replaced: false,
    };
    let settled = Effect::Settle(JobId(2), Settlement::SessionLost("lost".to_owned()));
    assert_eq!(model.handle(gone), [settled]);
    let effects = submit_to(&mut model, 3, 1);
    assert!(matches!(effects[..], [Effect::Refuse(_, Refusal::SessionGone { .. })]));
}

#[test]
fn a_session_whose_interpreter_is_lost_ends_at_once_and_counts_until_its_worker_is_gone() {
    let config = SchedulerConfig { sessions: 1, ..SchedulerConfig::default() };
    let mut model = Model::new(config, 1);
    let _ = model.handle(Event::SessionOpened(SessionId(1)));
    let _ = session_ready(&mut model, 7, 1);
    let _ = submit_to(&mut model, 1, 1);
    let _ = submit_to(&mut model, 2, 1);
    let lost = Event::Finished { worker: WorkerId(7), job: JobId(1), is_lost: true };
    let effects = model.handle(lost);
    assert!(matches!(effects[..], [Effect::Settle(JobId(2), Settlement::SessionLost(_))]));
    assert!(!model.is_open(SessionId(1)));
    assert_eq!(model.refuses_session(), Some(Refusal::TooManySessions { limit: 1 }));
    let _ = model.handle(Event::Gone {
        worker: WorkerId(7),
        kind: WorkerKind::Session(SessionId(1)),
        reason: "lost".to_owned(),
        is_replaced: false,
    });
    assert_eq!(model.refuses_session(), None);
}

#[test]
fn a_closed_session_finishes_its_jobs_first() {
    let mut model = model(2, 10);
    let _ = model.handle(Event::SessionOpened(SessionId(1)));
    let _ = session_ready(&mut model, 7, 1);
    let _ = submit_to(&mut model, 1, 1);
    assert_eq!(model.handle(Event::SessionClosed(SessionId(1))), []);
    let effects = submit_to(&mut model, 2, 1);
    assert!(matches!(effects[..], [Effect::Refuse(_, Refusal::SessionGone { .. })]));
    assert_eq!(finish(&mut model, 7, 1), [Effect::StopWorker(WorkerId(7))]);
}

#[test]
fn a_session_closed_while_its_worker_starts_stops_the_worker() {
    let mut model = model(2, 10);
    let _ = model.handle(Event::SessionOpened(SessionId(1)));
    assert_eq!(model.handle(Event::SessionClosed(SessionId(1))), []);
    assert_eq!(session_ready(&mut model, 7, 1), [Effect::StopWorker(WorkerId(7))]);
}

#[test]
fn a_dead_worker_settles_its_job() {
    let mut model = model(1, 10);
    let _ = submit(&mut model, 1);
    let _ = ready(&mut model, 1);
    let gone = Event::Gone {
        worker: WorkerId(1),
        kind: ISOLATED,
        reason: "died".to_owned(),
        is_replaced: true,
    };
    let settled = Effect::Settle(JobId(1), Settlement::WorkerDied("died".to_owned()));
    assert_eq!(model.handle(gone), [settled]);
    assert_eq!(submit(&mut model, 2), [admit(2)]);
}

#[test]
fn without_workers_nothing_waits_in_vain() {
    let mut model = model(1, 10);
    let _ = submit(&mut model, 1);
    let gone = |worker| Event::Gone {
        worker: WorkerId(worker),
        kind: ISOLATED,
        reason: "broken".to_owned(),
        is_replaced: false,
    };
    assert_eq!(model.handle(gone(1)), []);
    let settled = Effect::Settle(JobId(1), Settlement::NoWorker("broken".to_owned()));
    assert_eq!(model.handle(gone(2)), [settled]);
    let refused = Refusal::NoWorker { reason: "broken".to_owned() };
    assert_eq!(submit(&mut model, 2), [Effect::Refuse(JobId(2), refused)]);
}

#[test]
fn draining_finishes_what_was_admitted() {
    let mut model = model(1, 10);
    let _ = submit(&mut model, 1);
    assert_eq!(model.handle(Event::Draining), []);
    let refused = Effect::Refuse(JobId(2), Refusal::ShuttingDown);
    assert_eq!(submit(&mut model, 2), [refused]);
    let _ = ready(&mut model, 1);
    assert_eq!(finish(&mut model, 1, 1), [Effect::Drained]);
    assert_eq!(model.phase(), Phase::Drained);
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Move {
    Submit { bytes: usize, session: Option<u64> },
    Cancel(prop::sample::Index),
    Finish(prop::sample::Index),
    Start(prop::sample::Index),
    Kill { which: prop::sample::Index, is_replaced: bool },
    Open,
    Close(u64),
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
        1 => (any_index(), any::<bool>())
            .prop_map(|(which, is_replaced)| Move::Kill { which, is_replaced }),
        1 => Just(Move::Open),
        1 => (1..6_u64).prop_map(Move::Close),
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
    /// Workers that start, with what they are for.
    starting: Vec<(WorkerId, WorkerKind)>,
    idle: Vec<(WorkerId, WorkerKind)>,
    running: HashMap<WorkerId, (JobId, WorkerKind)>,
    /// Workers that end by themselves.
    ending: Vec<(WorkerId, WorkerKind)>,
    /// Workers that were told to stop and have not said anything since.
    stopped: HashSet<WorkerId>,
    admitted: HashSet<JobId>,
    ended: HashSet<JobId>,
}

impl World {
    fn new() -> Self {
        let starting = vec![(WorkerId(1), ISOLATED), (WorkerId(2), ISOLATED)];
        Self {
            model: model(2, 5),
            next_job: 1,
            next_session: 1,
            next_worker: 3,
            starting,
            idle: Vec::new(),
            running: HashMap::new(),
            ending: Vec::new(),
            stopped: HashSet::new(),
            admitted: HashSet::new(),
            ended: HashSet::new(),
        }
    }

    fn tell(&mut self, event: Event) {
        for effect in self.model.handle(event) {
            match effect {
                Effect::Admit(job) => assert!(self.admitted.insert(job)),
                Effect::Refuse(job, _) => assert!(!self.admitted.contains(&job)),
                Effect::Dispatch(job, worker) => {
                    let at = self.idle.iter().position(|(idle, _)| *idle == worker);
                    let (_, kind) = self.idle.remove(at.expect("the worker had a seat"));
                    assert!(self.running.insert(worker, (job, kind)).is_none());
                    assert!(self.admitted.contains(&job) && !self.ended.contains(&job));
                }
                Effect::Settle(job, _) => self.end(job),
                Effect::StopRun(job) | Effect::InterruptRun(job, _) => {
                    assert!(self.running.values().any(|(running, _)| *running == job));
                }
                Effect::StartSession(session) => {
                    self.starting.push((WorkerId(self.next_worker), WorkerKind::Session(session)));
                    self.next_worker += 1;
                }
                Effect::StopWorker(worker) => {
                    let at = self.idle.iter().position(|(idle, _)| *idle == worker);
                    match at {
                        Some(at) => self.ending.push(self.idle.remove(at)),
                        // Its run has just ended, and its next seat has not come yet.
                        None => assert!(self.stopped.insert(worker), "a worker is stopped once"),
                    }
                }
                Effect::Drained => assert_eq!(self.admitted, self.ended),
            }
        }
        assert_eq!(self.model.check_invariants(), Ok(()));
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
                let (worker, kind) = self.starting.remove(which.index(self.starting.len()));
                self.idle.push((worker, kind));
                self.tell(Event::Ready { worker, kind });
            }
            Move::Kill { which, is_replaced } if !self.running.is_empty() => {
                let mut workers: Vec<_> = self.running.keys().copied().collect();
                workers.sort_unstable();
                let worker = workers[which.index(workers.len())];
                let (_, kind) = self.running.remove(&worker).expect("it runs");
                let is_replaced = is_replaced && kind == ISOLATED;
                if is_replaced {
                    self.starting.push((WorkerId(self.next_worker), ISOLATED));
                    self.next_worker += 1;
                }
                self.tell(Event::Gone { worker, kind, reason: "killed".to_owned(), is_replaced });
            }
            Move::Open if self.model.refuses_session().is_none() => {
                let session = SessionId(self.next_session);
                self.next_session += 1;
                self.tell(Event::SessionOpened(session));
            }
            Move::Close(session) => self.tell(Event::SessionClosed(SessionId(session))),
            Move::Drain => self.tell(Event::Draining),
            Move::Cancel(_) | Move::Finish(_) | Move::Start(_) | Move::Kill { .. } | Move::Open => {
            }
        }
    }

    fn finish(&mut self, worker: WorkerId) {
        let (job, kind) = self.running.remove(&worker).expect("it runs");
        self.end(job);
        // Every third run costs its interpreter.
        let is_lost = job.0 % 3 == 0;
        self.tell(Event::Finished { worker, job, is_lost });
        if kind == ISOLATED {
            self.starting.push((worker, kind));
        } else if is_lost || self.stopped.remove(&worker) {
            self.ending.push((worker, kind));
        } else {
            self.idle.push((worker, kind));
            self.tell(Event::Ready { worker, kind });
        }
    }

    /// Lets everything go on until nothing moves.
    fn settle(&mut self) {
        loop {
            if let Some((worker, kind)) = self.starting.pop() {
                self.idle.push((worker, kind));
                self.tell(Event::Ready { worker, kind });
            } else if let Some(worker) = self.running.keys().next().copied() {
                self.finish(worker);
            } else if let Some((worker, kind)) = self.ending.pop() {
                let reason = "ended".to_owned();
                self.tell(Event::Gone { worker, kind, reason, is_replaced: false });
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
