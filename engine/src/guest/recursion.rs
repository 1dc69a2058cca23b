//! How deep C code of CPython may recurse before it raises `RecursionError`.
//!
//! CPython measures its stack in linear memory against bounds that are fixed when it is built: for
//! WASI it takes 128 KiB, whatever there is (`Py_C_STACK_SIZE` in `Include/cpython/pystate.h`), and
//! a chain of 47 `elif`s is too deep to be compiled. The bounds are words of the thread's state,
//! after what is public of it (`_PyThreadStateImpl` in `Include/internal/pycore_tstate.h`), and are
//! lowered once Python is up:
//!
//! ```text
//! thread state:  … | c_stack_top | c_stack_soft_limit | c_stack_hard_limit | …
//! ```
//!
//! What runs takes native stack as well, for some functions thirty times as much. Of that a guest
//! has [`GUEST_STACK_BYTES`](crate::memory::tunables::GUEST_STACK_BYTES), which comparing nested lists, the
//! worst that was found, uses up at 1 MiB of the other.

use std::sync::atomic::Ordering;

use crate::memory::GuestMemory;

/// What C code may take of the stack in linear memory.
pub(crate) const C_STACK_BYTES: u32 = 512 << 10;

/// What it may take as CPython is built.
const BUILT_BYTES: u32 = 128 << 10;
/// Both bounds leave so much for calls that can't fail, the soft one twice.
const MARGIN_BYTES: u32 = 8 << 10;
/// The top is a multiple of this.
const TOP_ALIGNMENT: u32 = 4096;
/// The bounds are not further than this from where a thread's state begins.
const SEARCHED_BYTES: u32 = 8 << 10;
const WORD: u32 = 4;

/// Lowers the bounds of the thread with the state at this address. Returns whether they were found.
pub(crate) fn deepen(memory: &GuestMemory, thread: u32) -> bool {
    let mut places = (0..SEARCHED_BYTES).step_by(WORD as usize);
    let found = places.find_map(|offset| Bounds::at(memory, thread.checked_add(offset)?));
    found.and_then(|bounds| bounds.lower(memory)).is_some()
}

/// Where the bounds are, and the end of the stack from which they count.
struct Bounds {
    soft: u32,
    hard: u32,
    top: u32,
}

impl Bounds {
    /// The bounds whose top is kept at this address, if they are what CPython makes them.
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
        assert!(!deepen(&memory, THREAD), "they are no longer those");
    }

    #[test]
    fn whatever_else_is_there_stays() {
        let soft_and_hard = |top: u32| [top, top - (112 << 10), top - (120 << 10)];
        let others = [
            [TOP, TOP - (112 << 10), TOP - (112 << 10)],
            soft_and_hard(TOP + 8),
            // There is no room for more below it.
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
