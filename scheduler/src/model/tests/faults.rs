//! What happens when workers die and runs fail.

use super::explain::reason;
use super::*;
use crate::explain::WaitReason;

/// A job that may be retried.
fn idempotent() -> Queued {
    Queued { is_idempotent: true, ..queued() }
}

fn sandbox_failed() -> Report {
    Report { fault: Some(Fault::Sandbox), ..Report::default() }
}

fn retry(job: u64, attempt: u32) -> Effect {
    Effect::Retry { job: JobId(job), attempt }
}

/// What is dispatched once the wait before the next retry is over.
fn after_the_wait(harness: &mut Harness) -> Vec<Effect> {
    let retry = harness.model.next_retry().unwrap();
    assert_eq!(harness.model.next_wake(), Some(retry));
    harness.pass(retry - harness.now)
}

fn renewed(worker: u64) -> Effect {
    Effect::Renew(WorkerId(worker), RetireReason::SandboxFailed)
}

fn died(job: u64) -> Effect {
    settle(job, Settlement::WorkerDied("died".into()))
}

#[test]
fn a_dead_worker_settles_its_job() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.submit(1);
    let _ = harness.ready(1);
    assert_eq!(harness.gone(1, true, false), [died(1)]);
    assert_eq!(harness.submit(2), admitted([]));
}

#[test]
fn a_dead_worker_takes_the_session_that_was_on_it_unless_its_state_is_elsewhere() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    harness.open(2);
    for worker in [1, 2] {
        let _ = harness.ready(worker);
        assert_eq!(harness.submit_to(worker, worker), admitted([dispatch(worker, worker)]));
        let _ = harness.finish(worker, worker);
    }
    assert_eq!(harness.gone(1, true, true), [ended(1, "died")]);
    assert_eq!(harness.gone(2, true, false), []);
    assert!(!harness.model.is_open(SessionId(1)) && harness.model.is_open(SessionId(2)));
    let _ = harness.ready(3);
    assert_eq!(harness.submit_to(3, 2), admitted([dispatch(3, 3)]));
}

#[test]
fn a_session_that_never_came_to_its_dead_worker_is_where_it_was() {
    let mut harness = Harness::small(2, 10);
    let _ = harness.open_with(1, 400);
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    assert_eq!(harness.model.memory().session_bytes, 0);
    assert_eq!(harness.gone(1, true, false), [died(1)]);
    assert_eq!(harness.model.memory().session_bytes, 400);
}

#[test]
fn without_workers_queued_jobs_are_settled() {
    let mut harness = Harness::small(1, 10);
    harness.open(1);
    let _ = harness.submit(1);
    let _ = harness.submit_to(2, 1);
    assert_eq!(harness.gone(1, false, false), []);
    let settled = |job| settle(job, Settlement::NoWorker("died".into()));
    assert_eq!(harness.gone(2, false, false), [settled(1), settled(2)]);
    let no_worker = |retry_after| {
        let retry_after = Some(seconds(retry_after));
        Refusal::NoWorker { cause: "died".into(), retry_after }
    };
    assert_eq!(harness.submit(3), refused(no_worker(30)));
    assert_eq!(harness.model.worker_count(), 0);
    assert_eq!(harness.model.next_wake(), Some(seconds(30)));
    assert_eq!(harness.pass(seconds(29)), []);
    assert_eq!(harness.submit(4), refused(no_worker(1)));
    // Then the places are tried again, whatever failed before.
    assert_eq!(harness.pass(seconds(1)), [Effect::AddWorker, Effect::AddWorker]);
    assert_eq!(harness.submit(5), admitted([]));
    assert_eq!(harness.ready(3), [dispatch(5, 3)]);
}

#[test]
fn a_session_whose_run_took_its_interpreter_can_move_to_any_worker() {
    let mut harness = Harness::small(2, 10);
    let _ = harness.open_with(1, 400);
    let _ = harness.ready(1);
    assert_eq!(harness.submit_to(1, 1), admitted([dispatch(1, 1)]));
    let _ = harness.suspend(1, 400);
    let _ = harness.finish_as(1, 1, Report { session_left: true, ..Report::default() });
    assert_eq!(harness.model.memory().session_bytes, 400);
    let _ = harness.ready(2);
    assert_eq!(harness.submit_to(2, 1), admitted([dispatch(2, 2)]));
}

