//! The gate between guest and host: interrupts and stops a guest that runs on other threads.
//!
//! A soft interrupt raises `KeyboardInterrupt` in the program (`interrupt/raise.rs`); the
//! interpreter lives on. A hard stop revokes the guest's memory. Its next access faults, wasmer
//! turns the fault into a trap, and the call into the guest returns an error. No signal is sent.
//! Compiled code needs no checks, only a memory access in each loop that may be endless
//! (`python/module/safepoints.rs`). Host code must never touch a revoked memory, since a fault on
//! the host's own stack ends the process. So [`GuestMemory`] gives no access to it from then on.
//! Every crossing between guest and host passes this gate, which knows the side of each thread:
//!
//! - While a thread is on the guest's side, a stop revokes the memory at once. While the main
//!   thread is, an interrupt is raised at once.
//! - While all are on the host's side, both are only noted, and wake those that wait. At the
//!   crossing back to the guest, a stop makes the crossing fail, and an interrupt is raised.
//!
//! Each request names its run. A request for a run that has ended does nothing, so a late one never
//! hits the next job.
//!
//! Between runs, the threads that a program has left are held (`gate/threads.rs`). Those of some
//! builds run one at a time (`gate/turn.rs`).

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use scopeguard::guard;

use super::futex::{Futexes, MAIN, ThreadNumber};
use super::raise::Raiser;
use crate::interrupt::reason::StopReason;
use crate::memory::GuestMemory;
use crate::memory::tunables::Expected;
use threads::GuestThreads;
pub(crate) use threads::ThreadGate;
use turn::{LEAST_TURN, ThreadTurn};
pub(crate) use words::ThreadWords;

mod threads;
mod turn;
pub(crate) mod words;

/// One run of one interpreter; never used twice in an interpreter's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GateRun(u64);

/// The guest was stopped. As a trap, it unwinds the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest was stopped")]
pub(crate) struct Stopped;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StopCause {
    /// By a hard stop.
    pub(crate) stop: Option<StopReason>,
    /// By an interrupt. One from a caller counts if the program has noticed it. One by a limit
    /// counts in any case, since a program can say that it is over, and go on.
    pub(crate) interrupt: Option<StopReason>,
}

/// Knows on which side the threads of a guest are, and how its run was asked to end. Its own
/// methods to cross and to wait are the main thread's.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The memory that a stop revokes, once the guest has one.
    memory: OnceLock<Arc<GuestMemory>>,
    /// Raises interrupts, if the layout of the build's interpreter is known.
    raiser: OnceLock<Raiser>,
    /// The words that the threads exchange, if they run one at a time.
    words: OnceLock<ThreadWords>,
    state: Mutex<GateState>,
    /// Wakes the main thread while it waits on the host's side.
    wake: Condvar,
    /// Wakes the main thread while it waits for the others.
    settled: Condvar,
}

#[derive(Debug)]
struct GateState {
    /// The run that is going. Invariant E-3: requests for any other run do nothing. So `stop` is
    /// only set while its run is going, and cleared when the next one begins.
    current: Option<GateRun>,
    last: u64,
    /// The main thread's.
    side: Side,
    stop: Option<StopReason>,
    /// The guest has ended the run itself, on another thread than the main one.
    is_over: bool,
    interrupt: Option<(StopReason, Raised)>,
    /// Whether the program's own code runs; nothing else is interrupted.
    in_program: bool,
    others: GuestThreads,
    futexes: Futexes,
    turn: ThreadTurn,
}

impl GateState {
    /// Whether no thread may go on in the guest.
    fn has_ended(&self) -> bool {
        self.stop.is_some() || self.is_over
    }
}

