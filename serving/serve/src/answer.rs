//! Responses over HTTP.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{StreamExt, poll_fn};
use serde::Serialize;
use tokio::sync::mpsc;

/// Returns a value as a response.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => of(status, "application/json", text.into()),
        // Nothing here has keys that aren't strings, or fails otherwise.
        Err(_) => of(StatusCode::INTERNAL_SERVER_ERROR, "application/json", Bytes::new()),
    }
}

/// Returns bytes of this type as a response.
pub(crate) fn of(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response {
    stream(status, kind, Body::from(bytes))
}

/// Returns a body of this type as a response.
pub(crate) fn stream(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Returns lines of JSON as a response, as they come.
pub(crate) fn lines(lines: mpsc::Receiver<Bytes>) -> Response {
    pieces("application/x-ndjson", lines)
}

/// Returns pieces of a body of this type as a response, as they come.
pub(crate) fn pieces(kind: &'static str, mut pieces: mpsc::Receiver<Bytes>) -> Response {
    let pieces = poll_fn(move |context| pieces.poll_recv(context)).map(Ok::<_, Infallible>);
    stream(StatusCode::OK, kind, Body::from_stream(pieces))
}
