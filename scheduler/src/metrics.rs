//! What the scheduler reports to the `metrics` facade; `docs/metrics.md` lists every name.
//!
//! Label values are bounded: names of tenants, workers, sessions and jobs are never labels. Handles
//! are looked up once, so a recorder sees only schedulers started after it was installed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::{Outcome, Verdict};
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
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
    depths: [Gauge; 3],
    oldest_age: Gauge,
    /// By the names of what workers do.
    slots: Vec<(&'static str, Gauge)>,
    warm: Gauge,
    sessions: [Gauge; 6],
    memory: [Gauge; 5],
    memory_limit: Gauge,
    disk: Gauge,
}

/// The handles of the installed recorder.
impl Default for Metrics {
    fn default() -> Self {
        let places = ["fresh", "worker", "suspended", "compressed", "disk", "lost"];
        let uses = ["shared", "slots", "sessions", "queued", "in_flight"];
        let slot = |state: &&'static str| (*state, gauge!("hatchery_slots", "state" => *state));
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
            depths: Priority::ALL
                .map(|priority| gauge!("hatchery_queue_depth", "priority" => priority.name())),
            oldest_age: gauge!("hatchery_queue_oldest_age_seconds"),
            slots: WorkerActivity::VARIANTS.iter().map(slot).collect(),
            warm: gauge!("hatchery_warm_instances"),
            sessions: places.map(|place| gauge!("hatchery_sessions", "place" => place)),
            memory: uses.map(|use_| gauge!("hatchery_memory_bytes", "use" => use_)),
            memory_limit: gauge!("hatchery_memory_limit_bytes"),
            disk: gauge!("hatchery_session_disk_bytes"),
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

    /// Sets every gauge. Call this when a status is requested, not for every decision.
    pub(crate) fn gauges(&self, status: &SchedulerStatus) {
        for (priority, gauge) in Priority::ALL.into_iter().zip(&self.depths) {
            let queued = status.tenants.iter().flat_map(|tenant| &tenant.queued);
            let depths = queued.filter(|queued| queued.priority == priority);
            gauge.set(depths.map(|queued| queued.depth).sum::<usize>() as f64);
        }
        self.oldest_age.set(status.oldest_wait.unwrap_or_default().as_secs_f64());
        for (state, gauge) in &self.slots {
            let workers = status.workers.iter();
            let count = workers.filter(|worker| worker.activity.name() == *state).count();
            gauge.set(count as f64);
            if *state == "ready" {
                self.warm.set(count as f64);
            }
        }
        let places = &status.places;
        let counts = [
            places.fresh,
            places.on_workers,
            places.suspended,
            places.compressed,
            places.on_disk,
            places.lost,
        ];
        for (count, gauge) in counts.into_iter().zip(&self.sessions) {
            gauge.set(count as f64);
        }
        let memory = &status.memory;
        let uses = [
            memory.shared_bytes,
            memory.slot_bytes,
            memory.session_bytes,
            memory.queued_bytes,
            memory.in_flight_bytes,
        ];
        for (bytes, gauge) in uses.into_iter().zip(&self.memory) {
            gauge.set(bytes as f64);
        }
        self.memory_limit.set(memory.limit_bytes as f64);
        self.disk.set(memory.disk_bytes as f64);
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
