//! What is refused, and why.

use super::explain::reason;
use super::*;
use crate::config::TenantConfig;
use crate::explain::WaitReason;

fn due_in(due: Duration) -> Queued {
    Queued { deadline: Some(due), ..queued() }
}

/// One worker, on which one job that took `took` was measured.
fn measured(took: Duration) -> Harness {
    let mut harness = Harness::new(SchedulerConfig {
        concurrent: 1,
        workers: WorkersConfig::fixed(1),
        queued_count: 4,
        ..roomy()
    });
    let _ = harness.ready(1);
    harness.run(1, queued(), took);
    harness
}

#[test]
fn a_tenant_has_bounds_of_its_own() {
    let mut config = roomy();
    config.tenant = TenantConfig { queued_count: 1, queued_bytes: 15, ..TenantConfig::default() };
    let mut harness = Harness::new(config);
    assert_eq!(harness.submit_of(1, "ants"), admitted([]));
    let full = Refusal::QueueFull {
        tenant: Some("ants".to_owned()),
        queued: 1,
        limit: 1,
        retry_after: None,
    };
    assert_eq!(harness.submit_of(2, "ants"), refused(full));
    assert_eq!(harness.submit_of(3, "bees"), admitted([]));
    let large = Queued { bytes: 16, tenant: Arc::from("cats"), ..queued() };
    assert_eq!(refusal_of(&harness.submit_as(4, large.clone())).name(), "tenant_queue_bytes");
    // A job that can run at once is admitted whatever its size.
    let _ = harness.ready(1);
    let _ = harness.ready(2);
    let _ = harness.finish(1, 1);
    let _ = harness.ready(1);
    assert_eq!(harness.submit_as(5, large), admitted([dispatch(5, 1)]));
}

