//! Threads that run one at a time: their build's code knows of one only.
//!
//! One thread has the turn, from one wait to the next. Threads that want it queue. A thread that
//! waits for it for long has CPython release the interpreter's lock: the thread that has the turn
//! then waits for that lock, and so gives the turn away. With the turn go the words of memory that
//! the build keeps for its only thread.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Gate, GateState, Side};
use crate::interrupt::futex::{MAIN, ThreadNumber};
use crate::python::module::threads::{OwnWords, ThreadWords};

/// How long a thread runs while others want to: the interval of `sys.getswitchinterval`.
pub(super) const MOST_TURN: Duration = Duration::from_millis(5);

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct ThreadTurn {
    holder: Option<ThreadNumber>,
    queue: VecDeque<ThreadNumber>,
    /// Whose words the memory has, and those of the other threads.
    loaded: ThreadNumber,
    words: BTreeMap<ThreadNumber, OwnWords>,
}

impl Default for ThreadTurn {
    fn default() -> Self {
        Self { holder: None, queue: VecDeque::new(), loaded: MAIN, words: BTreeMap::new() }
    }
}

impl Gate {
    /// Lets threads run one at a time, which have these words.
    pub(crate) fn alternate(&self, words: ThreadWords) {
        assert!(self.words.set(words).is_ok(), "a gate has one build");
    }

    /// Gives the turn to the main thread. No other one has it between runs.
    pub(super) fn begin_turn(&self, state: &mut GateState) {
        state.turn.holder = None;
        state.turn.queue.clear();
        self.take_turn(state, MAIN);
    }

    /// Takes the turn of a thread, or puts the thread into the queue. Returns whether it has it.
    pub(super) fn take_turn(&self, state: &mut GateState, thread: ThreadNumber) -> bool {
        let Some(words) = self.words.get() else { return true };
        let turn = &mut state.turn;
        if turn.holder == Some(thread) {
            return true;
        }
        let is_next = turn.queue.front().is_none_or(|first| *first == thread);
        if turn.holder.is_some() || !is_next {
            if !turn.queue.contains(&thread) {
                turn.queue.push_back(thread);
            }
            return false;
        }
        turn.queue.pop_front();
        turn.holder = Some(thread);
        self.load(turn, *words, thread);
        true
    }

    /// Gives the turn of a thread that waits to the next one, if it has it. A thread that waits with
    /// the interpreter's lock keeps the turn: the others could do little.
    pub(super) fn leave_turn(&self, state: &mut GateState, thread: ThreadNumber) {
        let words = self.words.get().zip(self.memory.get());
        if words.is_some_and(|(words, memory)| words.locked_state(memory).is_none()) {
            self.drop_turn(state, thread);
        }
    }

    /// Gives the turn of a thread that has left the guest to the next one, if it has it.
    pub(super) fn drop_turn(&self, state: &mut GateState, thread: ThreadNumber) {
        if state.turn.holder == Some(thread) {
            state.turn.holder = None;
            if let Some(next) = state.turn.queue.front() {
                self.wake_thread(state, *next);
            }
        }
    }

    /// Forgets a thread that has ended.
    pub(super) fn end_turns_of(&self, state: &mut GateState, thread: ThreadNumber) {
        let Some(words) = self.words.get() else { return };
        state.turn.queue.retain(|other| *other != thread);
        state.turn.words.remove(&thread);
        if state.turn.loaded == thread {
            // What is between runs, or is copied then, is the main thread's.
            self.load(&mut state.turn, *words, MAIN);
            state.turn.words.remove(&thread);
        }
        self.drop_turn(state, thread);
    }

    /// Lets a thread begin with these words.
    pub(super) fn add_words(&self, state: &mut GateState, thread: ThreadNumber, words: OwnWords) {
        state.turn.words.insert(thread, words);
    }

    /// Asks the thread that has the turn, and computes, to give it away soon.
    pub(super) fn ask_for_turn(&self, state: &GateState) {
        let is_in_guest = match state.turn.holder {
            Some(MAIN) => state.side == Side::Guest,
            other => other.is_some() && state.others.are_in_guest(),
        };
        let parts = self.words.get().zip(self.memory.get()).zip(self.raiser.get());
        if is_in_guest
            && let Some(((words, memory), raiser)) = parts
            && let Some(state) = words.locked_state(memory)
        {
            raiser.request_lock(memory, state);
        }
    }

    fn load(&self, turn: &mut ThreadTurn, words: ThreadWords, thread: ThreadNumber) {
        if turn.loaded == thread {
            return;
        }
        let Some(memory) = self.memory.get() else { return };
        if let Some(own) = words.read(memory) {
            turn.words.insert(turn.loaded, own);
        }
        turn.loaded = thread;
        if let Some(own) = turn.words.remove(&thread) {
            words.write(memory, own);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::interrupt::gate::{ThreadGate, Woken};
    use crate::memory::{GuestMemory, WASM_PAGE_BYTES};

    fn alternating() -> (Arc<Gate>, Arc<GuestMemory>, ThreadWords) {
        let (gate, memory) = (Gate::new(), Arc::new(GuestMemory::new(WASM_PAGE_BYTES).unwrap()));
        let words = ThreadWords::at(1024, 516, 512);
        gate.guard(Arc::clone(&memory));
        gate.alternate(words);
        (Arc::new(gate), memory, words)
    }

    fn begin(
        gate: &Arc<Gate>,
        number: u32,
        run: impl FnOnce(&ThreadGate) + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let passage = gate.admit(9, Some([number; 5])).unwrap();
        thread::spawn(move || passage.guest(|| run(&passage)).unwrap_or_default())
    }

    #[test]
    fn a_thread_runs_while_another_waits_and_has_its_own_words() {
        let (gate, memory, words) = alternating();
        gate.begin();
        let has_run = Arc::new(AtomicBool::new(false));
        let (ran, seen) = (Arc::clone(&has_run), Arc::clone(&memory));
        let main = words.read(&memory);
        let other = begin(&gate, 77, move |passage| {
            assert_eq!(words.read(&seen), Some([77; 5]));
            ran.store(true, Ordering::SeqCst);
            passage.gate().wake();
        });
        assert!(!has_run.load(Ordering::SeqCst), "the main thread has the turn");
        assert_eq!(gate.wait(None, || has_run.load(Ordering::SeqCst)), Woken::Ready);
        assert_eq!(words.read(&memory), main);
        other.join().unwrap();
        assert_eq!(gate.others(), 0);
        gate.end();
    }

    #[test]
    fn a_thread_that_waits_with_the_interpreters_lock_keeps_its_turn() {
        let (gate, memory, words) = alternating();
        gate.begin();
        memory.with_word(512, |state| state.store(9, Ordering::SeqCst));
        let has_run = Arc::new(AtomicBool::new(false));
        let ran = Arc::clone(&has_run);
        let other = begin(&gate, 77, move |_| ran.store(true, Ordering::SeqCst));
        assert_eq!(gate.wait(Some(4 * MOST_TURN), || false), Woken::TimeOver);
        assert!(!has_run.load(Ordering::SeqCst));
        // Its run is over.
        assert!(words.read(&memory).is_some());
        gate.end();
        other.join().unwrap();
        assert!(has_run.load(Ordering::SeqCst));
    }
}
