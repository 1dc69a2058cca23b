//! Connections of older clients: each is of use only to the caller who opened it.
//!
//! The library that serves the protocol takes any id that it knows. So an id that leaves the server
//! gets a tag that only the server can make, for the caller whom it answers. For other callers there
//! is no connection of that id.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::caller::Caller;

/// Where the protocol has the id of a connection.
const ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Between an id and its tag. Ids don't have it.
const SEPARATOR: char = '.';

/// Makes tags. Clones make the same ones.
#[derive(Clone)]
pub(super) struct Tags {
    key: [u8; 32],
}

impl Tags {
    /// Makes tags that nobody else can make.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("Linux gives random numbers");
        Self { key }
    }

    fn tag(&self, id: &str, caller: &Caller) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(caller.identity().as_bytes()).update(id.as_bytes()).finalize()
    }

    /// Returns the library's id of a connection that this caller opened.
    fn opened(&self, sent: &HeaderValue, caller: &Caller) -> Option<HeaderValue> {
        let (id, tag) = sent.to_str().ok()?.rsplit_once(SEPARATOR)?;
        // Hashes are compared in constant time.
        let is_own = blake3::Hash::from_hex(tag).ok()? == self.tag(id, caller);
        is_own.then(|| HeaderValue::from_str(id).ok())?
    }

    fn tagged(&self, id: &HeaderValue, caller: &Caller) -> Option<HeaderValue> {
        let id = id.to_str().ok()?;
        let tag = self.tag(id, caller).to_hex();
        HeaderValue::from_str(&format!("{id}{SEPARATOR}{tag}")).ok()
    }
}

/// Passes requests on with the library's ids, and answers with those of the caller.
pub(super) async fn belong(State(tags): State<Tags>, mut request: Request, next: Next) -> Response {
    // Requests without a caller are refused behind this.
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return next.run(request).await;
    };
    if !replace(request.headers_mut(), |id| tags.opened(id, &caller)) {
        return (StatusCode::NOT_FOUND, Body::from("Not Found: Session not found")).into_response();
    }
    let mut response = next.run(request).await;
    replace(response.headers_mut(), |id| tags.tagged(id, &caller));
    response
}

/// Replaces the id if there is one; returns whether it could be replaced.
fn replace(headers: &mut HeaderMap, change: impl Fn(&HeaderValue) -> Option<HeaderValue>) -> bool {
    let Some(id) = headers.remove(ID) else { return true };
    let changed = change(&id);
    let is_changed = changed.is_some();
    headers.extend(changed.map(|id| (ID, id)));
    is_changed
}
