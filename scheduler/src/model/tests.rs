//! The model alone: single decisions, and random histories.

use std::sync::Arc;
use std::time::Duration;

use pool::{BuildId, JobId, SessionId, WorkerId};

use super::{Event, Fault, Model, Opening, Report, StopKind};
use crate::config::{SchedulerConfig, SessionsConfig, WorkersConfig};
use crate::decision::DecisionKind;
use crate::decision::{EvictionReason, RetireReason};
use crate::effect::{Effect, Finish, Settlement};
use crate::error::Refusal;
use crate::job::{DEFAULT_TENANT, Growth, Priority, Queued, SHARED_DEFAULT_TENANT};
use crate::status::Phase;
use crate::timer::Time;

mod admission;
mod basics;
mod builds;
mod elastic;
mod explain;
mod faults;
mod health;
mod histories;
mod invariants;
mod queueing;
mod residency;
mod retiring;
mod sessions;
mod world;

impl Model {
    /// Workers that are alive or being started.
    fn worker_count(&self) -> usize {
        self.workers.count()
    }
}

/// A generator of random numbers, reproducible from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Two workers, and room for everything.
fn roomy() -> SchedulerConfig {
    SchedulerConfig {
        concurrent: 2,
        workers: WorkersConfig::fixed(2),
        queued_count: 1_000_000,
        queued_bytes: usize::MAX,
        memory_bytes: u64::MAX,
        retire_above_bytes: u64::MAX,
        sessions: SessionsConfig { open: 2, in_memory: 2, ..SessionsConfig::default() },
        ..SchedulerConfig::default()
    }
}

/// What a submission leads to.
type Submitted = (Result<(), Refusal>, Vec<Effect>);

/// What a worker's report leads to.
type Finished = (Finish, Vec<Effect>);

/// A model that has asked for its workers, and the time that it is given. What it says of the pool's
/// health is kept apart from the effects.
struct Harness {
    model: Model,
    now: Time,
    health: Vec<DecisionKind>,
}

impl Harness {
    fn new(config: SchedulerConfig) -> Self {
        let mut harness =
            Self { model: Model::new(config, 0), now: Time::ZERO, health: Vec::new() };
        let started = harness.model.start();
        let _ = harness.without_health(started);
        harness
    }

    /// With two workers, at most `concurrent` running jobs and `queued_count` queued ones.
    fn small(concurrent: usize, queued_count: usize) -> Self {
        Self::new(SchedulerConfig { concurrent, queued_count, queued_bytes: 1000, ..roomy() })
    }

    fn send(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.model.handle(event, self.now);
        self.without_health(effects)
    }

    fn without_health(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        assert_eq!(self.model.check_invariants(), Ok(()));
        let mut others = Vec::new();
        for effect in effects {
            match effect {
                Effect::Record(kind) if kind != DecisionKind::Drained => self.health.push(kind),
                effect => others.push(effect),
            }
        }
        others
    }

    /// Advances the time and sends a tick.
    fn pass(&mut self, time: Duration) -> Vec<Effect> {
        self.now += time;
        self.send(Event::Tick)
    }

    fn submit(&mut self, job: u64) -> Submitted {
        self.submit_as(job, queued())
    }

    fn submit_to(&mut self, job: u64, session: u64) -> Submitted {
        self.submit_as(job, Queued { session: Some(SessionId(session)), ..queued() })
    }

    fn submit_of(&mut self, job: u64, tenant: &str) -> Submitted {
        self.submit_as(job, Queued { tenant: Arc::from(tenant), ..queued() })
    }

    fn submit_as(&mut self, job: u64, queued: Queued) -> Submitted {
        let (decision, effects) = self.model.submit(JobId(job), queued, self.now);
        (decision, self.without_health(effects))
    }

    fn open(&mut self, session: u64) {
        self.open_with(session, 0);
    }

    fn open_with(&mut self, session: u64, bytes: u64) -> Vec<Effect> {
        let tenant = SHARED_DEFAULT_TENANT.clone();
        self.send(Event::SessionOpened { session: SessionId(session), tenant, bytes })
    }

    /// Why a session with so many bytes of state would be refused.
    fn refused_session(&self, bytes: u64) -> Option<Refusal> {
        let (tenant, held_bytes) = (DEFAULT_TENANT, bytes);
        let opening = Opening { tenant, count: 1, bytes, held_bytes, depth: 0 };
        self.model.refuses_sessions(&opening)
    }

