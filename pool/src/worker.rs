//! The actor of one worker.
//!
//! The actor owns the life and death of the worker's thread, and nothing else: orders and what
//! comes of them pass it by (`worker/desk.rs`), and what may follow what is in `worker/state.rs`.
//! The thread is joined before the actor ends, unless it is stuck. When the actor is killed or panics, its run is
//! stopped and the thread is joined as the state is dropped; the supervisor waits for that before it
//! tells of the end.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use desk::{Desk, Orders};
use message::WorkerMessage;
use state::GoneReason;

pub(crate) mod desk;
pub(crate) mod message;
pub(crate) mod seat;
mod slot;
pub(crate) mod state;
mod thread;

/// What a worker is made from.
pub(crate) struct WorkerArguments {
    pub(crate) rollback_bytes: u64,
    pub(crate) desk: Arc<Desk>,
    pub(crate) orders: Orders,
}

/// The actor of one worker.
pub(crate) struct Worker;

/// What the actor holds. Dropping it ends the thread, whatever the actor died of.
pub(crate) struct WorkerState {
    desk: Arc<Desk>,
    /// Why the thread ended, once it was joined. The supervisor is handed this state when the actor
    /// has ended.
    gone: Option<GoneReason>,
}

impl WorkerState {
    /// Why the worker is no more; `None` if its actor ended before its thread did.
    pub(crate) fn gone(&self) -> Option<GoneReason> {
        self.gone.clone()
    }
}

impl Drop for WorkerState {
    fn drop(&mut self) {
        self.desk.end();
    }
}

impl Actor for Worker {
    type Msg = WorkerMessage;
    type State = WorkerState;
    type Arguments = WorkerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let WorkerArguments { rollback_bytes, desk, orders } = arguments;
        let actor = myself.clone();
        let ended = move |reason| {
            // The actor outlives its thread, but for a kill; then nobody is left to tell.
            let _ = myself.cast(WorkerMessage::Ended(reason));
        };
        let thread = thread::spawn(Arc::clone(&desk), rollback_bytes, orders, ended)?;
        desk.seat_thread(thread, actor);
        Ok(WorkerState { desk, gone: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WorkerMessage::Stop => state.desk.close(),
            WorkerMessage::Ended(reason) => {
                state.desk.join();
                myself.stop(Some(reason.to_string()));
                state.gone = Some(reason);
            }
        }
        Ok(())
    }
}
