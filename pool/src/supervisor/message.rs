//! The messages of the supervisor.

use std::sync::Arc;

use ractor::{ActorId, RpcReplyPort};

use super::restart::History;
use crate::session::{Discarded, SessionCell, Stowage};
use crate::worker::state::GoneReason;

/// What the supervisor is told.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// From the owner, at any time: another worker. It says that it is ready, or is gone.
    AddWorker,
    /// From a timer: a back-off is over in a place with this history.
    Replace(History),
    /// From the thread that waited for a worker's thread whose actor ended first, for this reason.
    Joined(ActorId, GoneReason),
    /// From the owner, at any time. `PoolEvent::Stowed` follows.
    Stow(Arc<SessionCell>, Stowage),
    /// From the thread that stowed a session, and has told the owner.
    StowEnded,
    /// From the owner, at any time. Nothing follows.
    Discard(Discarded),
    /// From the thread that dropped a state.
    DiscardEnded,
    /// From the owner, once. Every worker ends after what it is doing; the answer comes when all
    /// have ended and nothing is being stowed or dropped, then the supervisor ends.
    Close(RpcReplyPort<()>),
}
