//! Which handler answers which request.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};

use super::failure::Failure;
use super::state::AppState;
use super::{batches, body, guard, openapi, page, pool, run, sessions};
use crate::answer;

/// Returns all routes behind their checks.
pub(super) fn router(state: Arc<AppState>, further: Router) -> Router {
    let further: Router<Arc<AppState>> = further.with_state(());
    let further = further.layer(from_fn_with_state(Arc::clone(&state), body::count));
    let guarded = Router::new()
        .route("/v1/run", post(run::run))
        .route("/v1/batches", post(batches::batch))
        .route("/v1/sessions", get(sessions::list).post(sessions::open))
        .route("/v1/sessions/{name}", delete(sessions::close))
        .route("/v1/sessions/{name}/run", post(run::run_in_session))
        .route("/v1/sessions/{name}/fork", post(sessions::fork))
        .route("/v1/sessions/{name}/forks", post(sessions::fork_many))
        .route("/v1/sessions/{name}/explore", post(sessions::explore))
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
    let open = Router::new().route("/healthz", get(pool::health)).merge(page::routes());
    guarded
        .merge(open)
        .layer(from_fn_with_state(Arc::clone(&state), guard::check_host))
        .with_state(state)
}

const INDEX_TYPE: &str = "text/plain; charset=utf-8";
const INDEX: &str = "Hatchery\n\n\
                     /metrics       for Prometheus\n\
                     /v1/status     the pool as JSON; `hatchery top ADDR` shows it\n\
                     /v1/decisions  what the scheduler decides, as server-sent events\n\
                     /healthz       whether the pool takes jobs\n";

/// Returns the routes by which nothing can be run or changed, behind their checks.
pub(super) fn watching_router(state: Arc<AppState>) -> Router {
    Router::new()
        .route("/", get(async || answer::of(StatusCode::OK, INDEX_TYPE, INDEX.into())))
        .route("/v1/status", get(pool::status))
        .route("/v1/decisions", get(pool::decisions))
        .route("/metrics", get(pool::metrics))
        .fallback(async || Failure::missing("route", "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            let message = "this server only shows the pool; send GET";
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", message)
        })
        .layer(from_fn_with_state(Arc::clone(&state), guard::check_token))
        .route("/healthz", get(pool::health))
        .layer(from_fn_with_state(Arc::clone(&state), guard::check_host))
        .with_state(state)
}
