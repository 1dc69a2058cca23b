//! Raises `KeyboardInterrupt` in a running CPython, by the table that debuggers rely on.
//!
//! CPython 3.13 and later begin their runtime with a table of offsets, marked by a cookie
//! (`_Py_DebugOffsets` in `Include/internal/pycore_debug_offsets.h`). It leads to the state of the
//! running thread. The exception goes where `PyThreadState_SetAsyncExc` puts it. Bit 3 of the
//! thread's `eval_breaker` makes the interpreter check for it, at the next call or backward jump.
//!
//! ```text
//! runtime:       "xdebugpy" | version | … | interpreters_head -> interpreter
//! interpreter:   … | threads_head -> thread state
//! thread state:  … | next | interp | eval_breaker | … | async_exc | thread_id
//! ```
//!
//! New threads come first in the list, so the main one is its last.
//!
//! All addresses are the guest's, and a guest can write anything there. Each access is checked to
//! be inside its memory. So the worst that a guest can do is to escape the interrupt.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::memory::GuestMemory;

/// The first word of the table.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
/// Bit 3 of `eval_breaker`: an asynchronous exception is pending (`pycore_ceval.h`).
const ASYNC_EXCEPTION: u32 = 1 << 3;
/// Bit 4: a collection of garbage is due.
const COLLECTION: u32 = 1 << 4;
/// The size of a pointer in the guest.
const POINTER: u32 = 4;
/// The most threads that are looked at to find the main one: more than a guest can have.
const MOST_THREADS: usize = 1 << 16;

const FINAL_RELEASE: u64 = 0xf0;

/// The indices of the table's 64-bit words that lead to the thread.
struct Words {
    interpreters_head: usize,
    threads_head: usize,
    interp: usize,
    thread_id: usize,
    /// `None` if the table lacks it: then the flag comes right after `interp`.
    eval_breaker: Option<usize>,
}

impl Words {
    const VERSION: usize = 1;
    /// The most words of a known table.
    const COUNT: usize = 106;

    /// Returns the words of a release; `None` if its table is unknown here. Each series has the
    /// same table from its first final release on.
    fn of(version: u64) -> Option<Self> {
        let is_final = version & FINAL_RELEASE == FINAL_RELEASE;
        let series = (version >> 16).try_into().ok().filter(|_: &u16| is_final)?;
        Some(match series {
            0x030d => Self {
                interpreters_head: 5,
                threads_head: 9,
                interp: 22,
                thread_id: 24,
                eval_breaker: None,
            },
            0x030e => Self {
                interpreters_head: 5,
                threads_head: 9,
                interp: 25,
                thread_id: 27,
                eval_breaker: None,
            },
            0x030f => Self {
                interpreters_head: 5,
                threads_head: 9,
                interp: 25,
                thread_id: 30,
                eval_breaker: Some(105),
            },
            _ => return None,
        })
    }
}

/// Where the interpreter of a build keeps what an interrupt needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offsets {
    /// The address of the pointer to the first interpreter.
    interpreters_head: u32,
    /// The offset in an interpreter of the pointer to its first thread state.
    threads_head: u32,
    /// The offset in a thread state of the pointer to the next one.
    next: u32,
    /// The offset in a thread state of the pointer to its interpreter.
    interp: u32,
    eval_breaker: u32,
    async_exception: u32,
}

impl Offsets {
    /// Finds the table in a guest that has started; `None` if it has none, or an unknown one.
    pub(crate) fn find(memory: &GuestMemory) -> Option<Self> {
        memory.with_all(|bytes| {
            let (words, _) = bytes.as_chunks::<8>();
            let is_cookie = |(_, word): &(usize, &[u8; 8])| u64::from_le_bytes(**word) == COOKIE;
            words.iter().enumerate().filter(is_cookie).find_map(|(index, _)| {
                let table = words[index..].first_chunk::<{ Words::COUNT }>()?;
                Self::parse(u32::try_from(index * 8).ok()?, &table.map(u64::from_le_bytes))
            })
        })?
    }

    /// Returns the address of the state of the guest's main thread, if the pointers to it are
    /// sound.
    pub(crate) fn thread(&self, memory: &GuestMemory) -> Option<u32> {
        let interpreter = load(memory, self.interpreters_head)?;
        let mut thread = load(memory, interpreter.checked_add(self.threads_head)?)?;
        for _ in 0..MOST_THREADS {
            match load(memory, thread.checked_add(self.next)?)? {
                0 => break,
                next => thread = next,
            }
        }
        let owner = load(memory, thread.checked_add(self.interp)?)?;
        (interpreter != 0 && thread != 0 && owner == interpreter).then_some(thread)
    }

