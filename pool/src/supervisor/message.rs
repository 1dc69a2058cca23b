//! The messages of the supervisor.

use std::sync::Arc;

use ractor::{ActorId, RpcReplyPort};

use super::restart::History;
use crate::session::{Discarded, SessionCell, Tier};
use crate::worker::state::GoneReason;

/// A message to the supervisor.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// From the owner, at any time: start another worker. `PoolEvent::Ready` or `PoolEvent::Gone`
    /// follows.
    AddWorker,
    /// From a timer: the backoff of a place with this history is over.
    Replace(History),
    /// From the thread that joined the thread of a worker whose actor had ended first, for this
    /// reason.
    Joined(ActorId, GoneReason),
    /// From the owner, at any time. `PoolEvent::Offloaded` follows.
    Offload(Arc<SessionCell>, Tier),
    /// From the thread that offloaded a session and has notified the owner.
    StowEnded,
    /// From the owner, at any time. No event follows.
    Discard(Discarded),
    /// From the thread that dropped a state.
    DiscardEnded,
    /// From the owner, once. Every worker ends after its current order. The reply comes when all
    /// have ended and no state is being offloaded or dropped; then the supervisor ends.
    Close(RpcReplyPort<()>),
}
