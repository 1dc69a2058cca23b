//! Workers are retired on request.

use super::*;

/// The worker ends, and its place is filled again.
fn replaced(worker: u64) -> [Effect; 2] {
    [Effect::Retire(WorkerId(worker)), Effect::AddWorker]
}

fn vacated(worker: u64, session: u64) -> Effect {
    let needed = EvictionReason::WorkerNeeded { worker: WorkerId(worker) };
    Effect::Vacate(WorkerId(worker), SessionId(session), needed)
}

#[test]
fn an_idle_worker_ends_at_once_and_another_takes_its_place() {
    let mut harness = Harness::small(2, 10);
    let _ = harness.ready(1);
    assert_eq!(harness.retire(1), (Ok(()), replaced(1).into()));
    assert_eq!(harness.model.worker_count(), 2);
    // Its end is expected.
    assert_eq!(harness.gone(1, false, false), []);
    assert_eq!(harness.submit(1), admitted([]));
    assert_eq!(harness.ready(3), [dispatch(1, 3)]);
}

#[test]
fn a_busy_worker_ends_after_its_job_and_not_later() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.ready(1);
    let _ = harness.submit(1);
    let _ = harness.submit(2);
    assert_eq!(harness.retire(1), (Ok(()), Vec::new()));
    assert_eq!(harness.retire(1), (Ok(()), Vec::new()), "twice is once");
    assert_eq!(harness.finish(1, 1), concluded([]));
    assert_eq!(harness.ready(1), replaced(1));
    assert_eq!(harness.ready(2), [dispatch(2, 2)]);
}

#[test]
fn a_worker_without_a_need_for_it_is_not_replaced() {
    let workers = WorkersConfig { min: 0, max: 2, spares: 0, ..WorkersConfig::default() };
    let mut harness = Harness::new(SchedulerConfig { workers, ..roomy() });
    let _ = harness.submit(1);
    let _ = harness.ready(1);
    let _ = harness.finish(1, 1);
    let _ = harness.ready(1);
    assert_eq!(harness.retire(1), (Ok(()), vec![Effect::Retire(WorkerId(1))]));
    assert_eq!(harness.model.worker_count(), 0);
}

#[test]
fn a_session_is_suspended_first_whatever_waits_for_it() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    let _ = harness.submit_to(2, 1);
    let _ = harness.retire(1);
    assert_eq!(harness.finish(1, 1), concluded([]));
    assert_eq!(harness.ready(1), [vacated(1, 1)]);
    // Its next turn runs on the first worker that is ready, which isn't the one that ends.
    let _ = harness.suspend(1, 5);
    assert_eq!(harness.ready(1), replaced(1));
    assert_eq!(harness.ready(2), [dispatch(2, 2)]);
}

#[test]
fn an_idle_session_leaves_a_worker_that_is_retired() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    let _ = harness.finish(1, 1);
    let _ = harness.ready(1);
    assert_eq!(harness.retire(1), (Ok(()), vec![vacated(1, 1)]));
    assert_eq!(harness.ready(1), replaced(1));
    let _ = harness.ready(2);
    assert_eq!(harness.submit_to(2, 1), admitted([dispatch(2, 2)]));
}

#[test]
fn a_request_outweighs_other_reasons() {
    let mut harness = Harness::new(SchedulerConfig { retire_above_bytes: 1_000, ..roomy() });
    let _ = harness.ready(1);
    let _ = harness.submit(1);
    let _ = harness.retire(1);
    let report = Report { peak_memory_bytes: 2_000, ..Report::default() };
    let _ = harness.finish_as(1, 1, report);
    assert_eq!(harness.ready(1), replaced(1));
}

#[test]
fn only_workers_that_live_can_be_retired() {
    let mut harness = Harness::small(2, 10);
    let none = |worker| {
        let refusal = Refusal::NoSuchWorker(WorkerId(worker));
        (Err(refusal), Vec::new())
    };
    assert_eq!(harness.retire(1), none(1), "it has not started");
    let _ = harness.ready(1);
    let _ = harness.retire(1);
    assert_eq!(harness.retire(1), none(1), "it is ending");
    assert_eq!(harness.retire(7), none(7));
    let said = none(7).0.unwrap_err().to_string();
    assert!(said.contains("worker-7") && said.contains("status"), "{said}");
}

#[test]
fn a_draining_pool_retires_too_and_finishes_its_jobs() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.ready(1);
    let _ = harness.submit(1);
    let _ = harness.submit(2);
    let _ = harness.send(Event::Draining { until: None });
    let _ = harness.retire(1);
    let _ = harness.finish(1, 1);
    assert_eq!(harness.ready(1), [Effect::Retire(WorkerId(1))]);
    assert_eq!(harness.ready(2), [dispatch(2, 2)]);
    assert_eq!(harness.finish(2, 2), concluded([Effect::Record(DecisionKind::Drained)]));
}
