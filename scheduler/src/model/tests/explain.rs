//! Why jobs wait, as the model explains it.

use super::*;
use crate::explain::{JobState, WaitReason};

fn state(harness: &Harness, job: u64) -> JobState {
    harness.model.explain(JobId(job), harness.now).unwrap().state
}

pub(super) fn reason(harness: &Harness, job: u64) -> WaitReason {
    match state(harness, job) {
        JobState::Waiting { reason, .. } => reason,
        JobState::Running { .. } => panic!("it runs"),
    }
}

#[test]
fn a_job_knows_what_it_waits_for() {
    let mut config = roomy();
    config.tenant.concurrent = 1;
    config.memory_bytes = 1_000;
    let mut harness = Harness::new(config);
    let _ = harness.submit(1);
    assert_eq!(reason(&harness, 1), WaitReason::WorkersStarting { starting: 2 });
    let _ = harness.ready(1);
    harness.now = seconds(3);
    let ran = JobState::Running { worker: WorkerId(1), ran: seconds(3) };
    assert_eq!(state(&harness, 1), ran);
    let _ = harness.submit(2);
    assert_eq!(reason(&harness, 2), WaitReason::TenantAtLimit { running: 1, limit: 1 });
    harness.open(1);
    let turn = || Queued { session: Some(SessionId(1)), tenant: Arc::from("turns"), ..queued() };
    let _ = harness.ready(2);
    let _ = harness.submit_as(3, turn());
    let _ = harness.submit_as(4, turn());
    let busy = WaitReason::SessionBusy { session: SessionId(1), turns_ahead: 1 };
    assert_eq!(reason(&harness, 4), busy);
    let _ = harness.submit_of(5, "other");
    assert_eq!(reason(&harness, 5), WaitReason::WorkersBusy { running: 2, concurrent: 2 });
    let _ = harness.finish(2, 3);
    assert_eq!(reason(&harness, 4), WaitReason::WorkersStarting { starting: 1 });
    assert_eq!(harness.model.explain(JobId(3), harness.now), None);
}

#[test]
fn a_job_that_waits_for_memory_says_so() {
    let mut harness = Harness::new(SchedulerConfig { memory_bytes: 1_000, ..roomy() });
    let hungry = || Queued { output_bytes: 800, ..queued() };
    let _ = harness.ready(1);
    let _ = harness.ready(2);
    let _ = harness.submit_as(1, hungry());
    let _ = harness.submit_as(2, hungry());
    assert_eq!(reason(&harness, 2), WaitReason::NoMemory { used: 1_620, limit: 1_000 });
}

#[test]
fn a_job_knows_what_is_ahead_and_how_long_that_takes() {
    let mut harness = Harness::new(SchedulerConfig {
        concurrent: 1,
        workers: WorkersConfig::fixed(1),
        ..roomy()
    });
    let _ = harness.ready(1);
    let _ = harness.submit(1);
    let _ = harness.submit(2);
    let waiting = |harness: &Harness, job| match state(harness, job) {
        JobState::Waiting { ahead_in_tenant, ahead_of_others, estimate, .. } => {
            (ahead_in_tenant, ahead_of_others, estimate)
        }
        JobState::Running { .. } => panic!("it runs"),
    };
    assert_eq!(waiting(&harness, 2), (0, 0, None));
    let report = Report { wall: seconds(2), cpu: seconds(2), ..Report::default() };
    let _ = harness.finish_as(1, 1, report);
    let _ = harness.ready(1);
    for job in 3..=5 {
        let _ = harness.submit(job);
    }
    for job in 6..=9 {
        let _ = harness.submit_of(job, "other");
    }
    let _ = harness.submit_as(10, Queued { priority: Priority::High, ..queued() });
    // Job 2 runs, 10 goes before 3 and 4, and the other tenant's jobs go in between.
    let (in_tenant, of_others, estimate) = waiting(&harness, 4);
    assert_eq!(in_tenant, 2);
    assert!((2..=4).contains(&of_others), "{of_others}");
    let ahead = (in_tenant + of_others) as u32;
    assert_eq!(estimate, Some(seconds(2) * (ahead + 1)));
}
