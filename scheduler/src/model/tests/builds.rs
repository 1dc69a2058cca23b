//! Jobs of several Python builds on the same workers.

use super::*;

/// A job of this build.
fn of(build: u16) -> Queued {
    Queued { build: BuildId(build), ..queued() }
}

/// Two idle workers, with interpreters of builds 0 and 1.
fn two() -> Harness {
    let mut harness = Harness::new(roomy());
    let _ = harness.ready_on(1, 0, 0);
    let _ = harness.ready_on(2, 1, 0);
    harness
}

#[test]
fn a_job_goes_to_an_interpreter_of_its_build() {
    for (build, worker) in [(0, 1), (1, 2)] {
        let mut harness = two();
        assert_eq!(harness.submit_as(1, of(build)), admitted([dispatch(1, worker)]));
    }
}

#[test]
fn a_job_without_one_takes_the_worker_that_was_unused_for_longest() {
    let mut harness = two();
    harness.run(1, of(0), seconds(1));
    assert_eq!(harness.submit_as(2, of(2)), admitted([dispatch(2, 2)]));
    let _ = harness.finish(2, 2);
    let _ = harness.ready_on(2, 2, 0);
    // From now on each build has a worker, and neither is displaced.
    for job in [3, 5, 7] {
        assert_eq!(harness.submit_as(job, of(0)), admitted([dispatch(job, 1)]));
        assert_eq!(harness.submit_as(job + 1, of(2)), admitted([dispatch(job + 1, 2)]));
        for (worker, build) in [(1, 0), (2, 2)] {
            harness.now += seconds(1);
            let _ = harness.finish(worker, job + u64::from(build == 2));
            let _ = harness.ready_on(worker, build, 0);
        }
    }
}

#[test]
fn no_job_waits_for_a_worker_of_its_build() {
    let mut harness = two();
    assert_eq!(harness.submit_as(1, of(0)), admitted([dispatch(1, 1)]));
    assert_eq!(harness.submit_as(2, of(0)), admitted([dispatch(2, 2)]));
    assert_eq!(harness.submit_as(3, of(1)), admitted([]));
    let _ = harness.finish(1, 1);
    assert_eq!(harness.ready_on(1, 0, 0), [dispatch(3, 1)]);
}

#[test]
fn a_vacant_worker_of_another_build_comes_before_one_that_holds_a_session() {
    let mut harness = two();
    harness.open(1);
    let turn = Queued { session: Some(SessionId(1)), ..of(0) };
    assert_eq!(harness.submit_as(1, turn.clone()), admitted([dispatch(1, 1)]));
    let _ = harness.finish(1, 1);
    let _ = harness.ready_on(1, 0, 0);
    assert_eq!(harness.submit_as(2, of(0)), admitted([dispatch(2, 2)]));
    assert_eq!(harness.submit_as(3, turn), admitted([dispatch(3, 1)]));
}
