//! Seats that are offered with an outcome, before a short reset.

use super::*;

/// Returns the outcome of a task, and the seat that is offered with it.
async fn finished_and_offered(rig: &mut Rig) -> (Outcome, Offer) {
    match rig.next().await {
        PoolEvent::Finished { outcome, offer: Some(offer), .. } => (*outcome, offer),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_its_next_order_before_a_short_reset() {
    let mut rig = rig().await;
    rig.source.reset_soon();
    rig.source.gate(Step::Reset, [Gate::Never]);
    rig.worker().await.assign(task(1, "count", None));
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!((count(&outcome), offer.reset), (1, None));
    offer.seat.assign(task(2, "count", None));
    rig.source.release();
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!(count(&outcome), 1, "it was reset before");
    assert!(offer.reset.is_some());
    // A session stays, so its seat comes later, and a failed reset costs the next job nothing.
    let cell = session();
    offer.seat.assign(task(3, "count", Some(&cell)));
    assert_eq!(count(&rig.finished().await), 1);
    rig.source.fail_resets(1);
    rig.seat().await.assign(task(4, "count", None));
    assert!(rig.session_parked().await > 0);
    let (outcome, offer) = finished_and_offered(&mut rig).await;
    assert_eq!((count(&outcome), rig.source.starts()), (1, 2));
    // No work is done ahead of an order.
    assert_eq!(rig.source.reached(Step::Ahead), 0);
    offer.seat.dismiss();
    assert_eq!(rig.gone().await.1, GoneReason::Dismissed);
    rig.close().await;
}
