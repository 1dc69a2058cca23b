//! Address space from the kernel: reserve, make accessible, take away. Nothing else.
#![expect(
    unsafe_code,
    reason = "mapping memory is unsafe by nature; every block says why it holds"
)]

use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU32;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// A range of addresses that nothing else in this process uses.
#[derive(Debug)]
pub(super) struct Reservation {
    /// Invariant: `[start, start + guard + len)` is a mapping of ours until drop.
    start: NonNull<u8>,
    guard: usize,
    len: usize,
}

// SAFETY: the reservation is an address range, not thread-bound; its methods only change page
// protections, which the kernel serialises.
unsafe impl Send for Reservation {}
// SAFETY: as above; no method hands out references into the range.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `guard` inaccessible bytes followed by `len` bytes that can be made accessible.
    /// Both are multiples of the page size.
    pub(super) fn new(guard: usize, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice can't overlap
        // anything, and no access is possible until `make_accessible`.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                guard + len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped address zero"))?;
        Ok(Self { start, guard, len })
    }

    /// The first byte after the guard.
    pub(super) fn base(&self) -> NonNull<u8> {
        // SAFETY: `guard` is inside the mapping, by the invariant on `start`.
        unsafe { self.start.add(self.guard) }
    }

    /// Makes `[offset, offset + len)` from the base readable and writable.
    pub(super) fn make_accessible(&self, offset: usize, len: usize) -> io::Result<()> {
        self.protect(offset, len, MprotectFlags::READ | MprotectFlags::WRITE)
    }

    /// Makes `[offset, offset + len)` from the base fault at every access.
    pub(super) fn make_inaccessible(&self, offset: usize, len: usize) -> io::Result<()> {
        self.protect(offset, len, MprotectFlags::empty())
    }

    /// Lends `[offset, offset + len)` from the base.
    ///
    /// # Safety
    /// The range is accessible, and until `work` returns nothing takes it away and nothing else
    /// reads or writes it.
    pub(super) unsafe fn with_bytes<T>(
        &self,
        offset: usize,
        len: usize,
        work: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "a range outside of the reservation"
        );
        // SAFETY: the range is inside our mapping, as just asserted; the rest is the caller's word.
        work(unsafe { slice::from_raw_parts_mut(self.base().add(offset).as_ptr(), len) })
    }

    /// Lends the aligned word at `offset` from the base, which a guest may be changing.
    ///
    /// # Safety
    /// The word is accessible and nothing takes it away until `work` returns.
    pub(super) unsafe fn with_word<T>(
        &self,
        offset: usize,
        work: impl FnOnce(&AtomicU32) -> T,
    ) -> T {
        assert!(offset.is_multiple_of(4) && offset <= self.len - 4, "a word of the reservation");
        // SAFETY: aligned and inside our mapping, as just asserted; the base is page-aligned.
        work(unsafe { AtomicU32::from_ptr(self.base().add(offset).as_ptr().cast()) })
    }

    fn protect(&self, offset: usize, len: usize, flags: MprotectFlags) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let end = offset.checked_add(len).expect("the caller checked the length");
        assert!(end <= self.len, "a range outside of the reservation");
        // SAFETY: the range is inside our own mapping, as just asserted. Rust holds no reference
        // into it: `GuestMemory` lends bytes and changes protections under one lock.
        unsafe { mprotect(self.base().add(offset).as_ptr().cast(), len, flags) }?;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is our mapping, and whoever could reach it (the wasm instance, an
        // interrupt handle) holds the owner of this value, so nobody is left.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.guard + self.len) };
        if let Err(error) = result {
            tracing::error!(%error, "can't unmap the memory of a guest");
        }
    }
}
