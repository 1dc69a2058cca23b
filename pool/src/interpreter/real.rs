//! The seam on the engine.

use engine::{Afterwards, Engine, Outcome, StartError};

use super::{Interpreter, InterpreterSource};
use crate::task::Task;

impl InterpreterSource for Engine {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        Ok(Box::new(Engine::start(self)?))
    }
}

impl Interpreter for engine::Interpreter {
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards) {
        engine::Interpreter::run(
            self,
            &task.program,
            &task.limits,
            &task.transcript,
            &task.stop,
            last,
        )
    }
}
