//! Why the network refused something or failed.

use engine::RequestFailure;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

/// Why an operation failed: one value for each code of the guest's, or finer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, VariantNames, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum FailureReason {
    /// Nothing to read or no room to write; the program can wait until there is.
    WouldBlock,
    /// No rule allows it.
    Rule,
    /// The name leads to an address that only a rule that says so may reach.
    Address,
    /// A secret's placeholder is where it must not be.
    Secret,
    /// A limit of the job.
    Limit,
    /// The name doesn't resolve.
    UnknownName,
    /// The server refuses connections.
    Refused,
    /// No way to the server.
    Unreachable,
    /// A time-out.
    TimedOut,
    /// The connection was lost.
    Reset,
    /// The server ended the connection before its response was whole. A program sees just that end.
    Cut,
    /// The stream was closed for writing.
    Closed,
    /// No such stream.
    BadStream,
    /// A malformed operation, or one at the wrong time.
    Invalid,
    /// The server's certificate isn't valid for its name.
    Certificate,
    /// TLS failed otherwise.
    Tls,
    /// One side doesn't speak HTTP/1.1.
    Protocol,
    /// The recording has no such exchange.
    Replay,
}

impl FailureReason {
    /// Returns the code in the guest's frames.
    pub const fn code(self) -> u8 {
        match self {
            Self::WouldBlock => 1,
            Self::Rule | Self::Address | Self::Secret | Self::Replay => 2,
            Self::UnknownName => 3,
            Self::Refused => 4,
            Self::Unreachable => 5,
            Self::TimedOut => 6,
            Self::Reset | Self::Cut => 7,
            Self::Closed => 8,
            Self::BadStream => 9,
            Self::Invalid => 10,
            Self::Limit => 11,
            Self::Certificate => 12,
            Self::Tls => 13,
            Self::Protocol => 14,
        }
    }

    /// Returns the label for metrics and logs, such as `unknown-name`.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// What went wrong, and what to do about it. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct Failure {
    /// The kind.
    pub reason: FailureReason,
    /// A sentence for the program's author.
    pub text: String,
}

impl From<&Failure> for RequestFailure {
    fn from(failure: &Failure) -> Self {
        Self::new(failure.reason.label(), failure.text.clone())
    }
}

impl Failure {
    pub(crate) fn new(reason: FailureReason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }
}
