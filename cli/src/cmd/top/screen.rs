//! The state of the screen, updated by answers and keys.

use serde_json::Value;

use super::source::Answer;
use crate::terminal::three_digits;

/// What is shown of a pool: its queue, latencies, memory, sessions, workers and last errors.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) address: String,
    /// The latest status; null before the first.
    pub(super) view: Value,
    /// Why there is no status, or no newer one.
    pub(super) problem: Option<String>,
    /// Whether new answers are ignored.
    pub(super) is_paused: bool,
    /// The index of the first worker on the screen.
    pub(super) first_worker: usize,
}

impl Screen {
    /// Creates a screen without a status. `address` says in its last line what it shows.
    pub(super) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            view: Value::Null,
            problem: None,
            is_paused: false,
            first_worker: 0,
        }
    }

    /// Shows a status, or that there is none. An error leaves what was shown, and stands below.
    pub(super) fn take(&mut self, answer: anyhow::Result<Answer>) {
        if self.is_paused {
            return;
        }
        match answer {
            Ok(Some(view)) => {
                self.view = view;
                self.problem = None;
                self.scroll(0);
            }
            Ok(None) => self.problem = Some("the pool is starting".to_owned()),
            Err(error) => {
                self.problem = Some(format!("connection lost, retrying: {error:#}"));
            }
        }
    }

    /// Moves the list of workers by so many rows.
    pub(super) fn scroll(&mut self, by: isize) {
        let last = list(&self.view["workers"]).len().saturating_sub(1);
        self.first_worker = self.first_worker.saturating_add_signed(by).min(last);
    }
}

pub(super) fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

pub(super) fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the bytes that count against the limit on memory.
pub(super) fn used_bytes(memory: &Value) -> u64 {
    ["shared_bytes", "slot_bytes", "session_bytes", "queued_bytes", "in_flight_bytes"]
        .into_iter()
        .fold(0, |used, part| used.saturating_add(whole(&memory[part])))
}

/// Returns how many jobs of a tenant wait with this priority.
pub(super) fn depth(tenant: &Value, priority: &str) -> u64 {
    let queued = list(&tenant["queued"]).iter().filter(|queued| queued["priority"] == priority);
    queued.fold(0, |depth, queued| depth.saturating_add(whole(&queued["depth"])))
}

/// Formats a count.
pub(super) fn count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", three_digits(count as f64 / 1e3)),
        _ => format!("{}M", three_digits(count as f64 / 1e6)),
    }
}

/// Formats a rate per second.
pub(super) fn rate(rate: f64) -> String {
    if rate < 999.5 { three_digits(rate) } else { count(rate.round() as u64) }
}

/// Returns the share of `part` in `all`, from 0 to 1.
pub(super) fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { (part as f64 / all as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lost_connection_keeps_what_was_shown() {
        let mut screen = Screen::new("here");
        screen.take(Ok(None));
        assert_eq!(screen.problem.as_deref(), Some("the pool is starting"));
        screen.take(Ok(Some(json!({ "queue_depth": 7 }))));
        assert_eq!((&screen.view["queue_depth"], &screen.problem), (&json!(7), &None));
        screen.take(Err(anyhow::anyhow!("refused")));
        assert_eq!(screen.view["queue_depth"], 7);
        assert!(screen.problem.as_ref().is_some_and(|problem| problem.contains("refused")));
        screen.is_paused = true;
        screen.take(Ok(Some(Value::Null)));
        assert_eq!(screen.view["queue_depth"], 7);
    }

    #[test]
    fn a_status_is_read_as_it_is_sent() {
        let view: Value = serde_json::from_str(include_str!("busy.json")).unwrap();
        assert_eq!(depth(&view["tenants"][0], "normal"), 96);
        assert_eq!(used_bytes(&view["memory"]), 605_814_272);
        let (running, backing_off) = (&view["workers"][0], &view["workers"][3]);
        assert_eq!((text(&running["activity"]), whole(&running["job"])), ("running", 1841));
        assert_eq!(
            (text(&backing_off["activity"]), &backing_off["job"]),
            ("backing_off", &Value::Null)
        );
    }

    #[test]
    fn what_is_missing_counts_as_empty() {
        let view = Value::Null;
        assert_eq!((whole(&view["running"]), real(&view["uptime_seconds"])), (0, 0.0));
        assert_eq!((text(&view["phase"]), list(&view["workers"])), ("", &[][..]));
        assert_eq!((used_bytes(&view["memory"]), depth(&view["tenants"][0], "low")), (0, 0));
    }

    #[test]
    fn counts_are_short() {
        for (number, expected) in
            [(0, "0"), (9_999, "9999"), (12_345, "12.3k"), (999_400, "999k"), (12_345_678, "12.3M")]
        {
            assert_eq!(count(number), expected);
        }
        assert_eq!((rate(0.0), rate(0.5), rate(412.34)), ("0".into(), "0.50".into(), "412".into()));
        assert_eq!(rate(23_456.0), "23.5k");
        assert_eq!((share(1, 4), share(1, 0), share(3, 2)), (0.25, 0.0, 1.0));
    }
}
