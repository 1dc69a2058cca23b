//! Starts of a job, for its dead letter.

use serde::{Deserialize, Serialize};

/// A start of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Start {
    /// The worker's name; `None` for a first start, of which nobody keeps a record.
    pub worker: Option<String>,
    /// The worker's process.
    pub instance: Option<String>,
    /// Whether nothing else ran there.
    pub alone: bool,
}

impl Start {
    /// Returns the start of a job by a worker of this name and process.
    pub fn new(worker: &str, instance: &str, alone: bool) -> Self {
        Self { worker: Some(worker.to_owned()), instance: Some(instance.to_owned()), alone }
    }

    pub(crate) fn unknown() -> Self {
        Self { worker: None, instance: None, alone: false }
    }
}
