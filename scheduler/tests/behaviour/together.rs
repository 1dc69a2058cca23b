//! Outcomes of short jobs, which wait for each other while jobs queue up.

use std::time::Duration;

use pool::interpreter::fake::{Gate, Step};
use scheduler::{JobRequest, Ticket};

use crate::{Rig, rig, script, script_in, script_of, standing_still, until, within};

/// Returns one worker, which runs a long job, a queued job, and this job, which has ended.
async fn ended_before_a_long_one(job: impl AsyncFnOnce(&Rig) -> JobRequest) -> (Rig, [Ticket; 3]) {
    let rig = rig(1).await;
    // So that it is known how short jobs are.
    for _ in 0..5 {
        assert!(rig.run(script("ok")).await.is_success());
    }
    let job = job(&rig).await;
    rig.wait_until_idle().await;
    // Jobs queue up while the worker can't get ready.
    rig.source.gate(Step::Reset, [Gate::Never]);
    assert!(rig.run(script("ok")).await.is_success());
    let short = rig.submit(job).await;
    let long = rig.submit(script("wait")).await;
    let queued = rig.submit(script("ok")).await;
    rig.source.release();
    until(&rig.scheduler, |_| rig.source.running() == [long.job_id()]).await;
    (rig, [short, long, queued])
}

/// Returns whether its outcome is here.
async fn has_come(ticket: &mut Ticket) -> bool {
    tokio::time::timeout(Duration::ZERO, ticket.outcome()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn an_outcome_waits_for_others_for_two_milliseconds_at_most() {
    standing_still(async {
        let (rig, [mut short, long, queued]) =
            ended_before_a_long_one(async |_| script("ok")).await;
        assert_eq!((rig.status().totals.succeeded, rig.status().queue_depth), (7, 1));
        assert!(!has_come(&mut short).await);
        tokio::time::advance(Duration::from_millis(3)).await;
        assert!(within(short.outcome()).await.is_success());
        assert_eq!(rig.source.running(), [long.job_id()]);
        long.stop();
        assert!(within(queued.into_future()).await.is_success());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_wait_come_when_nothing_is_queued_any_more() {
    standing_still(async {
        let (rig, [mut short, long, queued]) =
            ended_before_a_long_one(async |_| script("ok")).await;
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
        let (rig, [mut short, _long, _queued]) =
            ended_before_a_long_one(async |_| script("ok")).await;
        assert!(!has_come(&mut short).await);
        within(rig.scheduler.abort()).await;
        assert!(within(short.outcome()).await.is_success());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_tenants_with_nothing_else_queued_do_not_wait() {
    standing_still(async {
        let of_other = async |_: &Rig| script_of("ok", "other");
        let (_rig, [mut short, _long, _queued]) = ended_before_a_long_one(of_other).await;
        assert!(within(short.outcome()).await.is_success());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_turns_do_not_wait() {
    standing_still(async {
        let turn =
            async |rig: &Rig| script_in("ok", rig.scheduler.open_session("session").await.unwrap());
        let (_rig, [mut short, _long, _queued]) = ended_before_a_long_one(turn).await;
        assert!(within(short.outcome()).await.is_success());
    })
    .await;
}
