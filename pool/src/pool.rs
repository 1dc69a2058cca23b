//! The handle of a pool.

use std::sync::Arc;

use ractor::{Actor, ActorRef, DerivedActorRef};

use crate::config::PoolConfig;
use crate::error::{PoolError, StowError};
use crate::event::PoolEvent;
use crate::interpreter::InterpreterSource;
use crate::session::{Discarded, SessionCell, Stowage};
use crate::status::{Board, WorkerStatus};
use crate::supervisor::message::SupervisorMessage;
use crate::supervisor::stowing::tell;
use crate::supervisor::{Supervisor, SupervisorArguments};

#[cfg(test)]
mod tests;

/// The handle of a pool. Cheap to clone; the pool lives until it is closed.
#[derive(Clone)]
pub struct Pool {
    supervisor: ActorRef<SupervisorMessage>,
    owner: DerivedActorRef<PoolEvent>,
    board: Board,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("workers", &self.board).finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts a pool without workers. `owner` hears of all that happens in it; the pool is linked
    /// to it, so the owner hears of the supervisor's end, and the pool ends with its owner.
    ///
    /// # Errors
    /// The supervisor can't be started.
    pub async fn start(
        config: PoolConfig,
        source: Arc<dyn InterpreterSource>,
        owner: DerivedActorRef<PoolEvent>,
    ) -> Result<Self, PoolError> {
        let link = owner.get_cell();
        let board = Board::default();
        let (told, shown) = (owner.clone(), board.clone());
        let arguments = SupervisorArguments { config, source, owner: told, board: shown };
        let (supervisor, _) = Actor::spawn_linked(None, Supervisor, arguments, link)
            .await
            .map_err(|error| PoolError::Start(error.to_string()))?;
        Ok(Self { supervisor, owner, board })
    }

    /// Asks for another worker. `PoolEvent::Ready` follows, or `PoolEvent::Gone`; nothing if the
    /// pool was closed before.
    pub fn add_worker(&self) {
        if self.supervisor.cast(SupervisorMessage::AddWorker).is_err() {
            tracing::debug!("a closed pool was asked for a worker");
        }
    }

    /// Has the state of a session that rests put where it takes less memory: compressed or written
    /// to disk, on a thread for blocking work. `PoolEvent::Stowed` follows, always. Jobs of the
    /// session don't wait for that.
    pub fn stow(&self, session: Arc<SessionCell>, stowage: Stowage) {
        let asked = SupervisorMessage::Stow(Arc::clone(&session), stowage);
        if self.supervisor.cast(asked).is_err() {
            tell(&self.owner, &session, stowage, Err(StowError::unchanged("the pool is closed")));
        }
    }

    /// Drops a state on a thread for blocking work. Closing waits for that.
    pub fn discard(&self, state: Discarded) {
        if state.is_light() {
            return;
        }
        // If the pool is closed, it is dropped here: nobody waits any more.
        let _ = self.supervisor.cast(SupervisorMessage::Discard(state));
    }

    /// Every worker as it is now. Never waits for anybody.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        self.board.snapshot()
    }

    /// Ends every worker after what it is doing, and waits until all threads have ended and nothing
    /// is being stowed any more.
    ///
    /// # Errors
    /// The pool is closed already.
    pub async fn close(&self) -> Result<(), PoolError> {
        let closed = self.supervisor.call(SupervisorMessage::Close, None).await;
        match closed {
            Ok(ractor::rpc::CallResult::Success(())) => Ok(()),
            _ => Err(PoolError::Closed),
        }
    }
}
