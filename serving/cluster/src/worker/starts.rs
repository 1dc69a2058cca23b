//! The record of who started a job, on the server. `policy/history.rs` says what it means.

use crate::error::Cause;
use crate::names::JobKey;
use crate::policy::Record;
use crate::streams::Streams;

/// Attempts to write a record that somebody else writes at the same time.
const ATTEMPTS: usize = 5;

impl Streams {
    /// Returns the record of a job.
    pub(super) async fn record(&self, key: &JobKey) -> Result<Record, Cause> {
        let entry = self.starts.get(key.to_string()).await?;
        // A damaged record counts as none: the job is tried again.
        Ok(entry.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default())
    }

    /// Changes the record of a job.
    pub(super) async fn change_record(
        &self,
        key: &JobKey,
        change: impl Fn(&mut Record),
    ) -> Result<(), Cause> {
        let name = key.to_string();
        let mut last: Option<Cause> = None;
        for _ in 0..ATTEMPTS {
            let entry = self.starts.entry(name.clone()).await?;
            let mut record: Record = entry
                .as_ref()
                .and_then(|entry| serde_json::from_slice(&entry.value).ok())
                .unwrap_or_default();
            change(&mut record);
            let text = serde_json::to_vec(&record)?.into();
            let revision = entry.map_or(0, |entry| entry.revision);
            match self.starts.update(&name, text, revision).await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error.into()),
            }
        }
        Err(last.unwrap_or_else(|| "no attempt was made".into()))
    }

    /// Forgets the record of a job that has ended.
    pub(super) async fn forget_record(&self, key: &JobKey) {
        // What stays is dropped by its age.
        let _ = self.starts.purge(key.to_string()).await;
    }

    /// Returns whether a worker's process has lately said that it lives. Without an answer it counts
    /// as alive.
    pub(super) async fn lives(&self, instance: &str) -> bool {
        !matches!(self.workers.get(instance).await, Ok(None))
    }
}
