//! The number of workers follows the load, within its bounds; a place that fails is given up alone.

use std::time::Duration;

use engine::SandboxFailure;
use pool::{BuildId, PoolConfig, WorkerActivity};
use scheduler::{DecisionKind, SchedulerConfig, WorkersConfig};
use test_support::fake::{FakeSource, Gate, Step};
use tokio::time::advance;

use crate::{Rig, config, find, rig_with, script, standing_still, start_with, until, within};

fn elastic(min: usize, max: usize, spares: usize) -> SchedulerConfig {
    let shrink_after = Duration::from_secs(60);
    let workers = WorkersConfig { min, max, spares, shrink_after, ..WorkersConfig::default() };
    SchedulerConfig { workers, ..config(max) }
}

async fn until_workers(rig: &Rig, count: usize) {
    until(&rig.scheduler, |status| status.workers.len() == count).await;
    wait_until_settled(rig).await;
}

/// Waits until every worker is ready or runs a job.
async fn wait_until_settled(rig: &Rig) {
    until(&rig.scheduler, |status| {
        status.workers.iter().all(|worker| {
            matches!(worker.activity, WorkerActivity::Ready | WorkerActivity::Running { .. })
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn workers_come_with_the_load_and_go_when_they_idle() {
    standing_still(async {
        let rig = rig_with(elastic(1, 3, 0)).await;
        let mut decisions = rig.scheduler.decisions();
        until_workers(&rig, 1).await;
        let mut tickets = Vec::new();
        for _ in 0..5 {
            tickets.push(rig.submit(script("wait")).await);
        }
        until(&rig.scheduler, |status| status.running == 3 && status.queue_depth == 2).await;
        assert_eq!(rig.status().workers.len(), 3);
        find(&mut decisions, |kind| matches!(kind, DecisionKind::WorkerAdded).then_some(())).await;
        rig.source.open();
        for ticket in tickets {
            assert!(ticket.await.is_success());
        }
        rig.wait_until_idle().await;
        advance(Duration::from_secs(50)).await;
        rig.wait_until_idle().await;
        assert_eq!(rig.status().workers.len(), 3, "they haven't idled for long");
        advance(Duration::from_secs(20)).await;
        until_workers(&rig, 1).await;
        let gone = |kind: &DecisionKind| match kind {
            DecisionKind::WorkerDismissed { worker } => Some(*worker),
            _ => None,
        };
        let first = find(&mut decisions, gone).await;
        assert_ne!(first, find(&mut decisions, gone).await);
        assert!(rig.run(script("ok")).await.is_success());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn with_no_least_number_every_worker_may_go_and_comes_back() {
    standing_still(async {
        let rig = rig_with(elastic(0, 2, 0)).await;
        assert!(rig.run(script("ok")).await.is_success());
        rig.wait_until_idle().await;
        advance(Duration::from_secs(61)).await;
        until(&rig.scheduler, |status| status.workers.is_empty()).await;
        assert!(rig.run(script("ok")).await.is_success());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn spares_are_kept_beyond_those_that_run() {
    standing_still(async {
        let rig = rig_with(elastic(1, 3, 1)).await;
        until_workers(&rig, 1).await;
        let first = rig.submit(script("wait")).await;
        until_workers(&rig, 2).await;
        let second = rig.submit(script("wait")).await;
        until_workers(&rig, 3).await;
        let third = rig.submit(script("wait")).await;
        until(&rig.scheduler, |status| status.running == 3).await;
        assert_eq!(rig.status().workers.len(), 3, "no more than may be");
        rig.source.open();
        for ticket in [first, second, third] {
            assert!(ticket.await.is_success());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_outlives_the_worker_that_it_rested_on() {
    standing_still(async {
        let mut config = elastic(0, 2, 0);
        config.sessions.suspend_after = Duration::from_secs(3_600);
        let rig = rig_with(config).await;
        let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
        for round in 1..=3_u64 {
            let outcome = rig.run(crate::script_in("count", session)).await;
            let engine::Verdict::Completed { value: Some(value), .. } = outcome.verdict else {
                panic!("{outcome:?}")
            };
            assert_eq!(value.as_u64(), Some(round));
            rig.wait_until_idle().await;
            advance(Duration::from_secs(61)).await;
            until(&rig.scheduler, |status| status.workers.is_empty()).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_keeps_failing_is_given_up_and_the_others_go_on() {
    let source = FakeSource::default();
    // Whichever of the two starts first works, and the other place never does.
    source.gate(Step::Start, [Gate::Ok, Gate::Err, Gate::Err, Gate::Err]);
    let pool = PoolConfig {
        first_back_off: Duration::from_millis(1),
        most_failures: 3,
        ..PoolConfig::default()
    };
    let rig = start_with(config(2), pool, source).await;
    let mut decisions = rig.scheduler.decisions();
    until(&rig.scheduler, |status| {
        status.workers.iter().any(|worker| worker.activity == WorkerActivity::GivenUp)
    })
    .await;
    for _ in 0..20 {
        assert!(rig.run(script("ok")).await.is_success());
    }
    let status = rig.status();
    let lost =
        status.workers.iter().find(|worker| worker.activity == WorkerActivity::GivenUp).unwrap();
    let error = lost.last_error.as_ref().unwrap();
    assert!(error.contains("scripted to fail"), "{error}");
    assert!(!status.last_errors.is_empty(), "failures of workers are among the last errors");
    find(&mut decisions, |kind| {
        matches!(kind, DecisionKind::WorkerGone { is_replaced: false, .. }).then_some(())
    })
    .await;
    within(rig.scheduler.drain()).await;
}

#[tokio::test]
async fn a_worker_that_dies_of_its_job_is_replaced_at_once_however_often() {
    let rig = rig_with(SchedulerConfig { retries: 0, ..config(1) }).await;
    let mut decisions = rig.scheduler.decisions();
    for _ in 0..20 {
        let outcome = rig.run(script("panic")).await;
        let engine::Verdict::SandboxFailed(SandboxFailure::WorkerDied(_)) = outcome.verdict else {
            panic!("{outcome:?}")
        };
    }
    assert!(rig.run(script("ok")).await.is_success());
    for _ in 0..20 {
        let (reason, is_replaced) = find(&mut decisions, |kind| match kind {
            DecisionKind::WorkerGone { reason, is_replaced, .. } => {
                Some((reason.clone(), *is_replaced))
            }
            _ => None,
        })
        .await;
        assert!(is_replaced && reason.contains("scripted to panic"), "{reason}");
    }
}
