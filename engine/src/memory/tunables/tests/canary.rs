//! Pages behind a memory, which show whether a guest reached them.
#![expect(unsafe_code, reason = "maps pages at a given address, and looks at them")]

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::Made;
use crate::memory::{GUARD_BEFORE_BYTES, RESERVED_BYTES, WASM_PAGE_BYTES};

/// What the first pages after the reservation are full of.
const CANARY: u8 = 0xc5;
/// Accessible bytes after the reservation: all that wasm could reach if nothing but the memory
/// itself were reserved.
const CANARY_BYTES: usize = (4 << 30) + WASM_PAGE_BYTES;
/// Memories that may land elsewhere, in holes that other tests have left, before one is followed by
/// the canary.
const MOST_HOLES: usize = 200;

/// Pages of the test, which no guest may reach.
pub(super) struct Canary {
    start: NonNull<u8>,
}

impl Canary {
    /// Makes a memory that is followed by a canary, with the instance that has it.
    pub(super) fn behind(make: &dyn Fn() -> Made) -> (Made, Self) {
        let mut elsewhere = Vec::new();
        let reserved = GUARD_BEFORE_BYTES + RESERVED_BYTES;
        loop {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // Pages with a hole before them that fits a memory. The kernel takes the highest hole.
            // SAFETY: a new mapping, of which only the part before the canary goes away again.
            let start = unsafe {
                let hole =
                    mmap_anonymous(std::ptr::null_mut(), reserved + CANARY_BYTES, access, flags)
                        .unwrap();
                munmap(hole, reserved).unwrap();
                hole.cast::<u8>().add(reserved)
            };
            let canary = Self { start: NonNull::new(start).unwrap() };
            // SAFETY: the pages are ours.
            unsafe { canary.start.write_bytes(CANARY, WASM_PAGE_BYTES) };
            let made = make();
            if made.memory.base().addr().get() + RESERVED_BYTES == start.addr() {
                return (made, canary);
            }
            elsewhere.push((made, canary));
            assert!(elsewhere.len() < MOST_HOLES, "no memory lies before its canary");
        }
    }

    pub(super) fn is_untouched(&self) -> bool {
        // SAFETY: the pages are ours, and mapped until drop.
        let first = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), WASM_PAGE_BYTES) };
        first.iter().all(|byte| *byte == CANARY)
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // SAFETY: the pages are ours, and nobody else has their address.
        unsafe { munmap(self.start.as_ptr().cast(), CANARY_BYTES) }.unwrap();
    }
}
