//! What clients tell whoever runs a job. Lossy: a message reaches the workers that are there.

use serde::{Deserialize, Serialize};

use crate::names::{JobKey, Lane};
use crate::streams::Streams;

/// The largest message that is read.
const MOST_BYTES: usize = 1 << 10;

/// A message to all workers of a pool, of which one may have the job.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub(crate) enum Control {
    /// Ends the job, which has its result.
    Cancel { key: String },
    /// Raises `KeyboardInterrupt` in its program.
    Interrupt { key: String },
}

impl Control {
    /// Sends it to whoever runs the job of this lane. Rights on the server are for lanes: a message
    /// about a job of another one is ignored.
    pub(crate) async fn send(&self, streams: &Streams, lane: &Lane) {
        let Ok(text) = serde_json::to_vec(self) else { return };
        let subject = streams.subjects.control(lane);
        let _ = streams.link.client().publish(subject, text.into()).await;
    }

    /// Reads a message; `None` if it isn't one.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        if text.len() > MOST_BYTES {
            return None;
        }
        serde_json::from_slice(text).ok()
    }

    pub(crate) fn key(&self) -> Option<JobKey> {
        match self {
            Self::Cancel { key } | Self::Interrupt { key } => JobKey::parse(key),
        }
    }
}
