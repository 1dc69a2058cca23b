//! A worker whose jobs are of several builds.

use super::*;

const OTHER: BuildId = BuildId(1);

/// A rig with another build beside the default one, and that build's source.
async fn rig_of_two() -> (Rig, FakeSource) {
    let other = FakeSource::default();
    let source = Arc::new(other.clone());
    (rig_with(1 << 20, |builds| builds.with("other", source)).await, other)
}

/// Runs this task on the permit, and returns its outcome, the next permit and its build.
async fn ran(rig: &mut Rig, permit: WorkerPermit, task: Task) -> (Outcome, WorkerPermit, BuildId) {
    permit.send(Command::Run(task));
    loop {
        match rig.next().await {
            PoolEvent::Finished { outcome, .. } => match rig.next().await {
                PoolEvent::Ready(Offer { permit, build, .. }) => return (*outcome, permit, build),
                other => panic!("{other:?}"),
            },
            PoolEvent::SessionSuspended { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_build_replaces_the_interpreter() {
    let (mut rig, other) = rig_of_two().await;
    let mut permit = rig.worker().await;
    assert_eq!((rig.source.starts(), other.starts()), (1, 0));
    for (job, build, starts) in
        [(1, OTHER, (1, 1)), (2, OTHER, (1, 1)), (3, BuildId(0), (2, 1)), (4, OTHER, (2, 2))]
    {
        let (outcome, next, on) =
            ran(&mut rig, permit, Task { build, ..task(job, "count", None) }).await;
        assert_eq!((count(&outcome), on), (1, build));
        assert_eq!((rig.source.starts(), other.starts()), starts, "job {job}");
        let shown = rig.pool.workers()[0].python.clone();
        assert_eq!(shown, if build == OTHER { "other" } else { "default" });
        permit = next;
    }
    drop(permit);
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_both_builds_share_a_worker() {
    let (mut rig, other) = rig_of_two().await;
    let mut permit = rig.worker().await;
    let cells = [BuildId(0), OTHER]
        .map(|build| Arc::new(SessionCell::new(SessionId(1 + u64::from(build.0)), None).on(build)));
    for turn in 1..4 {
        for cell in &cells {
            let (outcome, next, on) = ran(&mut rig, permit, task(turn, "count", Some(cell))).await;
            assert_eq!((count(&outcome), on), (turn, cell.build()));
            permit = next;
        }
    }
    // The first one was suspended by the last turn of the second.
    rig.pool.offload(Arc::clone(&cells[0]), Tier::Disk);
    assert!(rig.offloaded().await.is_ok());
    assert_eq!((rig.source.reached(Step::Pack), other.reached(Step::Pack)), (1, 0));
    let (outcome, permit, _) = ran(&mut rig, permit, task(4, "count", Some(&cells[0]))).await;
    assert_eq!(count(&outcome), 4);
    drop(permit);
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_change_to_a_source_that_comes_later_and_sessions_stay() {
    let mut later = None;
    let add = |builds: Builds| {
        let (builds, id) = builds.with_later();
        later = Some((builds.clone(), id));
        builds
    };
    let mut rig = rig_with(1 << 20, add).await;
    let (builds, later) = later.unwrap();
    assert_eq!(builds.names().map(|name| &**name).collect::<Vec<_>>(), ["default"]);
    assert_eq!((builds.id("default"), later), (Some(BuildId(0)), OTHER));
    let mut permit = rig.worker().await;
    let cell = Arc::new(SessionCell::new(SessionId(1), None));
    let source = FakeSource::default();
    for turn in 1..4 {
        let (outcome, next, on) = ran(&mut rig, permit, task(turn, "count", Some(&cell))).await;
        assert_eq!((count(&outcome), on), (turn, BuildId(0)));
        if turn == 1 {
            builds.provide(later, Arc::new(source.clone()));
        }
        let job = Task { build: later, ..task(turn, "count", None) };
        let (outcome, next, on) = ran(&mut rig, next, job).await;
        assert_eq!((count(&outcome), on, source.starts()), (1, later, turn));
        assert_eq!(rig.pool.workers()[0].python, "default");
        permit = next;
    }
    drop(permit);
    rig.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_can_not_start_ends_the_worker_and_not_the_pool() {
    let (mut rig, other) = rig_of_two().await;
    let permit = rig.worker().await;
    other.fail_starts(1);
    permit.send(Command::Run(Task { build: OTHER, ..task(1, "ok", None) }));
    let (_, reason, is_replaced) = rig.gone().await;
    assert!(matches!(reason, GoneReason::StartFailed(_)) && is_replaced, "{reason:?}");
    let permit = rig.permit().await;
    let (outcome, permit, build) = ran(&mut rig, permit, task(2, "ok", None)).await;
    assert!(outcome.is_success());
    assert_eq!(build, BuildId(0));
    // A session goes on once its build starts again.
    other.fail_starts(1);
    let cell = Arc::new(SessionCell::new(SessionId(1), None).on(OTHER));
    permit.send(Command::Run(task(3, "count", Some(&cell))));
    let failed = loop {
        match rig.next().await {
            PoolEvent::Finished { outcome, .. } => break *outcome,
            PoolEvent::SessionSuspended { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(failed.verdict, Verdict::SandboxFailed(_)), "{failed:?}");
    let permit = rig.permit().await;
    let (outcome, permit, build) = ran(&mut rig, permit, task(4, "count", Some(&cell))).await;
    assert_eq!((count(&outcome), build), (1, OTHER));
    drop(permit);
    rig.close().await;
}
