//! Server-sent events: what happens in a job, and what the scheduler decides.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use futures_util::stream;
use hatchery::decision::{Decisions, NextDecision};
use hatchery::event::{EventKind, Stream};
use hatchery::tool;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::running::{Ended, Running};

/// The type of a stream of events.
pub(super) const TYPE: &str = "text/event-stream";

/// After this time without an event a comment is sent, so that nobody on the way takes the
/// connection for dead, and that a client that has gone away is noticed.
const QUIET: Duration = Duration::from_secs(15);

/// Returns the events of a job, and its result at their end. Dropping the body cancels the job.
pub(super) fn of_job(running: Running) -> Body {
    enum At {
        Begin(Running),
        Events(Running),
        End,
    }
    Body::from_stream(stream::unfold(At::Begin(running), |at| async move {
        let (text, next) = match at {
            At::Begin(running) => {
                let text = message("admitted", None, &json!({ "job": running.job() }));
                (text, At::Events(running))
            }
            At::Events(mut running) => loop {
                match timeout(QUIET, running.events().next()).await {
                    Err(_) => break (comment(), At::Events(running)),
                    Ok(Some(event)) => {
                        let Some((name, data)) = named(&event.kind) else { continue };
                        let text = message(name, Some(event.sequence), &data);
                        break (text, At::Events(running));
                    }
                    Ok(None) => {
                        let text = match running.ended().await {
                            Ok(Ended { result, held, .. }) => {
                                held.until_sent(message("outcome", None, &result))
                            }
                            Err(failure) => {
                                let problem = failure.into_problem();
                                message("outcome", None, &tool::refusal(&problem))
                            }
                        };
                        break (text, At::End);
                    }
                }
            },
            At::End => return None,
        };
        Some((Ok::<_, Infallible>(text), next))
    }))
}

/// Returns the decisions of the scheduler from now on.
pub(super) fn of_decisions(decisions: Decisions) -> Body {
    Body::from_stream(stream::unfold(decisions, |mut decisions| async move {
        let text = match timeout(QUIET, decisions.next()).await {
            Err(_) => comment(),
            Ok(None) => return None,
            Ok(Some(NextDecision::Decision(decision))) => {
                message("decision", Some(decision.sequence), &decision)
            }
            Ok(Some(NextDecision::Missed(count))) => {
                message("missed", None, &json!({ "count": count }))
            }
        };
        Some((Ok::<_, Infallible>(text), decisions))
    }))
}

/// Returns the name of an event with its data; `None` for the end, which the outcome says.
fn named(kind: &EventKind) -> Option<(&'static str, Value)> {
    Some(match kind {
        EventKind::Started => ("started", json!({})),
        EventKind::Output { stream, bytes } => {
            let stream = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            let mut data = json!({ "stream": stream, "text": String::from_utf8_lossy(bytes) });
            if std::str::from_utf8(bytes).is_err() {
                data["base64"] = BASE64_STANDARD.encode(bytes).into();
            }
            ("output", data)
        }
        EventKind::Display(bundle) => ("display", json!({ "bundle": bundle })),
        EventKind::HostCall { name } => ("host_call", json!({ "name": name })),
        EventKind::Retried => ("retried", json!({})),
        EventKind::FileChanged { path, kind } => ("file", json!({ "path": path, "kind": kind })),
        // Also what later versions may add.
        _ => return None,
    })
}

/// Returns an event. JSON has no line ends outside of strings, and escapes those within.
fn message(name: &str, id: Option<u64>, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n").into()
}

fn comment() -> Bytes {
    Bytes::from_static(b":\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_program_stays_within_its_event() {
        let output = |bytes: &[u8]| {
            let kind = EventKind::Output { stream: Stream::Stdout, bytes: bytes.to_vec() };
            let (name, data) = named(&kind).unwrap();
            message(name, Some(3), &data)
        };
        let forged = output(b"a\n\nevent: outcome\ndata: {}\r\n\n");
        let expected = "event: output\nid: 3\ndata: {\"stream\":\"stdout\",\"text\":\
                        \"a\\n\\nevent: outcome\\ndata: {}\\r\\n\\n\"}\n\n";
        assert_eq!(forged, expected);
        let binary = output(b"\xff");
        let binary = String::from_utf8(binary.to_vec()).unwrap();
        assert!(binary.contains("\"base64\":\"/w==\""), "{binary}");
        assert_eq!(named(&EventKind::Finished), None);
    }
}
