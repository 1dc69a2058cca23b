//! Scheduler and pool together on scripted interpreters: no wasm, and no waiting in real time.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use engine::{Limits, Outcome, Program, SandboxFailure, Verdict};
use pool::{BuildId, Builds, PoolConfig, SessionId, WorkerActivity};
use scheduler::{
    Decision, DecisionKind, Decisions, JobRequest, NextDecision, Phase, Refusal, Scheduler,
    SchedulerConfig, SchedulerStatus, SessionsConfig, Ticket, WorkersConfig,
};
use test_support::fake::FakeSource;

/// Decisions on the threads that cause them: what they must survive there.
mod combining;
/// The number of workers follows the load; places whose workers keep failing are given up.
mod elastic;
/// Failures at every step, combined with what callers do meanwhile.
mod faults;
/// The life of the pool: starting, ready, degraded, ended.
mod health;
mod images;
/// Idle sessions: suspended, offloaded, brought back, closed.
mod residency;
/// Workers that are retired on request.
mod retiring;
/// Retries, and workers that get a new interpreter.
mod retries;
/// Sessions' states on their way between workers.
mod sessions;
/// Decisions, explanations and the status.
mod telling;
/// FairQueue, caps, priorities and deadlines.
mod tenants;
/// Outcomes of short jobs, which are sent together.
mod together;

/// A scheduler on scripted interpreters. Dropping it opens every gate that they wait at.
struct Rig {
    scheduler: Scheduler,
    source: FakeSource,
    /// Where sessions are offloaded; removed when the rig is dropped.
    _offload_dir: tempfile::TempDir,
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Otherwise the end of the runtime would wait for threads that wait at gates.
        open_gates(&self.source);
    }
}

fn open_gates(source: &FakeSource) {
    source.hold_starts(false);
    source.release();
    source.open();
}

/// A fixed number of workers, each of which may run jobs.
fn config(workers: usize) -> SchedulerConfig {
    SchedulerConfig {
        concurrent: workers,
        workers: WorkersConfig::fixed(workers),
        ..SchedulerConfig::default()
    }
}

async fn rig(workers: usize) -> Rig {
    rig_with(config(workers)).await
}

async fn rig_with(config: SchedulerConfig) -> Rig {
    start(config, FakeSource::default()).await
}

async fn start(config: SchedulerConfig, source: FakeSource) -> Rig {
    // Tests count what is suspended, and lose sessions on purpose.
    let first_back_off = Duration::from_millis(1);
    let pool = PoolConfig { first_back_off, rollback_bytes: 0, ..PoolConfig::default() };
    start_with(config, pool, source).await
}

async fn start_with(config: SchedulerConfig, pool: PoolConfig, source: FakeSource) -> Rig {
    let offload_dir = tempfile::tempdir().unwrap();
    let pool = PoolConfig { offload_dir: Some(offload_dir.path().to_owned()), ..pool };
    let scheduler =
        Scheduler::start(config, pool, Builds::new(Arc::new(source.clone()))).await.unwrap();
    Rig { scheduler, source, _offload_dir: offload_dir }
}

fn script(source: &str) -> JobRequest {
    let program = Program { source: source.to_owned(), ..Program::default() };
    // Fake interpreters have neither memory nor files.
    let limits = Limits { memory_bytes: 0, file_bytes: 0, ..Limits::default() };
    JobRequest { program, limits, ..JobRequest::default() }
}

fn script_in(source: &str, session: SessionId) -> JobRequest {
    JobRequest { session: Some(session), ..script(source) }
}

fn script_of(source: &str, tenant: &str) -> JobRequest {
    JobRequest { tenant: Some(Arc::from(tenant)), ..script(source) }
}

impl Rig {
    /// Submits a job that must be admitted.
    async fn submit(&self, request: JobRequest) -> Ticket {
        self.scheduler.submit(request).await.unwrap()
    }

    /// Runs a job that must be admitted.
    async fn run(&self, request: JobRequest) -> Outcome {
        within(self.submit(request).await.into_future()).await
    }

    fn status(&self) -> SchedulerStatus {
        self.scheduler.status()
    }

