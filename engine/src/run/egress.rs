//! The network of a program whose build has no sockets: who serves the streams of its runs.
//!
//! The engine passes the frames of `hatchery/_sockets.py` on unread, and gives answers that come
//! later tickets among those of host functions. So a wait for any answer sees both, and an
//! interrupt ends it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value as Json;

use crate::counted;
use crate::run::outcome::request::{RequestLog, seconds};
use crate::run::transcript::Transcript;

/// Serves the streams of a job's runs, which come one after another.
pub trait NetworkPeer: fmt::Debug + Send + Sync + 'static {
    /// Begins a run, whose requests become events of its transcript as they end.
    fn begin(&self, transcript: &Arc<Transcript>);

    /// Serves a frame at once, or begins to and calls `answer` later, from any thread. It must not
    /// block, since the guest's thread waits.
    fn serve(&self, frame: &[u8], answer: NetworkAnswer) -> NetworkReply;

    /// Ends a run: closes its streams.
    fn finish(&self) -> NetworkEffects;

    /// Returns what the run is doing. Default: nothing is known.
    fn activity(&self) -> NetworkActivity {
        NetworkActivity::default()
    }
}

/// What a run is doing on the network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NetworkActivity {
    /// The requests that it has begun, refused ones and connections that failed included.
    pub requests: usize,
    /// What has been under way longest, if anything is.
    pub under_way: Option<RequestUnderWay>,
}

/// A request that hasn't ended, or a connection that isn't made yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RequestUnderWay {
    /// The method; empty for a connection.
    pub method: String,
    /// As in [`RequestLog::url`].
    pub url: String,
    /// The time since it began, in seconds.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub time: Duration,
}

impl fmt::Display for NetworkActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "made {}", counted(self.requests, "request"))?;
        let Some(RequestUnderWay { method, url, time }) = &self.under_way else { return Ok(()) };
        let what = if method.is_empty() { "the connection to" } else { method };
        write!(f, "; {what} {url} has been under way for {:.3} s", time.as_secs_f64())
    }
}

/// What a run did on the network.
#[derive(Debug, Default)]
pub struct NetworkEffects {
    /// The requests, in the order in which they began.
    pub requests: Vec<RequestLog>,
    /// The exchanges, if the job records them.
    pub recording: Option<Json>,
}

/// Takes an answer that comes later. After the end of the run it does nothing.
pub type NetworkAnswer = Box<dyn FnOnce(Vec<u8>) + Send>;

/// How a frame is answered.
#[derive(derive_more::Debug)]
pub enum NetworkReply {
    /// By these bytes.
    Now(Vec<u8>),
    /// Later. Dropping this gives the operation up.
    #[debug("Later")]
    Later(Box<dyn Any + Send>),
}

/// The first tickets of operations; those of calls are lower.
pub(crate) const FIRST_TICKET: u32 = 1 << 30;
/// The most operations of a run that may be under way.
pub(crate) const MOST_OPERATIONS: usize = 4096;

/// Returns the answer in a job without a network.
pub(crate) fn no_network() -> Vec<u8> {
    refusal(2, "the job may reach no network")
}

/// Returns the answer to an operation beyond [`MOST_OPERATIONS`].
pub(crate) fn too_many() -> Vec<u8> {
    refusal(11, "too many operations of this job are under way: wait for some to end")
}

/// Returns a refusal with a code of `hatchery/_sockets.py`.
fn refusal(code: u8, text: &str) -> Vec<u8> {
    [&[1, code], text.as_bytes()].concat()
}

/// Encodes an answer, or the ticket of one that comes later.
pub(crate) fn encode(answered: Result<Vec<u8>, u32>) -> Vec<u8> {
    answered.unwrap_or_else(|ticket| [&[2], &ticket.to_le_bytes()[..]].concat())
}
