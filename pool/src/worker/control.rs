//! The hand-over from the scheduler to a worker's thread: a permit, a queue of one command, and the
//! thread's events.
//!
//! 1. The thread waits for a command, so its [`WorkerControl`] sends the pool's owner a
//!    [`WorkerPermit`].
//! 2. The owner uses the permit for one [`Command`], at once or later. The control checks it against
//!    the worker's phase (`state.rs`) and puts it into the thread's [`CommandQueue`].
//! 3. The thread executes it (`slot.rs`) and sends its event straight to the owner. The owner may
//!    decide on the next command at once, which the thread then finds in the queue.
//!
//! The worker's actor is woken only when the worker ends. If a run doesn't end after a stop, its
//! thread is left behind. Its control suppresses its later events, and gives up its session.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use channel::SpinWait;
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use engine::{Cause, Outcome, Overdue, OwnerProcess, StopHandle, StopReason, Verdict, chain};
use parking_lot::{Condvar, Mutex};
use ractor::ActorRef;

use super::state::{GoneReason, Input, Phase, PhaseAction};
use crate::builds::Builds;
use crate::event::{Offer, PoolEvent, PoolOwner};
use crate::ids::{JobId, WorkerId};
use crate::session::SessionCell;
use crate::status::{BoardEntry, WorkerActivity};
use crate::task::Task;

/// How long a thread spins before it blocks. A caller that sends one job after another has the next one
/// 20 µs after it has the outcome.
const LONGEST_SPIN: Duration = Duration::from_micros(100);

/// The right to give a worker one command, which goes straight to its thread.
///
/// A worker may end before its permit is used. That is no error: `Gone` follows and settles
/// the command.
#[derive(Debug)]
#[must_use = "a worker waits until its permit is used"]
pub struct WorkerPermit {
    pub(super) control: Arc<WorkerControl>,
}

impl WorkerPermit {
    /// Returns the worker that offers it.
    pub fn worker(&self) -> WorkerId {
        self.control.worker
    }

    /// Gives the worker a command. If it ends meanwhile, `Gone` follows and no other event.
    pub fn send(self, command: Command) {
        self.control.send(command);
    }
}

/// A message to a worker actor.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// From the supervisor, at any time. The worker finishes its current command, then ends.
    Stop,
    /// From the worker's own thread, which has dropped its interpreter, or from the watchdog: the
    /// thread is stuck. The actor ends.
    Ended(GoneReason),
}

/// A command for a worker, sent by the holder of its permit.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "each worker has at most one, and a box would cost every job an allocation"
)]
pub enum Command {
    /// Run a task. `Finished` follows.
    Run(Task),
    /// Copy a session's state out, or unpack an offloaded one, to the session's cell. There it stays
    /// until it is offloaded again. `Suspended` follows.
    Suspend {
        /// The job that this counts as.
        job: JobId,
        /// The session.
        session: Arc<SessionCell>,
    },
    /// Suspend the session that the worker holds. `Ready` follows, after `SessionSuspended` if there
    /// was one.
    Vacate,
    /// Suspend it and start a new interpreter. If none can be started the worker ends.
    Renew,
    /// Suspend it and end. `Gone` follows; the worker isn't replaced.
    Dismiss,
}

impl Command {
    /// Returns the input that it is to the worker's state machine.
    pub(super) fn input(&self) -> Input {
        match self {
            Self::Run(Task { job, .. }) | Self::Suspend { job, .. } => Input::Assigned(*job),
            Self::Vacate | Self::Renew => Input::Cleared,
            Self::Dismiss => Input::Dismissed,
        }
    }

    /// Returns the session that it needs.
    pub(super) fn session(&self) -> Option<&Arc<SessionCell>> {
        match self {
            Self::Run(task) => task.session.as_ref(),
            Self::Suspend { session, .. } => Some(session),
            Self::Vacate | Self::Renew | Self::Dismiss => None,
        }
    }
}

/// The queue of a thread's commands, which holds one.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    receiver: Receiver<Command>,
    spin: SpinWait,
}

impl CommandQueue {
    pub(super) fn new(receiver: Receiver<Command>) -> Self {
        Self { receiver, spin: SpinWait::new(LONGEST_SPIN) }
    }