#[test]
fn a_place_that_was_given_up_is_tried_again_even_while_others_work() {
    let mut harness = Harness::small(2, 10);
    let _ = harness.ready(1);
    harness.now = seconds(5);
    assert_eq!(harness.gone(2, false, false), []);
    assert_eq!(harness.submit(1), admitted([dispatch(1, 1)]));
    assert_eq!(harness.submit(2), admitted([]));
    assert_eq!(harness.model.next_wake(), Some(seconds(35)));
    assert_eq!(harness.pass(seconds(30)), [Effect::AddWorker]);
    assert_eq!(harness.ready(3), [dispatch(2, 3)]);
}

#[test]
fn a_job_that_the_sandbox_failed_is_retried_elsewhere_within_bounds() {
    let mut harness = Harness::small(2, 10);
    let _ = harness.ready(1);
    let _ = harness.submit_as(1, idempotent());
    let _ = harness.submit(2);
    assert_eq!(harness.finish_as(1, 1, sandbox_failed()), retried(1));
    assert_eq!(harness.ready(1), [renewed(1)]);
    let _ = harness.end(2, StopKind::Cancel);
    assert_eq!(harness.ready(2), []);
    assert_eq!(after_the_wait(&mut harness), [dispatch(1, 2)]);
    assert_eq!(harness.gone(2, true, false), [retry(1, 2)]);
    assert_eq!(harness.ready(1), []);
    assert_eq!(after_the_wait(&mut harness), [dispatch(1, 1)]);
    assert_eq!(
        harness.model.explain(JobId(1), harness.now).map(|job| job.failed_attempts),
        Some(2)
    );
    assert_eq!(harness.finish_as(1, 1, sandbox_failed()), concluded([]));
}

#[test]
fn a_job_waits_before_each_retry_twice_as_long_and_says_so() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.ready(1);
    let _ = harness.submit_as(1, idempotent());
    let moment = Duration::from_millis(1);
    for (attempt, wait) in [(1, 100), (2, 200)] {
        let (wait, next) = (Duration::from_millis(wait), attempt + 1);
        assert_eq!(harness.gone(attempt, true, false), [retry(1, attempt as u32)]);
        let backs_off = |remaining| {
            let failed_attempts = attempt as u32;
            WaitReason::BackingOff { failed_attempts, remaining }
        };
        assert_eq!(reason(&harness, 1), backs_off(wait));
        // Others run meanwhile.
        assert_eq!(harness.ready(next), []);
        assert_eq!(harness.submit(10 + attempt), admitted([dispatch(10 + attempt, next)]));
        assert_eq!(harness.finish(next, 10 + attempt), concluded([]));
        assert_eq!(harness.ready(next), []);
        assert_eq!(harness.pass(wait - moment), []);
        assert_eq!(reason(&harness, 1), backs_off(moment));
        assert_eq!(harness.pass(moment), [dispatch(1, next)]);
    }
    assert_eq!(harness.gone(3, true, false), [died(1)]);
}

#[test]
fn a_job_that_waits_before_a_retry_can_end() {
    for ending in [StopKind::Cancel, StopKind::Kill, StopKind::Interrupt] {
        let mut harness = Harness::small(1, 10);
        let _ = harness.ready(1);
        let _ = harness.submit_as(1, idempotent());
        assert_eq!(harness.gone(1, true, false), [retry(1, 1)]);
        assert_eq!(harness.end(1, ending), [settle(1, Settlement::Cancelled)]);
        assert_eq!(harness.model.next_retry(), None);
    }
    let mut harness = Harness::small(1, 10);
    let _ = harness.ready(1);
    let deadline = Some(Duration::from_millis(50));
    let _ = harness.submit_as(1, Queued { deadline, ..idempotent() });
    let _ = harness.gone(1, true, false);
    let (allowed, waited) = (Duration::from_millis(50), Duration::from_millis(60));
    let passed = settle(1, Settlement::DeadlinePassed { allowed, waited });
    assert_eq!(harness.pass(waited), [passed]);
}

#[test]
fn a_job_that_broke_its_interpreter_is_tried_again_once() {
    let mut harness = Harness::small(2, 10);
    let tampered = Report { fault: Some(Fault::Tampering), ..Report::default() };
    let _ = harness.ready(1);
    let _ = harness.submit_as(1, idempotent());
    assert_eq!(harness.finish_as(1, 1, tampered), retried(1));
    assert_eq!(harness.ready(1), []);
    assert_eq!(after_the_wait(&mut harness), [dispatch(1, 1)]);
    assert_eq!(harness.finish_as(1, 1, tampered), concluded([]));
}

#[test]
fn a_job_that_a_stop_did_not_end_is_not_tried_again() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.ready(1);
    let _ = harness.submit_as(1, idempotent());
    let stuck = Event::Gone {
        worker: WorkerId(1),
        reason: "stuck".into(),
        is_replaced: true,
        takes_session: false,
        fault: Fault::Stuck,
    };
    let died = Settlement::WorkerDied("stuck".into());
    assert_eq!(harness.send(stuck), [Effect::Settle(JobId(1), died)]);
}

