//! The words of memory that belong to the thread that runs, in a build whose code knows of one.

use std::sync::atomic::Ordering;

use crate::memory::GuestMemory;

/// Offsets in musl's `struct pthread` (`src/internal/pthread_impl.h`), in bytes: the thread's
/// number, the top of its stack and its size, its result, and the array of its values.
const NUMBER: u32 = 20;
const STACK: u32 = 48;
const STACK_SIZE: u32 = 52;
const RESULT: u32 = 60;
pub(crate) const VALUES: u32 = 68;
/// The length of that array in bytes: 128 pointers.
pub(crate) const VALUES_BYTES: u32 = 512;

/// The addresses of words that belong to the thread that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadWords {
    /// musl's description of it.
    thread: u32,
    /// CPython's state of it.
    own_state: u32,
    /// CPython's state of the thread that holds the interpreter's lock.
    locked_state: u32,
}

/// What the words of one thread contain: number, stack, its size, values, CPython's state of it, and
/// that state again while it has the interpreter's lock.
pub(crate) type OwnWords = [u32; 6];

impl ThreadWords {
    /// Returns those of a build with musl's description of its thread at `thread`.
    pub(crate) fn at(thread: u32, own_state: u32, locked_state: u32) -> Option<Self> {
        // No address overflows.
        thread.checked_add(VALUES)?;
        Some(Self { thread, own_state, locked_state })
    }

    /// Returns the addresses: of musl's description of the thread, of CPython's state of it, and of
    /// the state that holds the interpreter's lock.
    pub(crate) fn addresses(self) -> [u32; 3] {
        [self.thread, self.own_state, self.locked_state]
    }

    /// Returns the address of the thread's number.
    pub(crate) fn number(self) -> u32 {
        self.thread + NUMBER
    }

    fn own(self) -> OwnWords {
        let of_thread = [NUMBER, STACK, STACK_SIZE, VALUES].map(|offset| self.thread + offset);
        let [number, stack, size, values] = of_thread;
        [number, stack, size, values, self.own_state, self.locked_state]
    }

    /// Reads the words of the thread that runs.
    pub(crate) fn read(self, memory: &GuestMemory) -> Option<OwnWords> {
        let mut words = OwnWords::default();
        for (word, at) in words.iter_mut().zip(self.own()) {
            *word = load(memory, at)?;
        }
        Some(words)
    }

    /// Makes another thread the one that runs.
    pub(crate) fn write(self, memory: &GuestMemory, words: OwnWords) {
        for (word, at) in words.into_iter().zip(self.own()) {
            store(memory, at, word);
        }
    }

    /// Returns the words of a thread that begins on this block of memory: its values are at the
    /// lower end, its stack of so many bytes grows down from the upper one.
    pub(crate) fn beginning(block: u32, bytes: u32, stack: u32) -> OwnWords {
        [block, block.wrapping_add(bytes), stack, block, 0, 0]
    }

    /// Takes a block of memory that a thread has left. The list of them is the guest's, so that it
    /// is restored with its memory: it begins in the first thread's result, which nobody asks for.
    pub(crate) fn take_block(self, memory: &GuestMemory) -> Option<u32> {
        let block = load(memory, self.thread + RESULT).filter(|block| *block != 0)?;
        store(memory, self.thread + RESULT, load(memory, block)?);
        Some(block)
    }

    /// Puts a block into that list.
    pub(crate) fn give_block(self, memory: &GuestMemory, block: u32) {
        if let Some(next) = load(memory, self.thread + RESULT) {
            store(memory, block, next);
            store(memory, self.thread + RESULT, block);
        }
    }

    /// Returns CPython's state of the thread that holds the interpreter's lock.
    pub(crate) fn locked_state(self, memory: &GuestMemory) -> Option<u32> {
        load(memory, self.locked_state).filter(|state| *state != 0)
    }
}

fn load(memory: &GuestMemory, at: u32) -> Option<u32> {
    memory.with_word(at, |word| word.load(Ordering::SeqCst))
}

fn store(memory: &GuestMemory, at: u32, value: u32) {
    memory.with_word(at, |word| word.store(value, Ordering::SeqCst));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::WASM_PAGE_BYTES;

    #[test]
    fn memory_of_ended_threads_is_used_again() {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap();
        let words = ThreadWords::at(1024, 516, 512).unwrap();
        assert_eq!(words.take_block(&memory), None);
        words.give_block(&memory, 4096);
        words.give_block(&memory, 8192);
        assert_eq!(words.take_block(&memory), Some(8192));
        assert_eq!(words.take_block(&memory), Some(4096));
        assert_eq!(words.take_block(&memory), None);
    }
}
