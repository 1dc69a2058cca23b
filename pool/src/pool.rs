//! The handle of a pool.

use std::sync::Arc;

use engine::Cause;
use ractor::{Actor, ActorCell, ActorRef};

use crate::builds::Builds;
use crate::config::PoolConfig;
use crate::event::{OffloadError, PoolOwner};
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
    ) -> Result<Self, Cause> {
        let board = Board::default();
        let state = SupervisorState::new(config, builds.clone(), Arc::clone(&owner), board.clone());
        let not_started = |error| {
            Cause::because("the supervisor of the pool could not be started", spawn_cause(error))
        };
        let (supervisor, _) =
            Actor::spawn_linked(None, Supervisor, state, actor).await.map_err(not_started)?;
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

    /// Ends every worker after its current command, and waits until all threads have ended and no
    /// state is being offloaded. Returns whether this call did that: a pool is closed once.
    pub async fn close(&self) -> bool {
        let closed = self.supervisor.call(SupervisorMessage::Close, None).await;
        closed.is_ok_and(|closed| closed.is_success())
    }
}
