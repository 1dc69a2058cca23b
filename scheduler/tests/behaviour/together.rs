//! Outcomes of short jobs, which wait for each other while jobs queue up.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use pool::{BuildId, SessionId};
use scheduler::{JobRequest, Ticket};
use test_support::fake::{Gate, Step};

use crate::combining::PanickingWaker;
use crate::{Rig, rig, script, script_in, standing_still, until, within};

/// A worker that runs a long job after `short` has ended; two more are queued.
struct Saturated {
    rig: Rig,
    short: Ticket,
    long: Ticket,
    queued: [Ticket; 2],
}

async fn saturated(short: impl FnOnce(SessionId) -> JobRequest) -> Saturated {
    let rig = rig(1).await;
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    rig.wait_until_idle().await;
    // Jobs queue up while the worker can't get ready.
    rig.source.gate(Step::Reset, [Gate::Never]);
    assert!(rig.run(script("ok")).await.is_success());
    let short = rig.submit(short(session)).await;
    let long = rig.submit(script("wait")).await;
    let queued = [rig.submit(script("ok")).await, rig.submit(script("ok")).await];
    rig.source.release();
    until(&rig.scheduler, |_| rig.source.running() == [long.job_id()]).await;
    Saturated { rig, short, long, queued }
}

/// Returns whether its outcome is here.
async fn has_come(ticket: &mut Ticket) -> bool {
    tokio::time::timeout(Duration::ZERO, ticket.outcome()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn an_outcome_waits_for_others_for_a_millisecond_at_most() {
    standing_still(async {
        let Saturated { rig, mut short, long, queued } = saturated(|_| script("ok")).await;
        assert_eq!((rig.status().totals.succeeded, rig.status().queue_depth), (2, 2));
        assert!(!has_come(&mut short).await);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert!(within(short.outcome()).await.is_success());
        assert_eq!(rig.source.running(), [long.job_id()]);
        long.stop();
        for ticket in queued {
            assert!(within(ticket.into_future()).await.is_success());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_wait_come_when_few_jobs_are_queued() {
    standing_still(async {
        let Saturated { rig, mut short, long, queued } = saturated(|_| script("ok")).await;
        assert!(!has_come(&mut short).await);
        drop(queued);
        assert!(within(short.outcome()).await.is_success());
        assert_eq!(rig.source.running(), [long.job_id()]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_sends_outcomes_that_wait() {
    standing_still(async {
        let Saturated { rig, mut short, .. } = saturated(|_| script("ok")).await;
        assert!(!has_come(&mut short).await);
        within(rig.scheduler.abort()).await;
        assert!(within(short.outcome()).await.is_success());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_dies_sends_outcomes_that_wait() {
    standing_still(async {
        let Saturated { rig, mut short, queued, .. } = saturated(|_| script("ok")).await;
        assert!(!has_come(&mut short).await);
        let waker = Waker::from(Arc::new(PanickingWaker));
        let mut events = queued[0].events();
        let mut event = pin!(events.next());
        let polled = event.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        within(rig.scheduler.abort()).await;
        assert!(within(short.outcome()).await.is_success());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_turns_do_not_wait() {
    standing_still(async {
        let Saturated { mut short, .. } = saturated(|session| script_in("ok", session)).await;
        assert!(within(short.outcome()).await.is_success());
    })
    .await;
}
