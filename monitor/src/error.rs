//! Why a pool can't be shown or watched.

use std::io;
use std::time::Duration;

use metrics_exporter_prometheus::BuildError;

/// A pool can't be shown to others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// The address is invalid, not one of this machine, or in use.
    #[error(
        "can't serve metrics at `{address}` (give an address of this machine with a free port, such \
         as 127.0.0.1:9184, or port 0 for any)"
    )]
    Address {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The recorder of metrics can't be installed: a process has one.
    #[error("can't record metrics")]
    Recorder(#[from] BuildError),
}

/// A text is no address to watch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address; write HOST:PORT, such as 127.0.0.1:9184")]
#[non_exhaustive]
pub struct InvalidAddress(pub String);

/// There is no status to be had from an address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Nothing answers there, or not over HTTP.
    #[error("no answer over HTTP")]
    Connection(#[from] Box<ureq::Error>),
    /// The system refuses the connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The answer takes too long.
    #[error("no answer in {} s", .0.as_secs())]
    Slow(Duration),
    /// It is a server that wants a token.
    #[error("the server there wants a token, and `hatchery top` sends none")]
    Token,
    /// Something else answers.
    #[error("the server there is not Hatchery: {status}")]
    Other {
        /// The status of HTTP.
        status: String,
    },
    /// The answer is no status, or that of another version.
    #[error("the server there is not Hatchery of this version")]
    Version(#[from] serde_json::Error),
}
