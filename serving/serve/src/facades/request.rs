//! Reads requests: who sends them, and what they say. Refuses them in the forms of products.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use hatchery::Interface;
use hatchery::wire::{Problem, ProblemKind};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::answer::json as json_answer;
use crate::caller::Caller;

/// The largest body. Programs are limited by the pool; most of a large body are files in base64.
const MOST_BODY_BYTES: usize = 64 << 20;

/// The longest time that a request can ask for; the pool's own limit applies first.
const MOST_SECONDS: f64 = 86_400.0;

/// The shortest time of a job. Those servers take 0, too, which ends every program.
const LEAST_SECONDS: f64 = 0.001;

/// Limits the bodies of requests.
pub(super) fn body_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(MOST_BODY_BYTES)
}

/// Who sends a request without a body.
pub(super) struct Sender(pub(super) Caller);

impl<S: Send + Sync> FromRequestParts<S> for Sender {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(caller(&parts.extensions)))
    }
}

/// Who sends a request with a body, and what it says.
pub(super) struct Sent<T>(pub(super) Caller, pub(super) T);

/// Why a request isn't answered as asked. [`in_form`] answers it.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    /// Of a request that can't be read: 400 for JSON of another form, 413 for a body that is too
    /// large, 415 for one of another type.
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// When to try again, in seconds.
    retry_after: Option<u64>,
    /// Whether the request can't be read.
    pub(super) is_unreadable: bool,
}

impl Refused {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None, is_unreadable: false }
    }

    /// Refuses a request for what it says.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    fn unreadable(status: StatusCode, message: impl Into<String>) -> Self {
        Self { is_unreadable: true, ..Self::new(status, message) }
    }

    /// Answers a request that can't be read, as FastAPI does.
    pub(super) fn detail(&self) -> Response {
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            return json_answer(self.status, &json!({ "detail": self.message }));
        }
        let detail = json!([{ "type": "invalid", "loc": ["body"], "msg": self.message }]);
        json_answer(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "detail": detail }))
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let seconds = problem.retry_after.map_or(1, |time| (time.ceil() as u64).max(1));
        let (status, retry_after) = match problem.kind {
            ProblemKind::Usage => (StatusCode::BAD_REQUEST, None),
            ProblemKind::Refused => (StatusCode::TOO_MANY_REQUESTS, Some(seconds)),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        Self { retry_after, ..Self::new(status, problem.message) }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Answers the refused requests of these routes as a product does.
pub(super) fn in_form<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    form: fn(&Refused) -> Response,
) -> Router<S> {
    routes.layer(map_response(move |mut response: Response| async move {
        let Some(refused) = response.extensions_mut().remove::<Refused>() else { return response };
        let again = refused.retry_after.map(|time| [(header::RETRY_AFTER, time.to_string())]);
        (again, form(&refused)).into_response()
    }))
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Sent<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let caller = caller(request.extensions());
        // A page of another site can send texts without asking first, but not this type.
        if !is_json(request.headers()) {
            let message = "requests must be of type application/json";
            return Err(Refused::unreadable(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|lost| Refused::unreadable(lost.status(), lost.body_text()))?;
        let sent = serde_json::from_slice(&body);
        sent.map(|sent| Self(caller, sent))
            .map_err(|error| Refused::unreadable(StatusCode::BAD_REQUEST, error.to_string()))
    }
}

/// Returns who sends a request. Clients of these products state limits that they don't need, such as
/// 1 GiB of memory for every job. So even an owner only lowers limits here.
fn caller(extensions: &Extensions) -> Caller {
    let caller = extensions.get::<Caller>().cloned().unwrap_or_else(Caller::owner);
    let interface = extensions.get::<Interface>().copied().unwrap_or(Interface::Http);
    caller.lowering_only().by(interface)
}

fn is_json(headers: &HeaderMap) -> bool {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = sent.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Returns a time of a job.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(LEAST_SECONDS, MOST_SECONDS))
}

/// Returns bytes of memory within what a guest can have; `None` if there is no limit.
pub(super) fn memory(bytes: f64) -> Option<u64> {
    // From what CPython needs to what it can address.
    (bytes > 0.0).then(|| bytes.clamp((32 << 20) as f64, (4u64 << 30) as f64) as u64)
}

/// Decodes base64 as clients wrap it: with line ends.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.split_ascii_whitespace().collect();
    BASE64_STANDARD.decode(digits).ok()
}

/// Encodes as base64.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Returns a path of a file relative to the working directory without `./`.
pub(super) fn plain(path: &str) -> &str {
    let mut path = path;
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_memory_are_brought_into_range() {
        for (given, expected) in [(-1.0, 0.001), (0.0, 0.001), (2.5, 2.5), (1e300, 86_400.0)] {
            assert_eq!(seconds(given), Duration::from_secs_f64(expected), "{given}");
        }
        for (given, expected) in
            [(-1.0, None), (0.0, None), (1.0, Some(32 << 20)), (1e300, Some(4 << 30))]
        {
            assert_eq!(memory(given), expected, "{given}");
        }
    }

    #[test]
    fn base64_may_be_wrapped_but_not_broken() {
        assert_eq!(from_base64("Zm9v\r\nZg==\n").as_deref(), Some(b"foof".as_slice()));
        for broken in ["Zg", "Z", "Zm-_", "é"] {
            assert_eq!(from_base64(broken), None, "{broken}");
        }
    }

    #[test]
    fn only_json_is_read() {
        let headers = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            headers
        };
        for json in ["application/json", "Application/JSON; charset=utf-8"] {
            assert!(is_json(&headers(json)), "{json}");
        }
        for other in ["text/plain", "application/jsonp", "application/x-www-form-urlencoded"] {
            assert!(!is_json(&headers(other)), "{other}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
