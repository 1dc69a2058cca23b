//! Statuses for tests.

use serde_json::{Value, json};

/// Returns the status of a busy pool, as `/v1/status` sends it.
pub(super) fn busy() -> Value {
    serde_json::from_str(include_str!("busy.json")).expect("the file holds a status")
}

pub(super) fn worker(worker: u64) -> Value {
    json!({ "worker": worker, "activity": "ready" })
}
