//! Address space from the kernel: reserve, map a file, make accessible, take away. Nothing else.
#![expect(
    unsafe_code,
    reason = "mapping memory is unsafe by nature; every block says why it holds"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

/// The bytes that are copied at once where other threads may be using them.
const WORD: usize = 8;

/// Returns memory that the C library keeps free to the operating system, where it can. The time
/// that it takes grows with the free memory.
pub fn return_free_memory() {
    // SAFETY: it may be called at any time, from any thread, and touches only free memory.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// A range of addresses that nothing else in this process uses.
#[derive(Debug)]
pub(super) struct Reservation {
    /// Invariant: `[start, start + guard + len)` is mapped here until drop.
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
    /// Both are multiples of the page size. Pages that are neither mapped from a file nor used yet
    /// appear only where a thread uses them ([`Self::keep_small_pages`]).
    pub(super) fn new(guard: usize, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice can't overlap
        // anything. No access is possible until `make_accessible`.
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
        let reservation = Self { start, guard, len };
        reservation.keep_small_pages(0, len);
        Ok(reservation)
    }

    /// Keeps huge pages out of `[offset, offset + len)`. Where they are on for all memory
    /// (`/sys/kernel/mm/transparent_hugepage/enabled` is `always`), the kernel turns used and
    /// unused pages into one. It does so behind the back of their thread, whose faults then no
    /// longer tell that it used another page.
    fn keep_small_pages(&self, offset: usize, len: usize) {
        let start = self.base();
        // SAFETY: as in `protect`; the contents stay what they are.
        let advised =
            unsafe { madvise(start.add(offset).as_ptr().cast(), len, Advice::LinuxNoHugepage) };
        if let Err(error) = advised {
            tracing::debug!(%error, "this kernel has no huge pages");
        }
    }

    /// Returns the address of the first byte after the guard.
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

    /// Makes `[offset, offset + len)` a private copy of the file from `file_offset` on, readable
    /// and writable. A page is copied when it is first written to. All are multiples of the page
    /// size, and the file is that long.
    pub(super) fn map_copy(
        &self,
        offset: usize,
        len: usize,
        file: &File,
        file_offset: u64,
    ) -> io::Result<()> {
        self.check(offset, len);
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the range is inside our own mapping, as just checked, and so replaces nothing
        // else. Rust holds no reference into it, as in `protect`.
        unsafe {
            mmap(
                self.base().add(offset).as_ptr().cast(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
                file,
                file_offset,
            )
        }?;
        Ok(())
    }

    /// Maps readable and writable zeroes at `[offset, offset + len)`, whatever was mapped there.
    pub(super) fn map_zeroes(&self, offset: usize, len: usize) -> io::Result<()> {
        self.check(offset, len);
        if len == 0 {
            return Ok(());
        }
        // SAFETY: as in `map_copy`.
        unsafe {
            mmap_anonymous(
                self.base().add(offset).as_ptr().cast(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )
        }?;
        self.keep_small_pages(offset, len);
        Ok(())
    }

    /// Returns the pages of `[offset, offset + len)` to the system. They then read as the mapped
    /// file, or else as zeroes.
    pub(super) fn give_back(&self, offset: usize, len: usize) -> io::Result<()> {
        self.check(offset, len);
        if len == 0 {
            return Ok(());
        }
        // SAFETY: as in `protect`; the pages stay mapped, only their contents change.
        unsafe { madvise(self.base().add(offset).as_ptr().cast(), len, Advice::LinuxDontNeed) }?;
        Ok(())
    }

    /// Copies the pages of `[offset, offset + len)` that aren't copied yet, as a write to each
    /// would.
    ///
    /// # Errors
    /// The system can't (Linux before 5.14), or is out of memory.
    pub(super) fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        self.check(offset, len);
        let start = self.base();
        // SAFETY: as in `protect`; the contents stay what they are.
        unsafe { madvise(start.add(offset).as_ptr().cast(), len, Advice::LinuxPopulateWrite) }?;
        Ok(())
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
        self.check(offset, len);
        // SAFETY: the range is inside our mapping, as just checked; the rest is the caller's word.
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

    /// Copies bytes from `offset` on into `to`, while other threads may be changing them.
    ///
    /// # Safety
    /// The range is accessible and nothing takes it away until this returns.
    pub(super) unsafe fn copy_out(&self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        // SAFETY: inside our mapping, as just checked; the rest is the caller's word.
        let from = unsafe { self.base().add(offset) };
        let head = from.align_offset(WORD).min(to.len());
        let (first, rest) = to.split_at_mut(head);
        let (words, last) = rest.as_chunks_mut::<WORD>();
        let tail = head + words.len() * WORD;
        let byte = |at: usize| {
            // SAFETY: in the range. Atomic, since others may write to it.
            unsafe { AtomicU8::from_ptr(from.add(at).as_ptr()) }.load(Ordering::Relaxed)
        };
        first.iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
        for (index, to) in words.iter_mut().enumerate() {
            // SAFETY: in the range, and aligned, since `head` made it so.
            let word =
                unsafe { AtomicU64::from_ptr(from.add(head + index * WORD).as_ptr().cast()) };
            *to = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        last.iter_mut().enumerate().for_each(|(at, to)| *to = byte(tail + at));
    }

    /// Copies `from` to the bytes from `offset` on, while other threads may be using them.
    ///
    /// # Safety
    /// As for [`Self::copy_out`].
    pub(super) unsafe fn copy_in(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: inside our mapping, as just checked; the rest is the caller's word.
        let to = unsafe { self.base().add(offset) };
        let head = to.align_offset(WORD).min(from.len());
        let (first, rest) = from.split_at(head);
        let (words, last) = rest.as_chunks::<WORD>();
        let tail = head + words.len() * WORD;
        let put = |at: usize, byte: u8| {
            // SAFETY: in the range. Atomic, since others may use it.
            unsafe { AtomicU8::from_ptr(to.add(at).as_ptr()) }.store(byte, Ordering::Relaxed);
        };
        first.iter().enumerate().for_each(|(at, byte)| put(at, *byte));
        for (index, from) in words.iter().enumerate() {
            // SAFETY: in the range, and aligned, since `head` made it so.
            let word = unsafe { AtomicU64::from_ptr(to.add(head + index * WORD).as_ptr().cast()) };
            word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        last.iter().enumerate().for_each(|(at, byte)| put(tail + at, *byte));
    }

    fn protect(&self, offset: usize, len: usize, flags: MprotectFlags) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.check(offset, len);
        // SAFETY: the range is inside our own mapping, as just checked. Rust holds no reference
        // into it: `GuestMemory` lends bytes and changes protections under one lock.
        unsafe { mprotect(self.base().add(offset).as_ptr().cast(), len, flags) }?;
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "a range outside of the reservation"
        );
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is our mapping. The wasm instance and interrupt handles could reach it.
        // They hold the owner of this value, so none of them is left.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.guard + self.len) };
        if let Err(error) = result {
            tracing::error!(%error, "can't unmap the memory of a guest");
        }
    }
}

/// Maps code from a file, readable and executable, over pages of this process. Where the system
/// runs no code of that file, because its file system is mounted `noexec`, the code is copied.
///
/// # Safety
/// The pages belong to the caller, who unmaps them, and nobody uses what they held. The file has
/// code for these addresses, and nobody changes it while it is mapped.
pub(crate) unsafe fn map_code(
    address: usize,
    len: usize,
    file: &File,
    file_offset: u64,
) -> io::Result<()> {
    let pages = ptr::with_exposed_provenance_mut(address);
    let flags = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: the caller's promise.
    match unsafe { mmap(pages, len, flags, MapFlags::PRIVATE | MapFlags::FIXED, file, file_offset) }
    {
        Ok(_) => Ok(()),
        Err(Errno::PERM | Errno::ACCESS) => {
            // SAFETY: the caller's promise.
            unsafe { copy_code(address, len, file, file_offset) }
        }
        Err(error) => Err(error.into()),
    }
}

/// Copies code from a file over pages of this process, and makes them executable.
///
/// # Safety
/// As for [`map_code`], but the file may change afterwards.
unsafe fn copy_code(address: usize, len: usize, file: &File, file_offset: u64) -> io::Result<()> {
    let pages = ptr::with_exposed_provenance_mut(address);
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller's promise.
    unsafe { mmap_anonymous(pages, len, flags, MapFlags::PRIVATE | MapFlags::FIXED) }?;
    // SAFETY: just mapped, writable and full of zeroes; nobody else uses the pages.
    let bytes = unsafe { slice::from_raw_parts_mut(pages.cast::<u8>(), len) };
    file.read_exact_at(bytes, file_offset)?;
    // SAFETY: the pages are the caller's, and nobody writes to them from here on.
    unsafe { mprotect(pages, len, MprotectFlags::READ | MprotectFlags::EXEC) }?;
    Ok(())
}

/// A file, mapped for reading and shared with everybody else who maps it.
#[derive(Debug)]
pub(crate) struct FileView {
    file: File,
    /// Invariant: `[start, start + len)` is mapped here until drop.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping that is only read is not bound to a thread.
unsafe impl Send for FileView {}
// SAFETY: as above.
unsafe impl Sync for FileView {}

impl FileView {
    /// Maps the whole of `file`, which nobody writes to any more. Files of the cache are written
    /// once and get their name when they are complete. `part` describes the exception.
    ///
    /// # Errors
    /// The file is empty, or the system refuses.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        // Not `metadata`, which a confined process can't ask for.
        let len = rustix::fs::fstat(&file)?.st_size;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice can't overlap anything.
        let start =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped address zero"))?;
        Ok(Self { file, start, len })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.part(0..self.len)
    }

    /// Returns the pages that were read to the system, which maps them again when they are read.
    pub(crate) fn forget(&self) {
        // SAFETY: the range is our mapping, of a file that nobody writes to, so nothing is lost.
        let advised =
            unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
        if let Err(error) = advised {
            tracing::debug!(%error, "the pages of a file stay mapped");
        }
    }

    /// Lends part of the file. If the file is still written to, the caller lends only parts that
    /// nobody writes to meanwhile.
    ///
    /// # Panics
    /// If the part ends beyond the file.
    pub(super) fn part(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "a part of the file");
        // SAFETY: mapped for reading until drop, by the invariant. Nobody writes to that part of
        // the file, by the contracts of `new` and of this function.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }
}

impl AsRef<[u8]> for FileView {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Drop for FileView {
    fn drop(&mut self) {
        // SAFETY: the range is our mapping, and `bytes` lends it no longer than this value lives.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.len) } {
            tracing::error!(%error, "can't unmap a file");
        }
    }
}
