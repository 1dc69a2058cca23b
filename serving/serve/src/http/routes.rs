//! Which handler answers which request.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{delete, get, post};
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::state::AppState;
use super::{batches, body, guard, openapi, page, pool, run, sessions};
use crate::answer;

/// Returns all routes behind their checks.
pub(super) fn router(state: Arc<AppState>) -> Router {
    let further: Router<Arc<AppState>> = state.config.routes.clone().with_state(());
    let further = further.layer(from_fn_with_state(Arc::clone(&state), body::count));
    let guarded = Router::new()
        .route("/v1/run", post(run::run))
        .route("/v1/batches", post(batches::batch))
        .route("/v1/sessions", get(sessions::list).post(sessions::open))
        .route("/v1/sessions/{name}", delete(sessions::close))
        .route("/v1/sessions/{name}/run", post(run::run_in_session))
        .route("/v1/sessions/{name}/fork", post(sessions::fork))
        .route("/v1/sessions/{name}/checkpoint", post(sessions::checkpoint))
        .route("/v1/sessions/{name}/restore", post(sessions::restore))
        .route("/v1/sessions/{name}/reset", post(sessions::reset))
        .route("/v1/sessions/{name}/files", get(sessions::files))
        .route("/v1/sessions/{name}/files/{*path}", get(sessions::file))
        .route("/v1/jobs/{id}/explain", get(pool::explain))
        .route("/v1/jobs/{id}/interrupt", post(pool::interrupt))
        .route("/v1/jobs/{id}/cancel", post(pool::cancel))
        .route("/v1/status", get(pool::status))
        .route("/v1/cluster", get(pool::cluster))
        .route("/v1/decisions", get(pool::decisions))
        .route("/v1/packages", get(pool::packages))
        .route("/v1/workers/{id}/retire", post(pool::retire))
        .route("/v1/statistics/reset", post(pool::reset_statistics))
        .route("/v1/drain", post(pool::drain))
        .route("/metrics", get(pool::metrics))
        .route("/openapi.json", get(openapi::document))
        .merge(further)
        .fallback(async || Failure::missing("route", "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            let message = "this path takes other methods; `/openapi.json` lists them";
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", message)
        })
        .layer(from_fn_with_state(Arc::clone(&state), guard::check_token));
    let open = Router::new()
        .route("/healthz", get(pool::health))
        .merge(page::routes())
        .merge(state.config.open_routes.clone().with_state(()));
    guarded
        .merge(open)
        .layer(from_fn_with_state(Arc::clone(&state), guard::check_host))
        .with_state(state)
}

const INDEX: &str = "Hatchery\n\n\
                     /metrics       for Prometheus\n\
                     /v1/status     the pool as JSON; `hatchery top ADDR` shows it\n\
                     /v1/decisions  what the scheduler decides, as server-sent events\n\
                     /healthz       whether the pool takes jobs\n";

/// Returns the routes by which nothing can be run or changed, behind their checks.
pub(super) fn watching_router(state: Arc<AppState>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/v1/status", get(pool::status))
        .route("/v1/decisions", get(pool::decisions))
        .route("/metrics", get(pool::metrics))
        .fallback(async || Failure::missing("route", "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            let message = "this server is for watching alone; send GET";
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", message)
        })
        .layer(from_fn_with_state(Arc::clone(&state), guard::check_token))
        .route("/healthz", get(pool::health))
        .layer(from_fn_with_state(Arc::clone(&state), guard::check_host))
        .with_state(state)
}

async fn index() -> Response {
    answer::of(StatusCode::OK, "text/plain; charset=utf-8", INDEX.into())
}

/// The options of a job that aren't part of the job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// The session to run in.
    pub(super) session: Option<String>,
    /// Whether the result has the contents of files.
    pub(super) has_files: bool,
}

/// Reads a query, which may have these options, each once.
fn all(query: Option<&str>, known: &[&str]) -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if !known.contains(&name.as_ref()) {
            let message = match known {
                [] => "there are no options here".to_owned(),
                known => format!("there is no such option; use {}", known.join(", ")),
            };
            return Err(Failure::usage(message));
        }
        if found.insert(name.into_owned(), value.into_owned()).is_some() {
            return Err(Failure::usage("an option is given twice"));
        }
    }
    Ok(found)
}

/// Reads a query, which may have this option alone.
pub(super) fn only(query: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
    Ok(all(query, &[name])?.remove(name))
}

impl Options {
    /// Reads a query, which may have these options: `session`, `files`.
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Failure> {
        let mut found = all(query, known)?;
        let has_files = match found.remove("files").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(Failure::usage("`files` is true or false")),
        };
        Ok(Self { session: found.remove("session"), has_files })
    }
}

/// The parts of a path that a route leaves open.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(named)| Self(named)).map_err(|_| {
            let message = "the path isn't valid: names are UTF-8, and ids are numbers";
            Failure::new(StatusCode::BAD_REQUEST, "path", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_and_given_once() {
        let known = ["session", "files"];
        let read = |query| Options::read(Some(query), &known);
        assert_eq!(Options::read(None, &known).unwrap(), Options::default());
        let expected = Options { session: Some("a b/ä".to_owned()), has_files: true };
        assert_eq!(read("session=a+b%2F%C3%A4&files=true").unwrap(), expected);
        for query in ["sesion=a", "files=1", "files=true&files=false", "session"] {
            let status = read(query).map_err(|failure| failure.status());
            // A name without a value is an empty name, which no session has.
            let empty = Options { session: Some(String::new()), ..Options::default() };
            let expected =
                if query == "session" { Ok(empty) } else { Err(StatusCode::BAD_REQUEST) };
            assert_eq!(status, expected, "{query}");
        }
        assert!(Options::read(Some("session=a"), &["files"]).is_err());
    }
}
