//! Workers that are retired on request lose nothing of anybody.

use pool::{BuildId, WorkerId};
use scheduler::{DecisionKind, Refusal, RetireReason};

use crate::{find, rig, script, script_in, until, within};

/// Runs a turn that counts the runs in its session's state.
async fn count(rig: &crate::Rig, session: pool::SessionId) -> u64 {
    let outcome = rig.run(script_in("count", session)).await;
    match outcome.verdict {
        engine::Verdict::Completed { value: Some(value), .. } => value.as_u64().unwrap(),
        verdict => panic!("{verdict:?}"),
    }
}

#[tokio::test]
async fn a_worker_ends_after_its_job_and_its_session_goes_on_elsewhere() {
    let rig = rig(1).await;
    let mut decisions = rig.scheduler.decisions();
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    assert_eq!(count(&rig, session).await, 1);
    let running = rig.submit(script_in("wait", session)).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    let waiting = rig.submit(script_in("count", session)).await;
    let other = rig.submit(script("ok")).await;
    let worker = rig.status().workers[0].worker;
    rig.scheduler.retire(worker).await.unwrap();
    assert_eq!(rig.status().running, 1, "its job goes on");
    rig.source.open();
    for ticket in [running, waiting, other] {
        assert!(within(ticket.into_future()).await.is_success());
    }
    assert_eq!(count(&rig, session).await, 4, "no turn is lost");
    let retired = find(&mut decisions, |kind| match kind {
        DecisionKind::Retired { worker, reason } => Some((*worker, reason.clone())),
        DecisionKind::WorkerDismissed { .. } | DecisionKind::WorkerGone { .. } => {
            panic!("{kind:?}")
        }
        _ => None,
    })
    .await;
    assert_eq!(retired, (worker, RetireReason::Requested));
    assert_eq!(retired.1.to_string(), "on request");
    until(&rig.scheduler, |status| status.workers.len() == 1 && status.workers[0].worker != worker)
        .await;
    assert_eq!(rig.source.starts(), 2);
}

#[tokio::test]
async fn a_worker_that_is_not_there_can_not_be_retired() {
    let rig = rig(1).await;
    rig.wait_until_idle().await;
    let refused = rig.scheduler.retire(WorkerId(77)).await.unwrap_err();
    assert_eq!(refused, Refusal::NoSuchWorker(WorkerId(77)));
    assert!(!refused.is_overload() && refused.retry_after().is_none());
    within(rig.scheduler.drain()).await;
    let refused = rig.scheduler.retire(WorkerId(1)).await.unwrap_err();
    assert_eq!(refused, Refusal::ShuttingDown);
}

/// Jobs go on while one worker after the other is retired.
#[tokio::test]
async fn nothing_is_lost_while_workers_are_retired_all_the_time() {
    let rig = rig(3).await;
    rig.source.open();
    let mut sessions = Vec::new();
    for name in ["a", "b", "c", "d"] {
        sessions.push(rig.scheduler.open_session(name, BuildId::default()).await.unwrap().0);
    }
    let mut retired = 0;
    for round in 1..=50 {
        let mut tickets = Vec::new();
        for session in &sessions {
            tickets.push(rig.submit(script_in("count", *session)).await);
            tickets.push(rig.submit(script("ok")).await);
        }
        for worker in rig.status().workers {
            match rig.scheduler.retire(worker.worker).await {
                Ok(()) => retired += 1,
                Err(refusal) => {
                    assert!(matches!(refusal, Refusal::NoSuchWorker(..)), "{refusal}");
                }
            }
        }
        for ticket in tickets {
            let outcome = within(ticket.into_future()).await;
            assert!(outcome.is_success(), "{outcome:?}");
        }
        for session in &sessions {
            assert_eq!(count(&rig, *session).await, 2 * round);
        }
    }
    assert!(retired >= 50, "{retired}");
    let status = rig.status();
    assert_eq!((status.totals.retried, status.totals.sandbox_failed), (0, 0));
    assert_eq!(status.last_errors, []);
}