#[test]
fn a_full_queue_says_when_there_may_be_room() {
    let mut harness = measured(seconds(6));
    for job in 2..=6 {
        let _ = harness.submit(job);
    }
    let full =
        Refusal::QueueFull { tenant: None, queued: 4, limit: 4, retry_after: Some(seconds(6)) };
    assert_eq!(harness.submit(7), refused(full));
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_with_the_estimate() {
    let mut harness = measured(seconds(2));
    let _ = harness.submit(2);
    let _ = harness.submit(3);
    // The running job, the queued one, and the new job itself, at two seconds each.
    let refusal = Refusal::DeadlineTooSoon {
        due_in: seconds(5),
        estimate: seconds(6),
        retry_after: Some(seconds(1)),
    };
    assert_eq!(harness.submit_as(4, due_in(seconds(5))), refused(refusal));
    assert_eq!(harness.submit_as(5, due_in(seconds(6))), admitted([]));
}

#[test]
fn nothing_is_estimated_before_anything_was_measured() {
    let mut harness = Harness::small(1, 10);
    assert_eq!(harness.submit_as(1, due_in(Duration::from_nanos(1))), admitted([]));
    assert_eq!(refusal_of(&harness.submit_as(2, due_in(Duration::ZERO))).name(), "deadline");
}

#[test]
fn one_slow_job_does_not_shut_short_ones_out_for_ever() {
    let mut harness = measured(seconds(10));
    let refused =
        (2..100).take_while(|job| harness.submit_as(*job, due_in(seconds(1))).0.is_err()).count();
    assert!((1..40).contains(&refused), "{refused}");
}

#[test]
fn a_missed_estimate_is_lowered_for_unmeasured_tenants_alone() {
    let mut harness = measured(seconds(10));
    let hurried = Queued { tenant: Arc::from("new"), ..due_in(Duration::from_nanos(1)) };
    for job in 2..200 {
        let _ = harness.submit_as(job, hurried.clone());
    }
    for job in 200..205 {
        let _ = harness.submit(job);
    }
    let full =
        Refusal::QueueFull { tenant: None, queued: 4, limit: 4, retry_after: Some(seconds(10)) };
    assert_eq!(harness.submit(205), refused(full));
}

#[test]
fn memory_that_is_not_there_is_not_promised() {
    let mut harness = Harness::new(SchedulerConfig { memory_bytes: 1_000, ..roomy() });
    let large = |bytes| Queued { bytes, ..queued() };
    assert_eq!(harness.submit_as(1, large(700)), admitted([]));
    let refusal = Refusal::NoMemory { used: 700, needed: 400, limit: 1_000, retry_after: None };
    assert_eq!(harness.submit_as(2, large(400)), refused(refusal));
    assert_eq!(harness.submit_as(3, large(300)), admitted([]));
}

#[test]
fn a_job_waits_for_memory_unless_nothing_else_runs() {
    let mut harness = Harness::new(SchedulerConfig { memory_bytes: 1_000, ..roomy() });
    let hungry = || Queued { output_bytes: 800, ..queued() };
    let _ = harness.submit_as(1, hungry());
    let _ = harness.submit_as(2, hungry());
    assert_eq!(harness.ready(1), [dispatch(1, 1)]);
    assert_eq!(harness.model.memory().in_flight_bytes, 810);
    assert_eq!(harness.ready(2), []);
    let _ = harness.submit_as(3, Queued { output_bytes: 0, ..queued() });
    // Nothing overtakes it, and then it runs even if it needs too much.
    assert_eq!(harness.finish(1, 1), concluded([dispatch(2, 2)]));
}

/// A job whose limits allow this much growth of memory and files, in MiB.
fn growing(memory: u64, files: u64) -> Queued {
    let growth = Growth { memory_bytes: memory << 20, file_bytes: files << 20 };
    Queued { growth, ..queued() }
}

fn mebibytes(memory: u64) -> Harness {
    Harness::new(SchedulerConfig { memory_bytes: memory << 20, ..roomy() })
}

#[test]
fn all_that_a_jobs_limits_allow_is_kept_free_while_it_runs() {
    let mut harness = mebibytes(2_400);
    let (_, _) = (harness.ready(1), harness.ready(2));
    assert_eq!(harness.submit_as(1, growing(1_000, 200)), admitted([dispatch(1, 2)]));
    assert_eq!(harness.submit_as(2, growing(1_000, 199)), admitted([dispatch(2, 1)]));
    let mut harness = mebibytes(2_400);
    let (_, _) = (harness.ready(1), harness.ready(2));
    assert_eq!(harness.submit_as(1, growing(1_000, 200)), admitted([dispatch(1, 2)]));
    assert_eq!(harness.submit_as(2, growing(1_001, 200)), admitted([]));
    assert!(matches!(reason(&harness, 2), WaitReason::NoMemory { .. }));
    let report = Report { own_memory_bytes: 1_100 << 20, ..Report::default() };
    assert_eq!(harness.finish_as(2, 1, report), concluded([dispatch(2, 1)]));
}

#[test]
fn what_a_job_took_is_in_use_until_its_interpreter_was_reset() {
    let mut harness = mebibytes(2_400);
    let (_, _) = (harness.ready(1), harness.ready(2));
    let _ = harness.submit_as(1, growing(1_000, 0));
    let _ = harness.submit_as(2, growing(1_000, 0));
    let _ = harness.submit_as(3, growing(1_000, 0));
    let report = Report { own_memory_bytes: 1_000 << 20, ..Report::default() };
    assert_eq!(harness.finish_as(2, 1, report), concluded([]));
    assert_eq!(harness.finish_as(1, 2, report), concluded([]));
    assert_eq!(harness.ready(2), [dispatch(3, 2)]);
}

#[test]
fn no_job_is_cut_for_memory_that_another_is_about_to_free() {
    let mut harness = mebibytes(1_500);
    let (_, _) = (harness.ready(1), harness.ready(2));
    let _ = harness.submit_as(1, growing(1_000, 0));
    let _ = harness.submit_as(2, growing(1_000, 0));
    let report = Report { own_memory_bytes: 1_000 << 20, ..Report::default() };
    assert_eq!(harness.finish_as(2, 1, report), concluded([]));
    assert_eq!(harness.ready(2), [dispatch(2, 2)]);
}

#[test]
fn a_job_that_runs_alone_is_cut_to_what_is_there() {
    let mut harness = mebibytes(600);
    let _ = harness.ready(1);
    let (decision, effects) = harness.submit_as(1, growing(1_000, 200));
    let (Ok(()), [Effect::Dispatch { cut: Some(cut), .. }]) = (&decision, &effects[..]) else {
        panic!("{decision:?}, {effects:?}");
    };
    // Ten bytes hold the job itself.
    assert_eq!(cut.bytes(), (600 << 20) - 10);
    assert_eq!((cut.memory_bytes >> 20, cut.file_bytes >> 20), (524, 74));
    assert_eq!(harness.model.memory().used_bytes(), 600 << 20);
}

#[test]
fn a_job_does_not_get_what_the_embedding_program_keeps() {
    let mut harness = mebibytes(600);
    let _ = harness.ready(1);
    // The largest number counts.
    for bytes in [100 << 20, 200 << 20, 50 << 20] {
        assert_eq!(harness.send(Event::Reserved(bytes)), []);
    }
    let (decision, effects) = harness.submit_as(1, growing(1_000, 200));
    let (Ok(()), [Effect::Dispatch { cut: Some(cut), .. }]) = (&decision, &effects[..]) else {
        panic!("{decision:?}, {effects:?}");
    };
    assert_eq!(cut.bytes(), (400 << 20) - 10);
    assert_eq!(harness.model.memory().shared_bytes, 200 << 20);
}

#[test]
fn a_job_is_refused_if_memory_could_never_hold_it() {
    let mut harness = mebibytes(100);
    let _ = harness.ready(1);
    let refusal =
        Refusal::NoMemory { used: 0, needed: 128 << 20, limit: 100 << 20, retry_after: None };
    assert_eq!(harness.submit_as(1, growing(1_000, 0)), refused(refusal));
    assert_eq!(harness.submit_as(2, growing(50, 10)), admitted([dispatch(2, 1)]));
}

#[test]
fn output_without_a_bound_is_still_a_number_in_the_ledger() {
    let mut harness = Harness::new(roomy());
    let (_, _) = (harness.ready(1), harness.ready(2));
    let endless = Queued { output_bytes: usize::MAX, ..queued() };
    for job in 1..=2 {
        let _ = harness.submit_as(job, endless.clone());
    }
    assert_eq!(harness.model.running, 2);
    assert!(harness.model.memory().in_flight_bytes > 1 << 48);
    let (_, _) = (harness.finish(1, 2), harness.finish(2, 1));
    assert_eq!(harness.model.memory().in_flight_bytes, 0);
}
