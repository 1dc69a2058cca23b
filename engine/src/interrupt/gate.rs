//! Interrupting and stopping a guest that runs on another thread.
//!
//! A soft interrupt raises `KeyboardInterrupt` in the program (`interrupt/raise.rs`); the
//! interpreter lives on. A hard stop takes the guest's whole memory away: its next access faults,
//! wasmer turns the fault into a trap, and the call that entered the guest returns an error. No
//! signal is sent and nothing is added to the compiled code. This only holds if host code never
//! touches a memory that was taken away, since a fault on the host's own stack ends the process.
//! So every crossing between guest and host passes this gate:
//!
//! - the guest's side runs: a stop takes the memory away at once, an interrupt is raised at once;
//! - the host's side runs: both are only noted. At the crossing back a stop makes it fail, and an
//!   interrupt is raised. Who sleeps on the host's side is woken by either.
//!
//! Each names the run that it is meant for. Asking for a run that has ended does nothing, so a
//! late one never hits the next job.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::raise::Raiser;
use crate::interrupt::reason::StopReason;
use crate::memory::GuestMemory;

/// One run of one interpreter; never used twice in an interpreter's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RunId(u64);

/// The guest was stopped: unwinds the guest as a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest was stopped")]
pub(crate) struct Stopped;

/// Stops the runs of one interpreter, from any thread.
#[derive(Debug, Clone)]
pub(crate) struct InterruptHandle {
    gate: Arc<Gate>,
}

impl InterruptHandle {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }

    /// Ends `run` at once; its outcome says why. The interpreter is lost with it.
    ///
    /// Returns whether the run was still going. The first reason given wins.
    pub(crate) fn stop(&self, run: RunId, reason: StopReason) -> bool {
        self.gate.stop(run, reason)
    }

    /// Raises `KeyboardInterrupt` in the program of `run`, once: the first reason wins, and later
    /// calls do nothing. Before its program begins, the interrupt waits for that.
    ///
    /// Returns whether the run was still going and had not been interrupted.
    pub(crate) fn interrupt(&self, run: RunId, reason: StopReason) -> bool {
        self.gate.interrupt(run, reason)
    }

    /// Whether the program has yet to notice its interrupt. A guest changes the word that tells it
    /// to look without regard to others, so the telling can be lost; this tells it again.
    pub(crate) fn remind(&self, run: RunId) -> bool {
        self.gate.remind(run)
    }
}

/// How a run was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// By a hard stop.
    pub(crate) stop: Option<StopReason>,
    /// By an interrupt that the program has noticed.
    pub(crate) interrupt: Option<StopReason>,
}

/// Where the thread of an interpreter is, and whether it was told to stop.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The memory that a stop takes away, once the guest has one.
    memory: OnceLock<Arc<GuestMemory>>,
    /// Raises interrupts, if the build's interpreter is one whose layout is known.
    raiser: OnceLock<Raiser>,
    state: Mutex<GateState>,
    asked: Condvar,
}

#[derive(Debug)]
struct GateState {
    /// The run that is going. Invariant E-3: `stop` is only set while a run is going or until the
    /// next one begins.
    current: Option<RunId>,
    last: u64,
    side: Side,
    stop: Option<StopReason>,
    interrupt: Option<(StopReason, Raised)>,
    /// Whether the program's own code runs, which interrupts are for.
    in_program: bool,
}

