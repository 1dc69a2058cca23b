//! Servers for the tests, on one pool where that is possible.

use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::response::Html;
use axum::routing::get;
use hatchery::{Builder, Hatchery, Limits};
use serde_json::{Value, json};
use serve::Service;
use serve::http::{ClusterState, HttpConfig, Token};
use test_support::http;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub(crate) const ADA: &str = "secret-of-ada-0123456789";
pub(crate) const OPERATOR: &str = "secret-of-the-operator-0";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// The pool of most tests. Its programs may write more than the page shows.
pub(crate) static POOL: LazyLock<Hatchery> = LazyLock::new(|| {
    let limits = Limits { output_bytes: 4 << 20, ..Limits::default() };
    start(|builder| builder.limits(limits))
});

pub(crate) fn start(configure: impl FnOnce(Builder) -> Builder) -> Hatchery {
    RUNTIME.block_on(configure(Hatchery::builder().workers(2)).start()).unwrap()
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(future)
}

/// Serves a pool to everybody here, and returns the address of the page.
pub(crate) fn open(pool: &Hatchery) -> String {
    serve(pool, HttpConfig::default())
}

/// Serves a pool to everybody here and to pages of this origin.
pub(crate) fn open_to(pool: &Hatchery, origin: &str) -> String {
    let mut config = HttpConfig::default();
    config.origins = vec![origin.to_owned()];
    serve(pool, config)
}

/// Serves a page of somebody else, that shows the component of the server that its query names.
pub(crate) fn host(pool: &Hatchery) -> String {
    const PAGE: &str = "<body><script type=module>
        await import(decodeURIComponent(location.search.slice(1)) + 'page/hatchery-pool.js');
        document.body.append(document.createElement('hatchery-pool'));
    </script>";
    let answer =
        || async { ([(CONTENT_SECURITY_POLICY, "default-src * 'unsafe-inline'")], Html(PAGE)) };
    let routes = Router::new().route("/host", get(answer));
    serve_with(pool, HttpConfig::default(), routes)
}

/// Serves a pool to everybody here, which knows of a cluster in this state; without one it isn't
/// reached. Returns the address of the page.
pub(crate) fn open_with_cluster(pool: &Hatchery, state: Option<Value>) -> String {
    let mut config = HttpConfig::default();
    config.cluster = Some(Arc::new(move || -> ClusterState {
        let state = state.clone().ok_or_else(|| "the NATS server is gone".to_owned());
        Box::pin(async move { state })
    }));
    serve(pool, config)
}

/// Serves a pool to those with a token, and returns the address of the page.
pub(crate) fn guarded(pool: &Hatchery) -> String {
    let mut config = HttpConfig::default();
    config.tokens = Token::read(&format!("{ADA} ada\n{OPERATOR}")).unwrap();
    serve(pool, config)
}

fn serve(pool: &Hatchery, config: HttpConfig) -> String {
    serve_with(pool, config, Router::new())
}

fn serve_with(pool: &Hatchery, config: HttpConfig, routes: Router) -> String {
    let _runtime = RUNTIME.enter();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let address = listener.local_addr().unwrap();
    let started = std::future::ready((Service::new(pool.clone()), routes));
    RUNTIME.spawn(serve::http::serve([listener], config, started, std::future::pending()));
    format!("http://{address}/")
}

/// Submits a program with this token, and returns the thread that waits for its result.
pub(crate) fn submit(page: &str, token: &str, code: &str) -> JoinHandle<Value> {
    let (url, body) = (format!("{page}v1/run"), json!({ "code": code }));
    let token = token.to_owned();
    thread::spawn(move || post(&url, &token, &body))
}

/// Sends a request, and returns the answer.
pub(crate) fn post(url: &str, token: &str, body: &Value) -> Value {
    let token = format!("Bearer {token}");
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    http::request("POST", url, &headers, body.to_string().as_bytes()).unwrap().json()
}