    /// Waits until no job is queued or running and every worker is ready.
    async fn wait_until_idle(&self) {
        until(&self.scheduler, |status| status.queue_depth == 0 && status.running == 0).await;
        self.wait_for_workers().await;
    }

    /// Waits until every worker is ready.
    async fn wait_for_workers(&self) {
        until(&self.scheduler, |status| {
            let mut activities = status.workers.iter().map(|worker| worker.activity);
            activities.all(|activity| activity == WorkerActivity::Ready)
        })
        .await;
    }
}

/// Counts the jobs that ended, by the status.
fn ended(status: &SchedulerStatus) -> u64 {
    let totals = status.totals;
    totals.succeeded
        + totals.failed
        + totals.limited
        + totals.cancelled
        + totals.sandbox_failed
        + totals.refused
}

/// Lets other tasks and threads run until `condition` holds.
async fn until(scheduler: &Scheduler, condition: impl Fn(&SchedulerStatus) -> bool) {
    within(async {
        while !condition(&scheduler.status()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Fails a test that hangs.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it happens in time")
}

/// Runs a test with a paused clock, which moves only where the test moves it. The paused clock
/// advances by itself whenever every task waits, since it doesn't see the workers' threads. So one
/// task here never waits. A test that hangs fails.
async fn standing_still<T>(test: impl Future<Output = T>) -> T {
    let started = std::time::Instant::now();
    let awake = async {
        while started.elapsed() < Duration::from_secs(20) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = test => done,
        () = awake => panic!("it doesn't happen in time"),
    }
}

/// Keeps advancing the paused clock until `future` is done.
async fn while_time_flies<T>(future: impl Future<Output = T>) -> T {
    let flying = async {
        for _ in 0..u64::MAX {
            tokio::time::advance(Duration::from_millis(100)).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = future => done,
        () = flying => unreachable!("the clock never stops"),
    }
}

/// Receives the next decision; none may have been missed.
async fn next(decisions: &mut Decisions) -> Decision {
    match within(decisions.next()).await {
        Some(NextDecision::Decision(decision)) => decision,
        other => panic!("{other:?}"),
    }
}

/// Receives decisions until `picks` returns something.
async fn find<T>(decisions: &mut Decisions, picks: impl Fn(&DecisionKind) -> Option<T>) -> T {
    loop {
        if let Some(found) = picks(&next(decisions).await.kind) {
            return found;
        }
    }
}

#[tokio::test]
async fn jobs_run_and_their_outcomes_come_back() {
    let rig = rig(2).await;
    let ok = within(rig.scheduler.submit(script("ok")).await.unwrap().into_future()).await;
    assert!(ok.is_success());
    let raised = within(rig.scheduler.submit(script("raise")).await.unwrap().into_future()).await;
    assert!(matches!(raised.verdict, Verdict::Raised(_)));
    let totals = rig.scheduler.status().totals;
    assert_eq!((totals.succeeded, totals.failed), (1, 1));
}

#[tokio::test]
async fn more_jobs_than_workers_wait_and_all_end() {
    let rig = rig(2).await;
    let mut tickets = Vec::new();
    for _ in 0..10 {
        tickets.push(rig.scheduler.submit(script("wait")).await.unwrap());
    }
    until(&rig.scheduler, |status| status.running == 2 && status.queue_depth == 8).await;
    assert!(rig.scheduler.status().oldest_wait.is_some());
    rig.source.open();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
    until(&rig.scheduler, |status| status.running == 0 && status.queue_depth == 0).await;
}

#[tokio::test]
async fn a_full_queue_refuses_with_its_numbers() {
    let rig = rig_with(SchedulerConfig { queued_count: 1, ..config(1) }).await;
    let running = rig.scheduler.submit(script("wait")).await.unwrap();
    until(&rig.scheduler, |status| status.running == 1).await;
    let waiting = rig.scheduler.submit(script("ok")).await.unwrap();
    let refused = rig.scheduler.submit(script("ok")).await.unwrap_err();
    assert!(matches!(refused, Refusal::QueueFull { queued: 1, limit: 1, .. }), "{refused}");
    assert!(refused.is_overload());
    rig.source.open();
    assert!(within(running.into_future()).await.is_success());
    assert!(within(waiting.into_future()).await.is_success());
}

#[tokio::test]
async fn a_worker_that_dies_is_replaced_and_its_job_reported() {
    let rig = rig(1).await;
    for _ in 0..8 {
        let ticket = rig.scheduler.submit(script("panic")).await.unwrap();
        let outcome = within(ticket.into_future()).await;
        let Verdict::SandboxFailed(failure @ SandboxFailure::WorkerDied(_)) = &outcome.verdict
        else {
            panic!("{outcome:?}")
        };
        let text = engine::chain(failure).to_string();
        assert_eq!(text, "the worker died: it died: scripted to panic");
        let after = rig.scheduler.submit(script("ok")).await.unwrap();
        assert!(within(after.into_future()).await.is_success());
    }
}

#[tokio::test]
async fn workers_that_can_not_start_are_retried_and_then_given_up() {
    let source = FakeSource::default();
    source.fail_starts(3);
    let rig = start(config(1), source).await;
    let recovered = rig.scheduler.submit(script("ok")).await.unwrap();
    assert!(within(recovered.into_future()).await.is_success());
    // Three starts failed; the fourth interpreter ran the job, and is reset in place.
    assert_eq!(rig.source.starts(), 4);

    let source = FakeSource::default();
    source.fail_starts(u32::MAX);
    let rig = start(config(1), source).await;
    if let Ok(ticket) = rig.scheduler.submit(script("ok")).await {
        let outcome = within(ticket.into_future()).await;
        assert!(
            matches!(outcome.verdict, Verdict::SandboxFailed(SandboxFailure::Start(_))),
            "{outcome:?}"
        );
    }
    until(&rig.scheduler, |status| {
        status.workers.iter().any(|worker| worker.activity == WorkerActivity::GivenUp)
    })
    .await;
    let refused = rig.scheduler.submit(script("ok")).await.unwrap_err();
    assert!(matches!(refused, Refusal::NoWorker { .. }), "{refused}");
    assert!(refused.retry_after().is_some() && !refused.is_overload());
}

#[tokio::test]
async fn dropping_a_ticket_cancels_its_job() {
    let rig = rig(1).await;
    let running = rig.scheduler.submit(script("wait")).await.unwrap();
    until(&rig.scheduler, |status| status.running == 1).await;
    let waiting = rig.scheduler.submit(script("ok")).await.unwrap();
    drop(waiting);
    until(&rig.scheduler, |status| status.queue_depth == 0).await;
    drop(running);
    until(&rig.scheduler, |status| status.running == 0).await;
    assert_eq!(rig.scheduler.status().totals.cancelled, 2);
}

#[tokio::test]
async fn a_cancelled_job_has_an_outcome_of_its_own() {
    let rig = rig(1).await;
    let mut running = rig.scheduler.submit(script("wait")).await.unwrap();
    running.cancel();
    assert_eq!(within(running.outcome()).await.verdict, Verdict::Cancelled);
}

#[tokio::test]
async fn a_name_is_one_session() {
    let rig = rig(1).await;
    let first = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let again = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let other = rig.scheduler.open_session("b", BuildId::default()).await.unwrap().0;
    assert_eq!(first, again);
    assert_ne!(first, other);
    for _ in 0..3 {
        let ticket = rig.scheduler.submit(script_in("ok", first)).await.unwrap();
        assert!(within(ticket.into_future()).await.is_success());
    }
    until(&rig.scheduler, |status| status.workers.iter().any(|worker| worker.jobs_served == 3))
        .await;
}

#[tokio::test]
async fn a_lost_session_takes_no_more_jobs_and_its_name_is_free() {
    let rig = rig(1).await;
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    assert!(rig.run(script_in("ok", session)).await.is_success());
    let losing = rig.scheduler.submit(script_in("lose", session)).await.unwrap();
    assert!(within(losing.into_future()).await.is_success());
    let refused = rig.scheduler.submit(script_in("ok", session)).await.unwrap_err();
    assert!(matches!(refused, Refusal::SessionGone(..)), "{refused}");
    assert_ne!(rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0, session);
}

#[tokio::test]
async fn too_many_sessions_are_refused_until_one_is_closed() {
    let sessions = SessionsConfig { open: 1, ..SessionsConfig::default() };
    let rig = rig_with(SchedulerConfig { sessions, ..config(1) }).await;
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let refused = rig.scheduler.open_session("b", BuildId::default()).await.unwrap_err();
    assert_eq!(refused, Refusal::TooManySessions(1));
    rig.scheduler.close_session(session);
    rig.scheduler.open_session("b", BuildId::default()).await.unwrap();
}

#[tokio::test]
async fn draining_finishes_every_job_and_leaves_no_worker() {
    let rig = rig(2).await;
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let mut tickets = vec![rig.scheduler.submit(script_in("wait", session)).await.unwrap()];
    for _ in 0..5 {
        tickets.push(rig.scheduler.submit(script("wait")).await.unwrap());
    }
    let draining = tokio::spawn({
        let scheduler = rig.scheduler.clone();
        async move { scheduler.drain().await }
    });
    until(&rig.scheduler, |status| status.phase == Phase::Draining).await;
    let refused = rig.scheduler.submit(script("ok")).await.unwrap_err();
    assert_eq!(refused, Refusal::ShuttingDown);
    rig.source.open();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
    within(draining).await.unwrap();
    assert!(rig.scheduler.status().workers.is_empty());
    within(rig.scheduler.drain()).await;
    assert_eq!(rig.scheduler.submit(script("ok")).await.unwrap_err(), Refusal::ShuttingDown);
}

#[tokio::test]
async fn aborting_cancels_what_runs_and_what_waits() {
    let rig = rig(1).await;
    let mut tickets = Vec::new();
    for _ in 0..3 {
        tickets.push(rig.scheduler.submit(script("wait")).await.unwrap());
    }
    until(&rig.scheduler, |status| status.running == 1).await;
    within(rig.scheduler.abort()).await;
    for ticket in tickets {
        assert_eq!(within(ticket.into_future()).await.verdict, Verdict::Cancelled);
    }
    assert!(rig.scheduler.status().workers.is_empty());
}

#[tokio::test]
async fn jobs_can_be_submitted_before_any_worker_is_ready() {
    let source = FakeSource::default();
    source.hold_starts(true);
    let rig = start(config(1), source).await;
    let ticket = rig.scheduler.submit(script("ok")).await.unwrap();
    assert_eq!(rig.scheduler.status().queue_depth, 1);
    rig.source.hold_starts(false);
    assert!(within(ticket.into_future()).await.is_success());
}

#[tokio::test]
async fn a_configuration_that_runs_nothing_is_refused() {
    let config = SchedulerConfig { concurrent: 0, ..config(1) };
    let started = Scheduler::start(
        config,
        PoolConfig::default(),
        Builds::new(Arc::new(FakeSource::default())),
    )
    .await;
    assert!(started.unwrap_err().to_string().contains("concurrent"));
}

#[tokio::test]
async fn random_loads_lose_and_double_nothing() {
    let rig = rig(2).await;
    rig.source.open();
    let mut tickets = Vec::new();
    for number in 0..2_000_u32 {
        let source = match number % 20 {
            3 => "panic",
            7 => "raise",
            11 => "lose",
            _ => "ok",
        };
        tickets.push((source, rig.scheduler.submit(script(source)).await.unwrap()));
    }
    for (source, ticket) in tickets {
        let outcome = within(ticket.into_future()).await;
        match source {
            "panic" => assert!(matches!(outcome.verdict, Verdict::SandboxFailed(_))),
            "raise" => assert!(matches!(outcome.verdict, Verdict::Raised(_))),
            _ => assert!(outcome.is_success(), "{outcome:?}"),
        }
    }
    let totals = rig.scheduler.status().totals;
    assert_eq!((totals.succeeded, totals.failed, totals.sandbox_failed), (1_800, 100, 100));
}
