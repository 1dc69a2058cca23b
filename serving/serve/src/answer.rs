//! Responses over HTTP.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;

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
