//! Hears of the turns of one partition, while the server has pinned this worker to it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock::{now, sleep};
use crate::connect::Link;
use crate::error::Cause;
use crate::sessions::{GROUP, SessionKey, Sessions};

/// Turns that one answer may tell of.
const MOST_TOLD: usize = 64;
/// Before a consumer that failed is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks for ever, and passes sessions on that have turns.
pub(super) async fn ask(
    sessions: Arc<Sessions>,
    link: Link,
    partition: u8,
    told: mpsc::Sender<SessionKey>,
) {
    loop {
        // What was asked over an earlier connection gets no answer.
        let listening = listen(&sessions, partition, &told);
        if let Some(Err(error)) = link.unless_renewed(listening).await {
            tracing::info!("can't ask for the turns of partition {partition}: {error}");
        }
        sleep(PAUSE).await;
    }
}

/// Listens until the consumer fails. Nothing is acknowledged: turns are taken out of the stream when
/// they have ended, and until then the server tells of them again and again.
async fn listen(
    sessions: &Sessions,
    partition: u8,
    told: &mpsc::Sender<SessionKey>,
) -> Result<(), Cause> {
    let consumer = sessions.consumer(partition).await?;
    // Whoever doesn't ask for as long as the hand-over takes is unpinned.
    let stream = consumer.stream().group(GROUP).max_messages_per_batch(MOST_TOLD);
    let mut messages = stream.expires(sessions.hand_over / 3).messages().await?;
    let mut looked: Option<Instant> = None;
    while let Some(message) = messages.next().await {
        let message = message?;
        if let Some(session) = sessions.session_of(&message.subject) {
            told.send(session).await?;
        }
        // The server may have told an earlier home of other turns, and tells only of so many.
        if looked.is_none_or(|at| now() - at >= sessions.hand_over) {
            for session in sessions.waiting(partition).await? {
                told.send(session).await?;
            }
            looked = Some(now());
        }
    }
    Ok(())
}
