//! What a recorder receives.

use std::collections::BTreeMap;

use engine::{LimitHit, LimitKind, SandboxFailure};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use pool::{WorkerActivity, WorkerId};

use super::*;
use crate::status::{
    Latencies, MemoryStatus, Phase, QueueDepth, SessionPlaces, TenantStatus, Totals,
};

/// Returns what a recorder received while `said` reported, by name and labels.
fn heard(said: impl FnOnce(&Metrics)) -> BTreeMap<String, DebugValue> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || said(&Metrics::default()));
    let heard = snapshotter.snapshot().into_vec().into_iter();
    heard
        .map(|(key, _, _, value)| {
            let (name, labels) = key.key().clone().into_parts();
            let labels: String =
                labels.iter().map(|label| format!(" {}={}", label.key(), label.value())).collect();
            (format!("{}{labels}", name.as_str()), value)
        })
        .collect()
}

fn count(heard: &BTreeMap<String, DebugValue>, name: &str) -> u64 {
    match heard.get(name) {
        Some(DebugValue::Counter(count)) => *count,
        other => panic!("{name}: {other:?}"),
    }
}

fn level(heard: &BTreeMap<String, DebugValue>, name: &str) -> f64 {
    match heard.get(name) {
        Some(DebugValue::Gauge(level)) => level.into_inner(),
        other => panic!("{name}: {other:?}"),
    }
}

