//! A thread's interpreter: whose state it holds, and how one state makes way for another.
//!
//! After whatever ran without a session the interpreter is reset, when its caller has the outcome
//! already. A session stays until something else is ordered, and its state is copied meanwhile: if
//! its next run takes the interpreter with it, the session goes back to that.

use std::sync::Arc;
use std::time::Duration;

use engine::{Afterwards, LimitHit, LimitKind, Outcome, SandboxFailure, StartError, Verdict};
use tokio::time::Instant;

use super::desk::Desk;
use super::message::Order;
use crate::clock::now;
use crate::ids::WorkerId;
use crate::interpreter::{Interpreter, InterpreterSource, Parked};
use crate::metrics;
use crate::session::{Claim, Rest, SessionCell};
use crate::stowed::Stowed;
use crate::task::Task;

/// A thread's interpreter and what it holds.
pub(super) struct Slot<'a> {
    desk: &'a Arc<Desk>,
    source: &'a dyn InterpreterSource,
    /// States of up to so many bytes are copied between runs.
    rollback_bytes: u64,
    /// `None` before the first start and after a loss.
    interpreter: Option<Box<dyn Interpreter>>,
    /// Nothing has run since the interpreter was started or reset.
    is_pristine: bool,
    /// The session whose state is here, unless its cell says otherwise by now.
    session: Option<Arc<SessionCell>>,
}

/// What a thread does after an order.
pub(super) enum Next {
    /// It waits for another, after it took this long to make its interpreter fresh, if it had to.
    Order(Option<Duration>),
    /// It ends.
    End,
}

impl<'a> Slot<'a> {
    /// A slot with an interpreter that nothing has run on.
    pub(super) fn start(desk: &'a Arc<Desk>, rollback_bytes: u64) -> Result<Self, StartError> {
        let mut slot = Self {
            desk,
            source: desk.source(),
            rollback_bytes,
            interpreter: None,
            is_pristine: false,
            session: None,
        };
        slot.make_pristine()?;
        Ok(slot)
    }

    /// Carries an order out. An error ends the thread: no interpreter can be had.
    pub(super) fn follow(&mut self, order: Order) -> Result<Next, StartError> {
        match order {
            Order::Run(task) => self.run(task)?,
            Order::Park { job, session } => {
                let result = self.bring_to_hand(&session).map_err(|error| error.to_string());
                self.desk.parked(job, result);
            }
            Order::Vacate => self.vacate(),
            Order::Renew => {
                self.vacate();
                self.interpreter = None;
                self.is_pristine = false;
                self.make_pristine()?;
                self.desk.entry().renewed();
                return Ok(Next::Order(None));
            }
            Order::Dismiss => {
                self.vacate();
                return Ok(Next::End);
            }
        }
        // Only now, when nobody waits for what was ordered any more.
        if let Some(session) = self.session.clone() {
            self.keep_copy(&session);
            return Ok(Next::Order(None));
        }
        if self.is_pristine {
            return Ok(Next::Order(None));
        }
        let began = now();
        let worker = self.worker();
        tracing::info_span!("reset", %worker).in_scope(|| self.make_pristine())?;
        Ok(Next::Order(Some(since(began))))
    }

    /// Parks the session that is here, if one is, so that other workers can have it.
    pub(super) fn vacate(&mut self) {
        let Some(session) = self.session.clone() else { return };
        let reason = match self.copy_out(&session) {
            Ok(()) => String::new(),
            Err(error) => format!("its state could not be put aside: {error}"),
        };
        self.leave(&session, &reason);
        self.session = None;
    }