#[test]
fn only_jobs_that_may_be_repeated_are() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.submit(1);
    assert_eq!(harness.finish_as(1, 1, sandbox_failed()), concluded([]));
    assert_eq!(harness.ready(1), [renewed(1)]);
    let _ = harness.ready(1);
    let _ = harness.submit_as(2, Queued { session: Some(SessionId(1)), ..idempotent() });
    assert_eq!(harness.finish_as(1, 2, sandbox_failed()), concluded([]));
}

#[test]
fn a_job_that_was_asked_to_end_is_not_retried() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.ready(1);
    let _ = harness.submit_as(1, idempotent());
    assert_eq!(harness.end(1, StopKind::Kill), [Effect::StopRun(JobId(1))]);
    assert_eq!(harness.finish_as(1, 1, sandbox_failed()), concluded([]));

    let mut harness = Harness::small(1, 10);
    let _ = harness.ready(1);
    let _ = harness.submit_as(1, idempotent());
    let _ = harness.send(Event::Draining { until: Some(Time::ZERO) });
    assert_eq!(
        harness.finish_as(1, 1, sandbox_failed()),
        concluded([Effect::Record(DecisionKind::Drained)])
    );
}

#[test]
fn a_failed_job_of_the_last_worker_ends_for_want_of_workers() {
    let mut harness = Harness::new(SchedulerConfig {
        concurrent: 1,
        workers: WorkersConfig::fixed(1),
        ..roomy()
    });
    let _ = harness.ready(1);
    let _ = harness.submit_as(1, idempotent());
    let settled = settle(1, Settlement::NoWorker("died".into()));
    assert_eq!(harness.gone(1, false, false), [retry(1, 1), settled]);
}

#[test]
fn reports_of_a_dead_worker_change_nothing() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.submit_as(1, idempotent());
    let _ = harness.ready(1);
    assert_eq!(harness.gone(1, true, false), [retry(1, 1)]);
    assert_eq!(harness.finish(1, 1), (Finish::Ignore, Vec::new()));
    assert_eq!(harness.ready(2), []);
    assert_eq!(after_the_wait(&mut harness), [dispatch(1, 2)]);
    assert_eq!(harness.finish(1, 1), (Finish::Ignore, Vec::new()));
    assert_eq!(harness.finish(2, 1), concluded([]));
}

#[test]
fn a_slot_is_renewed_after_a_job_with_much_memory() {
    let mut harness = Harness::new(SchedulerConfig { retire_above_bytes: 1_000, ..roomy() });
    let _ = harness.ready(1);
    let _ = harness.submit(1);
    let high = |bytes| Report { peak_memory_bytes: bytes, ..Report::default() };
    let _ = harness.finish_as(1, 1, high(1_000));
    assert_eq!(harness.ready(1), []);
    let _ = harness.submit(2);
    let _ = harness.submit(3);
    assert_eq!(harness.finish_as(1, 2, high(1_001)), concluded([]));
    let why = RetireReason::HighWater { bytes: 1_001, limit: 1_000 };
    assert_eq!(harness.ready(1), [Effect::Renew(WorkerId(1), why)]);
    assert_eq!(harness.ready(1), [dispatch(3, 1)]);
}

#[test]
fn a_session_is_suspended_before_its_slot_is_renewed() {
    let mut harness = Harness::new(roomy());
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    let _ = harness.finish_as(1, 1, sandbox_failed());
    let needed = EvictionReason::WorkerNeeded { worker: WorkerId(1) };
    assert_eq!(harness.ready(1), [Effect::Vacate(WorkerId(1), SessionId(1), needed)]);
    assert_eq!(harness.ready(1), [Effect::Renew(WorkerId(1), RetireReason::SandboxFailed)]);
    assert_eq!(harness.ready(1), []);
}

#[test]
fn the_slot_of_a_large_session_is_renewed_once_the_session_is_elsewhere() {
    let mut harness = Harness::new(SchedulerConfig { retire_above_bytes: 1_000, ..roomy() });
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    let report = Report { peak_memory_bytes: 2_000, ..Report::default() };
    let _ = harness.finish_as(1, 1, report);
    assert_eq!(harness.ready(1), []);
    let _ = harness.submit(2);
    let _ = harness.finish_as(1, 2, Report::default());
    let why = RetireReason::HighWater { bytes: 2_000, limit: 1_000 };
    assert_eq!(harness.ready(1), [Effect::Renew(WorkerId(1), why)]);
    assert_eq!(harness.ready(1), []);
}
