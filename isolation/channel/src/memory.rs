//! The memory that two processes share, with access to it by atomic words alone.
//!
//! The other process may write to any byte at any time. Rust has no notion of such memory, and
//! `ptr::copy` from it would be a data race. So nothing here makes a reference to its bytes. Every
//! access is an atomic load or store of an aligned word, which is always defined. Copies are loops
//! of relaxed ones, eight bytes at a time, measured at 25 GB/s.
//!
//! The length is sealed before anybody else has the file. So an access never raises SIGBUS:
//! punching holes into it only makes pages read as zeroes.
#![expect(unsafe_code, reason = "maps memory and accesses it; every block says why it holds")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::ALIGN;

/// What keeps the file as long as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A mapping of the whole file.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Invariant: `[start, start + length)` is a readable and writable shared mapping of a file of
    /// that length, which can't be made shorter, until drop.
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping isn't bound to a thread, and every access to it is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates a file of zeroes that nobody can make shorter or longer, and maps it.
    pub(crate) fn create(length: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = match memfd_create(c"hatchery-channel", flags | MemfdFlags::NOEXEC_SEAL) {
            // Linux before 6.3 doesn't know that flag.
            Err(Errno::INVAL) => memfd_create(c"hatchery-channel", flags),
            made => made,
        };
        let file = made?;
        ftruncate(&file, length as u64)?;
        fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
        let memory = Self::map(file.as_fd(), length)?;
        Ok((memory, file))
    }

    /// Maps a file that [`Self::create`] made.
    pub(crate) fn attach(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let found = fstat(file)?.st_size;
        if u64::try_from(found) != Ok(length as u64) || !fcntl_get_seals(file)?.contains(SEALS) {
            let message = format!(
                "the channel's file has {found} bytes or can change its length; expected {length} \
                 bytes, sealed: both processes need the same configuration"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Self::map(file, length)
    }

    /// `length` is that of the file, which can't change.
    fn map(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped address zero"))?;
        Ok(Self { start, length })
    }

    /// Returns the address of `size` bytes at an offset that is a multiple of `size`.
    fn at(&self, offset: usize, size: usize) -> NonNull<u8> {
        let is_inside = offset.is_multiple_of(size) && offset <= self.length - size;
        assert!(is_inside, "a word of the shared memory");
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.start.add(offset) }
    }

    /// Lends a word that both processes may change.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the mapping and aligned, since the mapping is. It lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).as_ptr().cast()) }
    }

    /// Lends a bell, which both processes may change.
    pub(crate) fn bell(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).as_ptr().cast()) }
    }

    /// Lends the words of `[offset, offset + 8 * count)`; `offset` is a multiple of 8.
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let end = count.checked_mul(ALIGN).and_then(|length| length.checked_add(offset));
        let is_inside = offset.is_multiple_of(ALIGN) && end.is_some_and(|end| end <= self.length);
        assert!(is_inside, "a range of the shared memory");
        // SAFETY: inside the mapping, as just asserted, and aligned, since the mapping is. Atomics
        // may be shared, and nothing else in this process accesses the memory otherwise.
        unsafe { std::slice::from_raw_parts(self.start.add(offset).as_ptr().cast(), count) }
    }

    /// Appends the `length` bytes from `offset` on, a multiple of 8, to `to`, which must have the
    /// capacity.
    pub(crate) fn copy_out(&self, offset: usize, length: usize, to: &mut Vec<u8>) {
        let words = self.words(offset, length.div_ceil(ALIGN));
        let room = to.spare_capacity_mut().get_mut(..length);
        let (whole, rest) = room.expect("the caller has made room").as_chunks_mut::<ALIGN>();
        for (to, word) in whole.iter_mut().zip(words) {
            to.write_copy_of_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        if let Some(word) = words.get(whole.len()) {
            rest.write_copy_of_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
        }
        // SAFETY: `length` bytes after the old end are inside the capacity, and were just written:
        // the whole words by the loop, since there are as many words as chunks, the rest after it.
        unsafe { to.set_len(to.len() + length) };
    }

    /// Copies bytes to `offset`, a multiple of 8, and zeroes up to the next multiple.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        let words = self.words(offset, from.len().div_ceil(ALIGN));
        let (whole, rest) = from.as_chunks::<ALIGN>();
        for (bytes, word) in whole.iter().zip(words) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if let Some(word) = words.get(whole.len()) {
            let mut last = [0; ALIGN];
            last[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whole, and nothing borrows from it any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping: {unmapped:?}");
    }
}
