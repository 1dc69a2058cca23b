//! The metrics of the process, and the server on which a pool can be watched.
//!
//! Anyone who reaches the address may watch the pool, without a login or encryption, as
//! `docs/metrics.md` says. It is read-only.
//!
//! ```no_run
//! use hatchery::{Hatchery, Job};
//! use serve::monitor::Monitor;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // Before the pool, so that no metric is missed.
//! let mut monitor = Monitor::start("127.0.0.1:9184", None).await?;
//! let pool = Hatchery::builder().workers(2).start().await?;
//! monitor.show(&pool);
//! pool.run(Job::code("6 * 7")).await?;
//! # Ok(())
//! # }
//! ```

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hatchery::Hatchery;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Service;
use crate::http::{self, HttpConfig, HttpError, Metrics};

/// Bucket bounds of times: three per factor of ten, from 10 µs to a minute.
const SECONDS: [f64; 21] = [
    0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];
/// Bucket bounds of sizes, in MiB: from what CPython needs to what a guest can have.
const MEBIBYTES: [f64; 8] = [32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];

/// How often histograms are drained into their buckets if nobody reads them.
const UPKEEP: Duration = Duration::from_secs(5);

/// Connections at once; further ones take the place of idle ones. More would leave the pool fewer
/// descriptors.
const MOST_CONNECTIONS: usize = 32;
/// How long a client may stand still. Scrapers ask again within a minute, on a new connection.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// A pool can't be shown to others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// The address is invalid, not one of this machine, or in use.
    #[error(
        "can't serve metrics at `{0}` (give an address of this machine with a free port, such \
         as 127.0.0.1:9184, or port 0 for any)"
    )]
    Address(String, #[source] io::Error),
    /// The recorder of metrics can't be installed: a process has one.
    #[error("can't record metrics")]
    Recorder(#[from] BuildError),
}

/// A server on which a pool can be watched: `/metrics` for Prometheus, and `/v1/status`,
/// `/v1/decisions` and `/healthz`, as a server has them. Any client that reaches the address may read all
/// of it, and change nothing. Serves until it is dropped.
#[derive(Debug)]
#[must_use = "serves until it is dropped"]
pub struct Monitor {
    address: SocketAddr,
    /// Where the pool is awaited; `None` once it is there.
    started: Option<oneshot::Sender<Hatchery>>,
    server: JoinHandle<Result<(), HttpError>>,
}

impl Monitor {
    /// Serves at `address` from now on, and installs the recorder for pools that start later. Port 0
    /// is any free one. If the pool is one of many of a name, all metrics have it as the label `pool`.
    ///
    /// # Errors
    /// The address is invalid, not of this machine, or in use. Or the process has a recorder of metrics.
    pub async fn start(address: &str, pool: Option<&str>) -> Result<Self, MonitorError> {
        let unusable = |source| MonitorError::Address(address.to_owned(), source);
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let bound = listener.local_addr().map_err(unusable)?;
        let config = HttpConfig {
            watching_only: true,
            connections: MOST_CONNECTIONS,
            idle_time: IDLE_TIME,
            metrics: Some(metrics_page(pool)?),
            ..HttpConfig::default()
        };
        let (started, starts) = oneshot::channel();
        let pool = async {
            match starts.await {
                Ok(pool) => (Service::new(pool), Router::new()),
                // The batch ends before its pool has started.
                Err(_) => pending().await,
            }
        };
        let server = tokio::spawn(http::serve([listener], config, pool, pending()));
        Ok(Self { address: bound, started: Some(started), server })
    }

    /// Returns the address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows this pool. Only the first call has an effect.
    pub fn show(&mut self, pool: &Hatchery) {
        if let Some(started) = self.started.take() {
            // Fails if the server has ended.
            let _ = started.send(pool.clone());
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Unfinished answers end with the process.
        self.server.abort();
    }
}

/// Installs the recorder of metrics for pools that start later. Returns a renderer of Prometheus'
/// text format, with this name as the label `pool`, if it is given. For an [`HttpConfig`]; a
/// [`Monitor`] does this itself. Call it within a runtime of tokio.
///
/// # Errors
/// The process has a recorder already.
pub fn metrics_page(pool: Option<&str>) -> Result<Metrics, MonitorError> {
    let prometheus = recorder(pool)?;
    hatchery::metrics::describe();
    let kept_up = prometheus.clone();
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(UPKEEP);
        loop {
            interval.tick().await;
            kept_up.run_upkeep();
        }
    });
    Ok(Arc::new(move || prometheus.render()))
}

fn recorder(pool: Option<&str>) -> Result<PrometheusHandle, MonitorError> {
    let mut builder = PrometheusBuilder::new();
    if let Some(pool) = pool {
        builder = builder.add_global_label("pool", pool);
    }
    let builder = builder
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(
            Matcher::Suffix("_bytes".to_owned()),
            &MEBIBYTES.map(|size| size * 1_048_576.0),
        )?;
    Ok(builder.install_recorder()?)
}
