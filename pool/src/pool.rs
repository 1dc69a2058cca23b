//! The handle of a pool.

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorRef};

use crate::builds::Builds;
use crate::config::PoolConfig;
use crate::event::{OffloadError, PoolError, PoolOwner};
use crate::session::{Discarded, SessionCell, Tier};
use crate::status::{Board, WorkerStatus};
use crate::supervisor::offloading::{Chore, tell};
use crate::supervisor::{Supervisor, SupervisorMessage, SupervisorState, spawn_cause};

/// The handle of a pool. Cheap to clone; the pool lives until it is closed.
#[derive(Clone, derive_more::Debug)]
#[debug("Pool({board:?})")]
pub struct Pool {
    supervisor: ActorRef<SupervisorMessage>,
    owner: Arc<dyn PoolOwner>,
    board: Board,
    builds: Builds,
}

impl Pool {
    /// Starts a pool without workers. `owner` receives the pool's events. The pool is linked to the
    /// owner's actor: that learns when the supervisor ends, and the pool ends with it.
    ///
    /// # Errors
    /// The supervisor can't be started.
    pub async fn start(
        config: PoolConfig,
        builds: Builds,
        owner: Arc<dyn PoolOwner>,
        actor: ActorCell,
    ) -> Result<Self, PoolError> {
        let board = Board::default();
        let state = SupervisorState::new(config, builds.clone(), Arc::clone(&owner), board.clone());
        let (supervisor, _) = Actor::spawn_linked(None, Supervisor, state, actor)
            .await
            .map_err(|error| PoolError::Start(spawn_cause(error)))?;
        Ok(Self { supervisor, owner, board, builds })
    }

    /// Requests another worker. `PoolEvent::Ready` or `PoolEvent::Gone` follows; nothing follows if
    /// the pool is already closed.
    pub fn add_worker(&self) {
        if self.supervisor.cast(SupervisorMessage::AddWorker).is_err() {
            tracing::debug!("ignored a request for a worker: the pool is closed");
        }
    }

    /// Compresses a suspended session's state or offloads it to disk, on a thread for blocking work.
    /// `PoolEvent::Offloaded` always follows. Jobs of the session don't wait for it.
    pub fn offload(&self, session: Arc<SessionCell>, tier: Tier) {
        let request = SupervisorMessage::Do(Chore::Offload(Arc::clone(&session), tier));
        if self.supervisor.cast(request).is_err() {
            tell(&*self.owner, &session, tier, Err(OffloadError::unchanged("the pool is closed")));
        }
    }

    /// Drops a state on a thread for blocking work. Closing the pool waits for that.
    pub fn discard(&self, state: Discarded) {
        if state.is_light() {
            return;
        }
        // If the pool is closed, the state is dropped here: nobody waits for it any more.
        let _ = self.supervisor.cast(SupervisorMessage::Do(Chore::Drop(state)));
    }

    /// Returns the builds of its interpreters.
    pub fn builds(&self) -> &Builds {
        &self.builds
    }

    /// Returns the status of every worker. Never blocks.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        self.board.snapshot()
    }

    /// Ends every worker after its current order, and waits until all threads have ended and no
    /// state is being offloaded.
    ///
    /// # Errors
    /// The pool is already closed.
    pub async fn close(&self) -> Result<(), PoolError> {
        let closed = self.supervisor.call(SupervisorMessage::Close, None).await;
        match closed {
            Ok(ractor::rpc::CallResult::Success(())) => Ok(()),
            _ => Err(PoolError::Closed),
        }
    }
}
