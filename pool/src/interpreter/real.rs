//! The seam on the engine: interpreters on an image, and for hosts that have none, interpreters
//! that start anew.

use std::sync::Arc;

use engine::{Afterwards, Engine, Image, Outcome, SessionError, SessionState, StartError};

use super::{Interpreter, InterpreterSource, Parked};
use crate::task::Task;

impl InterpreterSource for Image {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        Ok(Box::new(Image::start(self)?))
    }
}

impl Interpreter for engine::Interpreter {
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards) {
        let Task { program, limits, transcript, stop, .. } = task;
        engine::Interpreter::run(self, program, limits, transcript, stop, last)
    }

    fn reset(&mut self) -> Result<(), StartError> {
        engine::Interpreter::reset(self)
    }

    fn park(&mut self) -> Result<Parked, StartError> {
        let state = engine::Interpreter::park(self)?;
        let bytes = state.bytes();
        Ok(Parked::new(Arc::new(state), bytes))
    }

    fn attach(&mut self, parked: &Parked) -> Result<(), StartError> {
        let state = parked.downcast_ref::<SessionState>().ok_or(SessionError::NotParkable)?;
        Ok(engine::Interpreter::attach(self, state)?)
    }
}

impl InterpreterSource for Engine {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        let interpreter = Some(Engine::start(self)?);
        Ok(Box::new(Restarted { engine: self.clone(), interpreter }))
    }
}

/// An interpreter that goes back to its start by starting again.
struct Restarted {
    engine: Engine,
    /// `None` after a start that failed.
    interpreter: Option<engine::Interpreter>,
}

impl Interpreter for Restarted {
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards) {
        let interpreter = self.interpreter.as_mut().expect("nothing runs after a failed reset");
        interpreter.run(&task.program, &task.limits, &task.transcript, &task.stop, last)
    }

    fn reset(&mut self) -> Result<(), StartError> {
        // The old one goes first: two at a time would take twice the memory.
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
}
