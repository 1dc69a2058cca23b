//! How much of the network a job may use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureReason};

/// Limits on a job's requests. In files and messages, times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EgressLimits {
    /// Requests, refused ones and connections that fail included. Default: 1,000.
    pub requests: u64,
    /// Requests at the same time; more wait. Default: 128.
    pub concurrent_requests: usize,
    /// Open streams. Default: 256.
    pub streams: usize,
    /// Bytes of a request's body. Default: 64 MiB.
    pub request_bytes: u64,
    /// Bytes of a response's body. Default: 256 MiB.
    pub response_bytes: u64,
    /// Bytes of the head of a request or a response. Default: 64 KiB.
    pub head_bytes: usize,
    /// Bytes of bodies that a recording of the job holds. Default: 64 MiB.
    pub recorded_bytes: u64,
    /// Time to look a name up and connect, and then for TLS. Default: 10 s.
    #[serde(with = "seconds")]
    pub connect_time: Duration,
    /// Time without a byte from the server, or a byte to it while the request is being sent.
    /// Default: 60 s.
    #[serde(with = "seconds")]
    pub idle_time: Duration,
    /// Time from a request's head to the end of its response. Default: 10 min.
    #[serde(with = "seconds")]
    pub request_time: Duration,
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            requests: 1000,
            concurrent_requests: 128,
            streams: 256,
            request_bytes: 64 << 20,
            response_bytes: 256 << 20,
            head_bytes: 64 << 10,
            recorded_bytes: 64 << 20,
            connect_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            request_time: Duration::from_secs(600),
        }
    }
}

/// Writes times as seconds, whole or not.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(de::Error::custom)
    }
}

/// An amount that grows up to a limit.
#[derive(Debug)]
pub(crate) struct UsageMeter {
    what: &'static str,
    option: &'static str,
    limit: u64,
    used: AtomicU64,
}

impl UsageMeter {
    pub(crate) fn new(what: &'static str, option: &'static str, limit: u64) -> Self {
        Self { what, option, limit, used: AtomicU64::new(0) }
    }

    /// Uses some, or refuses to.
    pub(crate) fn add(&self, amount: u64) -> Result<(), Failure> {
        let used = self.used.fetch_add(amount, Ordering::Relaxed).saturating_add(amount);
        match used <= self.limit {
            true => Ok(()),
            false => {
                let Self { what, option, limit, .. } = self;
                let text = format!("the limit of {limit} {what} is met: raise `{option}`");
                Err(Failure::new(FailureReason::Limit, text))
            }
        }
    }
}
