//! How deep C code of CPython may recurse before it raises `RecursionError`.
//!
//! CPython compares its stack pointer in linear memory with bounds that are fixed at build time.
//! For WASI it assumes a stack of 128 KiB, whatever the real size (`Py_C_STACK_SIZE` in
//! `Include/cpython/pystate.h`). That is too little to compile a chain of 47 `elif`s. The bounds
//! are words of the thread's state, after its public part (`_PyThreadStateImpl` in
//! `Include/internal/pycore_tstate.h`). The host lowers them once Python has started:
//!
//! ```text
//! thread state:  … | c_stack_top | c_stack_soft_limit | c_stack_hard_limit | …
//! ```
//!
//! Recursion also takes native stack, for some functions thirty times as much. A guest has
//! [`GUEST_STACK_BYTES`](crate::memory::tunables::GUEST_STACK_BYTES) of it. Comparing nested lists,
//! the worst case found, exhausts that at 1 MiB of stack in linear memory.

use std::sync::atomic::Ordering;

use crate::memory::GuestMemory;

/// The stack in linear memory that C code may use.
pub(crate) const C_STACK_BYTES: u32 = 512 << 10;

/// The stack in linear memory that CPython is built for.
const BUILT_BYTES: u32 = 128 << 10;
/// The margin that both bounds leave for calls that can't fail; the soft bound leaves it twice.
const MARGIN_BYTES: u32 = 8 << 10;
/// The top is a multiple of this.
const TOP_ALIGNMENT: u32 = 4096;
/// The most bytes between the start of a thread's state and the bounds.
const SEARCHED_BYTES: u32 = 8 << 10;
const WORD: u32 = 4;

/// Lowers the bounds of the thread whose state is at this address. Returns whether they were found.
pub(crate) fn deepen(memory: &GuestMemory, thread: u32) -> bool {
    let mut places = (0..SEARCHED_BYTES).step_by(WORD as usize);
    let found = places.find_map(|offset| Bounds::at(memory, thread.checked_add(offset)?));
    found.and_then(|bounds| bounds.lower(memory)).is_some()
}

/// The addresses of the bounds, and the end of the stack from which they are measured.
struct Bounds {
    soft: u32,
    hard: u32,
    top: u32,
}

impl Bounds {
    /// Returns the bounds whose top is stored at this address, if they are as CPython sets them.
    fn at(memory: &GuestMemory, at: u32) -> Option<Self> {
        let load = |at: u32| memory.with_word(at, |word| word.load(Ordering::Relaxed));
        let (soft, hard) = (at.checked_add(WORD)?, at.checked_add(2 * WORD)?);
        let top = load(at)?;
        let base = top.checked_sub(BUILT_BYTES)?;
        let is_built = top.is_multiple_of(TOP_ALIGNMENT)
            && load(soft)? == base + 2 * MARGIN_BYTES
            && load(hard)? == base + MARGIN_BYTES;
        is_built.then_some(Self { soft, hard, top })
    }

    fn lower(&self, memory: &GuestMemory) -> Option<()> {
        let base = self.top.checked_sub(C_STACK_BYTES)?;
        for (at, bound) in [(self.soft, base + 2 * MARGIN_BYTES), (self.hard, base + MARGIN_BYTES)]
        {
            memory.with_word(at, |word| word.store(bound, Ordering::Relaxed))?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::WASM_PAGE_BYTES;

    const THREAD: u32 = 4096;
    const TOP: u32 = 16 << 20;

    fn guest(bounds: [u32; 3]) -> GuestMemory {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap();
        for (at, bound) in (THREAD + 308..).step_by(4).zip(bounds) {
            memory.with_word(at, |word| word.store(bound, Ordering::Relaxed)).unwrap();
        }
        memory
    }

    fn bounds(memory: &GuestMemory) -> [u32; 3] {
        let load = |at| memory.with_word(at, |word| word.load(Ordering::Relaxed)).unwrap();
        [0, 4, 8].map(|offset| load(THREAD + 308 + offset))
    }

    #[test]
    fn bounds_as_cpython_makes_them_are_lowered() {
        let built = [TOP, TOP - (112 << 10), TOP - (120 << 10)];
        let memory = guest(built);
        assert!(deepen(&memory, THREAD));
        assert_eq!(bounds(&memory), [TOP, TOP - (496 << 10), TOP - (504 << 10)]);
        assert!(!deepen(&memory, THREAD), "the bounds are no longer as CPython sets them");
    }

    #[test]
    fn other_words_stay_unchanged() {
        let soft_and_hard = |top: u32| [top, top - (112 << 10), top - (120 << 10)];
        let others = [
            [TOP, TOP - (112 << 10), TOP - (112 << 10)],
            soft_and_hard(TOP + 8),
            // There is no room for a larger stack below the top.
            soft_and_hard(256 << 10),
            [0; 3],
        ];
        for other in others {
            let memory = guest(other);
            assert!(!deepen(&memory, THREAD), "{other:?}");
            assert_eq!(bounds(&memory), other);
        }
        assert!(!deepen(&guest([TOP; 3]), u32::MAX - 8));
    }
}
