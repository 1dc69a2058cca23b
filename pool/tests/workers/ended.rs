//! Processes of interpreters that end while nothing runs on them: the next program gets another one.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_never_meets_a_process_that_ended_before() {
    let mut rig = rig().await;
    let mut permit = rig.worker().await;
    for job in [1, 2, 3] {
        rig.source.end_processes();
        permit.send(Command::Run(task(job, "count", None)));
        assert_eq!(count(&rig.finished().await), 1);
        permit = rig.permit().await;
    }
    assert_eq!(rig.source.starts(), 4);
    permit.send(Command::Dismiss);
    assert_eq!(rig.gone().await.1, GoneReason::Dismissed);
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_from_its_copy_if_its_process_ends_between_two_turns() {
    let mut rig = rig_that_keeps(u64::MAX).await;
    let cell = session();
    rig.worker().await.send(Command::Run(task(1, "count", Some(&cell))));
    assert_eq!(count(&rig.finished().await), 1);
    let permit = rig.permit().await;
    rig.source.end_processes();
    permit.send(Command::Run(task(2, "count", Some(&cell))));
    let outcome = rig.finished().await;
    assert_eq!((count(&outcome), outcome.session_restored), (2, false));
    // So does one that was resumed and hasn't run.
    let permit = rig.permit().await;
    rig.source.end_processes();
    permit.send(Command::Vacate);
    assert!(rig.session_suspended().await > 0);
    rig.permit().await.send(Command::Run(task(3, "count", Some(&cell))));
    assert_eq!(count(&rig.finished().await), 3);
    rig.permit().await.send(Command::Dismiss);
    assert!(rig.session_suspended().await > 0);
    assert_eq!(rig.gone().await.1, GoneReason::Dismissed);
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_copy_is_lost_with_its_process() {
    let mut rig = rig().await;
    let cell = session();
    rig.worker().await.send(Command::Run(task(1, "count", Some(&cell))));
    let _ = rig.finished().await;
    let permit = rig.permit().await;
    rig.source.end_processes();
    permit.send(Command::Run(task(2, "count", Some(&cell))));
    let Verdict::SandboxFailed(engine::SandboxFailure::SessionLost(cause)) =
        rig.finished().await.verdict
    else {
        panic!("the session has a state")
    };
    assert_eq!(cause.to_string(), "the process that kept its state has ended");
    rig.permit().await.send(Command::Dismiss);
    assert_eq!(rig.gone().await.1, GoneReason::Dismissed);
    rig.close().await;
}
