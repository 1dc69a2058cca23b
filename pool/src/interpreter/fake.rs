//! A scripted interpreter, for the layers above: no wasm, no real time.
//!
//! The program's source is the script: `ok`, `raise`, `lose` (the interpreter is lost), `panic`
//! (the thread panics) or `wait` (until the gate opens or the run is stopped).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{Afterwards, Exception, Outcome, StartError, StopReason, Verdict};
use parking_lot::{Condvar, Mutex};

use super::{Interpreter, InterpreterSource};
use crate::task::{JobId, Task};

/// Starts scripted interpreters and steers them. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct FakeSource {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    starts: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// This many starts fail from now on.
    failing_starts: u32,
    /// While true, starts wait.
    starts_held: bool,
    is_open: bool,
    running: Vec<JobId>,
}

impl FakeSource {
    /// Lets every waiting run go on, and those to come.
    pub fn open(&self) {
        self.shared.state.lock().is_open = true;
        self.shared.changed.notify_all();
    }

    /// Makes the next `count` starts fail.
    pub fn fail_starts(&self, count: u32) {
        self.shared.state.lock().failing_starts = count;
    }

    /// Holds starts back, or lets them go.
    pub fn hold_starts(&self, held: bool) {
        self.shared.state.lock().starts_held = held;
        self.shared.changed.notify_all();
    }

    /// Interpreters asked for so far.
    pub fn starts(&self) -> u64 {
        self.shared.starts.load(Ordering::SeqCst)
    }

    /// The jobs that run now.
    pub fn running(&self) -> Vec<JobId> {
        self.shared.state.lock().running.clone()
    }
}

impl InterpreterSource for FakeSource {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        self.shared.starts.fetch_add(1, Ordering::SeqCst);
        let mut state = self.shared.state.lock();
        while state.starts_held {
            self.shared.changed.wait(&mut state);
        }
        if state.failing_starts > 0 {
            state.failing_starts -= 1;
            return Err(StartError::Boot("scripted to fail".to_owned()));
        }
        Ok(Box::new(FakeInterpreter { shared: Arc::clone(&self.shared) }))
    }
}

struct FakeInterpreter {
    shared: Arc<Shared>,
}

impl FakeInterpreter {
    /// Waits until the gate opens, or the run is stopped.
    fn wait(&self, task: &Task) -> Option<StopReason> {
        let mut state = self.shared.state.lock();
        while !state.is_open {
            if let Some(reason) = task.stop.requested() {
                return Some(reason);
            }
            // A stop has no way to notify this condition, so it is looked for.
            self.shared.changed.wait_for(&mut state, std::time::Duration::from_millis(1));
        }
        None
    }
}

impl Interpreter for FakeInterpreter {
    fn run(&mut self, task: &Task, _last: bool) -> (Outcome, Afterwards) {
        self.shared.state.lock().running.push(task.job);
        let source = task.program.source.as_str();
        let stopped = if source == "wait" { self.wait(task) } else { task.stop.requested() };
        self.shared.state.lock().running.retain(|job| *job != task.job);
        assert_ne!(source, "panic", "scripted to panic");
        let completed = Verdict::Completed { value: None, repr: None };
        let (verdict, afterwards) = match (stopped, source) {
            (Some(_), _) => (Verdict::Cancelled, Afterwards::Lost),
            (None, "lose") => (completed, Afterwards::Lost),
            (None, "raise") => (
                Verdict::Raised(Exception {
                    type_name: "ValueError".to_owned(),
                    message: String::new(),
                    traceback: String::new(),
                }),
                Afterwards::Usable,
            ),
            (None, _) => (completed, Afterwards::Usable),
        };
        task.transcript.close();
        (Outcome::not_run(verdict), afterwards)
    }
}
