//! Threads that run one at a time: their build's code knows of one only.
//!
//! One thread has the turn, from one wait to the next. Threads that want it queue. One that waits
//! for it for long has the thread that computes offer it between two instructions. That thread keeps
//! the interpreter's lock, since who wants the turn may not want the lock: CPython's request for the
//! lock makes its holder wait until another thread has taken it, so only threads that wait for the
//! lock may make it. With the turn go the words of memory that the build keeps for its only thread.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::words::{OwnWords, ThreadWords};
use crate::interrupt::futex::{MAIN, ThreadNumber};
use crate::memory::GuestMemory;

/// How long a thread computes before another one asks for its turn. The other may then wait for the
/// interpreter's lock, for the interval of `sys.getswitchinterval`.
pub(super) const LEAST_TURN: Duration = Duration::from_millis(1);

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct ThreadTurn {
    pub(super) holder: Option<ThreadNumber>,
    queue: VecDeque<ThreadNumber>,
    /// Whose words the memory has, and those of the other threads.
    loaded: ThreadNumber,
    words: BTreeMap<ThreadNumber, OwnWords>,
    /// The address of CPython's state that the running thread frees, so that its memory may have
    /// another use by now; else 0.
    pub(super) freed_state: u32,
}

impl Default for ThreadTurn {
    fn default() -> Self {
        Self {
            holder: None,
            queue: VecDeque::new(),
            loaded: MAIN,
            words: BTreeMap::new(),
            freed_state: 0,
        }
    }
}

impl ThreadTurn {
    /// Lets a thread begin with these words.
    pub(super) fn add(&mut self, thread: ThreadNumber, words: OwnWords) {
        self.words.insert(thread, words);
    }

    /// Takes the turn from the thread that has it, and from those that wait for it.
    pub(super) fn clear(&mut self) {
        self.holder = None;
        self.queue.clear();
    }

    /// Takes the turn of a thread, or puts the thread into the queue. Returns whether it has it.
    pub(super) fn take(
        &mut self,
        thread: ThreadNumber,
        words: ThreadWords,
        memory: &GuestMemory,
    ) -> bool {
        if self.holder == Some(thread) {
            return true;
        }
        let is_next = self.queue.front().is_none_or(|first| *first == thread);
        if self.holder.is_some() || !is_next {
            if !self.queue.contains(&thread) {
                self.queue.push_back(thread);
            }
            return false;
        }
        self.queue.pop_front();
        self.holder = Some(thread);
        self.load(thread, words, memory);
        true
    }

    /// Gives the turn of a thread away, if it has it. Returns the next thread.
    pub(super) fn leave(&mut self, thread: ThreadNumber) -> Option<ThreadNumber> {
        self.holder.take_if(|holder| *holder == thread)?;
        self.queue.front().copied()
    }

    /// Forgets a thread that has ended. Returns the next one, if it had the turn.
    pub(super) fn end(
        &mut self,
        thread: ThreadNumber,
        words: ThreadWords,
        memory: &GuestMemory,
    ) -> Option<ThreadNumber> {
        self.queue.retain(|other| *other != thread);
        if self.loaded == thread {
            // What is between runs, or is copied then, is the main thread's.
            self.load(MAIN, words, memory);
        }
        self.words.remove(&thread);
        self.leave(thread)
    }

