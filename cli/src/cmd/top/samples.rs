//! Statuses for tests.

use super::view::{View, Worker};

/// Returns the status of a busy pool, as `/status` sends it.
pub(super) fn busy() -> View {
    serde_json::from_str(include_str!("busy.json")).expect("the file holds a status")
}

pub(super) fn worker(worker: u64) -> Worker {
    Worker { worker, activity: "ready".to_owned(), ..Worker::default() }
}
