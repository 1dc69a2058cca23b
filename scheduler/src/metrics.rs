//! What the scheduler reports to the `metrics` facade; `docs/metrics.md` lists every name.
//!
//! Label values are bounded: names of tenants, workers, sessions and jobs are never labels. Handles
//! of what each job changes are looked up once. So a recorder sees only schedulers started after it was
//! installed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::{Outcome, Verdict};
use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use pool::WorkerActivity;
use strum::VariantNames;

use crate::decision::{EvictedTo, EvictionReason, RetireReason};
use crate::error::Refusal;
use crate::job::Priority;
use crate::status::SchedulerStatus;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How admitted jobs end, by the names of `Totals::count`.
const OUTCOMES: [&str; 5] = ["succeeded", "failed", "limited", "cancelled", "sandbox_failed"];

/// The handles of one scheduler.
#[derive(Debug)]
pub(crate) struct Metrics {
    jobs: [Counter; 5],
    pub(crate) queue_time: Histogram,
    pub(crate) resume_time: Histogram,
    run_time: Histogram,
    pub(crate) reset_time: Histogram,
    guest_memory: Histogram,
    guest_cpu: Counter,
    /// CPU time of all guests in nanoseconds, since counters are whole numbers.
    cpu_nanos: AtomicU64,
    output_truncated: Counter,
    sandbox_faults: Counter,
    retries: Counter,
    hits: Counter,
    misses: Counter,
}

/// The handles of the installed recorder.
impl Default for Metrics {
    fn default() -> Self {
        let phase = |phase| histogram!("hatchery_job_duration_seconds", "phase" => phase);
        gauge!("hatchery_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Self {
            jobs: OUTCOMES.map(|outcome| counter!("hatchery_jobs_total", "outcome" => outcome)),
            queue_time: phase("queue"),
            resume_time: phase("resume"),
            run_time: phase("run"),
            reset_time: phase("reset"),
            guest_memory: histogram!("hatchery_guest_memory_bytes"),
            guest_cpu: counter!("hatchery_guest_cpu_seconds_total"),
            cpu_nanos: AtomicU64::new(0),
            output_truncated: counter!("hatchery_output_truncated_total"),
            sandbox_faults: counter!("hatchery_sandbox_faults_total"),
            retries: counter!("hatchery_retries_total"),
            hits: counter!("hatchery_pool_hits_total"),
            misses: counter!("hatchery_pool_misses_total"),
        }
    }
}

impl Metrics {
    /// Counts a turn that found, or didn't find, the session's state on its worker.
    pub(crate) fn turn(&self, found_its_state: bool) {
        if found_its_state { &self.hits } else { &self.misses }.increment(1);
    }

    /// Records a job that has ended; `how` is the name that `Totals::count` returned.
    pub(crate) fn job_ended(&self, outcome: &Outcome, how: &'static str) {
        if let Some(index) = OUTCOMES.iter().position(|name| *name == how) {
            self.jobs[index].increment(1);
        }
        let hit = match &outcome.verdict {
            Verdict::Limit(hit) => Some(hit),
            _ => None,
        };
        for hit in hit.into_iter().chain(&outcome.limits_met) {
            counter!("hatchery_limit_hits_total", "limit" => hit.limit.name()).increment(1);
        }
        for request in &outcome.requests {
            let result = request.label().to_owned();
            counter!("hatchery_http_requests_total", "result" => result).increment(1);
            counter!("hatchery_http_bytes_total", "direction" => "up").increment(request.bytes_up);
            counter!("hatchery_http_bytes_total", "direction" => "down")
                .increment(request.bytes_down);
        }
        if matches!(outcome.verdict, Verdict::SandboxFailed(_)) {
            self.sandbox_faults.increment(1);
        }
        if outcome.output_truncated {
            self.output_truncated.increment(1);
        }
        // A job that was cancelled before it ran says nothing about runs.
        if outcome.usage.wall.is_zero() {
            return;
        }
        self.run_time.record(outcome.usage.wall);
        self.guest_memory.record(outcome.usage.peak_memory_bytes as f64);
        self.used_cpu(outcome.usage.cpu);
    }

    /// Counts a retry. The failed try's outcome isn't the job's.
    pub(crate) fn retried(&self, is_fault_of_sandbox: bool) {
        self.retries.increment(1);
        self.sandbox_faults.increment(u64::from(is_fault_of_sandbox));
    }

    /// Counts a refusal of a job or a session.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        counter!("hatchery_refusals_total", "reason" => refusal.name()).increment(1);
    }

    /// Counts an eviction of a session.
    pub(crate) fn evicted(&self, to: EvictedTo, why: &EvictionReason) {
        let (to, reason): (&str, &str) = (to.into(), why.into());
        counter!("hatchery_evictions_total", "to" => to, "reason" => reason).increment(1);
    }

    /// Counts a worker that is retired.
    pub(crate) fn retired(&self, why: &RetireReason) {
        counter!("hatchery_retirements_total", "reason" => <&str>::from(why)).increment(1);
    }

    fn used_cpu(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let before = self.cpu_nanos.fetch_add(nanos, Ordering::Relaxed);
        let after = before.saturating_add(nanos);
        let whole = after / NANOS_PER_SECOND - before / NANOS_PER_SECOND;
        if whole > 0 {
            self.guest_cpu.increment(whole);
        }
    }
}

