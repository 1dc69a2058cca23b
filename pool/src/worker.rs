//! The actor of one worker.
//!
//! The actor owns only the lifetime of the worker's thread. Commands and results bypass it
//! (`worker/control.rs`); `worker/state.rs` has the transitions. The thread is joined before the
//! actor ends, unless it is stuck. When the actor is killed or panics, dropping its state stops the
//! run and joins the thread. The supervisor waits for that before it reports the end.

use std::sync::Arc;

use engine::chain;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use control::{CommandQueue, WorkerControl, WorkerMessage};
use state::GoneReason;

pub(crate) mod control;
mod slot;
pub(crate) mod state;

/// The actor of one worker.
pub(crate) struct Worker;

/// The state of the actor. Dropping it ends the thread, however the actor ended.
pub(crate) struct WorkerState {
    control: Arc<WorkerControl>,
    /// Why the thread ended, set once it has been joined. The supervisor gets this state when the
    /// actor has ended.
    pub(crate) gone: Option<GoneReason>,
}

impl Drop for WorkerState {
    fn drop(&mut self) {
        self.control.end();
    }
}

impl Actor for Worker {
    type Msg = WorkerMessage;
    type State = WorkerState;
    type Arguments = (Arc<WorkerControl>, CommandQueue);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (control, commands): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let actor = myself.clone();
        let ended = move |reason| {
            // The actor outlives its thread unless it was killed, and then nobody listens.
            let _ = myself.cast(WorkerMessage::Ended(reason));
        };
        let thread = slot::spawn(Arc::clone(&control), commands, ended)?;
        control.set_thread(thread, actor);
        Ok(WorkerState { control, gone: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WorkerMessage::Stop => state.control.close(),
            WorkerMessage::Ended(reason) => {
                state.control.join();
                myself.stop(Some(chain(&reason).to_string()));
                state.gone = Some(reason);
            }
        }
        Ok(())
    }
}
