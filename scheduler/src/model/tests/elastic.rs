//! Workers come and go with the load.

use super::*;
use crate::config::TenantConfig;

fn elastic(min: usize, max: usize, spares: usize) -> SchedulerConfig {
    let shrink_after = seconds(60);
    let workers = WorkersConfig { min, max, spares, shrink_after, retry_after: seconds(30) };
    SchedulerConfig { concurrent: max, workers, ..roomy() }
}

fn added(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| **effect == Effect::AddWorker).count()
}

fn dismissed(worker: u64) -> Effect {
    Effect::DismissWorker(WorkerId(worker))
}

#[test]
fn the_pool_starts_with_its_least_number_of_workers() {
    for (min, max, spares, first) in [(2, 2, 0, 2), (0, 4, 0, 0), (1, 4, 2, 2), (3, 4, 1, 3)] {
        let mut model = Model::new(elastic(min, max, spares), 0);
        assert_eq!(added(&model.start()), first);
        assert_eq!(model.worker_count(), first);
    }
}

#[test]
fn workers_grow_with_what_could_run_and_no_further() {
    let mut harness = Harness::new(elastic(0, 3, 0));
    assert_eq!(added(&harness.submit(1).1), 1);
    assert_eq!(added(&harness.submit(2).1), 1);
    assert_eq!(harness.ready(1), [dispatch(1, 1)]);
    assert_eq!(added(&harness.submit(3).1), 1);
    assert_eq!(added(&harness.submit(4).1), 0);
    assert_eq!(harness.model.worker_count(), 3);
}

#[test]
fn jobs_that_could_not_run_anyway_bring_no_workers() {
    let mut config = elastic(1, 4, 0);
    config.tenant.concurrent = 1;
    let mut harness = Harness::new(config);
    let _ = harness.submit(1);
    assert_eq!(harness.submit(2), admitted([]));
    harness.open(1);
    let _ = harness.submit_as(3, Queued { session: Some(SessionId(1)), ..queued() });
    assert_eq!(harness.model.worker_count(), 1);
}

/// A queue without room must not keep the pool from growing.
#[test]
fn a_full_queue_takes_a_job_that_brings_its_own_worker() {
    let none = SchedulerConfig { queued_count: 0, queued_bytes: 0, ..elastic(0, 2, 0) };
    let mut harness = Harness::new(none.clone());
    let large = || Queued { bytes: 1, ..queued() };
    assert_eq!(harness.submit_as(1, large()), admitted([Effect::AddWorker]));
    assert_eq!(harness.submit_as(2, large()), admitted([Effect::AddWorker]));
    assert_eq!(refusal_of(&harness.submit(3)).name(), "queue_full");
    assert_eq!(harness.ready(1), [dispatch(1, 1)]);
    assert_eq!(refusal_of(&harness.submit(4)).name(), "queue_full");

    let tenant = TenantConfig { concurrent: 1, ..TenantConfig::default() };
    let mut harness = Harness::new(SchedulerConfig { tenant, ..none });
    assert_eq!(harness.submit(1), admitted([Effect::AddWorker]));
    assert_eq!(refusal_of(&harness.submit(2)).name(), "queue_full");
    assert_eq!(harness.submit_of(3, "other"), admitted([Effect::AddWorker]));
}

#[test]
fn spares_are_kept_beyond_those_that_run() {
    let mut harness = Harness::new(elastic(0, 3, 1));
    let _ = harness.ready(1);
    assert_eq!(harness.submit(1), admitted([dispatch(1, 1), Effect::AddWorker]));
}

