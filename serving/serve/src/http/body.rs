//! Reads bodies of requests, within bounds on memory and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::connections::IdleSlot;
use super::failure::Failure;
use super::state::{AppState, Client};
use crate::caller::Caller;
use crate::service::Share;

/// The most bytes of a command, as that which opens a session.
const MOST_COMMAND_BYTES: usize = 64 << 10;

/// A body may take this many times the idle time.
const MOST_IDLE_TIMES: u32 = 10;

/// A body that was received, and is counted.
#[derive(Debug)]
pub(super) struct Received {
    /// Its bytes.
    pub(super) bytes: Bytes,
    /// Until the job is the scheduler's, which counts its bytes from then on.
    pub(super) held: Share,
}

/// Reads the body of a request.
pub(super) async fn read(state: &AppState, request: Request) -> Result<Received, Failure> {
    let (head, body) = request.into_parts();
    read_up_to(state, &head, body, state.config.body_bytes).await
}

/// Reads a command: a small object, or nothing at all.
pub(super) async fn command<T: DeserializeOwned + Default>(
    state: &AppState,
    request: Request,
) -> Result<T, Failure> {
    let (head, body) = request.into_parts();
    let body = read_up_to(state, &head, body, MOST_COMMAND_BYTES).await?;
    if body.bytes.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&body.bytes)
        .map_err(|error| Failure::usage(format!("the body isn't valid: {error}")))
}

/// Counts the requests and answers of further routes, which read and write bodies by themselves.
pub(super) async fn count(
    State(state): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let most = state.config.body_bytes;
    // What is too large is refused behind this, in the words of that route.
    if announced(request.headers()).is_some_and(|length| length > most as u64) {
        return Ok(next.run(request).await);
    }
    let (mut head, body) = request.into_parts();
    head.extensions.insert(state.transit.clone());
    let caller = caller(&head);
    let Received { bytes, held } = read_up_to(&state, &head, body, most).await?;
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    drop(held);
    let length = response.body().size_hint().exact();
    let mut held = match length {
        Some(length) => Some(state.transit.hold(&caller, length as usize)?),
        None => None,
    };
    let mut response = response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |bytes| {
            let bytes = bytes?;
            let held = held.take().map_or_else(|| state.transit.hold(&caller, bytes.len()), Ok);
            // The connection ends, and so the client sees that the answer isn't complete.
            let held = held.map_err(|full| axum::Error::new(full.message))?;
            Ok::<_, axum::Error>(held.until_sent(bytes))
        }))
    });
    if let Some(length) = length {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(response)
}

fn caller(head: &Parts) -> Caller {
    let client = head.extensions.get::<Client>();
    client.map_or_else(Caller::of_this_machine, |client| client.caller.clone())
}

async fn read_up_to(
    state: &AppState,
    head: &Parts,
    mut body: Body,
    most: usize,
) -> Result<Received, Failure> {
    let slot = head.extensions.get::<Arc<IdleSlot>>();
    let length = announced(&head.headers);
    if length.is_some_and(|length| length > most as u64) {
        return Err(too_large(most));
    }
    // Refused before anything of it is received.
    let mut held = state.transit.hold(&caller(head), length.unwrap_or_default() as usize)?;
    // The connection gives way to others while the client keeps it waiting.
    if let Some(slot) = slot {
        slot.wait();
    }
    let idle = state.config.idle_time;
    let received = timeout(idle * MOST_IDLE_TIMES, all(&mut body, &mut held, most, idle)).await;
    if let Some(slot) = slot {
        slot.work();
    }
    let bytes = received.map_err(|_| too_slow())??;
    Ok(Received { bytes, held })
}

/// Receives a whole body, which is held from the first byte on, if its length is announced.
async fn all(
    body: &mut Body,
    held: &mut Share,
    most: usize,
    idle: Duration,
) -> Result<Bytes, Failure> {
    let mut whole = BytesMut::new();
    while let Some(bytes) = next(body, idle).await? {
        let length = whole.len() + bytes.len();
        if length > most {
            return Err(too_large(most));
        }
        held.reach(length)?;
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.freeze())
}

/// Returns the next bytes of a body; `None` at its end.
pub(super) async fn next(body: &mut Body, idle: Duration) -> Result<Option<Bytes>, Failure> {
    loop {
        match timeout(idle, body.frame()).await {
            Err(_) => return Err(too_slow()),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => {
                let message = "the body ends before all of it is there, or isn't valid HTTP";
                return Err(Failure::new(StatusCode::BAD_REQUEST, "body", message));
            }
            Ok(Some(Ok(frame))) => {
                // Trailers say nothing.
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(most: usize) -> Failure {
    let message = format!("the body has more than {most} bytes, the most that are accepted");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn too_slow() -> Failure {
    let message = "the body didn't arrive in time";
    Failure::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
}
