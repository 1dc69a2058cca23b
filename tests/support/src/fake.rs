//! A scripted interpreter, for the layers above: no wasm, no real time.
//!
//! The program's source is the script, a list of parts separated by semicolons: `ok`, `raise`,
//! `lose` (the interpreter is lost), `trap` (the sandbox fails), `panic` (the thread panics),
//! `wait` (until the gate opens or the run is stopped), `stick` (until the gate opens; once it is
//! stopped it reports that it is overdue), `count` (the value is the number of runs in this state,
//! this one included, which identifies the state), `memory N` (it has N bytes), `cpu N` (it took N
//! microseconds, of no real time) or `spin N` (the same, of real time).
//!
//! In addition each step of an interpreter passes a gate, which tests script too.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::{
    Afterwards, Exception, MimeBundle, Outcome, SandboxFailure, StartError, StopHandle, Verdict,
};
use parking_lot::{Condvar, Mutex};
use pool::{
    Interpreter, InterpreterSource, JobId, PackedBytes, Readiness, Suspended, SuspendedState, Task,
    WorkerProcess,
};

#[cfg(test)]
mod tests;

/// How often a wait that nothing notifies checks whether the run was stopped.
const POLL_EVERY: Duration = Duration::from_millis(1);
/// How often a slow gate checks.
const SLOW_POLLS: u32 = 5;
/// The size of a suspended state without memory of its own.
const LEAST_BYTES: u64 = 8;

/// A step of an interpreter or its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// An interpreter is started.
    Start,
    /// A program runs.
    Run,
    /// An interpreter is reset.
    Reset,
    /// A state is suspended.
    Suspend,
    /// A state is resumed.
    Resume,
    /// A state is packed.
    Pack,
    /// A state is unpacked.
    Unpack,
}

/// How a step behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    /// It succeeds at once.
    Ok,
    /// It fails. For a run, the sandbox fails.
    Err,
    /// It succeeds after 5 ms of real time, or when the run is stopped.
    Slow,
    /// It succeeds after `FakeSource::release`, or when the run is stopped.
    Never,
}

/// A source of scripted interpreters, and their controls. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct FakeSource {
    shared: Arc<FakeShared>,
}

#[derive(Debug, Default)]
struct FakeShared {
    state: Mutex<FakeControls>,
    changed: Condvar,
    starts: AtomicU64,
}

#[derive(Debug, Default)]
struct FakeControls {
    gates: HashMap<Step, VecDeque<Gates>>,
    /// How often `release` was called.
    releases: u64,
    /// How many calls of each step have reached their gate.
    reached: HashMap<Step, u64>,
    /// While true, starts wait.
    starts_held: bool,
    /// Whether resets and copies are said to be short.
    is_ready_soon: bool,
    is_open: bool,
    running: Vec<JobId>,
    /// The processes of the first interpreters, this many, have ended.
    ended: u64,
}

/// The gate of the next `count` calls of a step, scripted after this many releases.
#[derive(Debug, Clone, Copy)]
struct Gates {
    gate: Gate,
    count: u32,
    releases: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FakeState {
    /// How many programs ran in it.
    runs: u64,
    /// The number of its last `memory`.
    memory_bytes: u64,
}

impl FakeSource {
    /// Lets all waiting and future runs continue.
    pub fn open(&self) {
        self.shared.state.lock().is_open = true;
        self.shared.changed.notify_all();
    }

    /// Scripts the next calls of `step` that aren't scripted yet: each takes the next of `gates`;
    /// all later ones are `Gate::Ok`.
    pub fn gate(&self, step: Step, gates: impl IntoIterator<Item = Gate>) {
        let mut state = self.shared.state.lock();
        let releases = state.releases;
        let gates = gates.into_iter().map(|gate| Gates { gate, count: 1, releases });
        state.gates.entry(step).or_default().extend(gates);
    }

    /// Lets every step continue that was scripted as `Gate::Never` so far, whether it has been
    /// reached or not. Tests end with it, since nothing else ends those waits.
    pub fn release(&self) {
        self.shared.state.lock().releases += 1;
        self.shared.changed.notify_all();
    }

    /// Makes the next `count` starts fail.
    pub fn fail_starts(&self, count: u32) {
        self.fail(Step::Start, count);
    }

    /// Makes the next `count` resets fail.
    pub fn fail_resets(&self, count: u32) {
        self.fail(Step::Reset, count);
    }

    /// Makes the next `count` attempts to suspend a state fail.
    pub fn fail_suspends(&self, count: u32) {
        self.fail(Step::Suspend, count);
    }

    /// Makes the next `count` attempts to resume a state fail.
    pub fn fail_resumes(&self, count: u32) {
        self.fail(Step::Resume, count);
    }

    /// Holds starts, or lets them continue.
    pub fn hold_starts(&self, held: bool) {
        self.shared.state.lock().starts_held = held;
        self.shared.changed.notify_all();
    }

