//! Whether a message of the queue is the job that its key stands for, before anything else is done
//! with it: whoever may submit jobs must have no part in the results of others.

use async_nats::jetstream::Message;

use crate::headers::{NTH, OBJECT};
use crate::names::{JobKey, Lane};
use crate::sessions::Turn;
use crate::streams::Streams;

/// Returns whether the key of a job is made of this message. The text of an object is checked against
/// its digest when it is read.
pub(super) fn is_of_key(message: &Message, lane: &Lane, key: &JobKey) -> bool {
    is_made_of(message, lane, key, |text| text)
}

/// Returns whether the key of a turn is made of this message.
pub(super) fn is_of_turn(message: &Message, turn: &Turn) -> bool {
    is_made_of(message, &turn.lane, &turn.key, |text| turn.session.text(&text))
}

fn is_made_of(
    message: &Message,
    lane: &Lane,
    key: &JobKey,
    standing: impl Fn(blake3::Hash) -> blake3::Hash,
) -> bool {
    let header = |name| message.headers.as_ref()?.get(name).map(|value| value.as_str());
    let text = match header(OBJECT) {
        Some(digest) => blake3::Hash::from_hex(digest).ok(),
        None => Some(blake3::hash(&message.payload)),
    };
    let nth = header(NTH).and_then(|number| number.parse().ok());
    let (Some(text), Some(nth)) = (text, nth) else { return false };
    JobKey::of(&key.batch, lane, &standing(text), nth) == *key
}

impl Streams {
    /// Drops a message from the queue for good. The server tells operators the reason, as an
    /// advisory; there is no result, since that would be the one of another job.
    pub(super) async fn refuse(&self, message: &Message, reason: &str) {
        tracing::warn!("a message in the queue is no job (`{reason}`): `{}`", message.subject);
        let Some(reply) = message.reply.clone() else { return };
        // If it gets lost, the message comes again.
        let _ = self.link.client().publish(reply, format!("+TERM {reason}").into()).await;
    }
}
