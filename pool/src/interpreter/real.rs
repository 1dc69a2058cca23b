//! The seam on the engine.

use engine::{Afterwards, Engine, Outcome, StartError};

use super::{Interpreter, InterpreterSource, Parked};
use crate::task::Task;

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
        Err(StartError::Host("the state of this interpreter can't be copied".to_owned()))
    }

    fn attach(&mut self, _parked: &Parked) -> Result<(), StartError> {
        Err(StartError::Host("this interpreter can't take another state".to_owned()))
    }
}