    /// Interpreters say that they reset soon, and copy soon.
    pub fn be_ready_soon(&self) {
        self.shared.state.lock().is_ready_soon = true;
    }

    /// Ends the processes of all interpreters that there are. What they run fails.
    pub fn end_processes(&self) {
        self.shared.state.lock().ended = self.starts();
    }

    /// Returns how many interpreters have been started so far.
    pub fn starts(&self) -> u64 {
        self.shared.starts.load(Ordering::SeqCst)
    }

    /// Returns the jobs that run now.
    pub fn running(&self) -> Vec<JobId> {
        self.shared.state.lock().running.clone()
    }

    /// Returns how often `step` was reached.
    pub fn reached(&self, step: Step) -> u64 {
        self.shared.state.lock().reached.get(&step).copied().unwrap_or(0)
    }

    fn fail(&self, step: Step, count: u32) {
        let mut state = self.shared.state.lock();
        let releases = state.releases;
        state.gates.insert(step, [Gates { gate: Gate::Err, count, releases }].into());
    }

    /// Returns a state in which this many programs ran.
    pub fn suspended(&self, runs: u64) -> Suspended {
        Suspended::new(FakeState { runs, memory_bytes: 0 })
    }

    /// Returns how many programs ran in a state.
    pub fn runs_in(&self, suspended: &Suspended) -> u64 {
        state_of(suspended).runs
    }
}

impl FakeShared {
    /// Passes the next gate of `step`; an error if the gate fails.
    fn pass(&self, step: Step, stop: Option<&StopHandle>) -> Result<(), StartError> {
        let Some(Gates { gate, releases, .. }) = self.next(step) else { return Ok(()) };
        let is_stopped = || stop.is_some_and(|stop| stop.requested().is_some());
        match gate {
            Gate::Ok => Ok(()),
            Gate::Err => Err(StartError::Boot("scripted to fail".into())),
            Gate::Slow => {
                for _ in (0..SLOW_POLLS).take_while(|_| !is_stopped()) {
                    // Nothing notifies this condition, so it waits for the whole interval.
                    Condvar::new().wait_for(&mut Mutex::new(()).lock(), POLL_EVERY);
                }
                Ok(())
            }
            Gate::Never => {
                self.wait_until(|state| state.releases > releases || is_stopped());
                Ok(())
            }
        }
    }

    fn next(&self, step: Step) -> Option<Gates> {
        let mut state = self.state.lock();
        *state.reached.entry(step).or_default() += 1;
        self.changed.notify_all();
        let gates = state.gates.get_mut(&step)?;
        while gates.front().is_some_and(|next| next.count == 0) {
            gates.pop_front();
        }
        let next = gates.front_mut()?;
        next.count -= 1;
        Some(*next)
    }

    /// A stop can't notify the condition, so this polls.
    fn wait_until(&self, is_over: impl Fn(&FakeControls) -> bool) {
        let mut state = self.state.lock();
        while !is_over(&state) {
            self.changed.wait_for(&mut state, POLL_EVERY);
        }
    }
}

impl InterpreterSource for FakeSource {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        let number = self.shared.starts.fetch_add(1, Ordering::SeqCst) + 1;
        self.shared.wait_until(|state| !state.starts_held);
        self.shared.pass(Step::Start, None)?;
        let (shared, state) = (Arc::clone(&self.shared), FakeState::default());
        let process = Arc::new(FakeProcess { shared: Arc::clone(&shared), number });
        Ok(Box::new(FakeInterpreter { shared, process, state }))
    }

    fn pack(&self, suspended: &Suspended) -> Result<PackedBytes, StartError> {
        self.shared.pass(Step::Pack, None)?;
        let FakeState { runs, memory_bytes } = state_of(suspended);
        // The last number is a checksum.
        let numbers = [runs, memory_bytes, runs ^ memory_bytes];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Ok(PackedBytes { bytes, rest: None })
    }

    fn unpack(&self, packed: &PackedBytes) -> Result<Suspended, StartError> {
        self.shared.pass(Step::Unpack, None)?;
        let (numbers, rest) = packed.bytes.as_chunks();
        let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        match (numbers.as_slice(), rest) {
            ([runs, memory_bytes, both], []) if *both == runs ^ memory_bytes => {
                Ok(Suspended::new(FakeState { runs: *runs, memory_bytes: *memory_bytes }))
            }
            _ => Err(StartError::Boot("the packed state is damaged".into())),
        }
    }
}

impl SuspendedState for FakeState {
    fn bytes(&self) -> u64 {
        LEAST_BYTES + self.memory_bytes
    }

    fn fork(&self) -> Suspended {
        Suspended::new(*self)
    }
}

fn state_of(suspended: &Suspended) -> FakeState {
    *suspended.downcast_ref().expect("only a fake interpreter suspended it")
}

struct FakeInterpreter {
    shared: Arc<FakeShared>,
    process: Arc<dyn WorkerProcess>,
    state: FakeState,
}

/// The process that an interpreter has according to its script.
#[derive(Debug)]
struct FakeProcess {
    shared: Arc<FakeShared>,
    /// How many had been started with it.
    number: u64,
}

