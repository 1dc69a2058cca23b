//! The actor of one worker: takes orders for its thread, tells the owner what came of them.
//!
//! It makes no decisions; what may follow what is in `worker/state.rs`. The thread is joined
//! before the actor ends. When the actor is killed or panics, its run is stopped and the thread is
//! joined as the state is dropped, which can be after the supervisor heard of the end.

use std::sync::Arc;

use crossbeam_channel::Sender;
use engine::{Outcome, StopHandle, StopReason};
use ractor::{Actor, ActorProcessingErr, ActorRef, DerivedActorRef};

use crate::event::{GoneReason, PoolEvent};
use crate::interpreter::InterpreterSource;
use crate::session::SessionCell;
use crate::status::{Board, WorkerActivity};
use crate::task::{JobId, Task, WorkerId};

use message::{Order, ThreadEvent, WorkerMessage};
use state::{Input, Phase, Step};

pub(crate) mod message;
mod slot;
pub(crate) mod state;
mod thread;

/// The right to give one worker one thing to do.
#[derive(Debug)]
#[must_use = "a worker that offers a seat waits until it is used"]
pub struct Seat {
    worker: WorkerId,
    actor: ActorRef<WorkerMessage>,
}

impl Seat {
    /// The worker that offers it.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Gives the worker a task. `Finished` or `Gone` follows.
    pub fn assign(self, task: Task) {
        self.order(Order::Run(task));
    }

    /// Has the worker copy a session's state out, to where its cell shows it. It counts as a job.
    /// `Parked` or `Gone` follows.
    pub fn park(self, job: JobId, session: Arc<SessionCell>) {
        self.order(Order::Park { job, session });
    }

    fn order(self, order: Order) {
        let worker = self.worker;
        if self.actor.cast(WorkerMessage::Order(order)).is_err() {
            // `Gone` settles the job.
            tracing::warn!(%worker, "an order was given to a worker that is gone");
        }
    }
}

/// What a worker is made from.
pub(crate) struct WorkerArguments {
    pub(crate) worker: WorkerId,
    pub(crate) source: Arc<dyn InterpreterSource>,
    pub(crate) owner: DerivedActorRef<PoolEvent>,
    pub(crate) board: Board,
}

/// The actor of one worker.
pub(crate) struct Worker;

/// What the actor holds. Dropping it ends the thread, whatever the actor died of.
pub(crate) struct WorkerState {
    worker: WorkerId,
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
    /// Dropped to end the thread after its present order.
    orders: Option<Sender<Order>>,
    /// Ends the task that runs.
    stop: Option<StopHandle>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ThreadGuard {
    /// Ends the thread and waits for it: no time if it has said that it ended, else until its
    /// present task has been stopped, and its session parked.
    fn end(&mut self) {
        self.orders = None;
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
        let WorkerArguments { worker, source, owner, board } = arguments;
        // One order at a time: a seat takes one, and the next seat comes after its end.
        let (orders, receiver) = crossbeam_channel::bounded(1);
        let report = move |event| {
            // The actor outlives its thread, but for a kill; then nobody is left to tell.
            let _ = myself.cast(WorkerMessage::Thread(event));
        };
        let thread = thread::spawn(worker, source, receiver, report)?;
        board.add(worker);
        let thread = ThreadGuard { orders: Some(orders), stop: None, thread: Some(thread) };
        Ok(WorkerState {
            worker,
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
            WorkerMessage::Order(order) => state.follow(order),
            WorkerMessage::Stop => state.thread.orders = None,
            WorkerMessage::Thread(ThreadEvent::Idle) => {
                state.had_interpreter = true;
                if state.step(Input::Idle) == Step::OfferSeat {
                    state.offer_seat(myself);
                }
            }
            WorkerMessage::Thread(ThreadEvent::Finished { job, outcome }) => {
                state.finish(job, outcome);
            }
            WorkerMessage::Thread(ThreadEvent::Parked { job, result }) => {
                let _ = state.step(Input::Finished);
                state.tell(PoolEvent::Parked { worker: state.worker, job, result });
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
            Phase::Resetting => WorkerActivity::Resetting,
            Phase::Ended => return step,
        };
        self.board.activity(self.worker, activity);
        step
    }

    fn follow(&mut self, order: Order) {
        let job = order.job();
        if self.step(Input::Assigned(job)) != Step::Run {
            // The worker is ending; `Gone` will settle the job.
            tracing::warn!(worker = %self.worker, ?job, "an order came when none was awaited");
            return;
        }
        self.thread.stop = match &order {
            Order::Run(task) => Some(task.stop.clone()),
            Order::Park { .. } => None,
        };
        self.board.holds(self.worker, order.session().cloned());
        let sent = self.thread.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok());
        if !sent {
            tracing::warn!(worker = %self.worker, ?job, "the thread ended before its order");
        }
    }

    fn finish(&mut self, job: JobId, outcome: Box<Outcome>) {
        self.thread.stop = None;
        self.board.served(self.worker, outcome.usage.peak_memory_bytes);
        let _ = self.step(Input::Finished);
        self.tell(PoolEvent::Finished { worker: self.worker, job, outcome });
    }

    fn offer_seat(&self, actor: ActorRef<WorkerMessage>) {
        self.tell(PoolEvent::Ready(Seat { worker: self.worker, actor }));
    }

    fn tell(&self, event: PoolEvent) {
        if self.owner.cast(event).is_err() {
            tracing::debug!(worker = %self.worker, "the owner of the pool is gone");
        }
    }
}