    /// Waits for the next command; `None` when no more will come.
    pub(super) fn next(&self) -> Option<Command> {
        match self.receiver.try_recv() {
            Err(TryRecvError::Empty) => {
                let spun = self.spin.until(|| self.receiver.try_recv().ok());
                spun.or_else(|| self.receiver.recv().ok())
            }
            received => received.ok(),
        }
    }
}

/// What a worker's permit, its thread and its actor share.
#[derive(derive_more::Debug)]
#[debug("WorkerControl({worker})")]
pub(crate) struct WorkerControl {
    pub(crate) worker: WorkerId,
    owner: Arc<dyn PoolOwner>,
    pub(super) builds: Builds,
    /// The largest private memory, in bytes, at which states are copied between turns.
    pub(super) rollback_bytes: u64,
    pub(crate) entry: BoardEntry,
    controls: Mutex<ControlState>,
    /// Notified when the thread has ended or was left behind.
    thread_gone: Condvar,
    process: OwnerProcess,
}

struct ControlState {
    phase: Phase,
    /// `None` once no commands are accepted: the thread then ends after its current one.
    commands: Option<Sender<Command>>,
    /// Stops the task that runs or is about to.
    stop: Option<StopHandle>,
    had_interpreter: bool,
    was_dismissed: bool,
    /// The thread is stuck, and its events are suppressed.
    is_left_behind: bool,
    /// The session of its last command.
    session: Option<Arc<SessionCell>>,
    thread: Option<JoinHandle<()>>,
    actor: Option<ActorRef<WorkerMessage>>,
}