/// How far an interrupt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Raised {
    /// It waits for the program to begin, or for the guest's side.
    NotYet,
    /// The interpreter has the request, and has not reacted yet.
    Told,
    /// The interpreter has raised it.
    Noticed,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Ready,
    TimeOver,
    /// The run is asked to end.
    Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
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
            is_over: false,
            interrupt: None,
            in_program: false,
            others: GuestThreads::default(),
            futexes: Futexes::default(),
            turn: ThreadTurn::default(),
        };
        Self {
            memory: OnceLock::new(),
            raiser: OnceLock::new(),
            words: OnceLock::new(),
            state: Mutex::new(state),
            wake: Condvar::new(),
            settled: Condvar::new(),
        }
    }

    /// Sets how interrupts are raised. Without a raiser they do nothing, and a run ends when it is
    /// stopped.
    pub(crate) fn raise_with(&self, raiser: Raiser) {
        assert!(self.raiser.set(raiser).is_ok(), "a gate has one interpreter");
    }

    /// Sets the memory that a stop revokes. Called once, before the first run.
    pub(crate) fn guard(&self, memory: Arc<GuestMemory>) {
        assert!(self.memory.set(memory).is_ok(), "a gate guards one memory");
    }

    /// Begins a run, on the host's side. Threads that were held go on.
    pub(crate) fn begin(&self) -> GateRun {
        let mut state = self.state.lock();
        assert!(state.current.is_none(), "one run at a time");
        state.last += 1;
        let run = GateRun(state.last);
        state.current = Some(run);
        state.side = Side::Host;
        state.stop = None;
        state.is_over = false;
        state.interrupt = None;
        state.in_program = false;
        self.begin_turn(&mut state);
        state.others.release();
        run
    }

    pub(crate) fn end(&self) -> StopCause {
        let mut state = self.state.lock();
        state.current = None;
        state.side = Side::Host;
        state.in_program = false;
        self.leave_turn(&mut state, MAIN);
        self.settle(&mut state, true);
        let counts = |(reason, raised): &(StopReason, Raised)| {
            reason.is_limit() || *raised == Raised::Noticed
        };
        let interrupt = state.interrupt.filter(counts).map(|(reason, _)| reason);
        StopCause { stop: state.stop, interrupt }
    }

    /// Says that the program's own code begins: it can be interrupted from now on. On the host's
    /// side.
    pub(crate) fn begin_program(&self) {
        self.state.lock().in_program = true;
    }

    /// Says that the program's own code is over. Takes back an interrupt that it has not noticed,
    /// so that the agent's code is never interrupted. On the host's side.
    pub(crate) fn end_program(&self) {
        let mut state = self.state.lock();
        state.in_program = false;
        self.settle(&mut state, true);
    }

    /// Returns why the current run was stopped, if it was.
    pub(crate) fn stop_requested(&self) -> Option<StopReason> {
        self.state.lock().stop
    }

    /// Runs `call`, which enters the guest, on the guest's side.
    pub(crate) fn guest<T>(&self, call: impl FnOnce() -> T) -> Result<T, Stopped> {
        self.cross(Side::Guest)?;
        let _back = guard((), |()| self.cross_back(Side::Host));
        Ok(call())
    }

    /// Runs `work` of the host on behalf of the guest, on the host's side.
    ///
    /// Fails if the guest was stopped before or meanwhile. The result is then dropped, and the
    /// guest must be unwound.
    pub(crate) fn host<T>(&self, work: impl FnOnce() -> T) -> Result<T, Stopped> {
        self.cross(Side::Host)?;
        let back = guard((), |()| self.cross_back(Side::Guest));
        let result = work();
        drop(back);
        // While this is the only thread, `work` had the memory all the time.
        if self.state.lock().has_ended() { Err(Stopped) } else { Ok(result) }
    }

    /// Waits on the host's side until `is_ready` holds, `duration` has passed or the run is asked
    /// to end. Code that makes `is_ready` hold calls [`Self::wake`] afterwards.
    pub(crate) fn wait(&self, duration: Option<Duration>, is_ready: impl Fn() -> bool) -> Woken {
        let mut state = self.state.lock();
        self.wait_until(&mut state, deadline(duration), true, |_| is_ready())
    }

    /// Waits on the host's side until `is_ready` holds, `duration` has passed or the run is
    /// stopped. Interrupts don't end this wait, since the program doesn't know what it is for.
    pub(crate) fn wait_aside(&self, duration: Duration, is_ready: impl Fn() -> bool) -> Woken {
        let deadline = deadline(Some(duration));
        // Without the lock, which `is_ready` may take.
        if is_ready() {
            return Woken::Ready;
        }
        self.wait_until(&mut self.state.lock(), deadline, false, |_| false)
    }

    /// Does the same with the lock; `heeds` interrupts, or not.
    fn wait_until(
        &self,
        state: &mut MutexGuard<'_, GateState>,
        deadline: Option<Instant>,
        heeds: bool,
        is_ready: impl Fn(&GateState) -> bool,
    ) -> Woken {
        // An interrupt that the interpreter has received, but hasn't raised, ends the wait too. The
        // interpreter raises it only when the wait is over.
        self.settle(state, false);
        self.leave_turn(state, MAIN);
        let woken = self.wait_without_turn(state, deadline, heeds, is_ready);
        while !state.has_ended() && !self.take_turn(state, MAIN) {
            if self.wake.wait_for(state, LEAST_TURN).timed_out() {
                self.ask_for_turn(state);
            }
        }
        woken
    }

    fn wait_without_turn(
        &self,
        state: &mut MutexGuard<'_, GateState>,
        deadline: Option<Instant>,
        heeds: bool,
        is_ready: impl Fn(&GateState) -> bool,
    ) -> Woken {
        // Without a raiser the program wouldn't notice, and would take its wait for over.
        let can_raise = heeds && self.raiser.get().is_some();
        let goes_on = |state: &GateState| {
            let is_interrupted = can_raise
                && state.in_program
                && matches!(state.interrupt, Some((_, Raised::NotYet | Raised::Told)));
            !state.has_ended() && !is_interrupted
        };
        while goes_on(state) {
            if is_ready(state) {
                return Woken::Ready;
            }
            if wait_on(&self.wake, state, deadline) {
                return if is_ready(state) { Woken::Ready } else { Woken::TimeOver };
            }
        }
        Woken::Asked
    }

    /// Whether the memory has this value there. A memory that was taken away has none.
    fn is_as_expected(&self, at: u32, expected: Expected) -> bool {
        let Some(memory) = self.memory.get() else { return false };
        let (mut word, mut long) = ([0; 4], [0; 8]);
        match expected {
            Expected::Word(value) => {
                memory.read(at, &mut word).is_some() && u32::from_le_bytes(word) == value
            }
            Expected::Long(value) => {
                memory.read(at, &mut long).is_some() && u64::from_le_bytes(long) == value
            }
        }
    }

    /// Ends the waits of at most `most` threads for the word at `at`; returns how many. On either
    /// side, since it touches no memory.
    pub(crate) fn wake_at(&self, at: u32, most: u32) -> u32 {
        let mut state = self.state.lock();
        let woken = state.futexes.wake(at, most);
        woken.iter().for_each(|thread| self.wake_thread(&state, *thread));
        u32::try_from(woken.len()).unwrap_or(u32::MAX)
    }

    fn wake_thread(&self, state: &GateState, thread: ThreadNumber) {
        match thread {
            MAIN => {
                self.wake.notify_all();
            }
            other => state.others.wake(other),
        }
    }

    /// Lets threads run one at a time, which have these words.
    pub(crate) fn alternate(&self, words: ThreadWords) {
        assert!(self.words.set(words).is_ok(), "a gate has one build");
    }

    /// Returns what the threads exchange, if they run one at a time.
    fn exchanged(&self) -> Option<(ThreadWords, &GuestMemory)> {
        Some((*self.words.get()?, self.memory.get()?))
    }

    /// Gives the turn to the main thread. No other one has it between runs.
    fn begin_turn(&self, state: &mut GateState) {
        state.turn.clear();
        self.take_turn(state, MAIN);
    }

    /// Takes the turn of a thread, or puts the thread into the queue. Returns whether it has it.
    fn take_turn(&self, state: &mut GateState, thread: ThreadNumber) -> bool {
        self.exchanged().is_none_or(|(words, memory)| state.turn.take(thread, words, memory))
    }

    /// Gives the turn of a thread that waits, or has left the guest, to the next one. So does a
    /// thread that waits with the interpreter's lock: C code of others can go on without it.
    fn leave_turn(&self, state: &mut GateState, thread: ThreadNumber) {
        if let Some(next) = state.turn.leave(thread) {
            self.wake_thread(state, next);
        }
    }

    /// Forgets a thread that has ended.
    fn end_turns_of(&self, state: &mut GateState, thread: ThreadNumber) {
        if let Some((words, memory)) = self.exchanged()
            && let Some(next) = state.turn.end(thread, words, memory)
        {
            self.wake_thread(state, next);
        }
    }

    /// Has nobody write to CPython's state of the thread that runs, which is about to be freed.
    pub(crate) fn forget_state(&self, at: u32) {
        self.state.lock().turn.freed_state = at;
    }

    /// Asks the thread that has the turn, and computes, to give it away soon.
    fn ask_for_turn(&self, state: &GateState) {
        let is_in_guest = match state.turn.holder {
            Some(MAIN) => state.side == Side::Guest,
            other => other.is_some() && state.others.are_in_guest(),
        };
        if is_in_guest
            && let (Some((words, memory)), Some(raiser)) = (self.exchanged(), self.raiser.get())
            && let Some(at) = words.locked_state(memory)
            && at != state.turn.freed_state
        {
            raiser.request(memory, at);
        }
    }

    /// Makes the threads that wait check their conditions again.
    pub(crate) fn wake(&self) {
        // The lock makes sure that no thread is between its check and its wait.
        self.wake_all(&self.state.lock());
    }

    fn wake_all(&self, state: &GateState) {
        self.wake.notify_all();
        state.others.wake_all();
    }

    /// Moves to the other side, unless the guest was stopped.
    fn cross(&self, to: Side) -> Result<(), Stopped> {
        let mut state = self.state.lock();
        if state.has_ended() {
            return Err(Stopped);
        }
        state.side = to;
        Ok(())
    }

    /// Moves back to the other side, also after a panic.
    fn cross_back(&self, to: Side) {
        let mut state = self.state.lock();
        // A stop that was noted on the host's side takes effect now. The caller unwinds the guest,
        // so the side stays the host's.
        state.side = if state.has_ended() { Side::Host } else { to };
        if state.side == Side::Guest {
            self.raise(&mut state);
        }
    }

    /// Stops `run` at once, from any thread; its outcome says why, and its interpreter is lost. The
    /// first reason wins.
    ///
    /// Returns whether the run was still going.
    pub(crate) fn stop(&self, run: GateRun, reason: StopReason) -> bool {
        let mut state = self.state.lock();
        if state.current != Some(run) {
            return false;
        }
        state.stop.get_or_insert(reason);
        self.take_memory(&state);
        true
    }

    /// Takes the memory away if a thread is on the guest's side, and wakes the others.
    fn take_memory(&self, state: &GateState) {
        if state.side == Side::Guest || state.others.are_in_guest() {
            // Under the gate's lock, so the guest can't cross to the host meanwhile. A second stop
            // does it again, in case the system refused the first time.
            self.memory.get().expect("a guest that runs has a memory").revoke();
        }
        self.wake_all(state);
    }

    /// Raises `KeyboardInterrupt` in the program of `run`, once: the first reason wins, and later
    /// calls do nothing. If the program has not begun, the interrupt waits until it does.
    ///
    /// Returns whether the run was still going and had not been interrupted.
    pub(crate) fn interrupt(&self, run: GateRun, reason: StopReason) -> bool {
        let mut state = self.state.lock();
        if state.current != Some(run) || state.stop.is_some() || state.interrupt.is_some() {
            return false;
        }
        state.interrupt = Some((reason, Raised::NotYet));
        if state.side == Side::Guest {
            self.raise(&mut state);
        }
        self.wake.notify_all();
        true
    }

    /// Sets the interpreter's flag again, since a guest changes that word without regard to the
    /// host and can overwrite it. Returns whether the program has yet to notice its interrupt.
    pub(crate) fn remind(&self, run: GateRun) -> bool {
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

    /// Whether interrupts and alarms reach the program.
    pub(crate) fn can_raise(&self) -> bool {
        self.raiser.get().is_some()
    }

    /// Has the interpreter of `run` collect garbage, if the program runs on the guest's side.
    pub(crate) fn collect(&self, run: GateRun) {
        let state = self.state.lock();
        let runs = state.current == Some(run) && state.side == Side::Guest && state.in_program;
        if let (true, Some(raiser), Some(memory)) = (runs, self.raiser.get(), self.memory.get()) {
            raiser.collect(memory);
        }
    }

    /// Tells the interpreter of an interrupt, and again if it hasn't reacted.
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

    /// Finds out whether the interpreter has raised the interrupt. If not, takes it back if
    /// `takes_back`.
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

/// Returns when a wait of this duration ends. A deadline beyond the clock's range never comes.
fn deadline(duration: Option<Duration>) -> Option<Instant> {
    duration.and_then(|duration| Instant::now().checked_add(duration))
}

/// Waits for a wake-up. Returns whether the deadline is over.
fn wait_on(
    wake: &Condvar,
    state: &mut MutexGuard<'_, GateState>,
    deadline: Option<Instant>,
) -> bool {
    match deadline {
        Some(deadline) => wake.wait_until(state, deadline).timed_out(),
        None => {
            wake.wait(state);
            false
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::memory::WASM_PAGE_BYTES;

    /// Returns a gate that guards one page and could raise, if there were an interpreter.
    pub(crate) fn gate() -> Arc<Gate> {
        let gate = Gate::new();
        gate.guard(Arc::new(GuestMemory::new(WASM_PAGE_BYTES).expect("a page can be mapped")));
        gate.raise_with(Raiser::unreachable());
        Arc::new(gate)
    }

    impl Gate {
        /// Waits on the host's side, until `duration` has passed or the run is asked to end.
        pub(crate) fn sleep(&self, duration: Duration) {
            self.wait(Some(duration), || false);
        }
    }

    #[test]
    fn a_stop_on_the_guests_side_takes_the_memory() {
        let gate = gate();
        let run = gate.begin();
        let handle = Arc::clone(&gate);
        gate.guest(|| assert!(handle.stop(run, StopReason::Cancelled))).unwrap();
        assert!(gate.memory.get().unwrap().is_revoked());
        assert_eq!(gate.end().stop, Some(StopReason::Cancelled));
    }

    #[test]
    fn a_stop_on_the_hosts_side_leaves_the_memory_and_fails_the_crossing_back() {
        let gate = gate();
        let run = gate.begin();
        let handle = Arc::clone(&gate);
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
        let handle = Arc::clone(&gate);
        let outer =
            gate.guest(|| gate.host(|| gate.guest(|| handle.stop(run, StopReason::Cancelled))));
        assert_eq!(outer, Ok(Err(Stopped)));
        assert!(gate.memory.get().unwrap().is_revoked());
    }

    #[test]
    fn a_late_stop_does_nothing_to_the_next_run() {
        let gate = gate();
        let handle = Arc::clone(&gate);
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
        let handle = Arc::clone(&gate);
        assert!(handle.stop(run, StopReason::WallTime));
        assert!(handle.stop(run, StopReason::Cancelled));
        assert_eq!(gate.end().stop, Some(StopReason::WallTime));
    }

    #[test]
    fn sleeping_ends_when_the_run_is_asked_to_end() {
        for asks in [Gate::stop, Gate::interrupt] {
            let gate = gate();
            let run = gate.begin();
            gate.begin_program();
            let handle = Arc::clone(&gate);
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
    fn an_interrupt_that_nobody_could_raise_leaves_a_sleep_alone() {
        let gate = Arc::new(Gate::new());
        let run = gate.begin();
        gate.begin_program();
        let handle = Arc::clone(&gate);
        assert!(handle.interrupt(run, StopReason::WallTime));
        assert_eq!(gate.wait(Some(Duration::from_millis(1)), || false), Woken::TimeOver);
        assert!(handle.stop(run, StopReason::WallTime));
        assert_eq!(gate.wait(None, || false), Woken::Asked);
        gate.end();
    }

    #[test]
    fn a_wait_ends_when_its_condition_holds() {
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
        let handle = Arc::clone(&gate);
        assert!(handle.interrupt(run, StopReason::Interrupted));
        assert_eq!(gate.wait(None, || false), Woken::Asked);
        gate.end();
    }

    #[test]
    fn a_run_is_interrupted_once_and_only_while_it_goes() {
        let gate = gate();
        let handle = Arc::clone(&gate);
        let run = gate.begin();
        assert!(handle.interrupt(run, StopReason::Interrupted));
        assert!(!handle.interrupt(run, StopReason::Cancelled));
        assert!(handle.remind(run), "nothing has noticed it");
        assert_eq!(gate.end(), StopCause { stop: None, interrupt: None });
        assert!(!handle.interrupt(run, StopReason::Interrupted));
        assert!(!handle.remind(run));
    }

    #[test]
    fn a_limit_counts_although_the_program_says_that_it_is_over() {
        for (reason, interrupt) in [
            (StopReason::CpuTime, Some(StopReason::CpuTime)),
            (StopReason::Output, Some(StopReason::Output)),
            (StopReason::Cancelled, None),
        ] {
            let gate = gate();
            let handle = Arc::clone(&gate);
            let run = gate.begin();
            gate.begin_program();
            gate.end_program();
            assert!(handle.interrupt(run, reason));
            assert_eq!(gate.end(), StopCause { stop: None, interrupt });
        }
    }
}
