//! The desk of a worker: what its seat, its thread and its actor share to pass orders and events.
//!
//! Orders go from the holder of the seat to the thread, and events from the thread to the pool's
//! owner, which may decide on the next order there and then: the thread then finds it in the queue.
//! The actor is woken only when the worker ends.
//!
//! A thread whose run doesn't end when it is stopped is left behind: its desk abandons it,
//! suppresses its later events, and gives up its session.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use engine::{Cause, Outcome, Overdue, OwnerProcess, StopHandle, StopReason, Verdict, chain};
use parking_lot::{Condvar, Mutex};
use ractor::ActorRef;

use super::message::{Order, WorkerMessage};
use super::orders::Orders;
use super::seat::Seat;
use super::state::{GoneReason, Input, Phase, Step};
use crate::builds::Builds;
use crate::event::{Offer, PoolEvent, PoolOwner};
use crate::ids::{BuildId, JobId, WorkerId};
use crate::session::SessionCell;
use crate::status::{BoardEntry, WorkerActivity};
use crate::task::Task;

/// What a worker's seat, its thread and its actor share.
pub(crate) struct Desk {
    worker: WorkerId,
    owner: Arc<dyn PoolOwner>,
    builds: Builds,
    entry: BoardEntry,
    controls: Mutex<Controls>,
    /// Notified when the thread has ended or was left behind.
    thread_gone: Condvar,
    process: OwnerProcess,
}

/// What a thread says of itself when it waits for an order: the same as its [`Offer`].
pub(super) struct Idle {
    pub(super) build: BuildId,
    pub(super) memory_bytes: u64,
    pub(super) kept_bytes: u64,
    pub(super) reset: Option<Duration>,
}

struct Controls {
    phase: Phase,
    /// `None` once no orders are accepted: the thread then ends after its current one.
    orders: Option<Sender<Order>>,
    /// Stops the task that runs or is about to.
    stop: Option<StopHandle>,
    had_interpreter: bool,
    was_dismissed: bool,
    /// The thread is stuck, and its events are suppressed.
    is_left_behind: bool,
    /// The session of its last order.
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
    /// Returns the desk of a worker that has no thread yet, and the queue of that thread's orders.
    pub(crate) fn new(
        worker: WorkerId,
        owner: Arc<dyn PoolOwner>,
        builds: Builds,
        entry: BoardEntry,
    ) -> (Arc<Self>, Orders) {
        // A seat takes one order, and the next seat is offered after that has been carried out.
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
        let (controls, thread_gone) = (Mutex::new(controls), Condvar::new());
        (
            Arc::new(Self {
                worker,
                owner,
                builds,
                entry,
                controls,
                thread_gone,
                process: OwnerProcess::current(),
            }),
            Orders::new(receiver),
        )
    }

    pub(crate) fn worker(&self) -> WorkerId {
        self.worker
    }

    pub(crate) fn entry(&self) -> &BoardEntry {
        &self.entry
    }

    /// Returns the builds, with their sources of interpreters.
    pub(super) fn builds(&self) -> &Builds {
        &self.builds
    }

    /// Returns whether the worker ever had an interpreter.
    pub(crate) fn had_interpreter(&self) -> bool {
        self.controls.lock().had_interpreter
    }

    /// Returns whether the worker was dismissed because it wasn't needed.
    pub(crate) fn was_dismissed(&self) -> bool {
        self.controls.lock().was_dismissed
    }

