//! Permits that are offered with an outcome, before a short reset or a short copy.

use super::*;

/// Returns the outcome of a task, and the permit that is offered with it.
async fn finished_and_offered(rig: &mut Rig) -> (Outcome, Offer) {
    match rig.next().await {
        PoolEvent::Finished { outcome, offer: Some(offer), .. } => (*outcome, offer),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_its_next_order_before_a_short_reset() {
    let mut rig = rig().await;
    rig.source.be_ready_soon();
    rig.source.gate(Step::Reset, [Gate::Never, Gate::Ok, Gate::Err]);
    rig.worker().await.send(Command::Run(task(1, "count", None)));
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!((count(&outcome), offer.reset), (1, None));
    offer.permit.send(Command::Run(task(2, "count", None)));
    rig.source.release();
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!(count(&outcome), 1, "it was reset before");
    assert!(offer.reset.is_some());
    // The next reset fails, which costs the job after it nothing.
    offer.permit.send(Command::Run(task(3, "count", None)));
    let (_, offer) = finished_and_offered(&mut rig).await;
    offer.permit.send(Command::Run(task(4, "count", None)));
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!((count(&outcome), rig.source.starts()), (1, 2));
    offer.permit.send(Command::Dismiss);
    assert_eq!(rig.gone().await.1, GoneReason::Dismissed);
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_its_next_order_before_a_short_copy() {
    let mut rig = rig_that_keeps(u64::MAX).await;
    rig.source.be_ready_soon();
    rig.source.gate(Step::Suspend, [Gate::Never]);
    let cell = session();
    rig.worker().await.send(Command::Run(task(1, "count", Some(&cell))));
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!((count(&outcome), offer.kept_bytes), (1, 0));
    assert!(matches!(cell.at_hand(), Err(Away::OnWorker(_))), "it isn't copied yet");
    offer.permit.send(Command::Run(task(2, "lose", Some(&cell))));
    rig.source.release();
    // The copy came before the turn, which therefore undoes itself alone.
    assert!(rig.session_suspended().await > 0);
    assert!(rig.finished().await.session_restored);
    rig.permit().await.send(Command::Run(task(3, "count", Some(&cell))));
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!(count(&outcome), 2);
    assert!(offer.kept_bytes > 0, "as much as the copy that it began with");
    // Another job finds the worker as new, once the session is suspended.
    offer.permit.send(Command::Run(task(4, "count", None)));
    assert!(rig.session_suspended().await > 0);
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!(count(&outcome), 1);
    offer.permit.send(Command::Dismiss);
    assert_eq!(rig.gone().await.1, GoneReason::Dismissed);
    rig.close().await;
}
