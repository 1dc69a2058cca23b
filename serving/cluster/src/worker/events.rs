//! Sends what happens in a job to its submitter, if that wants it.

use hatchery::event::{self, Events, Stream};
use serde_json::json;

use crate::event::{Event, EventKind, MOST_BYTES};
use crate::names::JobKey;

use super::shared::Shared;

/// Sends a job's events until its end.
pub(super) async fn forward(shared: &Shared, key: &JobKey, mut events: Events) {
    let client = shared.streams.link.client();
    let subject = shared.streams.subjects.events(key);
    while let Some(event) = events.next().await {
        let Some(kind) = kind_of(event.kind) else { continue };
        let event = Event { worker: shared.config.name.clone(), sequence: event.sequence, kind };
        let Ok(text) = serde_json::to_vec(&event) else { continue };
        if text.len() <= MOST_BYTES {
            // Lost if nobody listens, or while the server is gone.
            let _ = client.publish(subject.clone(), text.into()).await;
        }
    }
}

fn kind_of(kind: event::EventKind) -> Option<EventKind> {
    Some(match kind {
        event::EventKind::Started => EventKind::Started,
        event::EventKind::Output { stream, bytes } => {
            let stream = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            EventKind::Output { stream: stream.to_owned(), text }
        }
        event::EventKind::Display(bundle) => EventKind::Display { bundle: json!(bundle) },
        event::EventKind::Retried => EventKind::Retried,
        // The result says so.
        _ => return None,
    })
}
