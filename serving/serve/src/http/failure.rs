//! Answers to requests that failed: a problem as JSON, under the status that fits it.

use std::net::SocketAddr;

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hatchery::wire::{Problem, ProblemKind};
use serde_json::json;

use crate::answer;
use crate::caller::InvalidTenant;

/// A failed request.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) problem: Problem,
}

impl Failure {
    /// Creates a failure that isn't the pool's.
    pub(super) fn new(status: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        let kind = match status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            true => ProblemKind::Refused,
            false => ProblemKind::Usage,
        };
        Self { status, problem: Problem::new(kind, message).with_reason(reason) }
    }

    /// Creates a failure because of something that the caller sent.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Problem::new(ProblemKind::Usage, message).into()
    }

    /// Creates a failure because there is nothing of this kind.
    pub(super) fn missing(what: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, &format!("no_{what}"), message)
    }

    /// Returns whether it passes once others have ended.
    pub(super) fn is_load(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        failure.problem
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { status: status(&problem), problem }
    }
}

impl From<hatchery::Error> for Failure {
    fn from(error: hatchery::Error) -> Self {
        error.problem().into()
    }
}

fn status(problem: &Problem) -> StatusCode {
    match (problem.kind, problem.reason.as_deref()) {
        (ProblemKind::Usage, Some(reason)) if reason.starts_with("no_") => StatusCode::NOT_FOUND,
        (ProblemKind::Usage, _) => StatusCode::BAD_REQUEST,
        (ProblemKind::Refused, Some("session_exists" | "session_busy")) => StatusCode::CONFLICT,
        (ProblemKind::Refused, Some("session_gone")) => StatusCode::GONE,
        (ProblemKind::Refused, Some("no_such_worker")) => StatusCode::NOT_FOUND,
        (ProblemKind::Refused, Some("fork_depth")) => StatusCode::BAD_REQUEST,
        (
            ProblemKind::Refused,
            Some("shutting_down" | "other_process" | "no_worker" | "not_captured"),
        ) => StatusCode::SERVICE_UNAVAILABLE,
        (ProblemKind::Refused, _) => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// When to try again: whole seconds, at least one.
fn retry_after(status: StatusCode, problem: &Problem) -> Option<u64> {
    let at_least = match (status, problem.reason.as_deref()) {
        // These pass without anybody doing something about them, but nobody knows when.
        (StatusCode::TOO_MANY_REQUESTS, Some(reason)) => !matches!(
            reason,
            "sessions"
                | "tenant_sessions"
                | "tenant_session_bytes"
                | "fork_depth"
                | "fork_bytes"
                | "checkpoints"
                | "deadline"
        ),
        _ => false,
    };
    let seconds = problem.retry_after.map(|seconds| seconds.ceil().clamp(1.0, 86_400.0) as u64);
    seconds.or(at_least.then_some(1))
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { status, problem } = self;
        let retry_after = retry_after(status, &problem);
        let mut body = json!({ "error": problem });
        if status == StatusCode::UNAUTHORIZED {
            // E2B's clients read these, and fail without.
            body["code"] = status.as_u16().into();
            body["message"] = problem.message.as_str().into();
        }
        let mut response = answer::json(status, &body);
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"hatchery\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

/// Why a pool can't be served over HTTP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Other machines could reach the address, and callers need no token.
    #[error(
        "other machines may reach `{0}`, so callers need tokens there: give `--token-file`, \
         serve on 127.0.0.1, or, if all of them may do everything, `--trust-network`"
    )]
    NoTokens(SocketAddr),
    /// The listener has no address.
    #[error("the listener has no address")]
    Listener(#[source] std::io::Error),
    /// The token is too short, too long or has other characters.
    #[error("a token has 16 to 512 characters, all of them letters, digits or one of -._~+/=")]
    InvalidToken,
    /// A token can't stand for this tenant.
    #[error(transparent)]
    InvalidTenant(#[from] InvalidTenant),
    /// Two tokens are the same.
    #[error("two tokens are the same")]
    TokenTwice,
    /// This line of a token file, counted from 1, is invalid.
    #[error("line {0} of the tokens is invalid")]
    Line(usize, #[source] Box<HttpError>),
    /// A line of a token file has too many words.
    #[error("a line is a token, and for a token that isn't an administrator's, the tenant")]
    Words,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_status_says_whose_turn_it_is() {
        let of = |kind, reason: &str| status(&Problem::new(kind, "").with_reason(reason)).as_u16();
        for (kind, reason, expected) in [
            (ProblemKind::Usage, "", 400),
            (ProblemKind::Usage, "no_session", 404),
            (ProblemKind::Refused, "session_busy", 409),
            (ProblemKind::Refused, "session_exists", 409),
            (ProblemKind::Refused, "session_gone", 410),
            (ProblemKind::Refused, "no_such_worker", 404),
            (ProblemKind::Refused, "queue_full", 429),
            (ProblemKind::Refused, "shutting_down", 503),
            (ProblemKind::Refused, "no_worker", 503),
            (ProblemKind::Sandbox, "", 500),
        ] {
            assert_eq!(of(kind, reason), expected, "{reason}");
        }
    }

    #[test]
    fn the_time_to_wait_is_rounded_up() {
        let refused = |reason| Problem::new(ProblemKind::Refused, "").with_reason(reason);
        let after = |problem: Problem| retry_after(status(&problem), &problem);
        let known = |millis| Some(Duration::from_millis(millis));
        assert_eq!(after(refused("queue_full").with_retry_after(known(1200))), Some(2));
        assert_eq!(after(refused("queue_full").with_retry_after(known(1))), Some(1));
        assert_eq!(after(refused("queue_full")), Some(1));
        assert_eq!(after(refused("no_worker").with_retry_after(known(5000))), Some(5));
        assert_eq!(after(refused("sessions")), None);
        assert_eq!(after(refused("shutting_down")), None);
        let response = Failure::new(StatusCode::UNAUTHORIZED, "token", "").into_response();
        assert!(response.headers().contains_key(WWW_AUTHENTICATE));
    }
}
