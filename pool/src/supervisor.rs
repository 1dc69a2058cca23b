//! The supervisor starts workers on request and replaces those that end unexpectedly. It has suspended
//! states offloaded and old ones dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use engine::{Cause, chain};
use ractor::{
    Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent,
};

use crate::builds::Builds;
use crate::config::PoolConfig;
use crate::event::{OffloadError, PoolEvent, PoolOwner};
use crate::ids::{BuildId, WorkerId};
use crate::metrics;
use crate::offload::OffloadFile;
use crate::status::{Board, WorkerActivity};
use crate::worker::control::{WorkerControl, WorkerMessage};
use crate::worker::state::GoneReason;
use crate::worker::{Worker, WorkerState};
use offloading::Chore;

pub(crate) mod offloading;

/// The error of ractor when an actor that is being stopped spawns another one.
const ENDING: &str = "Supervisor is shutting down";

pub(crate) struct Supervisor;

pub(crate) struct SupervisorState {
    config: PoolConfig,
    builds: Builds,
    owner: Arc<dyn PoolOwner>,
    board: Board,
    workers: HashMap<ActorId, Watched>,
    next_worker: u64,
    /// Workers whose places were given up, as the board shows them, the oldest first.
    given_up: VecDeque<WorkerId>,
    disk: Arc<OffloadFile>,
    /// Those that wait for the present ones.
    chores: Vec<Chore>,
    is_doing_chores: bool,
    /// Of states since the allocator last returned its free memory.
    freed_bytes: u64,
    closing: Option<ractor::RpcReplyPort<()>>,
}

/// A worker whose thread may still be running.
struct Watched {
    actor: ActorRef<WorkerMessage>,
    control: Arc<WorkerControl>,
    /// Consecutive workers of its place, before it, that died before they had an interpreter.
    failures: u32,
}

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = SupervisorState;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(arguments)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::AddWorker => {
                // It replaces a worker on the board that was given up, so these never pile up.
                if let Some(worker) = state.given_up.pop_front() {
                    state.board.remove(worker);
                }
                state.spawn(&myself, 0).await;
            }
            SupervisorMessage::Replace { failures } => {
                if state.closing.is_none() {
                    metrics::worker_restarted();
                    state.spawn(&myself, failures).await;
                }
            }
            SupervisorMessage::Joined(actor, reason) => state.ended(&myself, actor, reason),
            SupervisorMessage::Do(Chore::Offload(cell, tier)) if state.closing.is_some() => {
                let closing = Err(OffloadError::unchanged("the pool is closing"));
                offloading::tell(&*state.owner, &cell, tier, closing);
            }
            SupervisorMessage::Do(chore) => {
                state.chores.push(chore);
                state.start_chores(&myself);
            }
            SupervisorMessage::ChoresDone { freed_bytes } => {
                state.is_doing_chores = false;
                state.freed_bytes = freed_bytes;
                state.start_chores(&myself);
            }
            SupervisorMessage::Close(reply) => {
                for watched in state.workers.values() {
                    let _ = watched.actor.cast(WorkerMessage::Stop);
                }
                state.close_chores();
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
                match last.as_ref().and_then(|last| last.gone.clone()) {
                    Some(reason) => state.ended(&myself, cell.get_id(), reason),
                    None => {
                        let reason = GoneReason::Died("its actor was killed".into());
                        state.join(&myself, cell.get_id(), reason, last);
                    }
                }
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                let reason = GoneReason::Died(Cause::because("its actor failed", error));
                state.join(&myself, cell.get_id(), reason, None);
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        state.finish_closing(&myself);
        Ok(())
    }
}

/// Returns why a worker's actor could not be started. If the supervisor itself is being stopped
/// from outside, the worker is not to blame.
fn not_started(error: SpawnErr) -> GoneReason {
    let cause = spawn_cause(error);
    if cause.to_string() == ENDING { GoneReason::Stopped } else { GoneReason::StartFailed(cause) }
}

/// Returns why an actor could not be started, without ractor's own words.
pub fn spawn_cause(error: SpawnErr) -> Cause {
    match error {
        SpawnErr::StartupFailed(error) => Cause::new(error),
        error => Cause::new(error),
    }
}

impl SupervisorState {
    /// Returns the state of a supervisor without workers.
    pub(crate) fn new(
        config: PoolConfig,
        builds: Builds,
        owner: Arc<dyn PoolOwner>,
        board: Board,
    ) -> Self {
        Self {
            disk: Arc::new(OffloadFile::new(config.offload_dir.clone())),
            chores: Vec::new(),
            is_doing_chores: false,
            freed_bytes: 0,
            config,
            builds,
            owner,
            board,
            workers: HashMap::new(),
            next_worker: 1,
            given_up: VecDeque::new(),
            closing: None,
        }
    }

    async fn spawn(&mut self, myself: &ActorRef<SupervisorMessage>, failures: u32) {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        let entry = self.board.add(worker, self.builds.name(BuildId::default()));
        let (owner, builds) = (self.owner.clone(), self.builds.clone());
        let (control, commands) =
            WorkerControl::new(worker, owner, builds, self.config.rollback_bytes, entry);
        if self.closing.is_some() {
            // It was requested before the pool was closed, and its owner still expects an event.
            self.gone(myself, &control, failures, GoneReason::Stopped);
            return;
        }
        let arguments = (Arc::clone(&control), commands);
        match Actor::spawn_linked(None, Worker, arguments, myself.get_cell()).await {
            Ok((actor, _)) => {
                self.workers.insert(actor.get_id(), Watched { actor, control, failures });
            }
            Err(error) => self.gone(myself, &control, failures, not_started(error)),
        }
    }