impl WorkerProcess for FakeProcess {
    fn has_ended(&self) -> bool {
        self.number <= self.shared.state.lock().ended
    }

    fn private_bytes(&self) -> Option<u64> {
        None
    }
}

/// A parsed script.
#[derive(Debug, Default)]
struct Script {
    raises: bool,
    loses: bool,
    traps: bool,
    panics: bool,
    waits: bool,
    sticks: bool,
    counts: bool,
    memory_bytes: Option<u64>,
    cpu: Duration,
    spin: Duration,
}

impl Script {
    fn of(source: &str) -> Self {
        let mut script = Self::default();
        for part in source.split(';') {
            let (word, number) = part.trim().split_once(' ').unwrap_or((part.trim(), ""));
            let number: u64 = number.trim().parse().unwrap_or(0);
            match word {
                "raise" => script.raises = true,
                "lose" => script.loses = true,
                "trap" => script.traps = true,
                "panic" => script.panics = true,
                "wait" => script.waits = true,
                "stick" => script.sticks = true,
                "count" => script.counts = true,
                "memory" => script.memory_bytes = Some(number),
                "cpu" => script.cpu = Duration::from_micros(number),
                "spin" => script.spin = Duration::from_micros(number),
                _ => {}
            }
        }
        script
    }
}

/// Uses the CPU for this long, unless the run is stopped.
fn spin(time: Duration, stop: &StopHandle) {
    let began = Instant::now();
    while Instant::now().saturating_duration_since(began) < time && stop.requested().is_none() {
        std::hint::spin_loop();
    }
}

impl FakeInterpreter {
    fn perform(&mut self, task: &Task, script: &Script) -> (Verdict, Afterwards) {
        let passed = self.shared.pass(Step::Run, Some(&task.stop));
        if script.waits {
            self.shared.wait_until(|state| state.is_open || task.stop.requested().is_some());
        }
        if script.sticks {
            self.shared.wait_until(|state| state.is_open || task.stop.requested().is_some());
            task.stop.report_overdue();
            self.shared.wait_until(|state| state.is_open);
        }
        if !script.spin.is_zero() {
            spin(script.spin, &task.stop);
        }
        if task.stop.requested().is_some() {
            return (Verdict::Cancelled, Afterwards::Lost);
        }
        if self.process.has_ended() {
            let failure = SandboxFailure::WorkerDied("scripted to end".into());
            return (Verdict::SandboxFailed(failure), Afterwards::Lost);
        }
        if passed.is_err() || script.traps {
            let failure = SandboxFailure::Trap("scripted to fail".into());
            return (Verdict::SandboxFailed(failure), Afterwards::Lost);
        }
        if script.raises {
            let raised = Verdict::Raised(Exception::new("ValueError", "", "").into());
            return (raised, Afterwards::Usable);
        }
        let value = script.counts.then(|| self.state.runs.into());
        let completed = Verdict::Completed {
            value,
            repr: None,
            bundle: MimeBundle::default(),
            data: None,
            missing: None,
        };
        (completed, if script.loses { Afterwards::Lost } else { Afterwards::Usable })
    }
}

impl Interpreter for FakeInterpreter {
    fn run(&mut self, task: &Task, _last: bool) -> (Outcome, Afterwards) {
        let script = Script::of(&task.program.source);
        self.shared.state.lock().running.push(task.job);
        self.state.runs += 1;
        self.state.memory_bytes = script.memory_bytes.unwrap_or(self.state.memory_bytes);
        let (verdict, afterwards) = self.perform(task, &script);
        self.shared.state.lock().running.retain(|job| *job != task.job);
        assert!(!script.panics, "scripted to panic");
        task.transcript.close();
        let mut outcome = Outcome::not_run(verdict);
        outcome.usage.peak_memory_bytes = self.state.memory_bytes;
        outcome.usage.cpu = script.cpu + script.spin;
        outcome.usage.wall = script.spin;
        (outcome, afterwards)
    }

    fn reset(&mut self) -> Result<(), StartError> {
        self.shared.pass(Step::Reset, None)?;
        self.state = FakeState::default();
        Ok(())
    }

    fn readiness(&self, is_last: bool) -> Readiness {
        let state = self.shared.state.lock();
        match state.is_ready_soon {
            true => {
                Readiness::Soon { memory_bytes: if is_last { 0 } else { self.state.memory_bytes } }
            }
            false => Readiness::Later,
        }
    }

    fn suspend(&mut self) -> Result<Suspended, StartError> {
        self.shared.pass(Step::Suspend, None)?;
        Ok(Suspended::new(self.state))
    }

    fn resume(&mut self, suspended: &Suspended) -> Result<(), StartError> {
        self.shared.pass(Step::Resume, None)?;
        self.state = state_of(suspended);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.state.memory_bytes
    }

    fn process(&self) -> Option<&Arc<dyn WorkerProcess>> {
        Some(&self.process)
    }
}
