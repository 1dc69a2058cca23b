//! What a server answers while its pool starts.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt;

use super::config::{HttpConfig, Metrics};
use super::credentials::take_from_path;
use super::failure::Failure;
use super::pool::METRICS_TYPE;
use super::state;
use crate::answer;

/// What is known before the pool has started.
#[derive(Clone)]
struct Front {
    /// The routes of the pool, once it has started.
    routes: watch::Receiver<Option<Router>>,
    /// Whether requests are answered at once, and not when the pool has started.
    is_hasty: bool,
    metrics: Option<Metrics>,
}

/// Returns the router of a pool that starts, and where to put the routes of the pool.
///
/// `/healthz` is answered at once. Other requests wait for the pool, but not those of watchers: they
/// are to learn that it starts.
pub(super) fn front(config: &HttpConfig) -> (watch::Sender<Option<Router>>, Router) {
    let (begin, routes) = watch::channel(None);
    let is_hasty = config.watching_only;
    let metrics = config.metrics.clone().filter(|_| is_hasty);
    let front = Front { routes, is_hasty, metrics };
    (begin, Router::new().fallback(pass_on).with_state(front))
}

async fn pass_on(State(mut front): State<Front>, request: Request) -> Response {
    if front.routes.borrow().is_none()
        && let Some(answer) = front.answer_meanwhile(request.uri().path())
    {
        return answer;
    }
    // It ends without them if the server ends before.
    let routes = front.routes.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
    let Some(routes) = routes else { return state::ended().into_response() };
    match routes.oneshot(take_from_path(request)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl Front {
    /// Returns the answer before the pool has started; `None` if the request is to wait.
    fn answer_meanwhile(&self, path: &str) -> Option<Response> {
        let starting = StatusCode::SERVICE_UNAVAILABLE;
        match (path, &self.metrics) {
            ("/healthz", _) => Some(answer::json(starting, &json!({ "status": "starting" }))),
            ("/metrics", Some(render)) => {
                Some(answer::of(StatusCode::OK, METRICS_TYPE, render().into()))
            }
            _ => self.is_hasty.then(|| {
                let message = "the pool is starting: ask again in a few seconds";
                Failure::new(starting, "starting", message).into_response()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::routing::get;
    use http_body_util::BodyExt;

    use super::*;

    async fn ask(front: &Router, path: &str) -> (u16, String) {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = front.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn of_pool() -> Router {
        Router::new().route("/healthz", get(async || "up")).route("/x", get(async || "x"))
    }

    #[tokio::test]
    async fn a_pool_that_starts_says_so_and_lets_others_wait() {
        let (begin, front) = front(&HttpConfig::default());
        let starting = (503, "{\"status\":\"starting\"}".to_owned());
        assert_eq!(ask(&front, "/healthz").await, starting);
        let waiting = ask(&front, "/x");
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("it has to wait"),
            () = std::future::ready(()) => {}
        }
        begin.send_replace(Some(of_pool()));
        assert_eq!(waiting.await, (200, "x".to_owned()));
        assert_eq!(ask(&front, "/healthz").await, (200, "up".to_owned()));
    }

    #[tokio::test]
    async fn watchers_are_told_at_once_and_have_the_metrics() {
        let metrics: Metrics = Arc::new(|| "jobs 1\n".to_owned());
        let config =
            HttpConfig { watching_only: true, metrics: Some(metrics), ..HttpConfig::default() };
        let (begin, front) = front(&config);
        assert_eq!(ask(&front, "/metrics").await, (200, "jobs 1\n".to_owned()));
        let (status, said) = ask(&front, "/v1/status").await;
        assert!(status == 503 && said.contains("is starting"), "{said}");
        begin.send_replace(Some(of_pool()));
        assert_eq!(ask(&front, "/metrics").await.0, 404);
    }

    #[tokio::test]
    async fn a_server_that_ends_before_its_pool_is_there_says_so() {
        let (begin, front) = front(&HttpConfig::default());
        drop(begin);
        assert_eq!(ask(&front, "/x").await.0, 503);
    }
}