    /// Ends the thread of a worker whose actor ended first, on another thread.
    fn join(
        &self,
        myself: &ActorRef<SupervisorMessage>,
        actor: ActorId,
        reason: GoneReason,
        last: Option<WorkerState>,
    ) {
        let Some(Watched { control, .. }) = self.workers.get(&actor) else { return };
        let (control, myself) = (Arc::clone(control), myself.clone());
        // Completion is reported by `Joined`.
        drop(tokio::task::spawn_blocking(move || {
            drop(last);
            control.end();
            let _ = myself.cast(SupervisorMessage::Joined(actor, reason));
        }));
    }

    /// Notes that a worker's thread has been joined.
    fn ended(&mut self, myself: &ActorRef<SupervisorMessage>, actor: ActorId, reason: GoneReason) {
        if let Some(Watched { control, failures, .. }) = self.workers.remove(&actor) {
            self.gone(myself, &control, failures, reason);
        }
    }

    /// Reports a worker's end to the owner and decides on its replacement.
    ///
    /// P-4: the thread has been joined or left behind, so no event of it comes later.
    fn gone(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        control: &WorkerControl,
        mut failures: u32,
        reason: GoneReason,
    ) {
        let worker = control.worker;
        let is_stopped = self.closing.is_some() || reason == GoneReason::Stopped;
        let is_replaced = if is_stopped || control.was_dismissed() {
            if let GoneReason::Died(_) | GoneReason::StartFailed(_) | GoneReason::Stuck = reason {
                let reason = chain(&reason);
                tracing::warn!(%worker, %reason, "a worker failed while it was ending");
            }
            self.board.remove(worker);
            false
        } else {
            let reason = chain(&reason).to_string();
            control.entry.lock().record_failure(reason.clone());
            match died(&mut failures, control.had_interpreter(), &self.config) {
                Some(delay) => {
                    control.entry.lock().back_off();
                    tracing::warn!(%worker, %reason, ?delay, "a worker failed and is replaced");
                    let board = self.board.clone();
                    myself.send_after(delay, move || {
                        board.replaced(worker);
                        SupervisorMessage::Replace { failures }
                    });
                    true
                }
                None => {
                    control.entry.lock().set_activity(WorkerActivity::GivenUp);
                    tracing::error!(%worker, %reason, "a worker failed and its place is given up");
                    self.given_up.push_back(worker);
                    false
                }
            }
        };
        self.owner.tell(PoolEvent::Gone { worker, reason, is_replaced });
    }

    /// Replies to `Close` once no worker and no chore is left.
    fn finish_closing(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if self.workers.is_empty()
            && !self.is_doing_chores
            && let Some(reply) = self.closing.take()
        {
            // Places that are backing off or were given up are no longer shown.
            self.board.clear();
            let _ = reply.send(());
            myself.stop(None);
        }
    }
}

#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// From the owner, at any time: start another worker. `PoolEvent::Ready` or `PoolEvent::Gone`
    /// follows.
    AddWorker,
    /// From a timer: the backoff of a place is over, after this many failures in a row.
    Replace { failures: u32 },
    /// From the thread that joined the thread of a worker whose actor had ended first, for this
    /// reason.
    Joined(ActorId, GoneReason),
    /// From the owner, at any time.
    Do(Chore),
    /// From the thread that did chores: what they have freed since the allocator last returned its
    /// free memory.
    ChoresDone { freed_bytes: u64 },
    /// From the owner, once. Every worker ends after its current command. The reply comes when all
    /// have ended and no state is being offloaded or dropped; then the supervisor ends.
    Close(RpcReplyPort<()>),
}

/// Counts in `failures` that a worker died, after others in its place that never had an
/// interpreter. Returns when another one replaces it. `None` gives the place up, so that jobs are
/// refused instead of waiting without end. The first replacement comes at once. After that the
/// delay doubles each time.
fn died(failures: &mut u32, had_interpreter: bool, config: &PoolConfig) -> Option<Duration> {
    if had_interpreter {
        // What it ran may have killed it, which says nothing about the next worker.
        *failures = 0;
        return Some(Duration::ZERO);
    }
    *failures = failures.saturating_add(1);
    if *failures >= config.most_failures {
        return None;
    }
    let Some(doublings) = failures.checked_sub(2) else { return Some(Duration::ZERO) };
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    Some(config.first_back_off.saturating_mul(factor).min(config.longest_back_off))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> PoolConfig {
        PoolConfig {
            first_back_off: Duration::from_millis(100),
            longest_back_off: Duration::from_millis(300),
            most_failures: 6,
            ..PoolConfig::default()
        }
    }

    fn after(milliseconds: u64) -> Option<Duration> {
        Some(Duration::from_millis(milliseconds))
    }

    #[test]
    fn back_off_doubles_up_to_its_limit_and_then_gives_up() {
        let mut failures = 0;
        let decisions: Vec<_> = (0..6).map(|_| died(&mut failures, false, &config())).collect();
        let expected = [after(0), after(100), after(200), after(300), after(300), None];
        assert_eq!(decisions, expected);
    }

    #[test]
    fn a_place_that_once_worked_is_given_up_as_well() {
        let mut failures = 0;
        assert_eq!(died(&mut failures, true, &config()), after(0));
        let decisions: Vec<_> = (0..5).map(|_| died(&mut failures, false, &config())).collect();
        assert_eq!(decisions, [after(0), after(100), after(200), after(300), after(300)]);
        // A worker that starts ends the series.
        assert_eq!(died(&mut failures, true, &config()), after(0));
        assert_eq!(died(&mut failures, false, &config()), after(0));
        for _ in 0..4 {
            assert_ne!(died(&mut failures, false, &config()), None);
        }
        assert_eq!(died(&mut failures, false, &config()), None);
    }
}
