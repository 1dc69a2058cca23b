//! What a worker's seat, its thread and its actor share: the way in, the way out, and the state
//! between.
//!
//! An order goes from whoever holds the seat to the thread, and what the thread says goes to the
//! pool's owner; the actor takes no part in that. It is woken only when the worker ends.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use engine::{Outcome, StopHandle, StopReason, Verdict};
use parking_lot::Mutex;
use ractor::DerivedActorRef;

use super::Seat;
use super::message::Order;
use super::state::{Input, Phase, Step};
use crate::event::PoolEvent;
use crate::session::SessionCell;
use crate::status::{BoardEntry, WorkerActivity};
use crate::task::{JobId, WorkerId};

/// What a worker's seat, its thread and its actor share.
pub(crate) struct Desk {
    worker: WorkerId,
    owner: DerivedActorRef<PoolEvent>,
    entry: BoardEntry,
    controls: Mutex<Controls>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Controls {
    phase: Phase,
    /// `None` once no orders are taken: the thread then ends after its present one.
    orders: Option<Sender<Order>>,
    /// Ends the task that runs, or is about to.
    stop: Option<StopHandle>,
    had_interpreter: bool,
    was_dismissed: bool,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Desk").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl Desk {
    /// The desk of a worker that has no thread yet, and where that thread finds its orders.
    pub(crate) fn new(
        worker: WorkerId,
        owner: DerivedActorRef<PoolEvent>,
        entry: BoardEntry,
    ) -> (Arc<Self>, Orders) {
        // One order at a time: a seat takes one, and the next seat comes after its end.
        let (orders, receiver) = crossbeam_channel::bounded(1);
        let controls = Controls {
            phase: Phase::Starting,
            orders: Some(orders),
            stop: None,
            had_interpreter: false,
            was_dismissed: false,
        };
        let (controls, thread) = (Mutex::new(controls), Mutex::new(None));
        (Arc::new(Self { worker, owner, entry, controls, thread }), Orders { receiver })
    }

    pub(crate) fn worker(&self) -> WorkerId {
        self.worker
    }

    pub(crate) fn entry(&self) -> &BoardEntry {
        &self.entry
    }

    /// Whether an interpreter was ever up here.
    pub(crate) fn had_interpreter(&self) -> bool {
        self.controls.lock().had_interpreter
    }

    /// Whether it was told to end because it isn't needed.
    pub(crate) fn was_dismissed(&self) -> bool {
        self.controls.lock().was_dismissed
    }

    /// Takes an order for the thread. If that has ended, `Gone` settles it.
    pub(super) fn order(&self, order: Order) {
        let mut controls = self.controls.lock();
        let input = order.input();
        if self.step(&mut controls, input) != Step::Send {
            tracing::debug!(worker = %self.worker, ?input, "an order came after the worker's end");
            return;
        }
        controls.was_dismissed |= input == Input::Dismissed;
        // P-3: before the order is sent, so that there is no run that can't be stopped.
        controls.stop = match &order {
            Order::Run(task) => Some(task.stop.clone()),
            Order::Park { .. } | Order::Vacate | Order::Renew | Order::Dismiss => None,
        };
        if let Input::Assigned(_) = input {
            self.entry.holds(order.session().cloned());
        }
        let sent = controls.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok());
        if !sent {
            tracing::debug!(worker = %self.worker, ?input, "an order came as the worker ended");
        }
    }

    /// From the thread: it waits for an order.
    pub(super) fn idle(
        self: &Arc<Self>,
        memory_bytes: u64,
        kept_bytes: u64,
        reset: Option<Duration>,
    ) {
        {
            let mut controls = self.controls.lock();
            controls.had_interpreter = true;
            self.entry.has_memory(memory_bytes.saturating_add(kept_bytes));
            if controls.orders.is_none() {
                // Nothing could come of a seat.
                return;
            }
            if self.step(&mut controls, Input::Idle) != Step::OfferSeat {
                return;
            }
        }
        let seat = Seat { desk: Arc::clone(self) };
        self.tell(PoolEvent::Ready { seat, memory_bytes, kept_bytes, reset });
    }

    /// From the thread: its task has ended.
    pub(super) fn finished(
        &self,
        job: JobId,
        outcome: Outcome,
        attach: Duration,
        memory_bytes: u64,
    ) {
        self.entry.served();
        if let Verdict::SandboxFailed(failure) = &outcome.verdict
            && failure.is_of_interpreter()
        {
            self.entry.failed(failure.to_string());
        }
        self.job_ended();
        let outcome = Box::new(outcome);
        let worker = self.worker;
        self.tell(PoolEvent::Finished { worker, job, outcome, attach, memory_bytes });
    }

    /// From the thread: it has copied a state out, or couldn't.
    pub(super) fn parked(&self, job: JobId, result: Result<(), String>) {
        self.job_ended();
        self.tell(PoolEvent::Parked { worker: self.worker, job, result });
    }

    /// From the thread: it has put a state aside.
    pub(super) fn session_parked(&self, session: &SessionCell, bytes: u64) {
        self.tell(PoolEvent::SessionParked { session: session.session(), bytes });
    }

    /// From the thread: it does nothing more.
    pub(super) fn ended(&self) {
        let mut controls = self.controls.lock();
        // What ran has ended.
        controls.stop = None;
        let _ = self.step(&mut controls, Input::Ended);
    }

    /// Gives the desk its thread.
    pub(super) fn seat_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }

    /// Takes no more orders: the thread ends after the present one.
    pub(super) fn close(&self) {
        self.controls.lock().orders = None;
    }

    /// Stops what runs, and waits until the thread has ended: no time if it has said so, else until
    /// its present task has been stopped, and its session parked. Whoever comes second waits too.
    pub(crate) fn end(&self) {
        self.close();
        let stop = self.controls.lock().stop.take();
        if let Some(stop) = stop {
            stop.stop(StopReason::Cancelled);
        }
        self.join();
    }

    /// Waits until the thread has ended.
    pub(super) fn join(&self) {
        let mut thread = self.thread.lock();
        if let Some(thread) = thread.take()
            && thread.join().is_err()
        {
            tracing::error!(worker = %self.worker, "a worker thread panicked outside of its guard");
        }
    }

    fn job_ended(&self) {
        let mut controls = self.controls.lock();
        controls.stop = None;
        let _ = self.step(&mut controls, Input::Finished);
    }

    fn step(&self, controls: &mut Controls, input: Input) -> Step {
        let (phase, step) = controls.phase.next(input);
        controls.phase = phase;
        let activity = match phase {
            _ if step == Step::Ignore => return step,
            Phase::Starting => WorkerActivity::Starting,
            Phase::Ready => WorkerActivity::Ready,
            Phase::Running(job) => WorkerActivity::Running(job),
            Phase::Resetting | Phase::Leaving => WorkerActivity::Resetting,
            Phase::Ended => return step,
        };
        self.entry.activity(activity);
        step
    }

    fn tell(&self, event: PoolEvent) {
        if self.owner.cast(event).is_err() {
            tracing::debug!(worker = %self.worker, "the owner of the pool is gone");
        }
    }
}

/// Where a thread finds its orders.
pub(crate) struct Orders {
    receiver: Receiver<Order>,
}

impl Orders {
    /// The next order; `None` when none will come.
    pub(super) fn next(&self) -> Option<Order> {
        self.receiver.recv().ok()
    }
}
