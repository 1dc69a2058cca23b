//! The supervisor: starts workers, watches them, replaces those that end.
//!
//! It is also the pool's clock file: nothing else in the crate reads a clock or waits on one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, DerivedActorRef, SupervisionEvent};
use tokio::time::Instant;

use crate::config::PoolConfig;
use crate::event::{GoneReason, PoolEvent};
use crate::interpreter::InterpreterSource;
use crate::status::{Board, WorkerActivity};
use crate::task::WorkerId;
use crate::worker::message::WorkerMessage;
use crate::worker::{Worker, WorkerArguments, WorkerState};

use message::SupervisorMessage;
use restart::{Decision, History};

pub(crate) mod message;
pub(crate) mod restart;

/// The time of this crate.
#[expect(clippy::disallowed_methods, reason = "this is the pool's clock file")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// What the supervisor is made from.
pub(crate) struct SupervisorArguments {
    pub(crate) config: PoolConfig,
    pub(crate) source: Arc<dyn InterpreterSource>,
    pub(crate) owner: DerivedActorRef<PoolEvent>,
    pub(crate) board: Board,
}

/// The supervisor.
pub(crate) struct Supervisor;

pub(crate) struct SupervisorState {
    config: PoolConfig,
    source: Arc<dyn InterpreterSource>,
    owner: DerivedActorRef<PoolEvent>,
    board: Board,
    workers: HashMap<ActorId, Watched>,
    next_worker: u64,
    /// Replacements that wait out a back-off.
    backing_off: usize,
    closing: Option<ractor::RpcReplyPort<()>>,
}

/// A worker that lives.
struct Watched {
    worker: WorkerId,
    actor: ActorRef<WorkerMessage>,
    history: History,
}

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = SupervisorArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let SupervisorArguments { config, source, owner, board } = arguments;
        let workers = config.workers;
        let mut state = SupervisorState {
            config,
            source,
            owner,
            board,
            workers: HashMap::new(),
            next_worker: 1,
            backing_off: 0,
            closing: None,
        };
        for _ in 0..workers {
            state.spawn(&myself, History::default()).await;
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Replace(history) => {
                state.backing_off -= 1;
                if state.closing.is_none() {
                    state.spawn(&myself, history).await;
                }
            }
            SupervisorMessage::Close(reply) => {
                for watched in state.workers.values() {
                    let _ = watched.actor.cast(WorkerMessage::Stop);
                }
                state.closing = Some(reply);
            }
        }
        state.finish_closing(&myself);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, last, _) => {
                let last = last.and_then(|mut last| last.take::<WorkerState>().ok());
                let killed = || (GoneReason::Died("its actor was killed".to_owned()), false);
                let (reason, had_interpreter) =
                    last.map_or_else(killed, |last| (last.gone(), last.had_interpreter()));
                state.ended(&myself, cell.get_id(), reason, had_interpreter);
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                let reason = GoneReason::Died(format!("its actor failed: {error}"));
                state.ended(&myself, cell.get_id(), reason, false);
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        state.finish_closing(&myself);
        Ok(())
    }
}

impl SupervisorState {
    async fn spawn(&mut self, myself: &ActorRef<SupervisorMessage>, history: History) {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        let arguments = WorkerArguments {
            worker,
            source: Arc::clone(&self.source),
            owner: self.owner.clone(),
            board: self.board.clone(),
        };
        match Actor::spawn_linked(None, Worker, arguments, myself.get_cell()).await {
            Ok((actor, _)) => {
                self.workers.insert(actor.get_id(), Watched { worker, actor, history });
            }
            Err(error) => {
                self.board.add(worker);
                let reason = GoneReason::StartFailed(error.to_string());
                self.gone(myself, worker, history, reason, false);
            }
        }
    }

    fn ended(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        actor: ActorId,
        reason: GoneReason,
        had_interpreter: bool,
    ) {
        if let Some(Watched { worker, history, .. }) = self.workers.remove(&actor) {
            self.gone(myself, worker, history, reason, had_interpreter);
        }
    }

    /// Tells the owner of a worker's end, and decides on its replacement.
    fn gone(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        worker: WorkerId,
        mut history: History,
        reason: GoneReason,
        had_interpreter: bool,
    ) {
        let is_replaced = if self.closing.is_some() {
            self.board.remove(worker);
            false
        } else {
            self.board.failed(worker, reason.to_string());
            match history.died(had_interpreter, &self.config) {
                Decision::ReplaceAfter(delay) => {
                    self.board.activity(worker, WorkerActivity::BackingOff);
                    tracing::warn!(%worker, %reason, ?delay, "a worker is replaced");
                    self.replace_after(myself, worker, history, delay);
                    true
                }
                Decision::Leave => {
                    self.board.activity(worker, WorkerActivity::GivenUp);
                    tracing::error!(%worker, %reason, "a worker is given up");
                    false
                }
            }
        };
        if self.owner.cast(PoolEvent::Gone { worker, reason, is_replaced }).is_err() {
            tracing::debug!(%worker, "the owner of the pool is gone");
        }
    }

    fn replace_after(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        worker: WorkerId,
        history: History,
        delay: Duration,
    ) {
        self.backing_off += 1;
        let board = self.board.clone();
        myself.send_after(delay, move || {
            board.remove(worker);
            SupervisorMessage::Replace(history)
        });
    }

    /// Answers `Close` once nothing is left.
    fn finish_closing(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if self.workers.is_empty()
            && let Some(reply) = self.closing.take()
        {
            // What waited out a back-off or was given up is no worker any more.
            self.board.clear();
            let _ = reply.send(());
            myself.stop(None);
        }
    }
}