/// How far an interrupt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Raised {
    /// It waits for the program to begin, or for the guest's side.
    NotYet,
    /// The interpreter was told, and has not looked yet.
    Told,
    /// The interpreter has raised it.
    Noticed,
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Ready,
    TimeOver,
    /// The run is asked to end.
    Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Guest,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let state = GateState {
            current: None,
            last: 0,
            side: Side::Host,
            stop: None,
            interrupt: None,
            in_program: false,
        };
        Self {
            memory: OnceLock::new(),
            raiser: OnceLock::new(),
            state: Mutex::new(state),
            asked: Condvar::new(),
        }
    }

    /// Says how interrupts are raised. Without it they only wake sleepers.
    pub(crate) fn raise_with(&self, raiser: Raiser) {
        assert!(self.raiser.set(raiser).is_ok(), "a gate has one interpreter");
    }

    /// Names the memory that a stop takes away. Called once, before the first run.
    pub(crate) fn guard(&self, memory: Arc<GuestMemory>) {
        assert!(self.memory.set(memory).is_ok(), "a gate guards one memory");
    }

    /// Begins a run, on the host's side.
    pub(crate) fn begin(&self) -> RunId {
        let mut state = self.state.lock();
        assert!(state.current.is_none(), "one run at a time");
        state.last += 1;
        let run = RunId(state.last);
        state.current = Some(run);
        state.side = Side::Host;
        state.stop = None;
        state.interrupt = None;
        state.in_program = false;
        run
    }

    /// Ends the run, and says how it was asked to end.
    pub(crate) fn end(&self) -> Asked {
        let mut state = self.state.lock();
        state.current = None;
        state.side = Side::Host;
        state.in_program = false;
        self.settle(&mut state, true);
        let noticed = |(reason, raised)| (raised == Raised::Noticed).then_some(reason);
        Asked { stop: state.stop, interrupt: state.interrupt.and_then(noticed) }
    }

    /// The program's own code begins: from here on it can be interrupted. On the host's side.
    pub(crate) fn begin_program(&self) {
        self.state.lock().in_program = true;
    }

    /// The program's own code is over. An interrupt that it has not noticed is taken back, so what
    /// follows is never interrupted. On the host's side.
    pub(crate) fn end_program(&self) {
        let mut state = self.state.lock();
        state.in_program = false;
        self.settle(&mut state, true);
    }

    /// Whether the current run was told to stop.
    pub(crate) fn stop_requested(&self) -> Option<StopReason> {
        self.state.lock().stop
    }

    /// Runs `call`, which enters the guest, on the guest's side.
    pub(crate) fn guest<T>(&self, call: impl FnOnce() -> T) -> Result<T, Stopped> {
        self.cross(Side::Guest)?;
        let crossing = Crossing { gate: self, back: Side::Host };
        let result = call();
        drop(crossing);
        Ok(result)
    }

    /// Runs `work` of the host on behalf of the guest, on the host's side.
    ///
    /// Fails if the guest was told to stop before or meanwhile; then the result is dropped and
    /// the guest must be unwound.
    pub(crate) fn host<T>(&self, work: impl FnOnce() -> T) -> Result<T, Stopped> {
        self.cross(Side::Host)?;
        let crossing = Crossing { gate: self, back: Side::Guest };
        let result = work();
        drop(crossing);
        // The memory is only taken away on the guest's side, so `work` never saw it go.
        if self.state.lock().stop.is_some() { Err(Stopped) } else { Ok(result) }
    }

    /// Waits on the host's side, until `duration` has passed or the run is asked to end.
    pub(crate) fn sleep(&self, duration: Duration) {
        self.wait(Some(duration), || false);
    }

    /// Waits on the host's side until `is_ready`, but not longer than `duration`, and not if the run
    /// is asked to end. Whoever changes what `is_ready` asks for calls [`Self::wake`] afterwards.
    #[expect(clippy::disallowed_methods, reason = "a guest's sleep waits on the real clock")]
    pub(crate) fn wait(&self, duration: Option<Duration>, is_ready: impl Fn() -> bool) -> Woken {
        // A deadline beyond the clock's range is as good as none.
        let deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
        let mut state = self.state.lock();
        // An interrupt that the interpreter was told of before it came here, and hasn't raised,
        // ends the wait too: it looks only afterwards.
        self.settle(&mut state, false);
        let goes_on = |state: &GateState| {
            let is_interrupted = state.in_program
                && matches!(state.interrupt, Some((_, Raised::NotYet | Raised::Told)));
            state.stop.is_none() && !is_interrupted
        };
        while goes_on(&state) {
            if is_ready() {
                return Woken::Ready;
            }
            match deadline {
                Some(deadline) => {
                    if self.asked.wait_until(&mut state, deadline).timed_out() {
                        return if is_ready() { Woken::Ready } else { Woken::TimeOver };
                    }
                }
                None => self.asked.wait(&mut state),
            }
        }
        Woken::Asked
    }

    /// Has who waits here look again.
    pub(crate) fn wake(&self) {
        // Not between its look and its wait.
        drop(self.state.lock());
        self.asked.notify_all();
    }

    fn cross(&self, to: Side) -> Result<(), Stopped> {
        let mut state = self.state.lock();
        if state.stop.is_some() {
            return Err(Stopped);
        }
        state.side = to;
        Ok(())
    }

    fn stop(&self, run: RunId, reason: StopReason) -> bool {
        let mut state = self.state.lock();
        if state.current != Some(run) {
            return false;
        }
        state.stop.get_or_insert(reason);
        if state.side == Side::Guest {
            // Under the gate's lock, so the guest can't cross to the host meanwhile. Also at a
            // second stop, in case the system refused the first time.
            self.memory.get().expect("a guest that runs has a memory").revoke();
        }
        self.asked.notify_all();
        true
    }

    fn interrupt(&self, run: RunId, reason: StopReason) -> bool {
        let mut state = self.state.lock();
        if state.current != Some(run) || state.stop.is_some() || state.interrupt.is_some() {
            return false;
        }
        state.interrupt = Some((reason, Raised::NotYet));
        if state.side == Side::Guest {
            self.raise(&mut state);
        }
        self.asked.notify_all();
        true
    }

    fn remind(&self, run: RunId) -> bool {
        let mut state = self.state.lock();
        if state.current != Some(run) || state.stop.is_some() {
            return false;
        }
        if state.side == Side::Guest {
            self.raise(&mut state);
            self.settle(&mut state, false);
        }
        matches!(state.interrupt, Some((_, Raised::NotYet | Raised::Told)))
    }

    /// Tells the interpreter of an interrupt, again if it hasn't looked.
    fn raise(&self, state: &mut GateState) {
        let (Some(raiser), Some(memory)) = (self.raiser.get(), self.memory.get()) else { return };
        match &mut state.interrupt {
            Some((_, raised @ Raised::NotYet)) if state.in_program => {
                if raiser.raise(memory) {
                    *raised = Raised::Told;
                }
            }
            Some((_, Raised::Told)) => raiser.remind(memory),
            Some((_, Raised::NotYet | Raised::Noticed)) | None => {}
        }
    }

    /// Finds out whether the interpreter has looked, and else may take the interrupt back.
    fn settle(&self, state: &mut GateState, takes_back: bool) {
        let (Some(raiser), Some(memory)) = (self.raiser.get(), self.memory.get()) else { return };
        if let Some((_, raised @ Raised::Told)) = &mut state.interrupt {
            let is_pending =
                if takes_back { raiser.take_back(memory) } else { raiser.is_pending(memory) };
            *raised = match (is_pending, takes_back) {
                (false, _) => Raised::Noticed,
                (true, true) => Raised::NotYet,
                (true, false) => Raised::Told,
            };
        }
    }
}