    fn load(&mut self, thread: ThreadNumber, words: ThreadWords, memory: &GuestMemory) {
        if self.loaded == thread {
            return;
        }
        if let Some(own) = words.read(memory) {
            self.words.insert(self.loaded, own);
        }
        (self.loaded, self.freed_state) = (thread, 0);
        if let Some(own) = self.words.remove(&thread) {
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
    use crate::interrupt::gate::{Gate, ThreadGate, Woken};
    use crate::interrupt::raise::Raiser;
    use crate::memory::WASM_PAGE_BYTES;

    fn alternating() -> (Arc<Gate>, Arc<GuestMemory>, ThreadWords) {
        let (gate, memory) = (Gate::new(), Arc::new(GuestMemory::new(WASM_PAGE_BYTES).unwrap()));
        let words = ThreadWords::at(1024, 516, 512).unwrap();
        gate.guard(Arc::clone(&memory));
        gate.alternate(words);
        (Arc::new(gate), memory, words)
    }

    fn begin(
        gate: &Arc<Gate>,
        number: u32,
        run: impl FnOnce(&ThreadGate) + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let passage = gate.admit(9, Some([number, number, number, number, number, 0])).unwrap();
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
            assert_eq!(words.read(&seen), Some([77, 77, 77, 77, 77, 0]));
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

    /// A holder of the interpreter's lock that is asked to release it waits until another thread
    /// has taken it. `faulthandler`'s thread never does.
    #[test]
    fn a_thread_that_computes_is_asked_for_its_turn_and_keeps_the_interpreters_lock() {
        let (gate, memory, _words) = alternating();
        gate.raise_with(Raiser::unreachable());
        gate.begin();
        let state = 1000;
        memory.with_word(512, |locked| locked.store(state, Ordering::SeqCst));
        let has_run = Arc::new(AtomicBool::new(false));
        let ran = Arc::clone(&has_run);
        let other = begin(&gate, 77, move |_| ran.store(true, Ordering::SeqCst));
        let request = || memory.with_word(state, |requests| requests.load(Ordering::SeqCst));
        gate.guest(|| {
            while request() == Some(0) {
                thread::yield_now();
            }
        })
        .unwrap();
        assert_eq!(request(), Some(1 << 3), "not the request for the lock");
        assert!(!has_run.load(Ordering::SeqCst), "the main thread has the turn");
        assert_eq!(gate.wait(None, || true), Woken::Ready);
        assert!(has_run.load(Ordering::SeqCst), "the other one was first in the queue");
        other.join().unwrap();
        gate.end();
    }

    /// The memory of its state may have another use by then.
    #[test]
    fn a_thread_that_ends_is_not_asked_for_its_turn() {
        let (gate, memory, _words) = alternating();
        gate.raise_with(Raiser::unreachable());
        gate.begin();
        let state = 1000;
        memory.with_word(512, |locked| locked.store(state, Ordering::SeqCst));
        gate.forget_state(state);
        gate.ask_for_turn(&gate.state.lock());
        assert_eq!(gate.guest(|| gate.ask_for_turn(&gate.state.lock())), Ok(()));
        assert_eq!(memory.with_word(state, |word| word.load(Ordering::SeqCst)), Some(0));
        // Another thread's state may come to be there.
        let (said, heard) = std::sync::mpsc::channel();
        let other = begin(&gate, 77, move |_| said.send(()).unwrap());
        assert_eq!(gate.wait(None, || heard.try_recv().is_ok()), Woken::Ready);
        memory.with_word(512, |locked| locked.store(state, Ordering::SeqCst));
        assert_eq!(gate.guest(|| gate.ask_for_turn(&gate.state.lock())), Ok(()));
        assert_eq!(memory.with_word(state, |word| word.load(Ordering::SeqCst)), Some(1 << 3));
        other.join().unwrap();
        gate.end();
    }

    /// It may wait for C code that needs no lock, as `faulthandler` does.
    #[test]
    fn a_thread_that_waits_with_the_interpreters_lock_gives_its_turn_away() {
        let (gate, memory, words) = alternating();
        gate.begin();
        memory.with_word(512, |state| state.store(9, Ordering::SeqCst));
        let has_run = Arc::new(AtomicBool::new(false));
        let (ran, seen) = (Arc::clone(&has_run), Arc::clone(&memory));
        let other = begin(&gate, 77, move |passage| {
            assert_eq!(words.locked_state(&seen), None);
            ran.store(true, Ordering::SeqCst);
            passage.gate().wake();
        });
        assert_eq!(gate.wait(None, || has_run.load(Ordering::SeqCst)), Woken::Ready);
        assert_eq!(words.locked_state(&memory), Some(9));
        other.join().unwrap();
        gate.end();
    }
}