    /// Sends an order to the thread. If the thread has ended, `Gone` settles the order.
    pub(super) fn order(self: &Arc<Self>, order: Order) {
        let mut controls = self.controls.lock();
        let input = order.input();
        if self.step(&mut controls, input) != Step::Send {
            tracing::debug!(worker = %self.worker, ?input, "ignored an order: worker has ended");
            return;
        }
        controls.was_dismissed |= input == Input::Dismissed;
        // P-3: set before the order is sent, so that every run can be stopped.
        controls.stop = match &order {
            Order::Run(task) => {
                let observer: Weak<Self> = Arc::downgrade(self);
                task.stop.when_overdue(observer, task.job.0);
                Some(task.stop.clone())
            }
            Order::Park { .. } | Order::Vacate | Order::Renew | Order::Dismiss => None,
        };
        if let Input::Assigned(_) = input {
            controls.session = order.session().cloned();
            self.entry.set_session(order.session().cloned());
        }
        let sent = controls.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok());
        if !sent {
            tracing::debug!(worker = %self.worker, ?input, "dropped an order: worker is ending");
        }
    }

    /// Called by the thread when it waits for an order.
    pub(super) fn idle(self: &Arc<Self>, idle: Idle) {
        if let Some(offer) = self.offer(idle) {
            self.tell(PoolEvent::Ready(offer));
        }
    }

    /// Returns the offer of a thread that waits for an order, or soon will; `None` if its seat could
    /// not be used.
    fn offer(self: &Arc<Self>, idle: Idle) -> Option<Offer> {
        let Idle { build, memory_bytes, kept_bytes, reset } = idle;
        let mut controls = self.controls.lock();
        controls.had_interpreter = true;
        self.entry.set_memory(memory_bytes.saturating_add(kept_bytes));
        let is_offered =
            controls.orders.is_some() && self.step(&mut controls, Input::Idle) == Step::OfferSeat;
        drop(controls);
        is_offered.then(|| {
            let seat = Seat::new(Arc::clone(self));
            Offer { seat, build, memory_bytes, kept_bytes, reset }
        })
    }

    /// Called by the thread when its task has ended. If it is `soon` idle, it waits for an order or
    /// will do so next.
    pub(super) fn finished(
        self: &Arc<Self>,
        task: &Task,
        outcome: Outcome,
        attach: Duration,
        memory_bytes: u64,
        soon: Option<Idle>,
    ) {
        if !task.is_self_test {
            self.entry.count_job();
        }
        if let Verdict::SandboxFailed(failure) = &outcome.verdict
            && failure.is_of_interpreter()
        {
            self.entry.record_failure(chain(failure).to_string());
        }
        self.job_ended();
        let outcome = Box::new(outcome);
        let (worker, job) = (self.worker, task.job);
        let offer = soon.and_then(|idle| self.offer(idle));
        self.tell(PoolEvent::Finished { worker, job, outcome, attach, memory_bytes, offer });
    }

    /// Called by the thread when it has copied a state out, or failed to.
    pub(super) fn parked(&self, job: JobId, result: Result<(), Cause>) {
        self.job_ended();
        self.tell(PoolEvent::Parked { worker: self.worker, job, result });
    }

    /// Called by the thread when it has parked a session.
    pub(super) fn session_parked(&self, session: &SessionCell, bytes: u64) {
        self.tell(PoolEvent::SessionParked { session: session.session(), bytes });
    }

    /// Called by the thread as the last thing that it does.
    pub(super) fn ended(&self) {
        let mut controls = self.controls.lock();
        // Nothing is left to stop.
        controls.stop = None;
        let _ = self.step(&mut controls, Input::Ended);
        if controls.is_left_behind {
            self.entry.thread_ended();
        }
        self.thread_gone.notify_all();
    }

    /// Sets the thread, and the actor that is told when the thread is stuck.
    pub(super) fn seat_thread(&self, thread: JoinHandle<()>, actor: ActorRef<WorkerMessage>) {
        let mut controls = self.controls.lock();
        controls.thread = Some(thread);
        controls.actor = Some(actor);
    }

    /// Accepts no more orders: the thread ends after its current one.
    pub(super) fn close(&self) {
        self.controls.lock().orders = None;
    }

    /// Stops the run and waits until the thread has ended, which includes parking its session. A
    /// concurrent caller waits too.
    pub(crate) fn end(&self) {
        if !self.process.is_current() {
            // The copy of a fork, which has no such thread.
            return;
        }
        self.close();
        let stop = self.controls.lock().stop.take();
        if let Some(stop) = stop {
            stop.stop(StopReason::Cancelled);
        }
        self.join();
    }

    /// Waits until the thread has ended, unless it is stuck.
    pub(super) fn join(&self) {
        let mut controls = self.controls.lock();
        let is_over = |controls: &Controls| {
            controls.phase == Phase::Ended || controls.is_left_behind || controls.thread.is_none()
        };
        self.thread_gone.wait_while(&mut controls, |controls| !is_over(controls));
        let thread = controls.thread.take().filter(|_| !controls.is_left_behind);
        drop(controls);
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(worker = %self.worker, "a worker thread panicked outside of its guard");
        }
    }

    /// Abandons the thread if it still runs this job. The session rolls back to its state before
    /// the job if a copy exists; otherwise it is lost.
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
        tracing::error!(worker = %self.worker, ?job, "a worker's thread is stuck and left behind");
        self.entry.set_activity(WorkerActivity::Stuck);
        if let Some(session) = session {
            let bytes = self.give_up_session(&session, "its worker's thread is stuck");
            if let Some(bytes) = bytes {
                // The watchdog, which this may be, is needed elsewhere.
                self.owner.leave(PoolEvent::SessionParked { session: session.session(), bytes });
            }
        }
        self.thread_gone.notify_all();
        if let Some(actor) = actor {
            // If the actor has ended, the supervisor has heard of it already.
            let _ = actor.cast(WorkerMessage::Ended(GoneReason::Stuck));
        }
    }

    /// Takes a session away from the worker, which can't finish with it. Returns the bytes that the
    /// session takes if it is at rest because of this call.
    pub(super) fn give_up_session(
        &self,
        session: &SessionCell,
        reason: impl Into<Cause>,
    ) -> Option<u64> {
        session.roll_back(self.worker);
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
            Phase::Running(job) => WorkerActivity::Running { job },
            Phase::Resetting | Phase::Leaving => WorkerActivity::Resetting,
            Phase::Ended => return step,
        };
        self.entry.set_activity(activity);
        step
    }

    /// Sends an event of the thread, unless the thread was left behind. The owner may use the seat
    /// of this desk before this returns, so no lock is held.
    fn tell(&self, event: PoolEvent) {
        let is_left_behind = self.controls.lock().is_left_behind;
        if is_left_behind {
            return;
        }
        if std::thread::panicking() {
            // A thread that is ending decides nothing.
            self.owner.leave(event);
        } else {
            self.owner.tell(event);
        }
    }
}

impl Overdue for Desk {
    fn overdue(&self, number: u64) {
        self.leave_behind(JobId(number));
    }
}
