//! What a server may be told.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hatchery::python::PackageInfo;
use serde_json::Value;
use tokio::sync::watch;

use super::token::Token;

/// How a pool is served over HTTP.
///
/// ```
/// use serve::http::HttpConfig;
///
/// let mut config = HttpConfig::new();
/// config.body_bytes = 1 << 20;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpConfig {
    /// The tokens that callers send. Without any, whoever can connect is served, which is allowed
    /// on loopback addresses only. Default: none.
    pub tokens: Vec<Token>,
    /// The most bytes of one body, and of one line of a batch. Fewer refuse jobs with large files;
    /// more hold more memory. Default: 64 MiB.
    pub body_bytes: usize,
    /// The most bytes of all requests that are being received and of all answers that wait to be
    /// read. The pool's memory has so much less. A tenant may hold as much as it leaves free: one
    /// alone half. Beyond it requests are refused with 429. At most a quarter of the pool's memory
    /// applies, and at least twice `body_bytes`. Default: 512 MiB.
    pub bodies_bytes: usize,
    /// The most connections at once; each takes a file descriptor. A further one takes the place of
    /// the connection that has been idle longest, and waits if none is. Default: 1,024.
    pub connections: usize,
    /// The longest time from the start of a connection until its first request is there. Less cuts
    /// off slow networks. Default: 10 s.
    pub header_time: Duration,
    /// The longest time that a connection waits for a further request, for more of a body, or for
    /// the client to read. Default: 60 s.
    pub idle_time: Duration,
    /// Names, without ports, by which clients may call this server beside its address and
    /// `localhost`: those of a proxy, for example. Default: none.
    pub hosts: Vec<String>,
    /// Origins of other web pages whose scripts may call this server, such as
    /// `https://grafana.example`. Default: none.
    pub origins: Vec<String>,
    /// Renders the process's metrics for `/metrics`, in Prometheus's text format. Default: none, and
    /// there is no such page.
    pub metrics: Option<Metrics>,
    /// What pools on many machines are doing, for `/v1/cluster` and the page. Default: none is known.
    pub cluster: Option<Cluster>,
    /// What programs can import, for `/v1/packages`. Default: nothing is known.
    pub packages: Vec<PackageInfo>,
    /// Whether the pool is ready for jobs. While it isn't, `/healthz` says `starting`. Default:
    /// `None`; it is ready.
    pub ready: Option<watch::Receiver<bool>>,
    /// Serves `/metrics`, `/v1/status`, `/v1/decisions` and `/healthz` alone, by which nothing can be
    /// run or changed. Then other machines may connect without a token, under any host name.
    /// Default: false.
    pub watching_only: bool,
    /// Further routes behind the same checks. Their handlers find the [`Caller`](crate::Caller)
    /// among the extensions of the request. Default: none.
    pub routes: Router,
    /// Further routes that need no token. Default: none.
    pub open_routes: Router,
}

/// Renders metrics as text.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Returns what pools on many machines are doing, as `cluster::Cluster` has it, with the name of the
/// pool as `pool`; or why that isn't known.
pub type Cluster = Arc<dyn Fn() -> ClusterState + Send + Sync>;

/// The state to come.
pub type ClusterState = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

impl HttpConfig {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self {
            tokens: Vec::new(),
            body_bytes: 64 << 20,
            bodies_bytes: 512 << 20,
            connections: 1024,
            header_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            hosts: Vec::new(),
            origins: Vec::new(),
            metrics: None,
            cluster: None,
            packages: Vec::new(),
            ready: None,
            watching_only: false,
            routes: Router::new(),
            open_routes: Router::new(),
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HttpConfig")
            .field("tokens", &self.tokens)
            .field("body_bytes", &self.body_bytes)
            .field("connections", &self.connections)
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .finish_non_exhaustive()
    }
}