    fn parse(runtime: u32, table: &[u64; Words::COUNT]) -> Option<Self> {
        let words = Words::of(table[Words::VERSION])?;
        let offset = |word: usize| u32::try_from(table[word]).ok();
        let interp = offset(words.interp)?;
        Some(Self {
            interpreters_head: runtime.checked_add(offset(words.interpreters_head)?)?,
            threads_head: offset(words.threads_head)?,
            next: offset(words.interp - 1)?,
            interp,
            eval_breaker: match words.eval_breaker {
                Some(word) => offset(word)?,
                None => interp.checked_add(POINTER)?,
            },
            async_exception: offset(words.thread_id)?.checked_sub(POINTER)?,
        })
    }
}

/// Raises `KeyboardInterrupt` in one guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raiser {
    offsets: Offsets,
    /// The address of the exception's type, as the agent reported it. It is static and never freed.
    exception: u32,
}

/// The addresses of the two words of the main thread's state that an interrupt changes.
struct Thread {
    eval_breaker: u32,
    async_exception: u32,
}

impl Raiser {
    pub(crate) fn new(offsets: Offsets, exception: u32) -> Self {
        Self { offsets, exception }
    }

    /// Tells the interpreter to raise the exception. Returns whether that succeeded.
    pub(crate) fn raise(&self, memory: &GuestMemory) -> bool {
        let Some(thread) = self.thread(memory) else { return false };
        let stored = memory.with_word(thread.async_exception, |word| {
            word.compare_exchange(0, self.exception, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        });
        stored == Some(true) && set_flag(memory, &thread, ASYNC_EXCEPTION)
    }

    /// Has the thread with this state serve requests. It finds an exception only if there is one.
    pub(crate) fn request(&self, memory: &GuestMemory, state: u32) {
        if let Some(eval_breaker) = state.checked_add(self.offsets.eval_breaker) {
            memory.with_word(eval_breaker, |word| word.fetch_or(ASYNC_EXCEPTION, Ordering::SeqCst));
        }
    }

    /// Sets the interpreter's flag again, if it hasn't raised the exception.
    pub(crate) fn remind(&self, memory: &GuestMemory) {
        if let Some(thread) = self.thread(memory)
            && self.is_stored(memory, &thread)
        {
            set_flag(memory, &thread, ASYNC_EXCEPTION);
        }
    }

    /// Tells the interpreter to collect garbage.
    pub(crate) fn collect(&self, memory: &GuestMemory) {
        if let Some(thread) = self.thread(memory) {
            set_flag(memory, &thread, COLLECTION);
        }
    }

    /// Returns whether the interpreter has yet to raise the exception.
    pub(crate) fn is_pending(&self, memory: &GuestMemory) -> bool {
        self.thread(memory).is_some_and(|thread| self.is_stored(memory, &thread))
    }

    pub(crate) fn take_back(&self, memory: &GuestMemory) -> bool {
        let Some(thread) = self.thread(memory) else { return false };
        let taken = memory.with_word(thread.async_exception, |word| {
            word.compare_exchange(self.exception, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        });
        taken == Some(true)
    }

    fn is_stored(&self, memory: &GuestMemory, thread: &Thread) -> bool {
        load(memory, thread.async_exception) == Some(self.exception)
    }

    /// Finds the state of the guest's main thread.
    fn thread(&self, memory: &GuestMemory) -> Option<Thread> {
        let thread = self.offsets.thread(memory)?;
        Some(Thread {
            eval_breaker: thread.checked_add(self.offsets.eval_breaker)?,
            async_exception: thread.checked_add(self.offsets.async_exception)?,
        })
    }
}

/// Sets a flag that makes the interpreter check for what it stands for. Returns whether that
/// succeeded.
fn set_flag(memory: &GuestMemory, thread: &Thread, flag: u32) -> bool {
    let set = |word: &std::sync::atomic::AtomicU32| word.fetch_or(flag, Ordering::SeqCst);
    memory.with_word(thread.eval_breaker, set).is_some()
}

fn load(memory: &GuestMemory, at: u32) -> Option<u32> {
    memory.with_word(at, |word| word.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::WASM_PAGE_BYTES;

    impl Raiser {
        pub(crate) fn unreachable() -> Self {
            let offsets = Offsets {
                interpreters_head: u32::MAX,
                threads_head: 0,
                next: 0,
                interp: 0,
                eval_breaker: 0,
                async_exception: 0,
            };
            Self { offsets, exception: 0 }
        }
    }

    const RUNTIME: u32 = 1024;
    const INTERPRETER: u32 = 4096;
    const THREAD: u32 = 8192;
    const EXCEPTION: u32 = 0x5000;
    const LATEST: u64 = 0x030f_00f0;

    fn put(memory: &GuestMemory, at: u32, bytes: &[u8]) {
        memory.with_bytes(at, bytes.len() as u32, |target| target.copy_from_slice(bytes)).unwrap();
    }

    fn guest(version: u64) -> GuestMemory {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap();
        let known = Words::of(version).unwrap_or(Words::of(LATEST).unwrap());
        for (word, value) in [
            (0, COOKIE),
            (Words::VERSION, version),
            (known.interpreters_head, 924),
            (known.threads_head, 3696),
            (known.interp - 1, 4),
            (known.interp, 8),
            (known.thread_id, 108),
            (known.eval_breaker.unwrap_or(Words::COUNT), 12),
        ] {
            put(&memory, RUNTIME + word as u32 * 8, &value.to_le_bytes());
        }
        put(&memory, RUNTIME + 924, &INTERPRETER.to_le_bytes());
        put(&memory, INTERPRETER + 3696, &THREAD.to_le_bytes());
        put(&memory, THREAD + 8, &INTERPRETER.to_le_bytes());
        memory
    }

    #[test]
    fn raising_changes_two_words_of_the_thread_once() {
        raising_changes_two_words(LATEST);
        raising_changes_two_words(0x030d_05f0);
        raising_changes_two_words(0x030e_02f0);
    }

    fn raising_changes_two_words(version: u64) {
        let memory = guest(version);
        let raiser = Raiser::new(Offsets::find(&memory).unwrap(), EXCEPTION);
        put(&memory, THREAD + 12, &1_u32.to_le_bytes());
        assert!(!raiser.is_pending(&memory));
        assert!(raiser.raise(&memory));
        assert_eq!(load(&memory, THREAD + 104), Some(EXCEPTION));
        assert_eq!(load(&memory, THREAD + 12), Some(1 | ASYNC_EXCEPTION));
        assert!(!raiser.raise(&memory), "another is pending");
        put(&memory, THREAD + 12, &[0; 4]);
        raiser.remind(&memory);
        assert_eq!(load(&memory, THREAD + 12), Some(ASYNC_EXCEPTION));
        assert!(raiser.take_back(&memory));
        assert!(!raiser.take_back(&memory) && !raiser.is_pending(&memory));
        raiser.collect(&memory);
        assert_eq!(load(&memory, THREAD + 12), Some(ASYNC_EXCEPTION | COLLECTION));
    }

    #[test]
    fn the_main_thread_is_interrupted_and_no_other() {
        let memory = guest(0x030d_05f0);
        // Two threads began later.
        for (thread, next) in [(12_000_u32, THREAD), (16_000, 12_000)] {
            put(&memory, thread + 4, &next.to_le_bytes());
            put(&memory, thread + 8, &INTERPRETER.to_le_bytes());
        }
        put(&memory, INTERPRETER + 3696, &16_000_u32.to_le_bytes());
        let raiser = Raiser::new(Offsets::find(&memory).unwrap(), EXCEPTION);
        assert!(raiser.raise(&memory));
        assert_eq!(load(&memory, THREAD + 104), Some(EXCEPTION));
        assert_eq!(load(&memory, 16_000 + 104), Some(0));
        // A list that goes in a circle has no last one, and ends all the same.
        put(&memory, THREAD + 4, &16_000_u32.to_le_bytes());
        raiser.remind(&memory);
    }

    #[test]
    fn an_unknown_layout_is_refused() {
        for version in [0x030c_00f0, 0x030e_00b1, 0x0310_00f0, 0x030f_00b1, 0] {
            assert_eq!(Offsets::find(&guest(version)), None, "{version:x}");
        }
    }

    #[test]
    fn pointers_that_a_guest_has_forged_lead_nowhere() {
        let sound = guest(LATEST);
        let raiser = Raiser::new(Offsets::find(&sound).unwrap(), EXCEPTION);
        for (at, value) in [
            (RUNTIME + 924, 0),
            (RUNTIME + 924, u32::MAX),
            (RUNTIME + 924, INTERPRETER + 1),
            (INTERPRETER + 3696, 0),
            (INTERPRETER + 3696, u32::MAX - 3),
            (INTERPRETER + 3696, THREAD + 2),
            (THREAD + 8, 0),
        ] {
            let memory = guest(LATEST);
            put(&memory, at, &value.to_le_bytes());
            assert!(!raiser.raise(&memory), "{at} {value}");
            raiser.remind(&memory);
            assert!(!raiser.take_back(&memory));
        }
    }
}
