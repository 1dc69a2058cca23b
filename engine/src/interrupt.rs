//! Stopping a guest that runs on another thread.
//!
//! A hard stop takes the guest's whole memory away: its next access faults, wasmer turns the
//! fault into a trap, and the call that entered the guest returns an error. No signal is sent and
//! nothing is added to the compiled code. This only holds if host code never touches a memory that
//! was taken away, since a fault on the host's own stack ends the process. So every crossing
//! between guest and host passes this gate:
//!
//! - the guest's side runs: a stop takes the memory away at once;
//! - the host's side runs: a stop is only noted, and the crossing back to the guest fails.
//!
//! A stop names the run that it is meant for. Asking for a run that has ended does nothing, so a
//! late stop never hits the next job.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::memory::GuestMemory;
use crate::outcome::StopReason;

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
}

/// Where the thread of an interpreter is, and whether it was told to stop.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The memory that a stop takes away, once the guest has one.
    memory: OnceLock<Arc<GuestMemory>>,
    state: Mutex<GateState>,
    stopped: Condvar,
}

#[derive(Debug)]
struct GateState {
    /// The run that is going. Invariant E-3: `stop` is only set while a run is going or until the
    /// next one begins.
    current: Option<RunId>,
    last: u64,
    side: Side,
    stop: Option<StopReason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Guest,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let state = GateState { current: None, last: 0, side: Side::Host, stop: None };
        Self { memory: OnceLock::new(), state: Mutex::new(state), stopped: Condvar::new() }
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
        run
    }

    /// Ends the run, and says whether it was stopped.
    pub(crate) fn end(&self) -> Option<StopReason> {
        let mut state = self.state.lock();
        state.current = None;
        state.side = Side::Host;
        state.stop
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

    /// Waits on the host's side, until `duration` has passed or the run is told to stop.
    #[expect(clippy::disallowed_methods, reason = "a guest's sleep waits on the real clock")]
    pub(crate) fn sleep(&self, duration: Duration) -> Result<(), Stopped> {
        // A deadline beyond the clock's range is as good as none.
        let deadline = Instant::now().checked_add(duration);
        let mut state = self.state.lock();
        while state.stop.is_none() {
            let timed_out = match deadline {
                Some(deadline) => self.stopped.wait_until(&mut state, deadline).timed_out(),
                None => {
                    self.stopped.wait(&mut state);
                    false
                }
            };
            if timed_out {
                return if state.stop.is_none() { Ok(()) } else { Err(Stopped) };
            }
        }
        Err(Stopped)
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
        self.stopped.notify_all();
        true
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
        assert_eq!(gate.end(), Some(StopReason::Cancelled));
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
        assert_eq!(gate.end(), Some(StopReason::Cancelled));
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
        assert_eq!(gate.end(), None);
        let _second = gate.begin();
        assert!(!handle.stop(first, StopReason::Cancelled));
        assert_eq!(gate.guest(|| 7), Ok(7));
        assert_eq!(gate.end(), None);
    }

    #[test]
    fn the_first_reason_wins() {
        let gate = gate();
        let run = gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        assert!(handle.stop(run, StopReason::WallTime));
        assert!(handle.stop(run, StopReason::Cancelled));
        assert_eq!(gate.end(), Some(StopReason::WallTime));
    }

    #[test]
    fn sleeping_ends_at_a_stop() {
        let gate = gate();
        let run = gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| gate.sleep(Duration::MAX));
            assert!(handle.stop(run, StopReason::Cancelled));
            assert_eq!(sleeper.join().unwrap(), Err(Stopped));
        });
        assert_eq!(gate.end(), Some(StopReason::Cancelled));
        gate.begin();
        assert_eq!(gate.sleep(Duration::from_millis(1)), Ok(()));
    }
}
