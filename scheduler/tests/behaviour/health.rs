//! The life of the pool, as its decisions tell it.

use std::time::Duration;

use scheduler::{DecisionKind, DegradedReason, EndReason, NextDecision};
use test_support::fake::FakeSource;

use crate::{Rig, config, rig, script, start, until, within};

/// The decisions about the pool's life that the status remembers, oldest first.
fn life(rig: &Rig) -> Vec<DecisionKind> {
    let decisions = rig.status().last_decisions;
    let kinds = decisions.into_iter().rev().map(|decision| decision.kind);
    let is_of_pool = |kind: &DecisionKind| {
        matches!(
            kind,
            DecisionKind::PoolStarting { .. }
                | DecisionKind::PoolReady { .. }
                | DecisionKind::PoolDegraded { .. }
                | DecisionKind::Draining { .. }
                | DecisionKind::Drained
                | DecisionKind::PoolEnded { .. }
        )
    };
    kinds.filter(is_of_pool).collect()
}

#[tokio::test]
async fn a_pool_tells_its_life_from_the_start_to_the_end() {
    let rig = rig(2).await;
    assert!(rig.run(script("ok")).await.is_success());
    let within_time = Duration::from_secs(60);
    within(rig.scheduler.drain_for(within_time)).await;
    let expected = [
        DecisionKind::PoolStarting { workers: 2 },
        DecisionKind::PoolReady { workers: 1 },
        DecisionKind::Draining { reason: EndReason::Drained, within: Some(within_time) },
        DecisionKind::Drained,
        DecisionKind::PoolEnded { reason: EndReason::Drained },
    ];
    assert_eq!(life(&rig), expected);
}

#[tokio::test]
async fn the_end_says_whether_somebody_wanted_it() {
    let aborted = rig(1).await;
    let running = aborted.submit(script("wait")).await;
    until(&aborted.scheduler, |status| status.running == 1).await;
    let draining = tokio::spawn({
        let scheduler = aborted.scheduler.clone();
        async move { scheduler.drain().await }
    });
    until(&aborted.scheduler, |status| status.phase == scheduler::Phase::Draining).await;
    within(aborted.scheduler.abort()).await;
    within(draining).await.unwrap();
    drop(running);
    let told = life(&aborted);
    let first = DecisionKind::Draining { reason: EndReason::Drained, within: None };
    assert!(told.contains(&first), "{told:?}");
    assert_eq!(told.last(), Some(&DecisionKind::PoolEnded { reason: EndReason::Aborted }));

    let dropped = rig(1).await;
    let mut decisions = dropped.scheduler.decisions();
    drop(dropped);
    let mut last = None;
    while let Some(NextDecision::Decision(decision)) = within(decisions.next()).await {
        last = Some(decision.kind);
    }
    assert_eq!(last, Some(DecisionKind::PoolEnded { reason: EndReason::Dropped }));
}

#[tokio::test]
async fn a_pool_whose_workers_do_not_start_is_degraded_until_one_does() {
    let source = FakeSource::default();
    source.fail_starts(3);
    let rig = start(config(1), source).await;
    assert!(rig.run(script("ok")).await.is_success());
    let told = life(&rig);
    let [
        DecisionKind::PoolStarting { workers: 1 },
        DecisionKind::PoolDegraded { reason },
        DecisionKind::PoolReady { workers: 1 },
    ] = &told[..]
    else {
        panic!("{told:?}")
    };
    let DegradedReason::WorkersDoNotStart { given_up: 0, error } = reason else {
        panic!("{reason:?}")
    };
    assert!(error.starts_with("its interpreter can't start: "), "{error}");

    let source = FakeSource::default();
    source.fail_starts(u32::MAX);
    let rig = start(config(1), source).await;
    until(&rig.scheduler, |status| {
        status.last_decisions.iter().any(|decision| {
            let reason = match &decision.kind {
                DecisionKind::PoolDegraded { reason } => reason,
                _ => return false,
            };
            matches!(reason, DegradedReason::NoWorkerLeft { .. })
        })
    })
    .await;
}

#[tokio::test]
async fn a_pool_whose_workers_keep_dying_is_degraded() {
    let rig = rig(1).await;
    for _ in 0..5 {
        assert!(!rig.run(script("panic")).await.is_success());
        assert!(rig.run(script("ok")).await.is_success());
    }
    let told = life(&rig);
    let Some(DecisionKind::PoolDegraded { reason }) = told.last() else { panic!("{told:?}") };
    let expected = "5 workers died within 60 s, the last one with: it died: scripted to panic";
    assert_eq!(reason.to_string(), expected);
}