/// Sets every gauge. Call this when a status is requested, not for every decision.
pub(crate) fn set_gauges(status: &SchedulerStatus) {
    for priority in Priority::ALL {
        let queued = status.tenants.iter().flat_map(|tenant| &tenant.queued);
        let depths = queued.filter(|queued| queued.priority == priority);
        let depth = depths.map(|queued| queued.depth).sum::<usize>();
        gauge!("hatchery_queue_depth", "priority" => priority.name()).set(depth as f64);
    }
    let oldest_wait = status.oldest_wait.unwrap_or_default();
    gauge!("hatchery_queue_oldest_age_seconds").set(oldest_wait.as_secs_f64());
    for state in WorkerActivity::VARIANTS {
        let workers = status.workers.iter();
        let count = workers.filter(|worker| worker.activity.name() == *state).count() as f64;
        gauge!("hatchery_slots", "state" => *state).set(count);
        if *state == "ready" {
            gauge!("hatchery_warm_instances").set(count);
        }
    }
    let places = &status.places;
    for (place, count) in [
        ("fresh", places.fresh),
        ("worker", places.on_workers),
        ("suspended", places.suspended),
        ("compressed", places.compressed),
        ("disk", places.on_disk),
        ("lost", places.lost),
    ] {
        gauge!("hatchery_sessions", "place" => place).set(count as f64);
    }
    let memory = &status.memory;
    for (use_, bytes) in [
        ("shared", memory.shared_bytes),
        ("slots", memory.slot_bytes),
        ("sessions", memory.session_bytes),
        ("queued", memory.queued_bytes),
        ("in_flight", memory.in_flight_bytes),
    ] {
        gauge!("hatchery_memory_bytes", "use" => use_).set(bytes as f64);
    }
    gauge!("hatchery_memory_limit_bytes").set(memory.limit_bytes as f64);
    gauge!("hatchery_session_disk_bytes").set(memory.disk_bytes as f64);
}

/// Describes each metric and its unit to the recorder. Call it once per recorder.
pub fn describe() {
    describe_gauge!("hatchery_build_info", "1, with the version of Hatchery.");
    describe_counter!("hatchery_jobs_total", "Jobs that ended, by outcome.");
    describe_histogram!(
        "hatchery_job_duration_seconds",
        Unit::Seconds,
        "How long jobs took, by step."
    );
    describe_counter!("hatchery_refusals_total", "Jobs and sessions that were refused.");
    describe_counter!("hatchery_retries_total", "Retries of jobs after the sandbox failed.");
    describe_counter!("hatchery_limit_hits_total", "Limits that jobs reached.");
    describe_counter!("hatchery_http_requests_total", "Requests of programs, by result.");
    describe_counter!(
        "hatchery_http_bytes_total",
        Unit::Bytes,
        "Bytes of requests and responses of programs, by direction."
    );
    describe_counter!(
        "hatchery_guest_cpu_seconds_total",
        Unit::Seconds,
        "CPU time of programs, in whole seconds."
    );
    describe_histogram!("hatchery_guest_memory_bytes", Unit::Bytes, "Peak memory of each run.");
    describe_counter!("hatchery_output_truncated_total", "Jobs whose output was truncated.");
    describe_counter!("hatchery_sandbox_faults_total", "Runs in which the sandbox failed.");
    describe_counter!("hatchery_evictions_total", "Sessions that were evicted.");
    describe_counter!("hatchery_retirements_total", "Workers that were retired.");
    describe_counter!("hatchery_pool_hits_total", "Turns that found their state on their worker.");
    describe_counter!(
        "hatchery_pool_misses_total",
        "Turns whose state was brought to their worker."
    );
    describe_gauge!("hatchery_queue_depth", "Queued jobs.");
    describe_gauge!(
        "hatchery_queue_oldest_age_seconds",
        Unit::Seconds,
        "How long the oldest queued job has waited."
    );
    describe_gauge!("hatchery_slots", "Workers, by what they do.");
    describe_gauge!("hatchery_warm_instances", "Idle interpreters that are ready for a job.");
    describe_gauge!("hatchery_sessions", "Open sessions, by where their state is.");
    describe_gauge!("hatchery_memory_bytes", Unit::Bytes, "Memory, by what it is used for.");
    describe_gauge!("hatchery_memory_limit_bytes", Unit::Bytes, "The limit of the memory in use.");
    describe_gauge!(
        "hatchery_session_disk_bytes",
        Unit::Bytes,
        "Disk space of offloaded sessions."
    );
}

#[cfg(test)]
mod tests;
