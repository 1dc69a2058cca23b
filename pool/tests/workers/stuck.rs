//! A thread that doesn't end when it is stopped: it is left behind, shown, and never waited for.

use super::*;

#[tokio::test]
async fn a_stuck_thread_is_replaced_and_shown_until_it_ends_and_sends_no_events() {
    let mut rig = rig().await;
    let permit = rig.worker().await;
    let task = task(1, "stick", None);
    let stop = task.stop.clone();
    permit.send(Command::Run(task));
    stop.stop(StopReason::Cancelled);
    assert_eq!(rig.gone().await, (WorkerId(1), GoneReason::Stuck, true));
    // Another worker has its place.
    let permit = rig.permit().await;
    assert_eq!(permit.worker(), WorkerId(2));
    let shown = rig.pool.workers();
    let activities: Vec<_> = shown.iter().map(|worker| (worker.worker, worker.activity)).collect();
    let expected = [(WorkerId(1), WorkerActivity::Stuck), (WorkerId(2), WorkerActivity::Ready)];
    assert_eq!(activities, expected);
    // The thread ends after all: it sends no event, and is no longer shown.
    rig.source.open();
    while rig.pool.workers().len() > 1 {
        tokio::task::yield_now().await;
    }
    permit.send(Command::Run(super::task(2, "ok", None)));
    assert!(matches!(rig.finished().await.verdict, Verdict::Completed { .. }));
    let PoolEvent::Ready(_) = rig.next().await else { panic!("the worker continues") };
    assert!(rig.close().await.iter().all(|event| matches!(event, PoolEvent::Gone { .. })));
}

#[tokio::test]
async fn closing_a_pool_does_not_wait_for_a_stuck_thread() {
    let mut rig = rig().await;
    let permit = rig.worker().await;
    let task = task(1, "stick", None);
    let stop = task.stop.clone();
    permit.send(Command::Run(task));
    let source = rig.source.clone();
    let closing = tokio::spawn(rig.close());
    stop.stop(StopReason::Cancelled);
    let told = tokio::time::timeout(Duration::from_secs(20), closing).await.unwrap().unwrap();
    let [PoolEvent::Gone { reason: GoneReason::Stuck, .. }] = &told[..] else {
        panic!("{told:?}");
    };
    source.open();
}

#[tokio::test]
async fn the_session_of_a_stuck_thread_is_lost_or_rolls_back() {
    for has_copy in [false, true] {
        let mut rig = rig_that_keeps(if has_copy { 1 << 20 } else { 0 }).await;
        let permit = rig.worker().await;
        let worker = permit.worker();
        let cell = match has_copy {
            false => session(),
            true => Arc::new(SessionCell::new(SessionId(1), Some(rig.source.suspended(7)))),
        };
        let task = task(1, "stick", Some(&cell));
        let stop = task.stop.clone();
        permit.send(Command::Run(task));
        stop.stop(StopReason::Cancelled);
        if has_copy {
            assert!(rig.session_suspended().await > 0);
        }
        assert_eq!(rig.gone().await, (worker, GoneReason::Stuck, true));
        let _replacement = rig.permit().await;
        match cell.at_hand() {
            Err(Away::Lost(reason)) => {
                assert!(!has_copy && reason.to_string().contains("stuck"), "{reason}")
            }
            Ok(Some(state)) => assert!(has_copy && rig.source.runs_in(&state) == 7),
            other => panic!("{other:?}"),
        }
        rig.source.open();
        rig.close().await;
    }
}
