//! A pool of scripted interpreters as its owner sees it. Threads and time are real.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::sync::Arc;
use std::time::Duration;

use engine::{LimitKind, Limits, Outcome, Program, StopHandle, StopReason, Transcript, Verdict};
use pool::{
    Away, BuildId, Builds, Command, GoneReason, JobId, Offer, OffloadError, Pool, PoolConfig,
    PoolEvent, PoolOwner, SessionCell, SessionId, SessionPlace, Task, Tier, WorkerActivity,
    WorkerId, WorkerPermit,
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use test_support::fake::{FakeSource, Gate, Step};
use tokio::sync::mpsc;

mod builds;
mod ended;
mod faults;
mod offers;
mod offloading;
mod stuck;
mod swap;

/// The actor of the owner.
struct OwnerActor;

impl Actor for OwnerActor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<()>,
        _arguments: (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<()>,
        _event: ractor::SupervisionEvent,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// An owner that forwards every event.
struct Owner(mpsc::Sender<PoolEvent>);

impl PoolOwner for Owner {
    fn tell(&self, event: PoolEvent) {
        // Fails once the test has ended.
        let _ = self.0.try_send(event);
    }

    fn leave(&self, event: PoolEvent) {
        self.tell(event);
    }
}

struct Rig {
    pool: Pool,
    /// The actor to which the pool is linked.
    actor: ActorCell,
    events: mpsc::Receiver<PoolEvent>,
    source: FakeSource,
    _folder: tempfile::TempDir,
}

async fn rig() -> Rig {
    rig_that_keeps(0).await
}

/// Returns a rig that keeps copies of sessions up to this size.
async fn rig_that_keeps(rollback_bytes: u64) -> Rig {
    rig_with(rollback_bytes, |source| source).await
}

/// Returns a rig with these builds, of which the given one is the default.
async fn rig_with(rollback_bytes: u64, builds: impl FnOnce(Builds) -> Builds) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let config = PoolConfig {
        first_back_off: Duration::ZERO,
        most_failures: 2,
        offload_dir: Some(folder.path().to_owned()),
        rollback_bytes,
        ..PoolConfig::default()
    };
    let source = FakeSource::default();
    let (sender, events) = mpsc::channel(10_000);
    let (actor, _) = Actor::spawn(None, OwnerActor, ()).await.unwrap();
    let builds = builds(Builds::new(Arc::new(source.clone())));
    let actor = actor.get_cell();
    let pool = Pool::start(config, builds, Arc::new(Owner(sender)), actor.clone()).await.unwrap();
    Rig { pool, actor, events, source, _folder: folder }
}

impl Rig {
    /// Returns the actor of the pool's supervisor.
    fn supervisor(&self) -> ActorCell {
        self.actor.get_children().remove(0)
    }

    async fn next(&mut self) -> PoolEvent {
        let event = tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await;
        event.expect("an event is sent in time").expect("the owner is alive")
    }

    /// Waits for a permit, which must be the next event.
    async fn permit(&mut self) -> WorkerPermit {
        self.ready().await.0
    }

    async fn ready(&mut self) -> (WorkerPermit, Option<Duration>) {
        match self.next().await {
            PoolEvent::Ready(Offer { permit, reset, .. }) => (permit, reset),
            other => panic!("{other:?}"),
        }
    }

    async fn finished(&mut self) -> Outcome {
        match self.next().await {
            PoolEvent::Finished { outcome, .. } => *outcome,
            other => panic!("{other:?}"),
        }
    }

    async fn session_suspended(&mut self) -> u64 {
        match self.next().await {
            PoolEvent::SessionSuspended { bytes, .. } => bytes,
            other => panic!("{other:?}"),
        }
    }

    async fn offloaded(&mut self) -> Result<u64, OffloadError> {
        match self.next().await {
            PoolEvent::Offloaded { result, .. } => result,
            other => panic!("{other:?}"),
        }
    }

    async fn gone(&mut self) -> (WorkerId, GoneReason, bool) {
        match self.next().await {
            PoolEvent::Gone { worker, reason, is_replaced } => (worker, reason, is_replaced),
            other => panic!("{other:?}"),
        }
    }

    async fn worker(&mut self) -> WorkerPermit {
        self.pool.add_worker();
        self.permit().await
    }

    /// Closes the pool and returns the events sent meanwhile.
    async fn close(mut self) -> Vec<PoolEvent> {
        self.source.release();
        assert!(self.pool.close().await);
        assert_eq!(self.pool.workers(), []);
        let mut events = Vec::new();
        while let Ok(Some(event)) =
            tokio::time::timeout(Duration::from_millis(20), self.events.recv()).await
        {
            events.push(event);
        }
        events
    }
}

fn task(job: u64, source: &str, session: Option<&Arc<SessionCell>>) -> Task {
    Task {
        job: JobId(job),
        program: Arc::new(Program { source: source.to_owned(), ..Program::default() }),
        limits: Limits::default(),
        due_in: None,
        transcript: Arc::<Transcript>::default(),
        stop: StopHandle::default(),
        build: BuildId::default(),
        session: session.cloned(),
        is_self_test: false,
        span: tracing::Span::none(),
    }
}

fn session() -> Arc<SessionCell> {
    Arc::new(SessionCell::new(SessionId(1), None))
}

/// Returns the value of `count`.
fn count(outcome: &Outcome) -> u64 {
    match &outcome.verdict {
        Verdict::Completed { value: Some(value), .. } => value.as_u64().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_starts_without_workers_and_adds_them_on_request() {
    let mut rig = rig().await;
    assert_eq!(rig.pool.workers(), []);
    let (first, second) = (rig.worker().await, rig.worker().await);
    assert_eq!((first.worker(), second.worker()), (WorkerId(1), WorkerId(2)));
    let activities: Vec<_> = rig.pool.workers().iter().map(|worker| worker.activity).collect();
    assert_eq!(activities, [WorkerActivity::Ready; 2]);
    let gone = rig.close().await;
    assert_eq!(gone.len(), 2, "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_job_leaves_a_fresh_interpreter() {
    let mut rig = rig().await;
    rig.worker().await.send(Command::Run(task(1, "count; memory 5; cpu 7", None)));
    let outcome = rig.finished().await;
    assert_eq!((count(&outcome), outcome.usage.peak_memory_bytes), (1, 5));
    assert_eq!(outcome.usage.cpu, Duration::from_micros(7));
    let (permit, reset) = rig.ready().await;
    assert!(reset.is_some());
    permit.send(Command::Run(task(2, "count", None)));
    assert_eq!(count(&rig.finished().await), 1);
    let _ = rig.permit().await;
    assert_eq!(rig.pool.workers()[0].jobs_served, 2);
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resuming_a_state_counts_towards_the_deadline_of_a_task() {
    let (mut rig, cell) = (rig().await, session());
    rig.worker().await.send(Command::Run(task(1, "count", Some(&cell))));
    rig.finished().await;
    rig.permit().await.send(Command::Vacate);
    rig.session_suspended().await;
    rig.source.gate(Step::Resume, [Gate::Slow]);
    let due_in = Some(Duration::from_millis(2));
    rig.permit().await.send(Command::Run(Task { due_in, ..task(2, "count", Some(&cell)) }));
    match rig.finished().await.verdict {
        Verdict::Limit(hit) => assert_eq!((hit.limit, hit.allowed), (LimitKind::Deadline, 2)),
        other => panic!("{other:?}"),
    }
    let due_in = Some(Duration::from_secs(100));
    rig.permit().await.send(Command::Run(Task { due_in, ..task(3, "count", Some(&cell)) }));
    assert_eq!(count(&rig.finished().await), 2, "the job that was late has not run");
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_stays_until_its_worker_is_vacated() {
    let (mut rig, cell) = (rig().await, session());
    rig.worker().await.send(Command::Run(task(1, "count; memory 92", Some(&cell))));
    rig.finished().await;
    let (permit, reset) = rig.ready().await;
    assert_eq!((reset, rig.pool.workers()[0].session), (None, Some(SessionId(1))));
    assert_eq!(rig.pool.workers()[0].memory_bytes, 92);
    permit.send(Command::Vacate);
    assert_eq!(rig.session_suspended().await, 100);
    assert_eq!(cell.place(), SessionPlace::Suspended { bytes: 100 });
    let (permit, reset) = rig.ready().await;
    assert!(reset.is_some() && rig.pool.workers()[0].session.is_none());
    permit.send(Command::Vacate);
    let (_seat, reset) = rig.ready().await;
    assert_eq!(reset, None, "the interpreter was fresh");
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_job_suspends_the_session_and_the_event_precedes_its_end() {
    let (mut rig, cell) = (rig().await, session());
    rig.worker().await.send(Command::Run(task(1, "ok", Some(&cell))));
    rig.finished().await;
    rig.permit().await.send(Command::Run(task(2, "ok", None)));
    rig.session_suspended().await;
    rig.finished().await;
    rig.permit().await.send(Command::Run(task(3, "count", Some(&cell))));
    assert_eq!(count(&rig.finished().await), 2);
    let events = rig.close().await;
    let is_suspended = |event: &PoolEvent| matches!(event, PoolEvent::SessionSuspended { .. });
    assert_eq!(events.iter().filter(|event| is_suspended(event)).count(), 1, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_worker_has_a_new_interpreter_and_no_session() {
    let (mut rig, cell) = (rig().await, session());
    rig.worker().await.send(Command::Run(task(1, "ok", Some(&cell))));
    rig.finished().await;
    rig.permit().await.send(Command::Renew);
    rig.session_suspended().await;
    let permit = rig.permit().await;
    assert_eq!((rig.source.starts(), rig.pool.workers()[0].renewals), (2, 1));
    rig.source.fail_starts(1);
    permit.send(Command::Renew);
    let (worker, reason, is_replaced) = rig.gone().await;
    assert!(matches!(reason, GoneReason::StartFailed(_)) && is_replaced, "{worker} {reason}");
    assert_eq!(rig.permit().await.worker(), WorkerId(2));
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dismissed_worker_suspends_its_session_and_is_not_replaced() {
    let (mut rig, cell) = (rig().await, session());
    rig.worker().await.send(Command::Run(task(1, "ok", Some(&cell))));
    rig.finished().await;
    rig.permit().await.send(Command::Dismiss);
    rig.session_suspended().await;
    assert_eq!(rig.gone().await, (WorkerId(1), GoneReason::Dismissed, false));
    assert_eq!(rig.pool.workers(), []);
    assert_eq!(rig.close().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_actor_takes_its_run_and_its_thread_with_it() {
    let (mut rig, cell) = (rig().await, session());
    rig.worker().await.send(Command::Run(task(0, "ok", Some(&cell))));
    rig.finished().await;
    let permit = rig.permit().await;
    let waiting = task(1, "wait", Some(&cell));
    let stop = waiting.stop.clone();
    permit.send(Command::Run(waiting));
    while rig.source.running().is_empty() {
        tokio::task::yield_now().await;
    }
    for actor in rig.supervisor().get_children() {
        actor.kill();
    }
    assert_eq!(rig.finished().await.verdict, Verdict::Cancelled);
    let (worker, reason, is_replaced) = rig.gone().await;
    assert!(matches!(reason, GoneReason::Died(_)) && is_replaced, "{reason}");
    assert_eq!((worker, stop.requested()), (WorkerId(1), Some(StopReason::Cancelled)));
    assert_eq!(cell.place(), SessionPlace::Lost);
    assert_eq!(rig.permit().await.worker(), WorkerId(2));
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_thread_costs_the_worker_and_leaves_the_stop_handle_alone() {
    let mut rig = rig().await;
    let panicking = task(1, "panic", None);
    let stop = panicking.stop.clone();
    rig.worker().await.send(Command::Run(panicking));
    let (_, reason, is_replaced) = rig.gone().await;
    assert_eq!(reason, GoneReason::Died("scripted to panic".into()));
    assert!(is_replaced && stop.requested().is_none(), "the job may be retried");
    assert_eq!(rig.permit().await.worker(), WorkerId(2));
    rig.close().await;
}

/// This happens at the end of a process, when the pool's owner can be gone before its supervisor
/// is.
#[tokio::test]
async fn a_worker_that_is_requested_while_the_supervisor_ends_did_not_fail() {
    let mut rig = rig().await;
    rig.pool.add_worker();
    rig.supervisor().drain().unwrap();
    let end = loop {
        // Its thread may have become ready before.
        if let PoolEvent::Gone { reason, is_replaced, .. } = rig.next().await {
            break (reason, is_replaced);
        }
    };
    assert_eq!(end, (GoneReason::Stopped, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_given_up_is_shown_until_another_worker_is_requested() {
    let mut rig = rig().await;
    let good = rig.worker().await;
    rig.source.fail_starts(2);
    rig.pool.add_worker();
    assert!(rig.gone().await.2);
    assert!(!rig.gone().await.2);
    let [_, given_up] = &rig.pool.workers()[..] else { panic!("{:?}", rig.pool.workers()) };
    assert_eq!(given_up.activity, WorkerActivity::GivenUp);
    assert!(given_up.last_error.as_ref().unwrap().contains("scripted to fail"));
    good.send(Command::Run(task(1, "ok", None)));
    assert!(rig.finished().await.is_success());
    let _good = rig.permit().await;
    let _another = rig.worker().await;
    assert_eq!(rig.pool.workers().len(), 2);
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_that_outlives_its_worker_is_no_error() {
    let mut rig = rig().await;
    let permit = rig.worker().await;
    assert!(rig.pool.close().await);
    assert_eq!(rig.gone().await, (WorkerId(1), GoneReason::Stopped, false));
    permit.send(Command::Run(task(1, "ok", None)));
    assert!(!rig.pool.close().await);
    assert!(rig.events.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stowed_session_continues_on_any_worker() {
    let (mut rig, cell) = (rig().await, session());
    rig.worker().await.send(Command::Run(task(1, "ok", Some(&cell))));
    rig.finished().await;
    let permit = rig.permit().await;
    rig.pool.offload(Arc::clone(&cell), Tier::Disk);
    assert!(rig.offloaded().await.unwrap_err().to_string().contains("worker-1"));
    permit.send(Command::Vacate);
    rig.session_suspended().await;
    let permit = rig.permit().await;
    for tier in [Tier::Compressed, Tier::Disk] {
        rig.pool.offload(Arc::clone(&cell), tier);
        rig.offloaded().await.unwrap();
    }
    assert!(matches!(cell.place(), SessionPlace::OnDisk { .. }));
    assert_eq!(cell.at_hand().err(), Some(Away::Packed));
    permit.send(Command::Suspend { job: JobId(2), session: Arc::clone(&cell) });
    assert_eq!(rig.session_suspended().await, 8);
    assert!(matches!(rig.next().await, PoolEvent::Suspended { result: Ok(()), .. }));
    assert!(cell.at_hand().unwrap().is_some());
    let permit = rig.permit().await;
    rig.pool.offload(Arc::clone(&cell), Tier::Compressed);
    rig.offloaded().await.unwrap();
    permit.send(Command::Run(task(3, "count", Some(&cell))));
    assert_eq!(count(&rig.finished().await), 2);
    let permit = rig.permit().await;
    permit.send(Command::Vacate);
    rig.session_suspended().await;
    let _seat = rig.permit().await;
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_can_not_be_unpacked_is_lost_with_the_reason() {
    for suspends in [false, true] {
        let (mut rig, cell) = (rig().await, session());
        drop(cell.replace(Some(rig.source.suspended(3))));
        rig.pool.offload(Arc::clone(&cell), Tier::Disk);
        rig.offloaded().await.unwrap();
        rig.source.gate(Step::Unpack, [Gate::Err]);
        if suspends {
            rig.worker().await.send(Command::Suspend { job: JobId(1), session: Arc::clone(&cell) });
            assert!(matches!(rig.next().await, PoolEvent::Suspended { result: Ok(()), .. }));
        } else {
            rig.worker().await.send(Command::Run(task(1, "ok", Some(&cell))));
            let verdict = rig.finished().await.verdict;
            let Verdict::SandboxFailed(failure) = &verdict else { panic!("{verdict:?}") };
            assert_eq!(
                engine::chain(failure).to_string(),
                "the session was lost while the job waited for it: its state could not be \
                 unpacked: the interpreter did not start: scripted to fail"
            );
        }
        assert_eq!(cell.place(), SessionPlace::Lost);
        let _seat = rig.permit().await;
        rig.close().await;
    }
}
