//! The answer to a cell: a stream of JSON lines.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use hatchery::event::{Events, Stream};
use hatchery::{Outcome, Ticket};
use notebook::{CellEvent, joined};
use serde_json::{Value, json};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::contexts::Turn;
use crate::answer;
use crate::caller::Caller;
use crate::facades::run::failure;
use crate::service::Shares;

/// Lines that wait for a slow client. What else it hasn't read yet, the job keeps within its limits.
pub(super) const MOST_LINES: usize = 16;

/// The members of a result, by the types of its forms.
const MEMBERS: [(&str, &str); 11] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("e2b/data", "data"),
];

/// A cell that runs, and what it holds meanwhile.
pub(super) struct RunningCell {
    pub(super) ticket: Ticket,
    pub(super) turn: OwnedMutexGuard<Turn>,
    pub(super) place: OwnedSemaphorePermit,
    pub(super) ended: watch::Receiver<u64>,
    /// The name of the context's session.
    pub(super) session: String,
}

/// What counts lines that wait for a client, and whose they are.
pub(super) type Room = (Shares, Caller);

/// Follows a cell, and answers with what happens in it. If the client goes away, the cell is
/// interrupted.
pub(super) fn follow(cell: RunningCell, room: Option<Room>) -> Response {
    let (lines, body) = mpsc::channel(MOST_LINES);
    tokio::spawn(async move {
        let RunningCell { ticket, mut turn, place, ended, session: _ } = cell;
        turn.count += 1;
        let (events, count) = (ticket.events(), turn.count);
        let (end, ending) = oneshot::channel();
        let watching = watch(ticket, turn, ended, lines.clone(), end);
        tokio::join!(watching, tell(events, count, ending, Telling { lines, room }));
        drop(place);
    });
    answer::lines(body)
}

/// Answers for a cell that was given up before it ran.
pub(super) fn restarted() -> Response {
    answer::of(StatusCode::OK, "application/x-ndjson", line(&restarting()))
}

fn restarting() -> Value {
    error("ContextRestarting", "Context was restarted", "")
}

/// Waits for the end of a cell, and brings it about if nobody wants it any more. The next cell
/// doesn't wait until the client has read everything.
async fn watch(
    mut ticket: Ticket,
    _turn: OwnedMutexGuard<Turn>,
    mut ended: watch::Receiver<u64>,
    lines: mpsc::Sender<Bytes>,
    end: oneshot::Sender<Option<Box<Outcome>>>,
) {
    let mut is_restarted = false;
    let outcome = tokio::select! {
        outcome = ticket.outcome() => Some(outcome),
        () = lines.closed() => {
            ticket.interrupt();
            None
        }
        _ = ended.changed() => {
            is_restarted = true;
            ticket.stop();
            None
        }
    };
    let mut outcome = match outcome {
        Some(outcome) => outcome,
        // A program that catches the interrupt may have a while to go, unless it is restarted.
        None => tokio::select! {
            outcome = ticket.outcome() => outcome,
            _ = ended.changed(), if !is_restarted => {
                ticket.stop();
                ticket.outcome().await
            }
        },
    };
    // Nothing else of it is sent, and the client may take long to read what was sent before.
    outcome.files = Vec::new();
    outcome.displays = Vec::new();
    // The client may be gone.
    let _ = end.send((!is_restarted).then(|| Box::new(outcome)));
}

/// Where lines go.
pub(super) struct Telling {
    pub(super) lines: mpsc::Sender<Bytes>,
    pub(super) room: Option<Room>,
}

impl Telling {
    /// Returns whether the client goes on to listen.
    async fn tell(&self, value: &Value) -> bool {
        self.send(line(value), |why| line(&error("ResourceExhausted", why, ""))).await
    }

    /// Sends a line, or why there is no room for it. Returns whether the client goes on to listen.
    pub(super) async fn send(&self, line: Bytes, refused: impl FnOnce(&str) -> Bytes) -> bool {
        let line = match &self.room {
            None => line,
            // What it was made of is there as well.
            Some((shares, caller)) => match shares.hold(caller, 2 * line.len()) {
                Ok(share) => share.until_sent(line),
                Err(_) => {
                    let why = "too much of your output is unread: read it, then continue";
                    let _ = self.lines.send(refused(why)).await;
                    return false;
                }
            },
        };
        self.lines.send(line).await.is_ok()
    }
}

async fn tell(
    mut events: Events,
    count: u64,
    ending: oneshot::Receiver<Option<Box<Outcome>>>,
    telling: Telling,
) {
    let number = json!({ "type": "number_of_executions", "execution_count": count });
    let mut is_there = telling.tell(&number).await;
    while is_there && let Some(event) = events.next().await {
        let value = match CellEvent::of(event.kind) {
            Some(CellEvent::Stream { stream, bytes }) => output(stream, &bytes),
            Some(CellEvent::Display { data, .. }) => result_line(joined(data), false),
            Some(CellEvent::Result { data, .. }) => result_line(joined(data), true),
            _ => continue,
        };
        is_there = telling.tell(&value).await;
    }
    if !is_there {
        return;
    }
    let last = match ending.await {
        Ok(Some(outcome)) => {
            failure(&outcome).map(|ending| error(&ending.name, &ending.message, &ending.traceback))
        }
        // Its context was restarted or removed.
        _ => Some(restarting()),
    };
    if let Some(last) = last {
        telling.tell(&last).await;
    }
}

fn line(value: &Value) -> Bytes {
    let mut line = value.to_string();
    line.push('\n');
    line.into()
}

fn output(stream: Stream, bytes: &[u8]) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    json!({ "type": stream.name(), "text": String::from_utf8_lossy(bytes), "timestamp": timestamp })
}

fn error(name: &str, value: &str, traceback: &str) -> Value {
    json!({ "type": "error", "name": name, "value": value, "traceback": traceback })
}

fn result_line(forms: Value, is_main: bool) -> Value {
    let Value::Object(mut forms) = forms else { return Value::Null };
    let mut line = json!({ "type": "result", "is_main_result": is_main });
    for (mime_type, member) in MEMBERS {
        if let Some(form) = forms.remove(mime_type) {
            line[member] = if member == "text" { unquoted(form) } else { form };
        }
    }
    if !forms.is_empty() {
        line["extra"] = forms.into();
    }
    line
}

/// The text of a string is without its quotes, as E2B has it.
fn unquoted(text: Value) -> Value {
    let inner = text.as_str().and_then(|text| text.strip_prefix('\'')?.strip_suffix('\''));
    inner.map(Value::from).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_their_forms_by_name() {
        let forms = json!({ "text/plain": "'a'", "text/html": "<b>", "text/x": "other" });
        let expected = json!({
            "type": "result", "is_main_result": true, "text": "a", "html": "<b>",
            "extra": { "text/x": "other" },
        });
        assert_eq!(result_line(forms, true), expected);
        assert_eq!([unquoted("'".into()), unquoted("[1]".into())], ["'", "[1]"]);
    }
}
