//! Serves a pool's metrics and status over HTTP while a command runs.
//!
//! Anyone who reaches the address may read them: there is neither a login nor encryption, as
//! `docs/metrics.md` says. Nothing can be changed there.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::routing::get;
use hatchery::Hatchery;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::exit::UsageError;

mod connections;

/// Bucket bounds of times: three per factor of ten, from 10 µs to a minute.
const SECONDS: [f64; 21] = [
    0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];
/// Bucket bounds of sizes, in MiB: from what CPython needs to what a guest can have.
const MEBIBYTES: [f64; 8] = [32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];

/// How often histograms are drained into their buckets if nobody reads them.
const UPKEEP: Duration = Duration::from_secs(5);

const INDEX: &str = "Hatchery\n\n\
                     /metrics  for Prometheus\n\
                     /status   the pool as JSON; `hatchery top ADDR` shows it\n";

type Page = (StatusCode, [(HeaderName, &'static str); 1], String);

/// Serves until it is dropped.
pub(crate) struct Monitor {
    address: SocketAddr,
    pages: Pages,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Clone)]
struct Pages {
    prometheus: PrometheusHandle,
    /// Empty while the pool starts.
    pool: Arc<OnceLock<Hatchery>>,
}

impl Monitor {
    /// Serves at `address` from now on, and installs the recorder for pools that start later. Fails
    /// with a `UsageError` if the address is invalid, not local, or in use.
    pub(crate) async fn start(address: &str) -> anyhow::Result<Self> {
        let unusable = || {
            UsageError(format!(
                "can't serve metrics at `{address}` (give an address of this machine with a free \
                 port, such as 127.0.0.1:9184, or port 0 for any)"
            ))
        };
        let listener = TcpListener::bind(address).await.with_context(unusable)?;
        let address = listener.local_addr()?;
        let pages = Pages { prometheus: recorder()?, pool: Arc::default() };
        hatchery::metrics::describe();
        let router = Router::new()
            .route("/", get(|| async { page("text/plain; charset=utf-8", INDEX.to_owned()) }))
            .route("/metrics", get(metrics))
            .route("/status", get(status))
            .with_state(pages.clone());
        let server = tokio::spawn(connections::serve(listener, router));
        let upkeep = tokio::spawn(keep_up(pages.prometheus.clone()));
        Ok(Self { address, pages, tasks: [server, upkeep] })
    }

    /// Returns the address, with the actual port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows this pool. Only the first call has an effect.
    pub(crate) fn show(&self, pool: &Hatchery) {
        let _ = self.pages.pool.set(pool.clone());
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Unfinished answers end with the process.
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Returns what renders the metrics of a pool that starts later; `None` in a build without them.
pub(crate) fn metrics_page() -> anyhow::Result<Option<Arc<dyn Fn() -> String + Send + Sync>>> {
    let prometheus = recorder()?;
    hatchery::metrics::describe();
    tokio::spawn(keep_up(prometheus.clone()));
    Ok(Some(Arc::new(move || prometheus.render())))
}

fn recorder() -> anyhow::Result<PrometheusHandle> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(
            Matcher::Suffix("_bytes".to_owned()),
            &MEBIBYTES.map(|size| size * 1_048_576.0),
        )?;
    Ok(builder.install_recorder()?)
}

async fn keep_up(prometheus: PrometheusHandle) {
    let mut interval = tokio::time::interval(UPKEEP);
    loop {
        interval.tick().await;
        prometheus.run_upkeep();
    }
}

async fn metrics(State(pages): State<Pages>) -> Page {
    // Computing a status sets the gauges.
    let _ = pages.pool.get().map(Hatchery::status);
    page("text/plain; version=0.0.4; charset=utf-8", pages.prometheus.render())
}

async fn status(State(pages): State<Pages>) -> Page {
    let failed = |code, text: String| (code, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text);
    let Some(pool) = pages.pool.get() else {
        return failed(StatusCode::SERVICE_UNAVAILABLE, "the pool is starting\n".to_owned());
    };
    match serde_json::to_string(&pool.status()) {
        Ok(text) => page("application/json", text),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn page(kind: &'static str, text: String) -> Page {
    (StatusCode::OK, [(CONTENT_TYPE, kind)], text)
}
