//! The actor of one worker: takes tasks for its thread, tells the owner what came of them.
//!
//! It makes no decisions; what may follow what is in `worker/state.rs`. The thread is joined
//! before the actor ends. When the actor is killed or panics, its run is stopped and the thread is
//! joined as the state is dropped, which can be after the supervisor heard of the end.

use std::sync::Arc;

use crossbeam_channel::Sender;
use engine::{Afterwards, Outcome, StopHandle, StopReason};
use ractor::{Actor, ActorProcessingErr, ActorRef, DerivedActorRef};

use crate::event::{GoneReason, PoolEvent};
use crate::interpreter::InterpreterSource;
use crate::status::{Board, WorkerActivity};
use crate::task::{JobId, Task, WorkerId, WorkerKind};

use message::{ThreadEvent, WorkerMessage};
use state::{Input, Phase, Step};

pub(crate) mod message;
pub(crate) mod state;
mod thread;

/// The right to give one worker one task.
#[derive(Debug)]
#[must_use = "a worker that offers a seat waits until it is used"]
pub struct Seat {
    worker: WorkerId,
    kind: WorkerKind,
    actor: ActorRef<WorkerMessage>,
}

impl Seat {
    /// The worker that offers it.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// What the worker is for.
    pub fn kind(&self) -> WorkerKind {
        self.kind
    }

    /// Gives the worker its task. If the worker has died meanwhile, `Gone` says so.
    pub fn assign(self, task: Task) {
        let worker = self.worker;
        if self.actor.cast(WorkerMessage::Run(task)).is_err() {
            tracing::warn!(%worker, "a task was assigned to a worker that is gone");
        }
    }
}

/// What a worker is made from.
pub(crate) struct WorkerArguments {
    pub(crate) worker: WorkerId,
    pub(crate) kind: WorkerKind,
    pub(crate) source: Arc<dyn InterpreterSource>,
    pub(crate) owner: DerivedActorRef<PoolEvent>,
    pub(crate) board: Board,
}

/// The actor of one worker.
pub(crate) struct Worker;

/// What the actor holds. Dropping it ends the thread, whatever the actor died of.
pub(crate) struct WorkerState {
    worker: WorkerId,
    kind: WorkerKind,
    phase: Phase,
    owner: DerivedActorRef<PoolEvent>,
    board: Board,
    thread: ThreadGuard,
    had_interpreter: bool,
    /// Why the thread ended. The supervisor is handed this state when the actor has ended.
    gone: Option<GoneReason>,
}

impl WorkerState {
    /// Whether an interpreter was ever up here.
    pub(crate) fn had_interpreter(&self) -> bool {
        self.had_interpreter
    }

    /// Why the worker is no more; without a word of its thread, it died.
    pub(crate) fn gone(&self) -> GoneReason {
        let silent = || GoneReason::Died("its actor ended before its thread".to_owned());
        self.gone.clone().unwrap_or_else(silent)
    }
}

/// The thread and the way to it.
struct ThreadGuard {
    /// Dropped to end the thread after its present task.
    tasks: Option<Sender<Task>>,
    /// Ends the task that runs.
    stop: Option<StopHandle>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ThreadGuard {
    /// Ends the thread and waits for it: no time if it has said that it ended, else until its
    /// present task has been stopped.
    fn end(&mut self) {
        self.tasks = None;
        if let Some(stop) = self.stop.take() {
            stop.stop(StopReason::Cancelled);
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a worker thread panicked outside of its guard");
        }
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.end();
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
        let WorkerArguments { worker, kind, source, owner, board } = arguments;
        // One task at a time: a seat takes one, and the next seat comes after its end.
        let (tasks, receiver) = crossbeam_channel::bounded(1);
        let report = move |event| {
            // The actor outlives its thread, but for a kill; then nobody is left to tell.
            let _ = myself.cast(WorkerMessage::Thread(event));
        };
        let thread = thread::spawn(worker, kind, source, receiver, report)?;
        board.add(worker, kind);
        let thread = ThreadGuard { tasks: Some(tasks), stop: None, thread: Some(thread) };
        Ok(WorkerState {
            worker,
            kind,
            phase: Phase::Starting,
            owner,
            board,
            thread,
            had_interpreter: false,
            gone: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WorkerMessage::Run(task) => state.run(task),
            WorkerMessage::Stop => state.thread.tasks = None,
            WorkerMessage::Thread(ThreadEvent::Started) => {
                state.had_interpreter = true;
                if state.step(Input::Started) == Step::OfferSeat {
                    state.offer_seat(myself);
                }
            }
            WorkerMessage::Thread(ThreadEvent::Finished { job, outcome, afterwards }) => {
                state.finish(myself, job, outcome, afterwards);
            }
            WorkerMessage::Thread(ThreadEvent::Ended(reason)) => {
                let _ = state.step(Input::Ended);
                state.thread.end();
                myself.stop(Some(reason.to_string()));
                state.gone = Some(reason);
            }
        }
        Ok(())
    }
}

impl WorkerState {
    fn step(&mut self, input: Input) -> Step {
        let (phase, step) = self.phase.next(input);
        self.phase = phase;
        let activity = match phase {
            Phase::Starting => WorkerActivity::Starting,
            Phase::Ready => WorkerActivity::Ready,
            Phase::Running(job) => WorkerActivity::Running(job),
            Phase::Ended => return step,
        };
        self.board.activity(self.worker, activity);
        step
    }

    fn run(&mut self, task: Task) {
        let (job, stop) = (task.job, task.stop.clone());
        if self.step(Input::Assigned(job)) != Step::Run {
            // The worker is ending; `Gone` will settle the job.
            tracing::warn!(worker = %self.worker, ?job, "a task came when none was awaited");
            return;
        }
        self.thread.stop = Some(stop);
        let sent = self.thread.tasks.as_ref().is_some_and(|tasks| tasks.try_send(task).is_ok());
        if !sent {
            tracing::warn!(worker = %self.worker, ?job, "the thread ended before its task");
        }
    }

    fn finish(
        &mut self,
        myself: ActorRef<WorkerMessage>,
        job: JobId,
        outcome: Box<Outcome>,
        afterwards: Afterwards,
    ) {
        self.thread.stop = None;
        self.board.served(self.worker, outcome.usage.peak_memory_bytes);
        let keeps = matches!(self.kind, WorkerKind::Session(_)) && afterwards == Afterwards::Usable;
        let step = self.step(Input::Finished { keeps });
        let event = PoolEvent::Finished { worker: self.worker, job, outcome, afterwards };
        self.tell(event);
        if step == Step::OfferSeat {
            self.offer_seat(myself);
        }
    }

    fn offer_seat(&self, actor: ActorRef<WorkerMessage>) {
        self.tell(PoolEvent::Ready(Seat { worker: self.worker, kind: self.kind, actor }));
    }

    fn tell(&self, event: PoolEvent) {
        if self.owner.cast(event).is_err() {
            tracing::debug!(worker = %self.worker, "the owner of the pool is gone");
        }
    }
}
