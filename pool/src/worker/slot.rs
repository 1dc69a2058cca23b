//! A thread's interpreter: whose state it holds, and how one state makes way for another.
//!
//! After whatever ran without a session the interpreter is reset, when its caller has the outcome
//! already. A session stays until something else is ordered.

use std::sync::Arc;

use engine::{Afterwards, Outcome, SandboxFailure, StartError, Verdict};

use super::message::{Order, ThreadEvent};
use crate::interpreter::{Interpreter, InterpreterSource};
use crate::session::{Claim, SessionCell};
use crate::task::{Task, WorkerId};

/// A thread's interpreter and what it holds.
pub(super) struct Slot<'a> {
    worker: WorkerId,
    source: &'a dyn InterpreterSource,
    /// `None` before the first start and after a loss.
    interpreter: Option<Box<dyn Interpreter>>,
    /// Nothing has run since the interpreter was started or reset.
    is_pristine: bool,
    /// The session whose state is here, unless its cell says otherwise by now.
    session: Option<Arc<SessionCell>>,
}

impl<'a> Slot<'a> {
    /// A slot with an interpreter that nothing has run on.
    pub(super) fn start(
        worker: WorkerId,
        source: &'a dyn InterpreterSource,
    ) -> Result<Self, StartError> {
        let mut slot =
            Self { worker, source, interpreter: None, is_pristine: false, session: None };
        slot.make_pristine()?;
        Ok(slot)
    }

    /// Carries an order out. An error ends the thread: no interpreter can be had.
    pub(super) fn follow(
        &mut self,
        order: Order,
        report: &dyn Fn(ThreadEvent),
    ) -> Result<(), StartError> {
        match order {
            Order::Run(task) => self.run(&task, report)?,
            Order::Park { job, session } => {
                self.make_way_for(&session);
                session.settle(self.worker);
                let result = self.copy_out(&session).map_err(|error| error.to_string());
                report(ThreadEvent::Parked { job, result });
            }
        }
        // Only now, when nobody waits for what was ordered any more.
        if self.session.is_none() { self.make_pristine() } else { Ok(()) }
    }

    /// Parks the session that is here, if one is, so that other workers can have it.
    pub(super) fn vacate(&mut self) {
        let Some(session) = self.session.clone() else { return };
        let reason = match self.copy_out(&session) {
            Ok(()) => String::new(),
            Err(error) => format!("its state could not be put aside: {error}"),
        };
        session.leave(self.worker, &reason);
        self.session = None;
    }

    fn run(&mut self, task: &Task, report: &dyn Fn(ThreadEvent)) -> Result<(), StartError> {
        let finished = |outcome| {
            report(ThreadEvent::Finished { job: task.job, outcome: Box::new(outcome) });
        };
        if let Some(session) = &task.session {
            if let Err(failure) = self.move_in(session) {
                finished(Outcome::not_run(Verdict::SandboxFailed(failure)));
                return Ok(());
            }
            session.changes(self.worker);
        } else {
            self.vacate();
            self.make_pristine()?;
        }
        self.is_pristine = false;
        let is_last = task.session.is_none();
        let (outcome, afterwards) = self.interpreter()?.run(task, is_last);
        let is_lost = afterwards == Afterwards::Lost;
        if is_lost && let Some(session) = self.session.take() {
            session.leave(self.worker, "a run that was ended took its state");
        }
        finished(outcome);
        if is_lost {
            self.interpreter = None;
        }
        Ok(())
    }

    /// Brings the state of a session here. If that fails, the session has it still, unless it was
    /// lost before.
    fn move_in(&mut self, session: &Arc<SessionCell>) -> Result<(), SandboxFailure> {
        self.make_way_for(session);
        let claim = session.claim(self.worker);
        // From here on a panic gives it back.
        self.session = Some(Arc::clone(session));
        let moved = match claim {
            Claim::AlreadyHere => Ok(()),
            Claim::MoveIn(None) => self.make_pristine().map_err(failed_start),
            Claim::MoveIn(Some(parked)) => {
                self.is_pristine = false;
                let attached = self.interpreter().and_then(|slot| slot.attach(&parked));
                attached.map_err(failed_start)
            }
            Claim::Lost(reason) => Err(SandboxFailure::SessionLost(reason)),
        };
        if moved.is_err() {
            session.leave(self.worker, "it never ran here");
            self.session = None;
        }
        moved
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
        if session.is_changed_on(self.worker) {
            let parked = self.interpreter()?.park()?;
            session.captured(self.worker, parked);
        }
        Ok(())
    }

    fn make_pristine(&mut self) -> Result<(), StartError> {
        if self.is_pristine {
            return Ok(());
        }
        if let Some(interpreter) = &mut self.interpreter
            && let Err(error) = interpreter.reset()
        {
            tracing::warn!(worker = %self.worker, %error, "an interpreter is replaced");
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
            None => self.source.start()?,
        };
        Ok(self.interpreter.insert(interpreter))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // In order, the slot was vacated before. After a panic nobody knows the state.
        if let Some(session) = &self.session {
            session.leave(self.worker, "its worker died");
        }
    }
}

fn failed_start(error: StartError) -> SandboxFailure {
    SandboxFailure::Start(error.to_string())
}
