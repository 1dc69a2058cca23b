//! A request of a program over HTTP, as callers see it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// A request of a program, or a connection that failed before one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RequestLog {
    /// The method; empty for a connection.
    pub method: String,
    /// The URL as the program wrote it, with placeholders instead of secrets; the host and port of
    /// a connection. At most 2 KiB.
    pub url: String,
    /// The response's status, once it has come.
    pub status: Option<u16>,
    /// Why the request was refused or failed. Both this and `status` are there if the response broke
    /// off.
    pub failure: Option<RequestFailure>,
    /// Bytes that were sent, head and body.
    pub bytes_up: u64,
    /// Bytes that were received, head and body.
    pub bytes_down: u64,
    /// From the request's head to the end of the response, in seconds.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub time: Duration,
    /// Whether the response came to its end. If neither this nor `failure` is there, the program
    /// closed the stream, or the job ended.
    pub is_whole: bool,
}

/// Why a request was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RequestFailure {
    /// The kind in one word, such as `rule`, `secret`, `limit` or `refused`.
    pub kind: String,
    /// What happened, why, and what to do.
    pub message: String,
}

pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl RequestFailure {
    /// Creates a failure of this kind.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into() }
    }
}

impl RequestLog {
    /// Returns what became of it, in one of a few words for metrics: `success`, `redirect`,
    /// `client-error`, `server-error`, `aborted`, or the kind of its failure.
    pub fn label(&self) -> &str {
        match (&self.failure, self.status) {
            (Some(failure), _) => &failure.kind,
            _ if !self.is_whole => "aborted",
            (None, Some(300..400)) => "redirect",
            (None, Some(400..500)) => "client-error",
            (None, Some(500..)) => "server-error",
            (None, _) => "success",
        }
    }
}
