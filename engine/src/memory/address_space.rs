//! The figures of a guest's address space.
//!
//! ```text
//!   2 GiB     image     grown    len       8 GiB + 64 KiB
//! |-------|-----------|----------|---------------------------|
//!  guard   copy-on-    zeroes     no access
//!          write
//!          ^ base      ^ end of the image
//! ```
//!
//! wasmer compiles accesses to a memory of this layout **without bounds checks**. A 32-bit index
//! plus a 32-bit offset plus the width of the access always lands inside the reservation. Reserving
//! less would be an escape from the sandbox (`MemoryStyle::Static` in wasmer-types 7.4.2,
//! `memory.rs`). The guard before the base costs nothing and catches a miscomputed negative
//! address.

/// Bytes of a WebAssembly page.
pub(crate) const WASM_PAGE_BYTES: usize = 1 << 16;
/// Bytes of a page of the host, as patches and segments count them.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The largest size of a 32-bit memory.
pub(super) const MOST_BYTES: usize = 4 << 30;
/// What must follow the base: 4 GiB that an index can reach, and 4 GiB that an offset can add. One
/// page more is for the width of the access.
pub(super) const RESERVED_BYTES: usize = (8 << 30) + WASM_PAGE_BYTES;
/// The bytes of the widest access, that of a vector.
const WIDEST_ACCESS_BYTES: u64 = 16;

const _: () = assert!(
    RESERVED_BYTES as u64 >= 2 * (u32::MAX as u64) + WIDEST_ACCESS_BYTES,
    "E-12: wasm reaches beyond the reservation"
);

/// Inaccessible bytes before the base.
pub(super) const GUARD_BEFORE_BYTES: usize = 2 << 30;
/// Address space that a process needs for its first guest, the compiled module, its image, the
/// library, and stacks.
pub(crate) const FIRST_GUEST_BYTES: usize = GUARD_BEFORE_BYTES + RESERVED_BYTES + (2 << 30);

/// Returns whether a memory can have this many bytes: E-1.
pub(crate) fn is_length(bytes: usize) -> bool {
    bytes.is_multiple_of(WASM_PAGE_BYTES) && bytes <= MOST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reservation_covers_every_address_that_wasm_can_form() {
        let furthest = u64::from(u32::MAX) + u64::from(u32::MAX) + WIDEST_ACCESS_BYTES;
        assert!(RESERVED_BYTES as u64 > furthest);
        let guard = wasmer::sys::vm::MemoryStyle::Static.offset_guard_size();
        assert_eq!(RESERVED_BYTES as u64, (4 << 30) + guard, "wasmer changed its layout");
    }
}
