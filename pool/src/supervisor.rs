//! The supervisor: starts workers, watches them, replaces the isolated ones that end.
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
use crate::task::{WorkerId, WorkerKind};
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
    kind: WorkerKind,
    actor: ActorRef<WorkerMessage>,
    history: History,
}

/// A worker that ended, and where.
struct Place {
    worker: WorkerId,
    kind: WorkerKind,
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
        let isolated = config.isolated_workers;
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
        for _ in 0..isolated {
            state.spawn(&myself, WorkerKind::Isolated, History::default()).await;
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
            SupervisorMessage::StartSession(session) => {
                state.spawn(&myself, WorkerKind::Session(session), History::default()).await;
            }
            SupervisorMessage::Replace(history) => {
                state.backing_off -= 1;
                if state.closing.is_none() {
                    state.spawn(&myself, WorkerKind::Isolated, history).await;
                }
            }
            SupervisorMessage::Stop(worker) => {
                let watched = state.workers.values().find(|watched| watched.worker == worker);
                if let Some(watched) = watched {
                    let _ = watched.actor.cast(WorkerMessage::Stop);
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
    async fn spawn(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        kind: WorkerKind,
        history: History,
    ) {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        let arguments = WorkerArguments {
            worker,
            kind,
            source: Arc::clone(&self.source),
            owner: self.owner.clone(),
            board: self.board.clone(),
        };
        match Actor::spawn_linked(None, Worker, arguments, myself.get_cell()).await {
            Ok((actor, _)) => {
                let watched = Watched { worker, kind, actor, history };
                self.workers.insert(watched.actor.get_id(), watched);
            }
            Err(error) => {
                self.board.add(worker, kind);
                let place = Place { worker, kind, history };
                self.gone(myself, place, GoneReason::StartFailed(error.to_string()), false);
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
        if let Some(Watched { worker, kind, history, .. }) = self.workers.remove(&actor) {
            let place = Place { worker, kind, history };
            self.gone(myself, place, reason, had_interpreter);
        }
    }

    /// Tells the owner of a worker's end, and decides on its replacement.
    fn gone(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        place: Place,
        reason: GoneReason,
        had_interpreter: bool,
    ) {
        let Place { worker, kind, mut history } = place;
        let decision = match (kind, &reason) {
            _ if self.closing.is_some() => Decision::Leave,
            (WorkerKind::Session(_), _) | (_, GoneReason::Stopped) => Decision::Leave,
            (WorkerKind::Isolated, _) => history.died(had_interpreter, &self.config),
        };
        match (decision, kind) {
            (Decision::ReplaceAfter(delay), _) => {
                self.board.failed(worker, reason.to_string());
                self.board.activity(worker, WorkerActivity::BackingOff);
                tracing::warn!(%worker, %reason, ?delay, "a worker is replaced");
                self.replace_after(myself, worker, history, delay);
            }
            (Decision::Leave, WorkerKind::Isolated) if self.closing.is_none() => {
                self.board.failed(worker, reason.to_string());
                self.board.activity(worker, WorkerActivity::GivenUp);
                tracing::error!(%worker, %reason, "a worker is given up");
            }
            (Decision::Leave, _) => self.board.remove(worker),
        }
        let is_replaced = matches!(decision, Decision::ReplaceAfter(_));
        let event = PoolEvent::Gone { worker, kind, reason, is_replaced };
        if self.owner.cast(event).is_err() {
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
