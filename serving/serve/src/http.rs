//! The HTTP API.
//!
//! Jobs are the bodies that [`hatchery::wire`] reads, and results those that batches write. A
//! program's error is a result; a request that failed gets a [`Problem`](hatchery::wire::Problem)
//! as `{"error": …}`. `/openapi.json` describes the rest.
//!
//! On a loopback address, every client is served. On any other address a request needs a [`Token`],
//! which stands for a tenant, unless the [network is trusted](HttpConfig::trusts_network). Requests
//! for other hosts and from other pages are refused, so no page in a local browser reaches the pool.

pub use config::{Cluster, ClusterState, HttpConfig, Metrics, Token};
pub use failure::HttpError;

use std::future::pending;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use crate::service::Service;
use state::AppState;

mod batches;
mod body;
mod config;
mod connections;
mod credentials;
mod failure;
mod guard;
mod idempotency;
mod openapi;
mod page;
mod pool;
mod query;
mod routes;
mod run;
mod running;
mod sessions;
mod starting;
mod state;

/// Serves a pool at one or more addresses until `shutdown` is ready. No further connections are
/// accepted from then on, and this returns once the present requests are answered. Drain the pool
/// to bring that about, or stop waiting to drop them.
///
/// The pool is there once `started` is ready; until then `/healthz` says `starting`, and other
/// requests wait. Further routes come with it, behind the same checks: their handlers find the
/// [`Caller`](crate::Caller) among the extensions of the request.
///
/// ```no_run
/// # async fn example(service: serve::Service) -> Result<(), Box<dyn std::error::Error>> {
/// use serve::{facades, http};
///
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
/// let routes = facades::router(&service);
/// let started = std::future::ready((service, routes));
/// let interrupted = async { drop(tokio::signal::ctrl_c().await) };
/// http::serve([listener], http::HttpConfig::default(), started, interrupted).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A listener can be reached from other machines, whose network isn't trusted, and there are no tokens.
/// Or two tokens are the same.
pub async fn serve(
    listeners: impl IntoIterator<Item = TcpListener>,
    config: HttpConfig,
    started: impl Future<Output = (Service, Router)>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), HttpError> {
    let listeners: Vec<_> = listeners.into_iter().collect();
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>();
    let addresses = addresses.map_err(HttpError::Listener)?;
    let reached = addresses.iter().find(|address| !address.ip().is_loopback());
    if let Some(&address) = reached
        && config.tokens.is_empty()
        && !config.watching_only
        && !config.trusts_network
    {
        return Err(HttpError::NoTokens(address));
    }
    config::check(&config.tokens)?;
    let bounds = connections::Bounds {
        most: config.connections,
        header_time: config.header_time,
        idle_time: config.idle_time,
    };
    let (begin, front) = starting::front(&config);
    let beginning = async {
        let (service, further) = started.await;
        let is_for_watching = config.watching_only;
        let state = Arc::new(AppState::new(service, config, addresses));
        begin.send_replace(Some(match is_for_watching {
            true => routes::watching_router(state),
            false => routes::router(state, further),
        }));
        pending::<()>().await;
    };
    tokio::select! {
        () = connections::serve(listeners, front, bounds, shutdown) => {}
        () = beginning => {}
    }
    Ok(())
}
