//! The handle of a pool.

use std::sync::Arc;

use ractor::{Actor, ActorRef, DerivedActorRef};

use crate::config::PoolConfig;
use crate::error::PoolError;
use crate::event::PoolEvent;
use crate::interpreter::InterpreterSource;
use crate::status::{Board, WorkerStatus};
use crate::supervisor::message::SupervisorMessage;
use crate::supervisor::{Supervisor, SupervisorArguments};

/// The handle of a pool. Cheap to clone; the pool lives until it is closed.
#[derive(Debug, Clone)]
pub struct Pool {
    supervisor: ActorRef<SupervisorMessage>,
    board: Board,
}

impl Pool {
    /// Starts the workers. `owner` hears when each is ready; the pool is linked
    /// to it, so the owner hears of the supervisor's end, and the pool ends with its owner.
    ///
    /// # Errors
    /// The supervisor can't be started. Workers that can't are told of as events.
    pub async fn start(
        config: PoolConfig,
        source: Arc<dyn InterpreterSource>,
        owner: DerivedActorRef<PoolEvent>,
    ) -> Result<Self, PoolError> {
        let link = owner.get_cell();
        let board = Board::default();
        let arguments = SupervisorArguments { config, source, owner, board: board.clone() };
        let (supervisor, _) = Actor::spawn_linked(None, Supervisor, arguments, link)
            .await
            .map_err(|error| PoolError::Start(error.to_string()))?;
        Ok(Self { supervisor, board })
    }

    /// Every worker as it is now. Never waits for anybody.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        self.board.snapshot()
    }

    /// Ends every worker after what it is doing, and waits until all threads have ended.
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
