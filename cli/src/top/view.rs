//! Reads a pool's status, as `/v1/status` sends it. Whatever is missing, or isn't as expected, counts as
//! empty.

use serde_json::Value;

pub(crate) fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

pub(crate) fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the bytes that count against the limit on memory.
pub(crate) fn used_bytes(memory: &Value) -> u64 {
    ["shared_bytes", "slot_bytes", "session_bytes", "queued_bytes", "in_flight_bytes"]
        .into_iter()
        .fold(0, |used, part| used.saturating_add(whole(&memory[part])))
}

/// Returns how many jobs of a tenant wait with this priority.
pub(crate) fn depth(tenant: &Value, priority: &str) -> u64 {
    let queued = list(&tenant["queued"]).iter().filter(|queued| queued["priority"] == priority);
    queued.fold(0, |depth, queued| depth.saturating_add(whole(&queued["depth"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::samples::busy;

    #[test]
    fn a_status_is_read_as_it_is_sent() {
        let view = busy();
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
}
