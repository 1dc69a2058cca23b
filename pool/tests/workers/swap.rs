//! Two sessions that change places at the same time.

use super::*;

/// Each worker waits for the session that the other one has, and suspends its own first.
#[tokio::test(flavor = "multi_thread")]
async fn two_workers_swap_their_sessions() {
    let mut rig = rig().await;
    let (first, second) = (rig.worker().await, rig.worker().await);
    let other = Arc::new(SessionCell::new(SessionId(2), None));
    let (first, first_session) = settled(&mut rig, first, session()).await;
    let (second, second_session) = settled(&mut rig, second, other).await;
    first.send(Command::Run(task(3, "count", Some(&second_session))));
    second.send(Command::Run(task(4, "count", Some(&first_session))));
    let mut counts = Vec::new();
    while counts.len() < 2 {
        if let PoolEvent::Finished { outcome, .. } = rig.next().await {
            counts.push(count(&outcome));
        }
    }
    assert_eq!(counts, [2, 2]);
    rig.close().await;
}

/// Runs a job of the session on this permit, after which the worker has the session's state.
async fn settled(
    rig: &mut Rig,
    permit: WorkerPermit,
    session: Arc<SessionCell>,
) -> (WorkerPermit, Arc<SessionCell>) {
    permit.send(Command::Run(task(1, "count", Some(&session))));
    assert_eq!(count(&rig.finished().await), 1);
    (rig.permit().await, session)
}