impl WorkerControl {
    /// Returns the control of a worker that has no thread yet, and the queue of its commands.
    pub(crate) fn new(
        worker: WorkerId,
        owner: Arc<dyn PoolOwner>,
        builds: Builds,
        rollback_bytes: u64,
        entry: BoardEntry,
    ) -> (Arc<Self>, CommandQueue) {
        let (commands, receiver) = crossbeam_channel::bounded(1);
        let controls = ControlState {
            phase: Phase::Starting,
            commands: Some(commands),
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
                rollback_bytes,
                entry,
                controls,
                thread_gone,
                process: OwnerProcess::current(),
            }),
            CommandQueue::new(receiver),
        )
    }

    /// Returns whether the worker ever had an interpreter.
    pub(crate) fn had_interpreter(&self) -> bool {
        self.controls.lock().had_interpreter
    }

    /// Returns whether the worker was dismissed because it wasn't needed.
    pub(crate) fn was_dismissed(&self) -> bool {
        self.controls.lock().was_dismissed
    }

    /// Sends a command to the thread. If the thread has ended, `Gone` settles the command.
    fn send(self: &Arc<Self>, command: Command) {
        let mut controls = self.controls.lock();
        let input = command.input();
        if self.step(&mut controls, input) != PhaseAction::Send {
            tracing::debug!(worker = %self.worker, ?input, "ignored a command: worker has ended");
            return;
        }
        controls.was_dismissed |= input == Input::Dismissed;
        // P-3: set before the command is sent, so that every run can be stopped.
        controls.stop = match &command {
            Command::Run(task) => {
                let observer: Weak<Self> = Arc::downgrade(self);
                task.stop.when_overdue(observer, task.job.0);
                Some(task.stop.clone())
            }
            Command::Suspend { .. } | Command::Vacate | Command::Renew | Command::Dismiss => None,
        };
        if let Input::Assigned(_) = input {
            controls.session = command.session().cloned();
            self.entry.lock().session = command.session().cloned();
        }
        let sent =
            controls.commands.as_ref().is_some_and(|commands| commands.try_send(command).is_ok());
        if !sent {
            tracing::debug!(worker = %self.worker, ?input, "dropped a command: worker is ending");
        }
    }

    /// Called by the thread when it waits for a command.
    pub(super) fn idle(&self, offer: Offer) {
        if let Some(offer) = self.usable(offer) {
            self.tell(PoolEvent::Ready(offer));
        }
    }

    /// Returns the offer of a thread that waits for a command, or soon will. `None` if its permit
    /// could not be used.
    fn usable(&self, offer: Offer) -> Option<Offer> {
        let mut controls = self.controls.lock();
        controls.had_interpreter = true;
        let bytes = offer.memory_bytes.saturating_add(offer.kept_bytes);
        self.entry.lock().status.memory_bytes = bytes;
        let is_usable = controls.commands.is_some()
            && self.step(&mut controls, Input::Idle) == PhaseAction::Offer;
        drop(controls);
        is_usable.then_some(offer)
    }

    /// Called by the thread when its task has ended. If it is `soon` idle, it waits for a command or
    /// will do so next.
    pub(super) fn finished(
        &self,
        task: &Task,
        outcome: Outcome,
        resume: Duration,
        memory_bytes: u64,
        soon: Option<Offer>,
    ) {
        if !task.is_self_test {
            self.entry.lock().status.jobs_served += 1;
        }
        if let Verdict::SandboxFailed(failure) = &outcome.verdict
            && failure.is_of_interpreter()
        {
            self.entry.lock().record_failure(chain(failure).to_string());
        }
        self.job_ended();
        let outcome = Box::new(outcome);
        let (worker, job) = (self.worker, task.job);
        let offer = soon.and_then(|offer| self.usable(offer));
        self.tell(PoolEvent::Finished { worker, job, outcome, resume, memory_bytes, offer });
    }

    /// Called by the thread when it has copied a state out, or failed to.
    pub(super) fn suspended(&self, job: JobId, result: Result<(), Cause>) {
        self.job_ended();
        self.tell(PoolEvent::Suspended { worker: self.worker, job, result });
    }

    /// Called by the thread when it has suspended a session.
    pub(super) fn session_suspended(&self, session: &SessionCell, bytes: u64) {
        self.tell(PoolEvent::SessionSuspended { session: session.session(), bytes });
    }

    /// Called by the thread as the last thing that it does.
    pub(super) fn ended(&self) {
        let mut controls = self.controls.lock();
        // Nothing is left to stop.
        controls.stop = None;
        let _ = self.step(&mut controls, Input::Ended);
        if controls.is_left_behind {
            self.entry.lock().is_over = true;
        }
        self.thread_gone.notify_all();
    }

    /// Sets the thread, and the actor that is notified when the thread is stuck.
    pub(super) fn set_thread(&self, thread: JoinHandle<()>, actor: ActorRef<WorkerMessage>) {
        let mut controls = self.controls.lock();
        controls.thread = Some(thread);
        controls.actor = Some(actor);
    }

    /// Accepts no more commands: the thread ends after its current one.
    pub(super) fn close(&self) {
        self.controls.lock().commands = None;
    }

    /// Stops the run and waits until the thread has ended, which includes suspending its session. A
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
        let is_over = |controls: &ControlState| {
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
            controls.commands = None;
            controls.stop = None;
            (controls.session.take(), controls.actor.take())
        };
        tracing::error!(worker = %self.worker, ?job, "a worker's thread is stuck and left behind");
        self.entry.lock().set_activity(WorkerActivity::Stuck);
        if let Some(session) = session {
            let bytes = self.give_up_session(&session, "its worker's thread is stuck");
            if let Some(bytes) = bytes {
                // The watchdog, which this may be, is needed elsewhere.
                self.owner.leave(PoolEvent::SessionSuspended { session: session.session(), bytes });
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

    fn step(&self, controls: &mut ControlState, input: Input) -> PhaseAction {
        let (phase, step) = controls.phase.next(input);
        controls.phase = phase;
        let activity = match phase {
            _ if step == PhaseAction::Ignore || controls.is_left_behind => return step,
            Phase::Starting => WorkerActivity::Starting,
            Phase::Ready => WorkerActivity::Ready,
            Phase::Running(job) => WorkerActivity::Running { job },
            Phase::Resetting | Phase::Leaving => WorkerActivity::Resetting,
            Phase::Ended => return step,
        };
        self.entry.lock().set_activity(activity);
        step
    }

    /// Sends an event of the thread, unless the thread was left behind. The owner may use its permit
    /// before this returns, so no lock is held.
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

impl Overdue for WorkerControl {
    fn overdue(&self, number: u64) {
        self.leave_behind(JobId(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_end_with_their_sender() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let commands = CommandQueue::new(receiver);
        sender.send(Command::Dismiss).unwrap();
        assert!(matches!(commands.next(), Some(Command::Dismiss)));
        drop(sender);
        assert!(commands.next().is_none());
    }
}
