//! What happens in a job while it runs, as far as it gets through: events go over core NATS, which
//! drops what nobody receives in time. The result has everything.

use async_nats::Subscriber;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::names::JobKey;
use crate::streams::Streams;

/// The largest event. Larger ones aren't sent.
pub(crate) const MOST_BYTES: usize = 512 << 10;

/// Something that happened in a job, at a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The name of the worker.
    pub worker: String,
    /// Counts the events of this run, from 0. A gap shows that some were lost; a number that is
    /// smaller than an earlier one shows that the job was started again.
    pub sequence: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What can happen in a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A worker has started the program.
    Started,
    /// The program wrote something. Bytes that aren't text are replaced.
    Output {
        /// `stdout` or `stderr`.
        stream: String,
        /// What it wrote.
        text: String,
    },
    /// The program displayed something.
    Display {
        /// MIME types and texts, bytes in base64.
        bundle: Value,
    },
    /// The worker's pool has started the program again.
    Retried,
}

/// Reads the events of a job. Events may be missing.
#[derive(Debug)]
pub struct EventStream(Subscriber);

impl EventStream {
    pub(crate) async fn open(streams: &Streams, key: &JobKey) -> Result<Self, Error> {
        let subscribed = streams.link.client().subscribe(streams.subjects.events(key)).await;
        subscribed.map(Self).map_err(|error| Error::Server {
            what: "send events",
            source: error.to_string().into(),
        })
    }

    /// Returns the next event; `None` once the client is closed. Cancel-safe. There is no last one:
    /// stop reading when the result is there.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let message = self.0.next().await?;
            if message.payload.len() > MOST_BYTES {
                continue;
            }
            if let Ok(event) = serde_json::from_slice(&message.payload) {
                return Some(event);
            }
        }
    }
}