/// Puts the side back when the crossing ends, also by a panic.
struct Crossing<'a> {
    gate: &'a Gate,
    back: Side,
}

impl Drop for Crossing<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        // A stop that was noted on the host's side takes effect when the guest would go on. The
        // caller then unwinds it, so the side stays the host's.
        state.side = if state.stop.is_some() { Side::Host } else { self.back };
        if state.side == Side::Guest {
            self.gate.raise(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::WASM_PAGE_BYTES;

    fn gate() -> Arc<Gate> {
        let gate = Gate::new();
        gate.guard(Arc::new(GuestMemory::new(WASM_PAGE_BYTES).unwrap()));
        Arc::new(gate)
    }

    #[test]
    fn a_stop_on_the_guests_side_takes_the_memory() {
        let gate = gate();
        let run = gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        gate.guest(|| assert!(handle.stop(run, StopReason::Cancelled))).unwrap();
        assert!(gate.memory.get().unwrap().is_revoked());
        assert_eq!(gate.end().stop, Some(StopReason::Cancelled));
    }

    #[test]
    fn a_stop_on_the_hosts_side_leaves_the_memory_and_fails_the_crossing_back() {
        let gate = gate();
        let run = gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        let crossed = gate.guest(|| gate.host(|| assert!(handle.stop(run, StopReason::Cancelled))));
        assert_eq!(crossed, Ok(Err(Stopped)));
        assert!(!gate.memory.get().unwrap().is_revoked());
        assert_eq!(gate.guest(|| ()), Err(Stopped));
        assert_eq!(gate.end().stop, Some(StopReason::Cancelled));
    }

    #[test]
    fn a_nested_call_into_the_guest_is_on_the_guests_side() {
        let gate = gate();
        let run = gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        let outer =
            gate.guest(|| gate.host(|| gate.guest(|| handle.stop(run, StopReason::Cancelled))));
        assert_eq!(outer, Ok(Err(Stopped)));
        assert!(gate.memory.get().unwrap().is_revoked());
    }

    #[test]
    fn a_late_stop_does_nothing_to_the_next_run() {
        let gate = gate();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        let first = gate.begin();
        assert_eq!(gate.end().stop, None);
        let _second = gate.begin();
        assert!(!handle.stop(first, StopReason::Cancelled));
        assert_eq!(gate.guest(|| 7), Ok(7));
        assert_eq!(gate.end().stop, None);
    }

    #[test]
    fn the_first_reason_wins() {
        let gate = gate();
        let run = gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        assert!(handle.stop(run, StopReason::WallTime));
        assert!(handle.stop(run, StopReason::Cancelled));
        assert_eq!(gate.end().stop, Some(StopReason::WallTime));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "measures a wait")]
    fn sleeping_ends_when_the_run_is_asked_to_end() {
        for asks in [InterruptHandle::stop, InterruptHandle::interrupt] {
            let gate = gate();
            let run = gate.begin();
            gate.begin_program();
            let handle = InterruptHandle::new(Arc::clone(&gate));
            std::thread::scope(|scope| {
                scope.spawn(|| gate.sleep(Duration::MAX));
                assert!(asks(&handle, run, StopReason::Cancelled));
            });
            gate.end();
            gate.begin();
            let begun = Instant::now();
            gate.sleep(Duration::from_millis(1));
            assert!(begun.elapsed() >= Duration::from_millis(1));
        }
    }

    #[test]
    fn a_wait_ends_when_what_it_waits_for_is_there() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let gate = gate();
        let run = gate.begin();
        gate.begin_program();
        let is_there = AtomicBool::new(false);
        let look = || is_there.load(Ordering::Relaxed);
        assert_eq!(gate.wait(Some(Duration::from_millis(1)), look), Woken::TimeOver);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.wait(None, look));
            is_there.store(true, Ordering::Relaxed);
            gate.wake();
            assert_eq!(waits.join().unwrap(), Woken::Ready);
        });
        let handle = InterruptHandle::new(Arc::clone(&gate));
        assert!(handle.interrupt(run, StopReason::Interrupted));
        assert_eq!(gate.wait(None, || false), Woken::Asked);
        gate.end();
    }

    #[test]
    fn a_run_is_interrupted_once_and_only_while_it_goes() {
        let gate = gate();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        let run = gate.begin();
        assert!(handle.interrupt(run, StopReason::Interrupted));
        assert!(!handle.interrupt(run, StopReason::Cancelled));
        assert!(handle.remind(run), "nothing has noticed it");
        assert_eq!(gate.end(), Asked { stop: None, interrupt: None });
        assert!(!handle.interrupt(run, StopReason::Interrupted));
        assert!(!handle.remind(run));
    }
}
