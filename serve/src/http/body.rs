//! Reads bodies of requests: no more of them than there is room for, and no slower than allowed.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::door::{BLOCK, Door};
use super::failure::Failure;
use super::place::Place;

/// The most bytes of a command, as that which opens a session.
const MOST_COMMAND_BYTES: usize = 64 << 10;

/// A body may take this many times the idle time.
const MOST_IDLE_TIMES: u32 = 10;

/// A body that was received, and its room.
#[derive(Debug)]
pub(super) struct Received {
    /// Its bytes.
    pub(super) bytes: Bytes,
    /// Held until the job is the scheduler's, which counts its bytes from then on.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Reads the body of a request.
pub(super) async fn read(door: &Door, request: Request) -> Result<Received, Failure> {
    read_up_to(door, request, door.config.body_bytes).await
}

/// Reads a command: a small object, or nothing at all.
pub(super) async fn command<T: DeserializeOwned + Default>(
    door: &Door,
    request: Request,
) -> Result<T, Failure> {
    let body = read_up_to(door, request, MOST_COMMAND_BYTES).await?;
    if body.bytes.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&body.bytes)
        .map_err(|error| Failure::usage(format!("the body isn't valid: {error}")))
}

async fn read_up_to(door: &Door, request: Request, most: usize) -> Result<Received, Failure> {
    let place = request.extensions().get::<Place>().cloned();
    let length = announced(request.headers());
    if length.is_some_and(|length| length > most as u64) {
        return Err(too_large(most));
    }
    let mut body = Limited {
        body: request.into_body(),
        most,
        idle: door.config.idle_time,
        room: Arc::clone(&door.room),
        held: None,
    };
    // The connection gives way to others while the client keeps it waiting.
    if let Some(place) = &place {
        place.wait();
    }
    let received = timeout(door.config.idle_time * MOST_IDLE_TIMES, body.all()).await;
    if let Some(place) = &place {
        place.work();
    }
    let bytes = received.map_err(|_| too_slow())??;
    Ok(Received { bytes, room: body.held })
}

struct Limited {
    body: Body,
    most: usize,
    idle: Duration,
    room: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Limited {
    async fn all(&mut self) -> Result<Bytes, Failure> {
        let mut whole = BytesMut::new();
        while let Some(bytes) = next(&mut self.body, self.idle).await? {
            if whole.len() + bytes.len() > self.most {
                return Err(too_large(self.most));
            }
            self.hold(whole.len() + bytes.len())?;
            whole.extend_from_slice(&bytes);
        }
        Ok(whole.freeze())
    }

    /// Takes room for this many bytes.
    fn hold(&mut self, bytes: usize) -> Result<(), Failure> {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(BLOCK).saturating_sub(held);
        if more == 0 {
            return Ok(());
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.room).try_acquire_many_owned(more).map_err(|_| no_room())?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
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
    let message = "the body didn't come in time";
    Failure::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
}

fn no_room() -> Failure {
    let message = "too many large bodies are being received; try again later";
    Failure::new(StatusCode::TOO_MANY_REQUESTS, "bodies", message)
}
