//! Receives the results of a batch, in the order in which they were stored.
//!
//! The reader on the server may vanish with the server, and messages with a connection. So what has
//! been received is counted here, and a new reader begins where the old one has left a gap.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::clock::sleep;
use crate::connect::Notice;
use crate::error::Cause;

use super::shared::{Inner, PAUSE, QUIET_ATTEMPTS};

/// Results in one answer to a request for more.
const MOST_RESULTS: usize = 256;
/// Bytes of them.
const MOST_BYTES: usize = 32 << 20;
/// How long one request for more is open.
const OPEN: Duration = Duration::from_secs(5);
/// How long a request that the server has forgotten is waited for.
const SILENCE: Duration = Duration::from_secs(7);
/// How long the server keeps a reader that asks for nothing.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Delivers the results with at least this sequence number in the stream, for ever.
pub(super) async fn receive(inner: Arc<Inner>, mut next: u64) {
    loop {
        // A reader doesn't outlive the connection: what was on its way is lost.
        let reading = read(&inner, &mut next);
        if let Some(Err(error)) = inner.streams.link.unless_renewed(reading).await {
            tracing::info!("recreating the reader of results: {error}");
            sleep(PAUSE).await;
        }
    }
}

/// Reads until something is missing.
async fn read(inner: &Arc<Inner>, next: &mut u64) -> Result<(), Cause> {
    // A server that lost power may have lost the end of the stream, and counts on from before it.
    let state = inner.streams.results.get_info().await?.state;
    *next = (*next).min(state.last_sequence + 1);
    let config = pull::Config {
        filter_subject: inner.streams.subjects.results_of(&inner.batch.name),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: *next },
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: FORGOTTEN,
        ..pull::Config::default()
    };
    let consumer: PullConsumer = inner.streams.results.create_consumer(config).await?;
    let mut expected = 1;
    loop {
        let builder = consumer.batch().max_messages(MOST_RESULTS).max_bytes(MOST_BYTES);
        let mut messages = builder.expires(OPEN).messages().await?;
        while let Some(message) = timeout(SILENCE, messages.next()).await? {
            let message = match message {
                Ok(message) => message,
                // The answer would be too large; the next one may have the rest.
                Err(error) if error.to_string().contains("409") => break,
                Err(error) => return Err(error),
            };
            let info = message.info()?;
            if info.consumer_sequence != expected {
                return Err("results got lost on their way".into());
            }
            let sequence = info.stream_sequence;
            take(inner, message).await;
            expected += 1;
            *next = sequence + 1;
        }
    }
}

async fn take(inner: &Arc<Inner>, message: Message) {
    let Some(key) = inner.streams.subjects.parse_result(&message.subject) else { return };
    let mut attempts = 0;
    loop {
        match inner.streams.result(&message.payload, message.headers.as_ref()).await {
            Ok(result) => return inner.deliver(&key, result),
            Err(error) => {
                attempts += 1;
                if attempts == QUIET_ATTEMPTS {
                    inner.streams.link.tell(Notice::Trouble { text: error.to_string() });
                }
                sleep(PAUSE).await;
            }
        }
    }
}
