//! The pool starts, is ready, and is degraded by workers that don't start or don't stay.

use super::*;
use crate::decision::DegradedReason;

fn workers(min: usize, max: usize) -> SchedulerConfig {
    let workers = WorkersConfig { min, max, spares: 0, ..WorkersConfig::default() };
    SchedulerConfig { concurrent: max, workers, ..roomy() }
}

impl Harness {
    /// What was said since the last call: no reason for "ready".
    fn said(&mut self) -> Vec<Option<DegradedReason>> {
        let reason = |news| match news {
            DecisionKind::PoolDegraded { reason } => Some(reason),
            news => {
                assert!(matches!(news, DecisionKind::PoolReady { .. }), "{news:?}");
                None
            }
        };
        self.health.drain(..).map(reason).collect()
    }
}

fn died() -> String {
    "died".to_owned()
}

#[test]
fn a_pool_is_ready_with_its_first_worker_and_says_so_once() {
    let mut harness = Harness::new(workers(2, 2));
    assert_eq!(harness.said(), []);
    let _ = harness.ready(1);
    assert_eq!(harness.said(), [None]);
    let _ = harness.ready(2);
    let _ = harness.gone(2, true, false);
    let _ = harness.ready(3);
    assert_eq!(harness.said(), [], "one death is no trouble");
}

#[test]
fn a_pool_that_wants_no_workers_yet_is_ready_at_once() {
    let mut harness = Harness::new(workers(0, 2));
    assert_eq!(harness.said(), [None]);
    let _ = harness.submit(1);
    assert_eq!(harness.said(), []);
}

#[test]
fn workers_that_do_not_start_degrade_the_pool_until_one_does() {
    let mut harness = Harness::new(workers(1, 1));
    let _ = harness.gone(1, true, false);
    let trouble = DegradedReason::WorkersDoNotStart { given_up: 0, error: died() };
    assert_eq!(harness.said(), [Some(trouble)]);
    let _ = harness.gone(2, true, false);
    assert_eq!(harness.said(), []);
    let _ = harness.gone(3, false, false);
    assert_eq!(harness.said(), [Some(DegradedReason::NoWorkerLeft { error: died() })]);
    // Another one is tried, and starts.
    assert_eq!(harness.pass(seconds(30)), [Effect::AddWorker]);
    assert_eq!(harness.said(), []);
    let _ = harness.ready(4);
    assert_eq!(harness.said(), [None]);
}

#[test]
fn a_pool_that_lacks_some_of_its_workers_is_degraded() {
    let mut harness = Harness::new(workers(2, 2));
    let _ = harness.ready(1);
    assert_eq!(harness.said(), [None]);
    let _ = harness.gone(2, false, false);
    let trouble = DegradedReason::WorkersDoNotStart { given_up: 1, error: died() };
    assert_eq!(harness.said(), [Some(trouble)]);
}

#[test]
fn workers_that_keep_dying_degrade_the_pool_for_a_minute() {
    let mut harness = Harness::new(workers(1, 1));
    let _ = harness.ready(1);
    assert_eq!(harness.said(), [None]);
    for worker in 1..=5 {
        assert_eq!(harness.said(), []);
        harness.now += seconds(1);
        let _ = harness.gone(worker, true, false);
        let _ = harness.ready(worker + 1);
    }
    let [Some(DegradedReason::WorkersDie { count: 5, .. })] = harness.said()[..] else { panic!() };
    assert_eq!(harness.model.next_wake(), Some(seconds(61)), "a minute after the first death");
    let _ = harness.pass(seconds(56));
    assert_eq!(harness.said(), [None]);
    assert_eq!(harness.model.next_wake(), None);
}

#[test]
fn neither_the_end_of_a_pool_nor_of_a_retired_worker_is_trouble() {
    let mut harness = Harness::new(workers(1, 1));
    let _ = harness.ready(1);
    let _ = harness.retire(1);
    let _ = harness.gone(1, false, false);
    let _ = harness.ready(2);
    let _ = harness.send(Event::Draining { until: None });
    for worker in 2..20 {
        let _ = harness.gone(worker, true, false);
    }
    assert_eq!(harness.said(), [None]);
}
