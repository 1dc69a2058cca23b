//! The routes for those who only watch a pool.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;

use super::door::Door;
use super::failure::Failure;
use super::{answer, guard, pool};

const INDEX: &str = "Hatchery\n\n\
                     /metrics       for Prometheus\n\
                     /v1/status     the pool as JSON; `hatchery top ADDR` shows it\n\
                     /v1/decisions  what the scheduler decides, as server-sent events\n\
                     /healthz       whether the pool takes jobs\n";

/// Returns the routes by which nothing can be run or changed, behind their checks.
pub(super) fn router(door: Arc<Door>) -> Router {
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
        .layer(from_fn_with_state(Arc::clone(&door), guard::token))
        .route("/healthz", get(pool::health))
        .layer(from_fn_with_state(Arc::clone(&door), guard::place))
        .with_state(door)
}

async fn index() -> Response {
    answer::of(StatusCode::OK, "text/plain; charset=utf-8", INDEX.into())
}
