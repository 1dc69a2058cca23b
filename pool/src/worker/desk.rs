//! What a worker's seat, its thread and its actor share: the way in, the way out, and the state
//! between.
//!
//! An order goes from whoever holds the seat to the thread, and what the thread says goes to the
//! pool's owner; the actor takes no part in that. It is woken only when the worker ends.
//!
//! A thread whose run doesn't end by a stop is left behind: its desk lets go of it, says nothing of
//! what it does any more, and gives back the session that it had.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use engine::{Outcome, Overdue, StopHandle, StopReason, Verdict};
use parking_lot::{Condvar, Mutex};
use ractor::{ActorRef, DerivedActorRef};

use super::message::{Order, WorkerMessage};
use super::seat::Seat;
use super::state::{GoneReason, Input, Phase, Step};
use crate::event::PoolEvent;
use crate::ids::{JobId, WorkerId};
use crate::interpreter::InterpreterSource;
use crate::session::SessionCell;
use crate::status::{BoardEntry, WorkerActivity};

/// What a worker's seat, its thread and its actor share.
pub(crate) struct Desk {
    worker: WorkerId,
    owner: DerivedActorRef<PoolEvent>,
    source: Arc<dyn InterpreterSource>,
    entry: BoardEntry,
    controls: Mutex<Controls>,
    /// The thread has ended, or was left behind.
    let_go: Condvar,
}

struct Controls {
    phase: Phase,
    /// `None` once no orders are taken: the thread then ends after its present one.
    orders: Option<Sender<Order>>,
    /// Ends the task that runs, or is about to.
    stop: Option<StopHandle>,
    had_interpreter: bool,
    was_dismissed: bool,
    /// The thread is stuck, and what it says is no longer passed on.
    is_left_behind: bool,
    /// The session that it was last given something to do for.
    session: Option<Arc<SessionCell>>,
    thread: Option<JoinHandle<()>>,
    actor: Option<ActorRef<WorkerMessage>>,
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
        source: Arc<dyn InterpreterSource>,
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
            is_left_behind: false,
            session: None,
            thread: None,
            actor: None,
        };
        let (controls, let_go) = (Mutex::new(controls), Condvar::new());
        (Arc::new(Self { worker, owner, source, entry, controls, let_go }), Orders { receiver })
    }

    pub(crate) fn worker(&self) -> WorkerId {
        self.worker
    }

    pub(crate) fn entry(&self) -> &BoardEntry {
        &self.entry
    }

    /// What interpreters are started from.
    pub(super) fn source(&self) -> &dyn InterpreterSource {
        self.source.as_ref()
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
    pub(super) fn order(self: &Arc<Self>, order: Order) {
        let mut controls = self.controls.lock();
        let input = order.input();
        if self.step(&mut controls, input) != Step::Send {
            tracing::debug!(worker = %self.worker, ?input, "an order came after the worker's end");
            return;
        }
        controls.was_dismissed |= input == Input::Dismissed;
        // P-3: before the order is sent, so that there is no run that can't be stopped.
        controls.stop = match &order {
            Order::Run(task) => {
                let hears: Weak<Self> = Arc::downgrade(self);
                task.stop.when_overdue(hears, task.job.0);
                Some(task.stop.clone())
            }
            Order::Park { .. } | Order::Vacate | Order::Renew | Order::Dismiss => None,
        };
        if let Input::Assigned(_) = input {
            controls.session = order.session().cloned();
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
        let seat = Seat::new(Arc::clone(self));
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
        if controls.is_left_behind {
            self.entry.over();
        }
        self.let_go.notify_all();
    }

    /// Gives the desk its thread, and the actor that hears of the thread's end.
    pub(super) fn seat_thread(&self, thread: JoinHandle<()>, actor: ActorRef<WorkerMessage>) {
        let mut controls = self.controls.lock();
        controls.thread = Some(thread);
        controls.actor = Some(actor);
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

    /// Waits until the thread has ended. One that is stuck is not waited for.
    pub(super) fn join(&self) {
        let mut controls = self.controls.lock();
        let is_over = |controls: &Controls| {
            controls.phase == Phase::Ended || controls.is_left_behind || controls.thread.is_none()
        };
        self.let_go.wait_while(&mut controls, |controls| !is_over(controls));
        let thread = controls.thread.take().filter(|_| !controls.is_left_behind);
        drop(controls);
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(worker = %self.worker, "a worker thread panicked outside of its guard");
        }
    }

    /// Lets go of the thread, if it still runs this job. What the job was to change of a session is
    /// undone if there is a copy of the state before it; else the session is lost.
    fn leave_behind(&self, job: JobId) {
        let (session, actor) = {
            let mut controls = self.controls.lock();
            if controls.phase != Phase::Running(job) || controls.is_left_behind {
                return;
            }
            controls.is_left_behind = true;
            controls.orders = None;
            controls.stop = None;
            (controls.session.take(), controls.actor.take())
        };
        tracing::error!(worker = %self.worker, ?job, "a worker's thread is left behind");
        self.entry.activity(WorkerActivity::Stuck);
        if let Some(session) = session {
            let bytes = self.gives_back(&session, "its worker's thread is stuck");
            if let Some(bytes) = bytes {
                self.pass_on(PoolEvent::SessionParked { session: session.session(), bytes });
            }
        }
        self.let_go.notify_all();
        if let Some(actor) = actor {
            // An actor that is gone has been told of already.
            let _ = actor.cast(WorkerMessage::Ended(GoneReason::Stuck));
        }
    }

    /// Takes a session away from the worker, which won't come to an end with it. What it takes at
    /// rest, if it rests because of this.
    pub(super) fn gives_back(&self, session: &SessionCell, reason: &str) -> Option<u64> {
        session.rolls_back(self.worker);
        session.leave(self.worker, reason)
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
            _ if step == Step::Ignore || controls.is_left_behind => return step,
            Phase::Starting => WorkerActivity::Starting,
            Phase::Ready => WorkerActivity::Ready,
            Phase::Running(job) => WorkerActivity::Running(job),
            Phase::Resetting | Phase::Leaving => WorkerActivity::Resetting,
            Phase::Ended => return step,
        };
        self.entry.activity(activity);
        step
    }

    /// Says what the thread has to say, unless that was left behind.
    fn tell(&self, event: PoolEvent) {
        if !self.controls.lock().is_left_behind {
            self.pass_on(event);
        }
    }

    fn pass_on(&self, event: PoolEvent) {
        if self.owner.cast(event).is_err() {
            tracing::debug!(worker = %self.worker, "the owner of the pool is gone");
        }
    }
}

impl Overdue for Desk {
    fn overdue(&self, number: u64) {
        self.leave_behind(JobId(number));
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
