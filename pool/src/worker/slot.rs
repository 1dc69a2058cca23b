//! The thread of a worker, which executes commands on its interpreter. It knows whose state that
//! holds, and replaces one state by another.
//!
//! The wasmer store never leaves this thread. However the thread ends, even by a panic, it reports
//! its end last. By then it has dropped the interpreter and suspended or lost its session.
//!
//! After a job without a session the interpreter is reset, when the caller already has the outcome.
//! A session stays until the worker gets another command. Its state is copied meanwhile, and if its
//! next turn loses the interpreter, the session rolls back to that copy.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use engine::{
    Afterwards, Cause, LimitHit, LimitKind, Outcome, SandboxFailure, StartError, Verdict, chain,
    panic_text,
};
use tokio::time::Instant;

use super::control::{Command, CommandQueue, WorkerControl, WorkerPermit};
use super::state::GoneReason;
use crate::event::Offer;
use crate::ids::{BuildId, WorkerId};
use crate::interpreter::{Interpreter, Readiness, Suspended};
use crate::metrics;
use crate::packed::Packed;
use crate::session::{Claim, SessionCell, StoredState};
use crate::task::Task;

/// The stack of host code; the guest has its own. Only used pages take memory.
const STACK_BYTES: usize = 8 << 20;

/// Starts the thread. It ends when no more commands can come, when it is dismissed, or when it
/// can't start an interpreter.
pub(super) fn spawn(
    control: Arc<WorkerControl>,
    commands: CommandQueue,
    ended: impl FnOnce(GoneReason) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let name = format!("hatchery-{}", control.worker);
    Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || {
        let serve = || serve(&control, &commands);
        let served = catch_unwind(AssertUnwindSafe(serve));
        let reason = match served {
            Ok(Ok(reason)) => reason,
            Ok(Err(error)) => GoneReason::StartFailed(Cause::new(error)),
            Err(panic) => GoneReason::Died(panic_text(&*panic).into()),
        };
        control.ended();
        ended(reason);
    })
}

fn serve(control: &Arc<WorkerControl>, commands: &CommandQueue) -> Result<GoneReason, StartError> {
    let mut slot = Slot::start(control)?;
    loop {
        slot.offer();
        let Some(command) = commands.next() else {
            slot.vacate();
            return Ok(GoneReason::Stopped);
        };
        if slot.execute(command)?.is_break() {
            return Ok(GoneReason::Dismissed);
        }
    }
}

/// A thread's interpreter and what it holds.
struct Slot<'a> {
    control: &'a Arc<WorkerControl>,
    /// The build of the interpreter, or of the next one if there is none.
    build: BuildId,
    /// `None` before the first start and after a loss.
    interpreter: Option<Box<dyn Interpreter>>,
    /// Nothing has run since the interpreter was started or reset.
    is_pristine: bool,
    /// The session whose state is here, unless its cell now says otherwise.
    session: Option<Arc<SessionCell>>,
    /// Why that state couldn't be copied after its last turn.
    not_copied: Option<Cause>,
    /// Whether the last run was the pool's test of itself, whose reset isn't reported either.
    was_self_test: bool,
    /// How long the last reset took, until an offer says so.
    reset: Option<Duration>,
    /// The permit for the next command is offered already.
    has_offered: bool,
}

impl<'a> Slot<'a> {
    /// Returns a slot with a fresh interpreter.
    fn start(control: &'a Arc<WorkerControl>) -> Result<Self, StartError> {
        let mut slot = Self {
            control,
            build: BuildId::default(),
            interpreter: None,
            is_pristine: false,
            session: None,
            not_copied: None,
            was_self_test: false,
            reset: None,
            has_offered: false,
        };
        slot.make_pristine()?;
        Ok(slot)
    }

