//! The metrics of the process, and the server on which a batch can be watched.
//!
//! Anyone who reaches the address of a batch may watch it: there is neither a login nor encryption,
//! as `docs/metrics.md` says. Nothing can be changed there.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hatchery::Hatchery;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serve::Service;
use serve::http::{self, HttpConfig, HttpError, Started};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::exit::UsageError;

/// Bucket bounds of times: three per factor of ten, from 10 µs to a minute.
const SECONDS: [f64; 21] = [
    0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];
/// Bucket bounds of sizes, in MiB: from what CPython needs to what a guest can have.
const MEBIBYTES: [f64; 8] = [32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];

/// How often histograms are drained into their buckets if nobody reads them.
const UPKEEP: Duration = Duration::from_secs(5);

/// Connections at once; further ones take the place of idle ones. More would leave the batch fewer
/// descriptors.
const MOST_CONNECTIONS: usize = 32;
/// How long a client may stand still. Scrapers ask again within a minute, on a new connection.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// A server on which a pool can be watched. Serves until it is dropped.
pub(crate) struct Monitor {
    address: SocketAddr,
    /// Where the pool is awaited; `None` once it is there.
    started: Option<oneshot::Sender<Hatchery>>,
    server: JoinHandle<Result<(), HttpError>>,
}

impl Monitor {
    /// Serves at `address` from now on, and installs the recorder for pools that start later. Fails
    /// with a `UsageError` if the address is invalid, not local, or in use.
    pub(crate) async fn start(address: &str) -> anyhow::Result<Self> {
        Self::start_in(address, None).await
    }

    /// The same for a pool that is one of many of this name: all metrics are labelled with it.
    pub(crate) async fn start_in(address: &str, pool: Option<&str>) -> anyhow::Result<Self> {
        let unusable = || {
            UsageError(format!(
                "can't serve metrics at `{address}` (give an address of this machine with a free \
                 port, such as 127.0.0.1:9184, or port 0 for any)"
            ))
        };
        let listener = TcpListener::bind(address).await.with_context(unusable)?;
        let address = listener.local_addr()?;
        let mut config = HttpConfig::new();
        config.watching_only = true;
        config.connections = MOST_CONNECTIONS;
        config.idle_time = IDLE_TIME;
        config.metrics = metrics_page(pool)?;
        let (started, starts) = oneshot::channel();
        let pool = async {
            match starts.await {
                Ok(pool) => Started {
                    service: Service::new(pool),
                    routes: Default::default(),
                    packages: Vec::new(),
                },
                // The batch ends before its pool has started.
                Err(_) => pending().await,
            }
        };
        let server = tokio::spawn(http::serve_from_start([listener], config, pool, pending()));
        Ok(Self { address, started: Some(started), server })
    }

    /// Returns the address, with the actual port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows this pool. Only the first call has an effect.
    pub(crate) fn show(&mut self, pool: &Hatchery) {
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

/// Returns what renders the metrics of a pool that starts later, labelled with its name if it has
/// one; `None` in a build without them.
pub(crate) fn metrics_page(
    pool: Option<&str>,
) -> anyhow::Result<Option<Arc<dyn Fn() -> String + Send + Sync>>> {
    let prometheus = recorder(pool)?;
    hatchery::metrics::describe();
    tokio::spawn(keep_up(prometheus.clone()));
    Ok(Some(Arc::new(move || prometheus.render())))
}

fn recorder(pool: Option<&str>) -> anyhow::Result<PrometheusHandle> {
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

async fn keep_up(prometheus: PrometheusHandle) {
    let mut interval = tokio::time::interval(UPKEEP);
    loop {
        interval.tick().await;
        prometheus.run_upkeep();
    }
}
