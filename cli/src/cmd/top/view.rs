//! The shown part of a pool's status, as `/status` sends it. Missing fields count as empty, except
//! for the phase, which every status has.

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct View {
    pub(super) phase: String,
    #[serde(default)]
    pub(super) uptime_seconds: f64,
    #[serde(default)]
    pub(super) queue_depth: u64,
    #[serde(default)]
    pub(super) queued_bytes: u64,
    pub(super) oldest_wait_seconds: Option<f64>,
    #[serde(default)]
    pub(super) running: u64,
    #[serde(default)]
    pub(super) tenants: Vec<Tenant>,
    #[serde(default)]
    pub(super) places: Places,
    #[serde(default)]
    pub(super) workers: Vec<Worker>,
    #[serde(default)]
    pub(super) memory: Memory,
    #[serde(default)]
    pub(super) totals: Totals,
    #[serde(default)]
    pub(super) latency: Latencies,
    #[serde(default)]
    pub(super) jobs_per_second: f64,
    #[serde(default)]
    pub(super) last_errors: Vec<Failure>,
    #[serde(default)]
    pub(super) last_program_errors: Vec<ProgramError>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Tenant {
    pub(super) tenant: String,
    pub(super) weight: u32,
    pub(super) queued: Vec<Depth>,
    pub(super) running: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Depth {
    pub(super) priority: String,
    pub(super) depth: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Places {
    pub(super) fresh: u64,
    pub(super) on_workers: u64,
    pub(super) parked: u64,
    pub(super) compressed: u64,
    pub(super) on_disk: u64,
    pub(super) lost: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    pub(super) limit_bytes: u64,
    pub(super) shared_bytes: u64,
    pub(super) slot_bytes: u64,
    pub(super) session_bytes: u64,
    pub(super) queued_bytes: u64,
    pub(super) in_flight_bytes: u64,
    pub(super) disk_bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Totals {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) limited: u64,
    pub(super) cancelled: u64,
    pub(super) sandbox_failed: u64,
    pub(super) refused: u64,
    pub(super) retried: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Latencies {
    pub(super) queue: Percentiles,
    pub(super) attach: Percentiles,
    pub(super) run: Percentiles,
    pub(super) reset: Percentiles,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Percentiles {
    pub(super) count: u64,
    pub(super) p50_seconds: f64,
    pub(super) p95_seconds: f64,
    pub(super) p99_seconds: f64,
    pub(super) max_seconds: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    pub(super) age_seconds: f64,
    pub(super) job: Option<u64>,
    pub(super) worker: Option<u64>,
    pub(super) message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct ProgramError {
    pub(super) age_seconds: f64,
    pub(super) job: u64,
    pub(super) tenant: String,
    pub(super) exception: String,
    pub(super) message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Worker {
    pub(super) worker: u64,
    pub(super) activity: String,
    pub(super) job: Option<u64>,
    pub(super) session: Option<u64>,
    pub(super) since_seconds: f64,
    pub(super) age_seconds: f64,
    pub(super) jobs_served: u64,
    pub(super) memory_bytes: u64,
    pub(super) last_error: Option<String>,
}

impl Memory {
    pub(super) fn used_bytes(&self) -> u64 {
        let Self { shared_bytes, slot_bytes, session_bytes, queued_bytes, in_flight_bytes, .. } =
            *self;
        [shared_bytes, slot_bytes, session_bytes, queued_bytes, in_flight_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl Tenant {
    pub(super) fn depth(&self, priority: &str) -> u64 {
        let queued = self.queued.iter().filter(|queued| queued.priority == priority);
        queued.map(|queued| queued.depth).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::busy;
    use super::*;

    #[test]
    fn a_status_is_parsed_as_it_is_sent() {
        let view = busy();
        assert_eq!(view.tenants[0].depth("normal"), 96);
        assert_eq!(view.memory.used_bytes(), 605_814_272);
        let running = &view.workers[0];
        assert_eq!((running.activity.as_str(), running.job), ("running", Some(1841)));
        let backing_off = &view.workers[3];
        assert_eq!((backing_off.activity.as_str(), backing_off.job), ("backing_off", None));
    }

    #[test]
    fn missing_fields_count_as_empty_except_the_phase() {
        let view: View = serde_json::from_str(r#"{"phase": "open", "later": 1}"#).unwrap();
        assert_eq!(view, View { phase: "open".to_owned(), ..View::default() });
        assert!(serde_json::from_str::<View>("{}").is_err());
    }
}