    /// Executes a command. The thread ends after `Break`, and after an error: it can't get an
    /// interpreter.
    fn execute(&mut self, command: Command) -> Result<ControlFlow<()>, StartError> {
        match command {
            Command::Run(task) => self.run(task)?,
            Command::Suspend { job, session } => {
                let result = self.make_available(&session).map_err(Cause::new);
                self.control.suspended(job, result);
            }
            Command::Vacate => self.vacate(),
            Command::Renew => {
                self.vacate();
                self.interpreter = None;
                self.is_pristine = false;
                self.make_pristine()?;
                self.control.entry.lock().status.renewals += 1;
                return Ok(ControlFlow::Continue(()));
            }
            Command::Dismiss => {
                self.vacate();
                return Ok(ControlFlow::Break(()));
            }
        }
        // This comes last, because nobody waits for the command's result any more.
        if let Some(session) = self.session.clone() {
            self.keep_copy(&session);
        } else if !self.is_pristine {
            let began = Instant::now();
            let worker = self.worker();
            tracing::info_span!("reset", %worker).in_scope(|| self.make_pristine())?;
            self.reset = Some(began.elapsed()).filter(|_| !self.was_self_test);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Offers the permit for the next command, if it isn't offered yet.
    fn offer(&mut self) {
        if !std::mem::take(&mut self.has_offered) {
            let (memory_bytes, kept_bytes) = (self.memory_bytes(), self.kept_bytes());
            let offer = self.offer_of(memory_bytes, kept_bytes);
            self.control.idle(offer);
        }
    }

    fn offer_of(&mut self, memory_bytes: u64, kept_bytes: u64) -> Offer {
        let permit = WorkerPermit { control: Arc::clone(self.control) };
        let (build, reset) = (self.build, self.reset.take());
        let present = self.interpreter.as_ref().filter(|_| self.session.is_some());
        let stays = present.is_some_and(|it| it.readiness(false) == Readiness::Stays);
        Offer { permit, build, memory_bytes, kept_bytes, stays, reset }
    }

    /// Returns the offer of the next command that can be made at once, after a run. So the caller's
    /// next job runs here, without waking another worker. The reset or the session's next copy
    /// comes before that job. `kept_bytes` is the size of the session's last copy; `None` after a
    /// run without a session.
    fn offer_soon(&mut self, kept_bytes: Option<u64>) -> Option<Offer> {
        let readiness = self.interpreter.as_ref()?.readiness(kept_bytes.is_none());
        let Readiness::Soon { memory_bytes } = readiness else { return None };
        self.has_offered = true;
        Some(self.offer_of(memory_bytes, kept_bytes.unwrap_or(0)))
    }

    /// Suspends the session that is here, if any, so that other workers can have it.
    fn vacate(&mut self) {
        let Some(session) = self.session.clone() else { return };
        let not_suspended = "its state could not be suspended";
        let reason = match self.copy_out(&session, |interpreter| interpreter.suspend()) {
            Ok(()) => Cause::from(not_suspended),
            Err(error) => Cause::because(not_suspended, error),
        };
        // A copy from between two turns takes more memory than one that may rest for long.
        if let Some(copy) = session.copy_on(self.worker()) {
            session.captured(self.worker(), copy.compact());
        }
        self.leave(&session, reason);
        (self.session, self.not_copied) = (None, None);
    }

    /// Returns the size of the copy of its session's state, in bytes.
    fn kept_bytes(&self) -> u64 {
        self.session.as_ref().map_or(0, |session| session.kept_bytes())
    }

    /// Returns the interpreter's private memory, in bytes.
    fn memory_bytes(&self) -> u64 {
        self.interpreter.as_ref().map_or(0, |interpreter| interpreter.memory_bytes())
    }

    fn worker(&self) -> WorkerId {
        self.control.worker
    }

    fn run(&mut self, mut task: Task) -> Result<(), StartError> {
        self.was_self_test = task.is_self_test;
        let taken = Instant::now();
        let span = task.span.clone();
        let in_task = span.enter();
        let resumed = tracing::info_span!("resume").in_scope(|| self.resume(&task))?;
        let resume = taken.elapsed();
        let not_run = match resumed {
            Err(failure) => Some(Verdict::SandboxFailed(failure)),
            Ok(()) => task
                .due_in
                .filter(|due_in| *due_in <= resume)
                .map(|due_in| Verdict::Limit(LimitHit::deadline(due_in, resume))),
        };
        if let Some(verdict) = not_run {
            drop(in_task);
            self.control.finished(&task, Outcome::not_run(verdict), resume, 0, None);
            return Ok(());
        }
        let due_in = task.due_in.map(|due_in| due_in.saturating_sub(resume));
        let due_in = due_in.filter(|due_in| *due_in < task.limits.wall_time);
        task.limits.wall_time = due_in.unwrap_or(task.limits.wall_time);
        let kept_bytes = task.session.as_ref().map(|session| {
            let kept_bytes = session.kept_bytes();
            session.begin_run(self.worker(), self.control.rollback_bytes);
            kept_bytes
        });
        self.is_pristine = false;
        let is_last = task.session.is_none();
        let interpreter =
            self.interpreter.as_mut().expect("a state is resumed, so there is an interpreter");
        let egress = task.program.egress.clone();
        if let Some(egress) = &egress {
            egress.begin(&task.transcript);
            self.control.entry.lock().network = Some(Arc::clone(egress));
        }
        let (mut outcome, afterwards) =
            tracing::info_span!("run").in_scope(|| interpreter.run(&task, is_last));
        if let Some(egress) = &egress {
            self.control.entry.lock().network = None;
            outcome.add_network(egress.finish());
        }
        if let (Verdict::Limit(hit), Some(_)) = (&mut outcome.verdict, due_in)
            && hit.limit == LimitKind::Wall
        {
            hit.limit = LimitKind::Deadline;
        }
        let memory_bytes = self.memory_bytes();
        let is_lost = afterwards == Afterwards::Lost;
        if !is_lost && let Some(session) = &task.session {
            session.end_run(self.worker());
        }
        let not_copied = self.not_copied.take();
        if is_lost && let Some(session) = self.session.take() {
            let reason = "a run that was stopped by force took its state with it, and there was \
                          no copy";
            let reason = not_copied
                .map_or_else(|| Cause::from(reason), |error| Cause::because(reason, error));
            outcome.session_restored = self.leave(&session, reason);
            if outcome.session_restored {
                // The session no longer has these changes.
                outcome.files.clear();
            }
        }
        // What the owner decides now isn't about this task only.
        drop(in_task);
        let soon = if is_lost { None } else { self.offer_soon(kept_bytes) };
        self.control.finished(&task, outcome, resume, memory_bytes, soon);
        if is_lost {
            self.interpreter = None;
        }
        Ok(())
    }

    /// Copies the state of the session that is here, if there is no copy yet and the state isn't
    /// large.
    fn keep_copy(&mut self, session: &SessionCell) {
        let most_bytes = self.control.rollback_bytes;
        if most_bytes == 0 || self.memory_bytes() > most_bytes {
            return;
        }
        if let Err(error) = self.copy_out(session, |interpreter| interpreter.snapshot()) {
            let worker = self.worker();
            tracing::debug!(%worker, error = %chain(&error), "a session's state isn't copied");
            self.not_copied = Some(Cause::new(error));
        }
    }

    /// Resumes the state that the task runs on. The inner error is the task's; the outer one ends
    /// the thread.
    fn resume(&mut self, task: &Task) -> Result<Result<(), SandboxFailure>, StartError> {
        match &task.session {
            Some(session) => Ok(self.resume_session(session)),
            None => {
                self.vacate();
                self.change_to(task.build);
                self.make_pristine()?;
                Ok(Ok(()))
            }
        }
    }

    /// Ends an interpreter of another build, which holds no session any more.
    fn change_to(&mut self, build: BuildId) {
        if self.build != build {
            (self.interpreter, self.is_pristine) = (None, false);
            self.build = build;
            let name = self.control.builds.name(build);
            self.control.entry.lock().status.python = name.to_string();
        }
    }

    fn make_pristine(&mut self) -> Result<(), StartError> {
        self.drop_ended();
        if self.is_pristine {
            return Ok(());
        }
        if let Some(interpreter) = &mut self.interpreter
            && let Err(error) = interpreter.reset()
        {
            let (worker, error) = (self.worker(), chain(&error));
            tracing::warn!(%worker, %error, "replacing an interpreter that could not be reset");
            self.interpreter = None;
        }
        self.interpreter()?;
        self.is_pristine = true;
        Ok(())
    }

    /// Returns whether the interpreter's process has ended, with whatever state it had.
    fn has_ended(&self) -> bool {
        let process = self.interpreter.as_ref().and_then(|interpreter| interpreter.process());
        process.is_some_and(|process| process.has_ended())
    }

    /// Drops an interpreter whose process has ended since it was last used: the next program isn't to
    /// find that out.
    fn drop_ended(&mut self) {
        if self.has_ended() {
            (self.interpreter, self.is_pristine) = (None, false);
        }
    }

    /// Returns the interpreter, starting one if there is none.
    fn interpreter(&mut self) -> Result<&mut Box<dyn Interpreter>, StartError> {
        let interpreter = match self.interpreter.take() {
            Some(interpreter) => interpreter,
            None => {
                let began = Instant::now();
                let interpreter = self.control.builds.source(self.build).start()?;
                let process = interpreter.process().cloned();
                self.control.entry.lock().process = process;
                metrics::spawned(began.elapsed());
                interpreter
            }
        };
        Ok(self.interpreter.insert(interpreter))
    }

    /// Resumes a session's state. If that fails, the session still has its state, unless it was
    /// lost before or can't be unpacked.
    fn resume_session(&mut self, session: &Arc<SessionCell>) -> Result<(), SandboxFailure> {
        self.vacate_for(session);
        let mut claim = session.claim(self.worker());
        if matches!(claim, Claim::AlreadyHere) && self.has_ended() {
            // Its process died between two turns: the session continues from the copy of its state.
            let ended = "the process that kept its state has ended";
            let reason = self.not_copied.take().map(|error| Cause::because(ended, error));
            self.control.give_up_session(session, reason.unwrap_or_else(|| ended.into()));
            claim = session.claim(self.worker());
        }
        // From here on a panic gives the session back.
        self.session = Some(Arc::clone(session));
        self.change_to(session.build());
        let moved = match claim {
            Claim::AlreadyHere => Ok(()),
            Claim::Resume(StoredState::Fresh) => self.make_pristine().map_err(failed_start),
            Claim::Resume(StoredState::Suspended(suspended)) => self.resume_suspended(&suspended),
            Claim::Resume(StoredState::Packed(offloaded)) => {
                let unpacked =
                    self.unpack(session, &offloaded).map_err(SandboxFailure::SessionLost);
                unpacked.and_then(|suspended| {
                    // This drops the offloaded form, which takes memory or disk space.
                    session.captured(self.worker(), suspended.clone());
                    self.resume_suspended(&suspended)
                })
            }
            Claim::Lost(reason) => Err(SandboxFailure::SessionLost(reason)),
        };
        if moved.is_err() {
            self.leave(session, "it never ran here");
            self.session = None;
        }
        moved
    }

    fn resume_suspended(&mut self, suspended: &Suspended) -> Result<(), SandboxFailure> {
        self.drop_ended();
        self.is_pristine = false;
        let resumed = self.interpreter().and_then(|interpreter| interpreter.resume(suspended));
        resumed.map_err(failed_start)
    }

    /// Unpacks an offloaded state. If that fails, the session has lost it.
    fn unpack(&self, session: &SessionCell, offloaded: &Arc<Packed>) -> Result<Suspended, Cause> {
        let packed = offloaded.packed().map_err(Cause::new);
        let unpacked = packed.and_then(|packed| {
            self.control.builds.source(session.build()).unpack(&packed).map_err(Cause::new)
        });
        unpacked.map_err(|error| {
            let reason = Cause::because("its state could not be unpacked", error);
            session.mark_damaged(
                self.worker(),
                &StoredState::Packed(Arc::clone(offloaded)),
                reason.clone(),
            );
            reason
        })
    }

    /// Puts a copy of a session's state into its cell. On error there is no copy, and the session
    /// still has its state.
    fn make_available(&mut self, session: &Arc<SessionCell>) -> Result<(), StartError> {
        self.vacate_for(session);
        session.wait_until_settled(self.worker());
        // Another thread may offload it meanwhile; then it has to be unpacked from disk.
        while let Ok(before @ StoredState::Packed(_)) = session.stored()
            && let StoredState::Packed(offloaded) = &before
        {
            let Ok(suspended) = self.unpack(session, offloaded) else { continue };
            let bytes = suspended.bytes();
            if session.exchange(&before, StoredState::Suspended(suspended)) {
                self.control.session_suspended(session, bytes);
            }
        }
        self.copy_out(session, |interpreter| interpreter.suspend())
    }

    /// Suspends the session that is here, unless it is `session`.
    ///
    /// P-2: this comes before any wait for another worker, so that no two workers wait for each
    /// other.
    fn vacate_for(&mut self, session: &Arc<SessionCell>) {
        if !self.session.as_ref().is_some_and(|here| Arc::ptr_eq(here, session)) {
            self.vacate();
        }
    }

    /// Copies a state out to its cell by `copy`, if only this interpreter has it.
    fn copy_out(
        &mut self,
        session: &SessionCell,
        copy: impl FnOnce(&mut dyn Interpreter) -> Result<Suspended, StartError>,
    ) -> Result<(), StartError> {
        if session.is_changed_on(self.worker()) {
            let suspended = copy(&mut **self.interpreter()?)?;
            session.captured(self.worker(), suspended);
        }
        Ok(())
    }

    /// Gives up a session's state. If the session is at rest because of that, notifies the owner
    /// and returns true.
    fn leave(&self, session: &SessionCell, reason: impl Into<Cause>) -> bool {
        let rests = self.control.give_up_session(session, reason);
        if let Some(bytes) = rests {
            self.control.session_suspended(session, bytes);
        }
        rests.is_some()
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // Normally the slot has been vacated by now. After a panic the state is unknown.
        if let Some(session) = &self.session {
            self.leave(session, "its worker died");
        }
    }
}

fn failed_start(error: StartError) -> SandboxFailure {
    SandboxFailure::Start(Cause::new(error))
}
