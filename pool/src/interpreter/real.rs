//! The seam implemented on the engine: interpreters that start from an image, or that restart, for
//! hosts without images.

use std::sync::Arc;

use engine::{
    Afterwards, BranchedState, Engine, Image, Outcome, PackedRest, PackedSession, SessionError,
    SessionState, StartError,
};

use super::{
    Branched, Interpreter, InterpreterSource, PackedBytes, Readiness, Suspended, SuspendedState,
};
use crate::metrics;
use crate::task::Task;

impl SuspendedState for SessionState {
    fn bytes(&self) -> u64 {
        SessionState::bytes(self)
    }

    fn fork(&self) -> Suspended {
        Suspended::new(SessionState::fork(self))
    }

    fn branch(&self) -> Branched {
        let BranchedState { fork, own, shared } = SessionState::branch(self);
        let (fork, own) = (Suspended::new(fork), Suspended::new(own));
        Branched { fork, shared: Some((shared, own)) }
    }

    fn begin_branch(&self) {
        SessionState::begin_branch(self);
    }

    fn compact(&self) -> Option<Suspended> {
        SessionState::compact(self).map(Suspended::new)
    }
}

impl InterpreterSource for Image {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        Ok(Box::new(Image::start(self)?))
    }

    fn shared_bytes(&self) -> u64 {
        Image::shared_bytes(self)
    }

    fn pack(&self, suspended: &Suspended) -> Result<PackedBytes, StartError> {
        let state = suspended.downcast_ref::<SessionState>().ok_or(SessionError::NotSuspendable)?;
        let PackedSession { bytes, rest } = state.pack();
        Ok(PackedBytes { bytes, rest: Some(Arc::new(rest)) })
    }

    fn unpack(&self, packed: &PackedBytes) -> Result<Suspended, StartError> {
        let rest = packed.rest.as_ref().and_then(|rest| rest.downcast_ref::<PackedRest>());
        let rest = rest.ok_or(SessionError::NotSuspendable)?;
        Ok(Suspended::new(SessionState::unpack(self, &packed.bytes, rest)?))
    }
}

impl Interpreter for engine::Interpreter {
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards) {
        let Task { program, limits, transcript, stop, .. } = task;
        let ran = engine::Interpreter::run(self, program, limits, transcript, stop, last);
        if self.had_code() {
            metrics::had_code();
        }
        ran
    }

    fn reset(&mut self) -> Result<(), StartError> {
        engine::Interpreter::reset(self)?;
        self.compile_ahead()
    }

    fn readiness(&self, is_last: bool) -> Readiness {
        let is_soon = match is_last {
            true => self.resets_soon() && !self.has_to_compile(),
            false if self.threads() > 0 => return Readiness::Stays,
            false => self.copies_soon(),
        };
        match is_soon {
            true => Readiness::Soon { memory_bytes: self.private_bytes() },
            false => Readiness::Later,
        }
    }

    fn suspend(&mut self) -> Result<Suspended, StartError> {
        Ok(Suspended::new(engine::Interpreter::suspend(self)?))
    }

    fn snapshot(&mut self) -> Result<Suspended, StartError> {
        Ok(Suspended::new(engine::Interpreter::snapshot(self)?))
    }

    fn resume(&mut self, suspended: &Suspended) -> Result<(), StartError> {
        let state = suspended.downcast_ref::<SessionState>().ok_or(SessionError::NotSuspendable)?;
        Ok(engine::Interpreter::resume(self, state)?)
    }

    fn memory_bytes(&self) -> u64 {
        self.private_bytes()
    }
}

impl InterpreterSource for Engine {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        let interpreter = Some(Engine::start(self)?);
        Ok(Box::new(Restarted { engine: self.clone(), interpreter }))
    }

    fn shared_bytes(&self) -> u64 {
        self.module_bytes()
    }
}

/// An interpreter that is reset by starting it again.
struct Restarted {
    engine: Engine,
    /// `None` after a failed start.
    interpreter: Option<engine::Interpreter>,
}

impl Interpreter for Restarted {
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards) {
        let interpreter = self.interpreter.as_mut().expect("nothing runs after a failed reset");
        interpreter.run(&task.program, &task.limits, &task.transcript, &task.stop, last)
    }

    fn reset(&mut self) -> Result<(), StartError> {
        // Drop the old one first: two at a time would take twice the memory.
        self.interpreter = None;
        self.interpreter = Some(self.engine.start()?);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.interpreter.as_ref().map_or(0, engine::Interpreter::private_bytes)
    }
}
