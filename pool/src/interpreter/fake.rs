//! A scripted interpreter, for the layers above: no wasm, no real time.
//!
//! The program's source is the script: `ok`, `raise`, `lose` (the interpreter is lost), `panic`
//! (the thread panics), `wait` (until the gate opens or the run is stopped) or `count` (the value is
//! the number of runs in this state, this one included, which tells whose state it is).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{Afterwards, Exception, MimeBundle, Outcome, StartError, StopReason, Verdict};
use parking_lot::{Condvar, Mutex};

use super::{Interpreter, InterpreterSource, Parked};
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
    failing: Failing,
    /// While true, starts wait.
    starts_held: bool,
    is_open: bool,
    running: Vec<JobId>,
}

/// This many calls of each kind fail from now on.
#[derive(Debug, Default)]
struct Failing {
    starts: u32,
    resets: u32,
    parks: u32,
    attaches: u32,
}

impl FakeSource {
    /// Lets every waiting run go on, and those to come.
    pub fn open(&self) {
        self.shared.state.lock().is_open = true;
        self.shared.changed.notify_all();
    }

    /// Makes the next `count` starts fail.
    pub fn fail_starts(&self, count: u32) {
        self.shared.state.lock().failing.starts = count;
    }

    /// Makes the next `count` resets fail.
    pub fn fail_resets(&self, count: u32) {
        self.shared.state.lock().failing.resets = count;
    }

    /// Makes the next `count` attempts to park a state fail.
    pub fn fail_parks(&self, count: u32) {
        self.shared.state.lock().failing.parks = count;
    }

    /// Makes the next `count` attempts to attach a state fail.
    pub fn fail_attaches(&self, count: u32) {
        self.shared.state.lock().failing.attaches = count;
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
        as_scripted(&mut state.failing.starts)?;
        Ok(Box::new(FakeInterpreter { shared: Arc::clone(&self.shared), runs: 0 }))
    }
}

/// Fails if it is to, and counts that down.
fn as_scripted(failing: &mut u32) -> Result<(), StartError> {
    match failing.checked_sub(1) {
        None => Ok(()),
        Some(left) => {
            *failing = left;
            Err(StartError::Boot("scripted to fail".to_owned()))
        }
    }
}

struct FakeInterpreter {
    shared: Arc<Shared>,
    /// The state: how many programs ran in it.
    runs: u64,
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
        self.runs += 1;
        let source = task.program.source.as_str();
        let stopped = if source == "wait" { self.wait(task) } else { task.stop.requested() };
        self.shared.state.lock().running.retain(|job| *job != task.job);
        assert_ne!(source, "panic", "scripted to panic");
        let value = (source == "count").then(|| self.runs.into());
        let completed =
            Verdict::Completed { value, repr: None, bundle: MimeBundle::default(), data: None };
        let (verdict, afterwards) = match (stopped, source) {
            (Some(_), _) => (Verdict::Cancelled, Afterwards::Lost),
            (None, "lose") => (completed, Afterwards::Lost),
            (None, "raise") => {
                (Verdict::Raised(Exception::new("ValueError", "", "").into()), Afterwards::Usable)
            }
            (None, _) => (completed, Afterwards::Usable),
        };
        task.transcript.close();
        (Outcome::not_run(verdict), afterwards)
    }

    fn reset(&mut self) -> Result<(), StartError> {
        as_scripted(&mut self.shared.state.lock().failing.resets)?;
        self.runs = 0;
        Ok(())
    }

    fn park(&mut self) -> Result<Parked, StartError> {
        as_scripted(&mut self.shared.state.lock().failing.parks)?;
        Ok(Parked::new(Arc::new(self.runs), u64::from(u64::BITS / 8)))
    }

    fn attach(&mut self, parked: &Parked) -> Result<(), StartError> {
        as_scripted(&mut self.shared.state.lock().failing.attaches)?;
        self.runs = *parked.downcast_ref().expect("only fakes park for fakes");
        Ok(())
    }
}