    fn ready(&mut self, worker: u64) -> Vec<Effect> {
        self.ready_with(worker, 0)
    }

    fn ready_with(&mut self, worker: u64, memory_bytes: u64) -> Vec<Effect> {
        self.ready_on(worker, 0, memory_bytes)
    }

    /// A worker whose interpreter is of this build is idle.
    fn ready_on(&mut self, worker: u64, build: u16, memory_bytes: u64) -> Vec<Effect> {
        let (worker, build) = (WorkerId(worker), BuildId(build));
        self.send(Event::Ready { worker, build, memory_bytes, kept_bytes: 0, stays: false })
    }

    fn finish(&mut self, worker: u64, job: u64) -> Finished {
        self.finish_as(worker, job, Report::default())
    }

    fn finish_as(&mut self, worker: u64, job: u64, report: Report) -> Finished {
        let (decision, effects) =
            self.model.finish(WorkerId(worker), JobId(job), &report, self.now);
        (decision, self.without_health(effects))
    }

    /// Runs a job that takes `took` on worker 1, which is idle before and after.
    fn run(&mut self, job: u64, queued: Queued, took: Duration) {
        let _ = self.submit_as(job, queued);
        self.now += took;
        let report = Report { wall: took, cpu: took, ..Report::default() };
        let _ = self.finish_as(1, job, report);
        let _ = self.ready(1);
    }

    fn suspend(&mut self, session: u64, bytes: u64) -> Vec<Effect> {
        self.send(Event::SessionSuspended { session: SessionId(session), bytes })
    }

    fn gone(&mut self, worker: u64, is_replaced: bool, takes_session: bool) -> Vec<Effect> {
        let (worker, reason) = (WorkerId(worker), "died".into());
        let fault = Fault::Sandbox;
        self.send(Event::Gone { worker, reason, is_replaced, takes_session, fault })
    }

    fn retire(&mut self, worker: u64) -> (Result<(), Refusal>, Vec<Effect>) {
        let (decision, effects) = self.model.retire(WorkerId(worker), self.now);
        (decision, self.without_health(effects))
    }

    fn end(&mut self, job: u64, kind: StopKind) -> Vec<Effect> {
        self.send(Event::StopRequested(JobId(job), kind))
    }
}

fn queued() -> Queued {
    Queued {
        bytes: 10,
        build: BuildId::default(),
        session: None,
        tenant: Arc::from("default"),
        priority: Priority::Normal,
        deadline: None,
        output_bytes: 0,
        growth: Growth::default(),
        is_idempotent: false,
    }
}

fn ended(session: u64, reason: &str) -> Effect {
    Effect::EndSession(SessionId(session), reason.into())
}

/// The job is admitted, and this follows.
fn admitted<const N: usize>(effects: [Effect; N]) -> Submitted {
    (Ok(()), effects.into())
}

/// The job is refused, and nothing follows.
fn refused(refusal: Refusal) -> Submitted {
    (Err(refusal), Vec::new())
}

fn dispatch(job: u64, worker: u64) -> Effect {
    Effect::Dispatch { job: JobId(job), worker: WorkerId(worker), due_in: None, cut: None }
}

/// The session is displaced by its worker's next job.
fn displace(session: u64, worker: u64) -> Effect {
    let needed = EvictionReason::WorkerNeeded { worker: WorkerId(worker) };
    Effect::Displace(SessionId(session), needed)
}

/// Why a job was refused, if it was and nothing follows.
fn refusal_of(submitted: &Submitted) -> &Refusal {
    match submitted {
        (Err(refusal), effects) if effects.is_empty() => refusal,
        other => panic!("{other:?}"),
    }
}

/// The job ends with the outcome that its worker reported, and this follows.
fn concluded<const N: usize>(effects: [Effect; N]) -> Finished {
    (Finish::Conclude, effects.into())
}

/// The job is retried after this try, and nothing follows.
fn retried(attempt: u32) -> Finished {
    (Finish::Retry { attempt }, Vec::new())
}

fn settle(job: u64, settlement: Settlement) -> Effect {
    Effect::Settle(JobId(job), settlement)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
