//! Answers in JSON and in text.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hatchery::wire::Problem;
use serde_json::Value;

/// Answers with JSON.
pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Says when to try again what was refused for the load.
pub(super) fn with_retry_after(mut answer: Response, problem: &Problem) -> Response {
    let seconds = problem.retry_after.map_or(1, |time| (time.ceil() as u64).max(1));
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}
