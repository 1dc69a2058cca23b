//! The messages of the supervisor.

use ractor::RpcReplyPort;

use super::restart::History;

/// What the supervisor is told.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// From a timer: a back-off is over in a place with this history.
    Replace(History),
    /// From the owner, once. Every worker ends after what it is doing; the answer comes when all
    /// have ended, then the supervisor ends.
    Close(RpcReplyPort<()>),
}
