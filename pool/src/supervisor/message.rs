//! The messages of the supervisor.

use ractor::RpcReplyPort;

use super::restart::History;
use crate::task::{SessionId, WorkerId};

/// What the supervisor is told.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// From the owner, at any time. `Ready` or `Gone` follows for the new worker.
    StartSession(SessionId),
    /// From the owner: the worker ends after its present task. `Gone` follows; nothing if it is
    /// gone already.
    Stop(WorkerId),
    /// From a timer: a back-off is over in a place with this history.
    Replace(History),
    /// From the owner, once. Every worker ends after its present task; the answer comes when all
    /// have ended, then the supervisor ends.
    Close(RpcReplyPort<()>),
}
