//! Copy-on-write memory: a private mapping of the image, and which of its pages were copied.
//!
//! The kernel knows which pages a guest has written to: those of a private mapping of a file that
//! are no longer pages of the file. The ioctl `PAGEMAP_SCAN` (Linux 6.7) finds runs of them in
//! tens of microseconds; before that, `/proc/self/pagemap` has a word for each page
//! (`Documentation/admin-guide/mm/pagemap.rst`). A page that was copied stays so until it is given
//! back, whatever was written to it since.
//!
//! A scan takes longer than all the rest of a reset, and finds nothing new after most runs: copying
//! a page is a page fault of the thread that writes, and the kernel counts those. While the count
//! stands still, what the last scan found still holds.
#![expect(unsafe_code, reason = "an ioctl and the faults of a thread, which have no safe form")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::thread::ThreadId;

use super::RESERVED_BYTES;
use super::image::MemoryImage;
use super::sys::Reservation;
use super::written::WriteWatch;

/// Page categories (`include/uapi/linux/fs.h`).
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// Bits of a word of `/proc/self/pagemap`.
const WORD_IS_FILE: u64 = 1 << 61;
const WORD_IS_SWAPPED: u64 = 1 << 62;
const WORD_IS_PRESENT: u64 = 1 << 63;
/// Marks the pages that are found, and refuses ranges that are not watched.
const MARKING: u64 = (1 << 0) | (1 << 1);
/// Runs that one call takes; more need more calls.
const RUNS: usize = 1024;
/// Words that the fallback reads at once.
const WORDS: usize = 8192;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    runs: u64,
    runs_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Which pages a scan finds.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    flags: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
}

/// Pages that were copied: they are there, and not the file's.
const COPIED: Wanted = Wanted {
    flags: 0,
    inverted: PAGE_IS_FILE,
    all_of: PAGE_IS_FILE,
    any_of: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
};
/// Pages that were not marked, or were written to since; they are marked.
const WRITTEN: Wanted =
    Wanted { flags: MARKING, inverted: 0, all_of: PAGE_IS_WRITTEN, any_of: PAGE_IS_WRITTEN };

/// `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 =
    (3 << 30) | ((size_of::<ScanArgument>() as u64) << 16) | ((b'f' as u64) << 8) | 16;

/// Whether the kernel counts the faults of this thread, by making some: some that look like Linux
/// count none.
fn counts_faults() -> io::Result<bool> {
    let page = rustix::param::page_size();
    let reservation = Reservation::new(0, page)?;
    reservation.make_accessible(0, page)?;
    let before = faults();
    // SAFETY: accessible, and nobody else knows of it.
    let is_zero = unsafe {
        reservation.with_bytes(0, page, |bytes| {
            let is_zero = std::hint::black_box(&*bytes)[0] == 0;
            std::hint::black_box(bytes)[0] = 1;
            is_zero
        })
    };
    Ok(is_zero && faults() >= before + 2)
}

/// Finds the pages of one memory that were copied.
#[derive(Debug)]
pub(super) struct Tracker {
    /// Of this process: opened anew for each memory, since one that was inherited through a fork
    /// would show the parent's pages.
    pagemap: File,
    has_scan: bool,
    runs: Vec<PageRegion>,
    /// Whether the kernel counts faults at all.
    counts_faults: bool,
    known: Option<Known>,
    /// `None` until it is wanted, `Some(None)` where it can't be had.
    watch: Option<Option<WriteWatch>>,
    /// All pages are marked but for those that were written to since.
    is_marked: bool,
}

/// What was found. Invariant E-9: it holds as long as this thread alone writes and has had no more
/// faults; whoever writes from another thread says so by `forget`.
#[derive(Debug)]
struct Known {
    copied: Vec<Range<usize>>,
    thread: ThreadId,
    faults: u64,
}

/// Page faults of this thread since it began.
fn faults() -> u64 {
    // SAFETY: all zeroes are a value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours to write.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0, "a thread may ask for its own usage");
    (usage.ru_minflt + usage.ru_majflt).cast_unsigned()
}

impl Tracker {
    /// # Errors
    /// This kernel has no page map that this process may read.
    pub(super) fn open() -> io::Result<Self> {
        let pagemap = File::open("/proc/self/pagemap")?;
        let mut tracker = Self {
            pagemap,
            has_scan: true,
            runs: vec![PageRegion::default(); RUNS],
            counts_faults: counts_faults()?,
            known: None,
            watch: None,
            is_marked: false,
        };
        let page = rustix::param::page_size() as u64;
        let probe = std::ptr::from_ref(&tracker).addr() as u64 / page * page;
        tracker.has_scan = tracker.scan(probe, probe + page, COPIED, |_| ()).is_ok();
        tracker.words(probe, probe + page, |_| ())?;
        Ok(tracker)
    }

    /// Makes the start of the reservation a private copy of the image.
    pub(super) fn map(reservation: &Reservation, image: &MemoryImage) -> io::Result<()> {
        let (file, offset) = image.file();
        reservation.map_copy(0, image.bytes().len(), file, offset)
    }

    /// The pages in `range` of the reservation that were written to, in order, as runs of offsets.
    /// Among them may be some that only were when this was last asked.
    pub(super) fn copied(
        &mut self,
        reservation: &Reservation,
        range: Range<usize>,
    ) -> io::Result<Vec<Range<usize>>> {
        if let Some(known) = self.known.take()
            && known.thread == std::thread::current().id()
            && known.faults == faults()
        {
            return Ok(known.copied);
        }
        let base = reservation.base().addr().get();
        let mut copied = Vec::with_capacity(256);
        let within =
            |run: Range<u64>| copied.push(run.start as usize - base..run.end as usize - base);
        let (start, end) = ((base + range.start) as u64, (base + range.end) as u64);
        if self.has_scan {
            self.scan(start, end, COPIED, within)
        } else {
            self.words(start, end, within)
        }?;
        Ok(copied)
    }

