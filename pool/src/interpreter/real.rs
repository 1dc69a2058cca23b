//! The seam implemented on the engine: interpreters that start from an image, or that restart, for
//! hosts without images.

use std::sync::Arc;

use engine::{
    Afterwards, Engine, Image, Outcome, PackedRest, PackedSession, SessionError, SessionState,
    StartError,
};

use super::{Interpreter, InterpreterSource, PackedBytes, Parked, ParkedState, Readiness};
use crate::metrics;
use crate::task::Task;

impl ParkedState for SessionState {
    fn bytes(&self) -> u64 {
        SessionState::bytes(self)
    }

    fn fork(&self) -> Parked {
        Parked::new(SessionState::fork(self))
    }

    fn compact(&self) -> Option<Parked> {
        SessionState::compact(self).map(Parked::new)
    }
}

impl InterpreterSource for Image {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        Ok(Box::new(Image::start(self)?))
    }

    fn shared_bytes(&self) -> u64 {
        Image::shared_bytes(self)
    }

    fn pack(&self, parked: &Parked) -> Result<PackedBytes, StartError> {
        let state = parked.downcast_ref::<SessionState>().ok_or(SessionError::NotParkable)?;
        let PackedSession { bytes, rest } = state.pack();
        Ok(PackedBytes { bytes, rest: Some(Arc::new(rest)) })
    }

    fn unpack(&self, packed: &PackedBytes) -> Result<Parked, StartError> {
        let rest = packed.rest.as_ref().and_then(|rest| rest.downcast_ref::<PackedRest>());
        let rest = rest.ok_or(SessionError::NotParkable)?;
        Ok(Parked::new(SessionState::unpack(self, &packed.bytes, rest)?))
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
            false if self.is_compiling_pressing() => return Readiness::NeedsReset,
            false => self.copies_soon(),
        };
        match is_soon {
            true => Readiness::Soon { memory_bytes: self.private_bytes() },
            false => Readiness::Later,
        }
    }

    fn park(&mut self) -> Result<Parked, StartError> {
        Ok(Parked::new(engine::Interpreter::park(self)?))
    }

    fn snapshot(&mut self) -> Result<Parked, StartError> {
        Ok(Parked::new(engine::Interpreter::snapshot(self)?))
    }

    fn attach(&mut self, parked: &Parked) -> Result<(), StartError> {
        let state = parked.downcast_ref::<SessionState>().ok_or(SessionError::NotParkable)?;
        Ok(engine::Interpreter::attach(self, state)?)
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

    fn pack(&self, _parked: &Parked) -> Result<PackedBytes, StartError> {
        Err(SessionError::NotParkable.into())
    }

    fn unpack(&self, _packed: &PackedBytes) -> Result<Parked, StartError> {
        Err(SessionError::NotParkable.into())
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

    fn park(&mut self) -> Result<Parked, StartError> {
        Err(SessionError::NotParkable.into())
    }

    fn attach(&mut self, _parked: &Parked) -> Result<(), StartError> {
        Err(SessionError::NotParkable.into())
    }

    fn memory_bytes(&self) -> u64 {
        self.interpreter.as_ref().map_or(0, engine::Interpreter::private_bytes)
    }
}
