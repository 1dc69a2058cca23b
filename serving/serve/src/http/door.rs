//! What every handler knows: the service, and what is kept between requests.

use std::net::SocketAddr;

use axum::http::StatusCode;
use bytes::Bytes;
use hatchery::{Error, Job};

use crate::caller::Caller;
use crate::service::Service;
use crate::shares::Shares;

use super::config::HttpConfig;
use super::failure::Failure;
use super::idempotency::Answers;
use super::running::Jobs;
use super::transit;

/// The state of a server.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) service: Service,
    pub(super) config: HttpConfig,
    /// Where it listens.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) jobs: Jobs,
    pub(super) answers: Answers,
    pub(super) transit: Shares,
}

/// The longest text of a job that is read on the thread of the connection.
const MOST_SHORT: usize = 1 << 20;

/// Who sent a request.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    pub(super) caller: Caller,
    /// Whether it has the token of an administrator.
    pub(super) is_administrator: bool,
}

impl Door {
    /// Opens the door to a service.
    pub(super) fn new(service: Service, config: HttpConfig, addresses: Vec<SocketAddr>) -> Self {
        let transit = transit::of_pool(service.pool(), &config);
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
