//! What a worker says of itself, for as long as it lives.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::{now, sleep};
use crate::error::{Cause, Error};
use crate::streams::Streams;

use super::shared::Shared;

/// Keys of jobs in what a worker says. Those of more jobs are left out.
const MOST_KEYS: usize = 64;

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Presence {
    /// Its name.
    pub name: String,
    /// The version of Hatchery.
    pub version: String,
    /// Jobs that it runs at once.
    pub slots: usize,
    /// Those that run now.
    pub running: usize,
    /// The keys of the first 64 jobs that run or wait for a slot.
    pub keys: Vec<String>,
    /// Jobs whose results it has stored.
    pub done: u64,
    /// Jobs that it gave back to the queue.
    pub given_back: u64,
    /// Whether it takes no more jobs.
    pub is_draining: bool,
    /// When it said so, in milliseconds since 1970 by the server's clock.
    #[serde(default)]
    pub at_ms: u64,
}

/// Says that this worker lives, until it doesn't.
pub(super) async fn show(shared: Arc<Shared>) {
    let every = shared.streams.life() / 3;
    loop {
        // Later ones make up for one that fails.
        if let Ok(Err(error)) = tokio::time::timeout(every, shared.show()).await {
            tracing::info!("can't say that this worker lives: {error}");
        }
        sleep(every).await;
    }
}

impl Shared {
    /// Says once that this worker lives, and looks at the server's clock, which has stamped that.
    pub(super) async fn show(&self) -> Result<(), Cause> {
        let text = serde_json::to_vec(&self.presence())?;
        let begin = now();
        self.streams.workers.put(&self.instance, text.into()).await?;
        let end = now();
        if let Some(stamped) = self.streams.workers.entry(&self.instance).await? {
            self.server_clock.saw(stamped.created.unix_timestamp_nanos(), begin, end);
        }
        Ok(())
    }

    fn presence(&self) -> Presence {
        let running = self.running.lock();
        let tally = *self.tally.lock();
        Presence {
            name: self.config.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            slots: self.config.slots,
            running: self.config.slots.saturating_sub(self.slots.available_permits()),
            keys: running.keys().take(MOST_KEYS).map(ToString::to_string).collect(),
            done: tally.done,
            given_back: tally.given_back,
            is_draining: *self.is_draining.borrow(),
            // Whoever reads it sees what the server has stamped it with.
            at_ms: 0,
        }
    }
}

impl Streams {
    /// Returns what each worker of the pool says of itself, in the order of their names.
    pub(crate) async fn presences(&self) -> Result<Vec<Presence>, Error> {
        use futures_util::StreamExt;
        let failed = |source| Error::Server { what: "list the workers", source };
        let keys = self.workers.keys().await.map_err(|error| failed(error.into()))?;
        let keys: Vec<String> = keys.filter_map(|key| async { key.ok() }).collect().await;
        let mut presences = Vec::with_capacity(keys.len());
        for key in keys {
            let entry = self.workers.entry(key).await.map_err(|error| failed(error.into()))?;
            // It may have left meanwhile.
            let Some(entry) = entry else { continue };
            let Ok(presence) = serde_json::from_slice::<Presence>(&entry.value) else { continue };
            let at_ms = entry.created.unix_timestamp_nanos() / 1_000_000;
            presences.push(Presence { at_ms: at_ms.try_into().unwrap_or_default(), ..presence });
        }
        presences.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(presences)
    }
}
