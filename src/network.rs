//! Which connections a pool allows its programs, and a job's subset.

use engine::{Destination, Network};

/// Programs can't be allowed these connections.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The pool's interpreters are in processes.
    #[error(
        "connections are for interpreters on threads, and a worker process is confined without any \
         network: allow no connections, or use the isolation `threads`"
    )]
    Isolation,
    /// No Python build of the pool can connect.
    #[error(
        "no Python build here can connect to what programs are allowed: {}; a build for WASIX can",
        reasons.join("; ")
    )]
    Build {
        /// Why not, for each build.
        reasons: Vec<String>,
    },
    /// A job asks for more than its pool allows.
    #[error(
        "the pool doesn't allow its jobs to connect to `{destination}` (`Builder::allow_connect`)"
    )]
    NotAllowed {
        /// The first destination that isn't allowed.
        destination: Destination,
    },
}

/// Returns what a job may reach in a pool that allows `allowed`: all of it, or what the job asks
/// for.
pub(crate) fn of_job(allowed: &Network, asked: Option<Network>) -> Result<Network, NetworkError> {
    let Some(asked) = asked else { return Ok(allowed.clone()) };
    match asked.beyond(allowed) {
        Some(destination) => Err(NetworkError::NotAllowed { destination: destination.clone() }),
        None => Ok(asked),
    }
}
