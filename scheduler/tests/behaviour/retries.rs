//! What the sandbox failed is retried, within bounds; what a program did never is.

use std::sync::Arc;
use std::time::Duration;

use engine::{SandboxFailure, Verdict};
use pool::BuildId;
use scheduler::{DecisionKind, JobRequest, JobState, RetireReason, SchedulerConfig, WaitReason};
use test_support::fake::{Gate, Step};
use tokio::time::advance;

use crate::{config, find, next, rig, rig_with, script, script_in, standing_still, until, within};

#[tokio::test]
async fn a_job_that_the_sandbox_failed_is_tried_again_and_counts_once() {
    let rig = rig(2).await;
    let mut decisions = rig.scheduler.decisions();
    rig.source.gate(Step::Run, [Gate::Err, Gate::Err]);
    let ticket = rig.submit(script("ok")).await;
    let id = ticket.job_id();
    assert!(crate::within(ticket.into_future()).await.is_success());
    let totals = rig.status().totals;
    assert_eq!((totals.succeeded, totals.retried, totals.sandbox_failed), (1, 2, 0));
    let mut story = Vec::new();
    loop {
        match next(&mut decisions).await.kind {
            DecisionKind::Admitted { job, .. } if job == id => story.push("admitted"),
            DecisionKind::Dispatched { job, .. } if job == id => story.push("dispatched"),
            DecisionKind::Retried { job, attempt, reason } if job == id => {
                assert!(!reason.is_empty());
                story.push(if attempt == 1 { "first failed" } else { "second failed" });
            }
            DecisionKind::Ended { job, how } if job == id => {
                story.push(how);
                break;
            }
            _ => {}
        }
    }
    let expected = [
        "admitted",
        "dispatched",
        "first failed",
        "dispatched",
        "second failed",
        "dispatched",
        "succeeded",
    ];
    assert_eq!(story, expected);
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_although_other_workers_are_idle_and_says_so() {
    standing_still(async {
        let rig = rig(3).await;
        rig.wait_until_idle().await;
        rig.source.gate(Step::Run, [Gate::Err]);
        let ticket = rig.submit(script("ok")).await;
        for (failed_attempts, wait) in [(1, 100), (2, 200)] {
            until(&rig.scheduler, |status| status.totals.retried == failed_attempts).await;
            let explained = rig.scheduler.explain(ticket.job_id()).await.unwrap();
            let JobState::Waiting { reason, .. } = &explained.state else { panic!("{explained}") };
            let failed_attempts = failed_attempts as u32;
            let remaining = Duration::from_millis(wait);
            assert_eq!(*reason, WaitReason::BackingOff { failed_attempts, remaining });
            rig.wait_for_workers().await;
            advance(remaining - Duration::from_millis(1)).await;
            assert!(rig.run(script("ok")).await.is_success(), "others don't wait");
            assert_eq!(rig.status().queue_depth, 1);
            rig.source.gate(Step::Run, (failed_attempts == 1).then_some(Gate::Err));
            advance(Duration::from_millis(1)).await;
        }
        assert!(within(ticket.into_future()).await.is_success());
    })
    .await;
}

#[tokio::test]
async fn tries_are_bounded_and_the_last_failure_is_reported() {
    for retries in [0, 1, 3] {
        let rig = rig_with(SchedulerConfig { retries, ..config(2) }).await;
        let outcome = rig.run(script("trap")).await;
        assert!(matches!(outcome.verdict, Verdict::SandboxFailed(_)), "{outcome:?}");
        let totals = rig.status().totals;
        assert_eq!((totals.sandbox_failed, totals.retried), (1, u64::from(retries)));
        assert!(rig.run(script("ok")).await.is_success());
    }
}

#[tokio::test]
async fn a_job_that_kills_its_worker_costs_one_for_each_try_and_no_more() {
    let rig = rig_with(SchedulerConfig { retries: 2, ..config(1) }).await;
    let outcome = rig.run(script("panic")).await;
    let Verdict::SandboxFailed(SandboxFailure::WorkerDied(_)) = outcome.verdict else {
        panic!("{outcome:?}")
    };
    assert!(rig.run(script("ok")).await.is_success());
    rig.wait_until_idle().await;
    // One at the beginning, and one after each of three deaths.
    assert_eq!(rig.source.starts(), 4);
    assert_eq!(rig.status().totals.retried, 2);
}

#[tokio::test]
async fn what_must_not_run_twice_does_not() {
    let rig = rig(1).await;
    let once = JobRequest { idempotent: Some(false), ..script("trap") };
    assert!(matches!(rig.run(once).await.verdict, Verdict::SandboxFailed(_)));
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let turn = rig.run(script_in("trap", session)).await;
    assert!(matches!(turn.verdict, Verdict::SandboxFailed(_)), "{turn:?}");
    let totals = rig.status().totals;
    assert_eq!((totals.sandbox_failed, totals.retried), (2, 0));
}

#[tokio::test]
async fn what_a_program_does_is_never_tried_again() {
    let rig = rig(1).await;
    let again = JobRequest { idempotent: Some(true), ..script("raise") };
    assert!(matches!(rig.run(again).await.verdict, Verdict::Raised(_)));
    let totals = rig.status().totals;
    assert_eq!((totals.failed, totals.retried), (1, 0));
}

#[tokio::test]
async fn a_job_that_is_tried_again_can_be_cancelled() {
    let rig = rig_with(SchedulerConfig { retries: 1_000_000, ..config(1) }).await;
    rig.source.gate(Step::Run, [Gate::Err, Gate::Err, Gate::Never]);
    let ticket = rig.submit(script("ok")).await;
    until(&rig.scheduler, |status| status.totals.retried == 2 && status.running == 1).await;
    ticket.cancel();
    assert_eq!(crate::within(ticket.into_future()).await.verdict, Verdict::Cancelled);
    assert!(rig.run(script("ok")).await.is_success());
    let totals = rig.status().totals;
    assert_eq!((totals.cancelled, totals.succeeded, totals.sandbox_failed), (1, 1, 0));
}

#[tokio::test]
async fn an_interpreter_is_renewed_after_a_job_with_much_memory() {
    let rig = rig_with(SchedulerConfig { retire_above_bytes: 1_000, ..config(1) }).await;
    let mut decisions = rig.scheduler.decisions();
    assert!(rig.run(script("memory 1000")).await.is_success());
    assert!(rig.run(script("ok")).await.is_success());
    assert_eq!(rig.source.starts(), 1, "1,000 bytes are not more than 1,000");
    assert!(rig.run(script("memory 1001")).await.is_success());
    assert!(rig.run(script("ok")).await.is_success());
    let reason = find(&mut decisions, |kind| match kind {
        DecisionKind::Retired { reason, .. } => Some(reason.clone()),
        _ => None,
    })
    .await;
    assert_eq!(reason, RetireReason::HighWater { bytes: 1_001, limit: 1_000 });
    assert_eq!(rig.source.starts(), 2);
}

#[tokio::test]
async fn a_session_survives_the_renewal_of_its_interpreter() {
    let rig = rig_with(SchedulerConfig { retire_above_bytes: 1_000, ..config(1) }).await;
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    for round in 1..=3_u64 {
        let outcome = rig.run(script_in("count", session)).await;
        let Verdict::Completed { value: Some(value), .. } = outcome.verdict else {
            panic!("{outcome:?}")
        };
        // The run with much memory adds one to the count, too.
        assert_eq!(value.as_u64(), Some(2 * round - 1));
        assert!(rig.run(script_in("memory 5000", session)).await.is_success());
    }
}

#[tokio::test]
async fn the_status_keeps_the_last_failures() {
    let rig = rig_with(SchedulerConfig { retries: 0, ..config(1) }).await;
    let mut last = None;
    for _ in 0..12 {
        let ticket =
            rig.submit(JobRequest { tenant: Some(Arc::from("t")), ..script("trap") }).await;
        last = Some(ticket.job_id());
        let outcome = crate::within(ticket.into_future()).await;
        assert!(matches!(outcome.verdict, Verdict::SandboxFailed(_)), "{outcome:?}");
    }
    let errors = rig.status().last_errors;
    assert_eq!(errors.len(), 10);
    assert_eq!(errors[0].job, last, "the latest comes first");
    assert!(errors.iter().all(|error| !error.message.is_empty()));
    assert!(errors.windows(2).all(|pair| pair[0].age <= pair[1].age));
}