#[test]
fn workers_that_were_idle_for_long_end_one_by_one() {
    let mut harness = Harness::new(elastic(1, 3, 0));
    for job in 1..=3 {
        let _ = harness.submit(job);
    }
    for worker in 1..=3 {
        let _ = harness.ready(worker);
    }
    for worker in 1..=3 {
        harness.now = seconds(worker);
        let _ = harness.finish(worker, worker);
        let _ = harness.ready(worker);
    }
    assert_eq!(harness.model.next_wake(), Some(seconds(61)));
    assert_eq!(harness.pass(seconds(57)), []);
    assert_eq!(harness.pass(seconds(1)), [dismissed(1)]);
    assert_eq!(harness.model.next_wake(), Some(seconds(62)));
    assert_eq!(harness.pass(seconds(1)), [dismissed(2)]);
    assert_eq!(harness.model.next_wake(), None);
    assert_eq!(harness.pass(seconds(1_000)), []);
    // Their end is expected, so they aren't replaced.
    assert_eq!(harness.gone(1, false, false), []);
    assert_eq!(harness.gone(2, true, false), []);
    assert_eq!(harness.model.worker_count(), 1);
}

#[test]
fn a_worker_that_holds_a_session_suspends_it_before_it_ends() {
    let mut config = elastic(0, 1, 0);
    config.sessions.suspend_after = seconds(1_000);
    let mut harness = Harness::new(config);
    harness.open(1);
    let _ = harness.submit_to(1, 1);
    let _ = harness.ready(1);
    let _ = harness.finish(1, 1);
    let _ = harness.ready(1);
    let idle = EvictionReason::Idle { rested: seconds(60) };
    assert_eq!(harness.pass(seconds(60)), [Effect::Vacate(WorkerId(1), SessionId(1), idle)]);
    assert_eq!(harness.ready(1), [dismissed(1)]);
    assert_eq!(harness.submit_to(2, 1), admitted([Effect::AddWorker]));
}

#[test]
fn workers_that_cannot_be_kept_alive_are_not_asked_for_again() {
    let mut harness = Harness::new(elastic(1, 3, 0));
    let _ = harness.ready(1);
    for job in 1..=3 {
        let _ = harness.submit(job);
    }
    assert_eq!(harness.model.worker_count(), 3);
    assert_eq!(harness.gone(2, false, false), []);
    assert_eq!(harness.submit(4), admitted([]));
    assert_eq!(harness.model.worker_count(), 2);
    // A worker that is replaced still counts.
    assert_eq!(harness.gone(3, true, false), []);
    assert_eq!(harness.model.worker_count(), 2);
}

#[test]
fn a_worker_is_not_surplus_while_others_are_still_starting() {
    let mut harness = Harness::new(elastic(1, 3, 0));
    let _ = harness.ready(1);
    for job in 1..=3 {
        let _ = harness.submit(job);
    }
    for job in 1..=3 {
        let _ = harness.finish(1, job);
        let _ = harness.ready(1);
    }
    assert_eq!(harness.model.worker_count(), 3);
    assert_eq!(harness.pass(seconds(1_000)), []);
    // Now there is one too many.
    assert_eq!(harness.ready(2), [dismissed(1)]);
}

#[test]
fn dismissed_workers_are_not_replaced_however_many_they_are() {
    let mut harness = Harness::new(elastic(0, 100, 0));
    for job in 1..=100 {
        let _ = harness.submit(job);
    }
    for worker in 1..=100 {
        let _ = harness.ready(worker);
    }
    for worker in 1..=100 {
        let _ = harness.finish(worker, worker);
        let _ = harness.ready(worker);
    }
    for _ in 1..=100 {
        let _ = harness.pass(seconds(100));
    }
    assert_eq!(harness.model.worker_count(), 0);
    for worker in 1..=100 {
        assert_eq!(harness.gone(worker, false, false), []);
    }
    for job in 101..=200 {
        assert_eq!(harness.submit(job), admitted([Effect::AddWorker]));
    }
}

#[test]
fn draining_brings_only_workers_that_jobs_need() {
    let mut harness = Harness::new(elastic(2, 4, 2));
    let _ = harness.submit(1);
    let _ = harness.send(Event::Draining { until: None });
    let _ = harness.gone(1, false, false);
    assert_eq!(harness.model.worker_count(), 2);
    let _ = harness.gone(2, false, false);
    assert_eq!(harness.model.worker_count(), 1);
}