    /// The pages in `range` that were written to since `mark` was called last, and some that were
    /// only read for the first time, in order, as runs of offsets; `None` if that isn't known.
    pub(super) fn written(
        &mut self,
        reservation: &Reservation,
        range: Range<usize>,
    ) -> Option<Vec<Range<usize>>> {
        if !std::mem::take(&mut self.is_marked) {
            return None;
        }
        let base = reservation.base().addr().get();
        let mut written = Vec::with_capacity(256);
        let within =
            |run: Range<u64>| written.push(run.start as usize - base..run.end as usize - base);
        let (start, end) = ((base + range.start) as u64, (base + range.end) as u64);
        let scanned = self.scan(start, end, WRITTEN, within);
        scanned
            .inspect_err(|error| tracing::debug!(%error, "writes are no longer watched"))
            .ok()?;
        Some(written)
    }

    /// Has `written` tell, from here on, what is written to in `range`.
    pub(super) fn mark(&mut self, reservation: &Reservation, range: Range<usize>) {
        let can_watch = self.has_scan && self.counts_faults;
        let watch = self.watch.get_or_insert_with(|| {
            let watch = WriteWatch::open();
            let watch = watch.inspect_err(|error| tracing::debug!(%error, "no write watch"));
            watch.ok().filter(|_| can_watch)
        });
        let Some(watch) = watch else { return };
        let base = reservation.base().addr().get();
        let (start, end) = ((base + range.start) as u64, (base + range.end) as u64);
        let marked = watch
            .register(reservation, RESERVED_BYTES)
            .and_then(|()| self.scan(start, end, WRITTEN, |_| ()));
        self.is_marked = marked.is_ok();
        if let Err(error) = marked {
            tracing::debug!(%error, "writes can't be watched here");
            self.watch = Some(None);
        }
    }

    /// Whether `mark` was ever called, and can work.
    pub(super) fn has_marks(&self) -> bool {
        matches!(self.watch, Some(Some(_)))
    }

    /// Says that what `copied` found last is still so, and that from here on this thread alone
    /// writes.
    pub(super) fn remember(&mut self, copied: Vec<Range<usize>>) {
        let thread = std::thread::current().id();
        self.known = self.counts_faults.then(|| Known { copied, thread, faults: faults() });
    }

    /// Says that what `written` told last has been dealt with, and nothing was written since.
    pub(super) fn stay_marked(&mut self) {
        self.is_marked = true;
    }

    /// Says that other pages are mapped than were.
    pub(super) fn unmark(&mut self) {
        self.is_marked = false;
    }

    /// Says that a page may have been written to from anywhere.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    fn scan(
        &mut self,
        start: u64,
        end: u64,
        wanted: Wanted,
        mut found: impl FnMut(Range<u64>),
    ) -> io::Result<()> {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start,
            end,
            runs: self.runs.as_mut_ptr().addr() as u64,
            runs_len: self.runs.len() as u64,
            flags: wanted.flags,
            category_inverted: wanted.inverted,
            category_mask: wanted.all_of,
            category_anyof_mask: wanted.any_of,
            // What is found has to be something: runs of nothing are told twice.
            return_mask: wanted.any_of,
            ..ScanArgument::default()
        };
        while argument.start < end {
            // SAFETY: the argument has the layout that the kernel reads and writes, and points to
            // `runs_len` regions that are ours to write. The kernel only looks at the address
            // range and refuses one that isn't this process's.
            let count = unsafe {
                libc::ioctl(
                    self.pagemap.as_raw_fd(),
                    PAGEMAP_SCAN as libc::Ioctl,
                    std::ptr::from_mut(&mut argument),
                )
            };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            for run in &self.runs[..count] {
                found(run.start..run.end);
            }
            if argument.walk_end <= argument.start {
                return Err(io::Error::other("the kernel's page scan doesn't advance"));
            }
            argument.start = argument.walk_end;
        }
        Ok(())
    }

    fn words(&mut self, start: u64, end: u64, mut found: impl FnMut(Range<u64>)) -> io::Result<()> {
        let page = rustix::param::page_size() as u64;
        let mut words = [0_u8; WORDS * 8];
        let mut run: Option<Range<u64>> = None;
        let mut at = start;
        while at < end {
            let count = (((end - at) / page) as usize).min(WORDS);
            let bytes = &mut words[..count * 8];
            self.pagemap.read_exact_at(bytes, at / page * 8)?;
            for word in bytes.as_chunks::<8>().0 {
                let word = u64::from_le_bytes(*word);
                let is_copied =
                    word & WORD_IS_FILE == 0 && word & (WORD_IS_PRESENT | WORD_IS_SWAPPED) != 0;
                match &mut run {
                    Some(run) if is_copied && run.end == at => run.end += page,
                    _ if is_copied => {
                        if let Some(done) = run.replace(at..at + page) {
                            found(done);
                        }
                    }
                    _ => {}
                }
                at += page;
            }
        }
        if let Some(done) = run {
            found(done);
        }
        Ok(())
    }

    /// Uses the page map's words from now on, as on a kernel without the scan, and every time.
    #[cfg(test)]
    pub(super) fn without_scan(&mut self) {
        self.has_scan = false;
        self.counts_faults = false;
    }
}