    /// What the copy of its session's state takes, in bytes.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.session.as_ref().map_or(0, |session| session.kept_bytes())
    }

    /// Memory that the interpreter has of its own, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.interpreter.as_ref().map_or(0, |interpreter| interpreter.memory_bytes())
    }

    fn worker(&self) -> WorkerId {
        self.desk.worker()
    }

    fn run(&mut self, mut task: Task) -> Result<(), StartError> {
        let taken = now();
        let span = task.span.clone();
        let _in_task = span.enter();
        let attached = tracing::info_span!("attach").in_scope(|| self.attach(&task))?;
        let attach = since(taken);
        let kept_from_running = match attached {
            Err(failure) => Some(Verdict::SandboxFailed(failure)),
            Ok(()) => task
                .due_in
                .filter(|due_in| *due_in <= attach)
                .map(|due_in| Verdict::Limit(LimitHit::deadline(due_in, attach))),
        };
        if let Some(verdict) = kept_from_running {
            self.desk.finished(task.job, Outcome::not_run(verdict), attach, 0);
            return Ok(());
        }
        let due_in = task.due_in.map(|due_in| due_in.saturating_sub(attach));
        let due_in = due_in.filter(|due_in| *due_in < task.limits.wall_time);
        task.limits.wall_time = due_in.unwrap_or(task.limits.wall_time);
        if let Some(session) = &task.session {
            session.begins(self.worker(), self.rollback_bytes);
        }
        self.is_pristine = false;
        let is_last = task.session.is_none();
        let interpreter = self.interpreter.as_mut().expect("what was attached is in one");
        let (mut outcome, afterwards) =
            tracing::info_span!("run").in_scope(|| interpreter.run(&task, is_last));
        if let (Verdict::Limit(hit), Some(_)) = (&mut outcome.verdict, due_in)
            && hit.limit == LimitKind::Wall
        {
            hit.limit = LimitKind::Deadline;
        }
        let memory_bytes = self.memory_bytes();
        let is_lost = afterwards == Afterwards::Lost;
        if !is_lost && let Some(session) = &task.session {
            session.ends(self.worker());
        }
        if is_lost && let Some(session) = self.session.take() {
            outcome.session_restored = self
                .leave(&session, "a run that was ended took its state, of which no copy was kept");
            if outcome.session_restored {
                // The session has them no more.
                outcome.files.clear();
            }
        }
        self.desk.finished(task.job, outcome, attach, memory_bytes);
        if is_lost {
            self.interpreter = None;
        }
        Ok(())
    }

    /// Copies the state of the session that is here, if nobody has a copy and it isn't large.
    fn keep_copy(&mut self, session: &SessionCell) {
        if self.rollback_bytes == 0 || self.memory_bytes() > self.rollback_bytes {
            return;
        }
        if let Err(error) = self.copy_out(session) {
            tracing::debug!(worker = %self.worker(), %error, "a session's state isn't copied");
        }
    }

    /// Brings what the task is to run on. The inner error is the task's, the outer one ends the
    /// thread.
    fn attach(&mut self, task: &Task) -> Result<Result<(), SandboxFailure>, StartError> {
        match &task.session {
            Some(session) => Ok(self.move_in(session)),
            None => {
                self.vacate();
                self.make_pristine()?;
                Ok(Ok(()))
            }
        }
    }

    /// Brings the state of a session here. If that fails, the session has it still, unless it was
    /// lost before or can't be unpacked.
    fn move_in(&mut self, session: &Arc<SessionCell>) -> Result<(), SandboxFailure> {
        self.make_way_for(session);
        let claim = session.claim(self.worker());
        // From here on a panic gives it back.
        self.session = Some(Arc::clone(session));
        let moved = match claim {
            Claim::AlreadyHere => Ok(()),
            Claim::MoveIn(Rest::Fresh) => self.make_pristine().map_err(failed_start),
            Claim::MoveIn(Rest::Parked(parked)) => self.take_up(&parked),
            Claim::MoveIn(Rest::Stowed(stowed)) => {
                let unpacked = self.unpack(session, &stowed).map_err(SandboxFailure::SessionLost);
                unpacked.and_then(|parked| {
                    // What it came from takes no more room.
                    session.captured(self.worker(), parked.clone());
                    self.take_up(&parked)
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

    fn take_up(&mut self, parked: &Parked) -> Result<(), SandboxFailure> {
        self.is_pristine = false;
        let attached = self.interpreter().and_then(|interpreter| interpreter.attach(parked));
        attached.map_err(failed_start)
    }

    /// Makes a state of a stowed one. If that can't be, the session has lost it.
    fn unpack(&self, session: &SessionCell, stowed: &Stowed) -> Result<Parked, String> {
        let packed = stowed.packed().map_err(|error| error.to_string());
        let unpacked = packed
            .and_then(|packed| self.source.unpack(&packed).map_err(|error| error.to_string()));
        unpacked.map_err(|error| {
            let reason = format!("its state could not be unpacked: {error}");
            session.spoil(self.worker(), &Rest::Stowed(stowed.clone()), &reason);
            reason
        })
    }

    /// Makes a copy of a session's state that is at hand. An error says why there is none, and the
    /// session has its state still.
    fn bring_to_hand(&mut self, session: &Arc<SessionCell>) -> Result<(), StartError> {
        self.make_way_for(session);
        session.settle(self.worker());
        // It may be stowed further meanwhile, and then it is to be unpacked from there.
        while let Ok(before @ Rest::Stowed(_)) = session.at_rest()
            && let Rest::Stowed(stowed) = &before
        {
            let Ok(parked) = self.unpack(session, stowed) else { continue };
            let bytes = parked.bytes();
            if session.exchange(&before, Rest::Parked(parked)) {
                self.desk.session_parked(session, bytes);
            }
        }
        self.copy_out(session)
    }

    /// Parks whatever session is here but `session`.
    ///
    /// P-2: it comes before any wait for another worker, so no two wait for each other.
    fn make_way_for(&mut self, session: &Arc<SessionCell>) {
        if !self.session.as_ref().is_some_and(|here| Arc::ptr_eq(here, session)) {
            self.vacate();
        }
    }

    /// Copies a state out to its cell, if this interpreter alone has it.
    fn copy_out(&mut self, session: &SessionCell) -> Result<(), StartError> {
        if session.is_changed_on(self.worker()) {
            let parked = self.interpreter()?.park()?;
            session.captured(self.worker(), parked);
        }
        Ok(())
    }

    /// Gives a session's state up; says whether it rests now, and tells the owner if so.
    fn leave(&self, session: &SessionCell, reason: &str) -> bool {
        let rests = self.desk.gives_back(session, reason);
        if let Some(bytes) = rests {
            self.desk.session_parked(session, bytes);
        }
        rests.is_some()
    }

    fn make_pristine(&mut self) -> Result<(), StartError> {
        if self.is_pristine {
            return Ok(());
        }
        if let Some(interpreter) = &mut self.interpreter
            && let Err(error) = interpreter.reset()
        {
            tracing::warn!(worker = %self.worker(), %error, "an interpreter is replaced");
            self.interpreter = None;
        }
        self.interpreter()?;
        self.is_pristine = true;
        Ok(())
    }

    /// The interpreter, started if there is none.
    fn interpreter(&mut self) -> Result<&mut Box<dyn Interpreter>, StartError> {
        let interpreter = match self.interpreter.take() {
            Some(interpreter) => interpreter,
            None => {
                let began = now();
                let interpreter = self.source.start()?;
                metrics::spawned(since(began));
                interpreter
            }
        };
        Ok(self.interpreter.insert(interpreter))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // In order, the slot was vacated before. After a panic nobody knows the state.
        if let Some(session) = &self.session {
            self.leave(session, "its worker died");
        }
    }
}

fn since(began: Instant) -> Duration {
    now().saturating_duration_since(began)
}

fn failed_start(error: StartError) -> SandboxFailure {
    SandboxFailure::Start(error.to_string())
}
