//! Statuses for tests.

use serde_json::{Value, json};

/// Returns the status of a busy pool, as `/v1/status` sends it.
pub(crate) fn busy() -> Value {
    serde_json::from_str(include_str!("busy.json")).expect("the file holds a status")
}

pub(crate) fn worker(worker: u64) -> Value {
    json!({ "worker": worker, "activity": "ready" })
}