fn recorded(heard: &BTreeMap<String, DebugValue>, name: &str) -> Vec<f64> {
    match heard.get(name) {
        Some(DebugValue::Histogram(values)) => values.iter().map(|value| value.0).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

fn ran(verdict: Verdict) -> Outcome {
    let mut outcome = Outcome::not_run(verdict);
    outcome.usage.wall = Duration::from_millis(250);
    outcome.usage.cpu = Duration::from_millis(400);
    outcome.usage.peak_memory_bytes = 64 << 20;
    outcome
}

#[test]
fn a_job_is_counted_once_by_how_it_ended() {
    let heard = heard(|metrics| {
        let exited = Verdict::Exited { code: 0, message: None };
        metrics.job_ended(&ran(exited), "succeeded");
        metrics.job_ended(&Outcome::not_run(Verdict::Cancelled), "cancelled");
    });
    for (outcome, expected) in OUTCOMES.into_iter().zip([1, 0, 0, 1, 0]) {
        assert_eq!(count(&heard, &format!("hatchery_jobs_total outcome={outcome}")), expected);
    }
    // The job that never ran says nothing about runs.
    assert_eq!(recorded(&heard, "hatchery_job_duration_seconds phase=run"), [0.25]);
    assert_eq!(recorded(&heard, "hatchery_guest_memory_bytes"), [f64::from(64 << 20)]);
    assert_eq!(count(&heard, "hatchery_sandbox_faults_total"), 0);
    assert_eq!(
        level(&heard, concat!("hatchery_build_info version=", env!("CARGO_PKG_VERSION"))),
        1.0
    );
}

#[test]
fn limits_are_counted_whether_they_ended_the_program_or_not() {
    let hit = |limit| LimitHit::new(limit, 1, 2);
    let heard = heard(|metrics| {
        let mut outcome = ran(Verdict::Limit(hit(LimitKind::Wall)));
        outcome.limits_met = vec![hit(LimitKind::Output)];
        outcome.output_truncated = true;
        metrics.job_ended(&outcome, "limited");
    });
    assert_eq!(count(&heard, "hatchery_limit_hits_total limit=wall"), 1);
    assert_eq!(count(&heard, "hatchery_limit_hits_total limit=output"), 1);
    assert_eq!(count(&heard, "hatchery_output_truncated_total"), 1);
}

#[test]
fn cpu_time_is_counted_in_whole_seconds_and_none_is_lost() {
    let heard = heard(|metrics| {
        for _ in 0..6 {
            metrics.job_ended(&ran(Verdict::Cancelled), "cancelled");
        }
    });
    assert_eq!(count(&heard, "hatchery_guest_cpu_seconds_total"), 2);
}

#[test]
fn a_sandbox_failure_counts_whether_it_is_reported_or_retried() {
    let heard = heard(|metrics| {
        metrics.retried(true);
        metrics.retried(false);
        let failure = SandboxFailure::Trap("unreachable".into());
        metrics.job_ended(&ran(Verdict::SandboxFailed(failure)), "sandbox_failed");
    });
    assert_eq!(count(&heard, "hatchery_sandbox_faults_total"), 2);
    assert_eq!(count(&heard, "hatchery_retries_total"), 2);
    assert_eq!(count(&heard, "hatchery_jobs_total outcome=sandbox_failed"), 1);
}

#[test]
fn steps_refusals_and_evictions_have_their_names() {
    let heard = heard(|metrics| {
        metrics.queue_time.record(Duration::from_millis(1));
        metrics.resume_time.record(Duration::from_millis(2));
        metrics.reset_time.record(Duration::from_millis(4));
        metrics.turn(true);
        metrics.turn(false);
        metrics.turn(false);
        metrics.refused(&Refusal::ShuttingDown);
        let why = EvictionReason::MemoryPressure { used: 2, limit: 1 };
        metrics.evicted(EvictedTo::Disk, &why);
        metrics.retired(&RetireReason::HighWater { bytes: 2, limit: 1 });
    });
    for (phase, time) in [("queue", 0.001), ("resume", 0.002), ("reset", 0.004)] {
        let name = format!("hatchery_job_duration_seconds phase={phase}");
        assert_eq!(recorded(&heard, &name), [time]);
    }
    for (name, expected) in [
        ("hatchery_pool_hits_total", 1),
        ("hatchery_pool_misses_total", 2),
        ("hatchery_refusals_total reason=shutting_down", 1),
        ("hatchery_evictions_total to=disk reason=memory_pressure", 1),
        ("hatchery_retirements_total reason=high_water", 1),
    ] {
        assert_eq!(count(&heard, name), expected, "{name}");
    }
}

/// Gauges are set together, and go back to zero when what they count is gone.
#[test]
fn gauges_follow_the_status() {
    let queued = |high, normal, low| {
        let depths = [high, normal, low].into_iter();
        let mut queued = Priority::ALL.map(|priority| QueueDepth { priority, depth: 0 });
        queued.iter_mut().zip(depths).for_each(|(queued, depth)| queued.depth = depth);
        queued
    };
    let tenant = |name: &str, queued| TenantStatus {
        tenant: name.to_owned(),
        weight: 1,
        queued,
        queued_bytes: 0,
        running: 0,
    };
    let empty = empty();
    let status = SchedulerStatus {
        oldest_wait: Some(Duration::from_millis(1500)),
        tenants: vec![tenant("a", queued(1, 2, 3)), tenant("b", queued(0, 5, 0))],
        pythons: vec!["default".to_owned()],
        hidden: Vec::new(),
        workers: vec![
            worker(1, WorkerActivity::Ready),
            worker(2, WorkerActivity::Resetting),
            worker(3, WorkerActivity::Stuck),
        ],
        places: SessionPlaces { suspended: 7, on_disk: 8, ..SessionPlaces::default() },
        memory: MemoryStatus { limit_bytes: 100, slot_bytes: 40, disk_bytes: 9, ..empty.memory },
        ..empty.clone()
    };
    let full = heard(|_| set_gauges(&status));
    for (name, expected) in [
        ("hatchery_queue_depth priority=high", 1.0),
        ("hatchery_queue_depth priority=normal", 7.0),
        ("hatchery_queue_depth priority=low", 3.0),
        ("hatchery_queue_oldest_age_seconds", 1.5),
        ("hatchery_slots state=ready", 1.0),
        ("hatchery_slots state=resetting", 1.0),
        ("hatchery_slots state=running", 0.0),
        ("hatchery_slots state=stuck", 1.0),
        ("hatchery_warm_instances", 1.0),
        ("hatchery_sessions place=suspended", 7.0),
        ("hatchery_sessions place=disk", 8.0),
        ("hatchery_memory_bytes use=slots", 40.0),
        ("hatchery_memory_limit_bytes", 100.0),
        ("hatchery_session_disk_bytes", 9.0),
    ] {
        assert_eq!(level(&full, name), expected, "{name}");
    }
    let after = heard(|_| {
        set_gauges(&status);
        set_gauges(&empty);
    });
    for (name, value) in after {
        let is_zero = matches!(value, DebugValue::Gauge(level) if level.into_inner() == 0.0);
        let is_gauge = matches!(value, DebugValue::Gauge(_));
        assert!(!is_gauge || is_zero || name.starts_with("hatchery_build_info"), "{name}");
    }
}

fn empty() -> SchedulerStatus {
    SchedulerStatus {
        version: "",
        phase: Phase::Open,
        uptime: Duration::ZERO,
        queue_depth: 0,
        queued_bytes: 0,
        oldest_wait: None,
        running: 0,
        tenants: Vec::new(),
        sessions: Vec::new(),
        trees: Vec::new(),
        places: SessionPlaces::default(),
        pythons: Vec::new(),
        hidden: Vec::new(),
        isolation: pool::IsolationStatus::default(),
        workers: Vec::new(),
        memory: MemoryStatus::default(),
        totals: Totals::default(),
        latency: Latencies::default(),
        last_ended: None,
        jobs_per_second: 0.0,
        last_errors: Vec::new(),
        last_program_errors: Vec::new(),
        last_decisions: Vec::new(),
    }
}

fn worker(number: u64, activity: WorkerActivity) -> pool::WorkerStatus {
    let mut status = pool::WorkerStatus::default();
    (status.worker, status.activity) = (WorkerId(number), activity);
    status
}
