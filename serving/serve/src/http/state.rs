//! The state that all handlers share: the service, and what is kept between requests.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::FromRequestParts;
use axum::extract::rejection::ExtensionRejection;
use axum::http::StatusCode;
use axum::http::request::Parts;
use bytes::Bytes;
use hatchery::{Error, Job};

use super::config::HttpConfig;
use super::failure::Failure;
use super::idempotency::Answers;
use super::running::Jobs;
use crate::caller::Caller;
use crate::service::{Service, Shares};

/// The state of a server.
#[derive(Debug)]
pub(super) struct AppState {
    pub(super) service: Service,
    pub(super) config: HttpConfig,
    /// Where it listens.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) jobs: Jobs,
    pub(super) answers: Answers,
    /// The bytes of requests and answers on their way: bodies, lines of batches, results with files.
    /// No job's limit covers them, so the pool's ledger reserves them.
    pub(super) transit: Shares,
}

/// The part of the pool's memory that requests and answers may take: one in this many.
const PART: u64 = 4;

/// The longest text of a job that is read on the thread of the connection.
const MOST_SHORT: usize = 1 << 20;

/// Who sent a request, with the state of the server.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) state: Arc<AppState>,
    pub(super) caller: Caller,
    /// Whether it has the token of an administrator.
    pub(super) is_administrator: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ExtensionRejection> {
        let Extension(client) = Extension::from_request_parts(parts, state).await?;
        Ok(client)
    }
}

impl AppState {
    /// Creates the state of a server.
    pub(super) fn new(service: Service, config: HttpConfig, addresses: Vec<SocketAddr>) -> Self {
        let part = service.pool().status().memory.limit_bytes / PART;
        let most = config.bodies_bytes.min(usize::try_from(part).unwrap_or(usize::MAX));
        // Otherwise no body could be as large as it may be.
        let most = most.max(config.body_bytes.saturating_mul(2));
        service.pool().reserve_memory(part.min(most as u64));
        let transit = Shares::new(most);
        let (jobs, answers) = (Jobs::new(transit.clone()), Answers::default());
        Self { service, config, addresses, jobs, answers, transit }
    }
}

/// Reads a job of a caller.
pub(super) async fn job(caller: &Caller, text: Bytes) -> Result<Job, Failure> {
    let is_short = text.len() <= MOST_SHORT;
    let caller = caller.clone();
    let read = move || {
        let sent = caller.intake().parse(&text).map_err(|error| Error::from(error).problem())?;
        caller.job(sent)
    };
    let job = match is_short {
        true => read(),
        false => tokio::task::spawn_blocking(read).await.map_err(|_| ended())?,
    };
    Ok(job?)
}

/// Returns the failure of a server that ends.
pub(super) fn ended() -> Failure {
    let message = "the server ended before the job did";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message)
}
