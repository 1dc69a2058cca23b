//! Copy-on-write memory: a private mapping of the image, and which of its pages were copied.
//!
//! The kernel knows which pages a guest has written to. In a private mapping of a file, they are no
//! longer pages of the file. The ioctl `PAGEMAP_SCAN` (Linux 6.7) finds ranges of them in tens of
//! microseconds. Before that, `/proc/self/pagemap` has a word for each page
//! (`Documentation/admin-guide/mm/pagemap.rst`). A copied page stays copied until it is returned.
//!
//! A scan takes longer than the rest of a reset, and finds nothing new after most runs. So its
//! result is kept. Copying a page is a page fault of the writing thread. While the kernel's count
//! of those stands still, no other page was copied.
#![expect(unsafe_code, reason = "an ioctl, which has no safe form")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use linux_raw_sys::general::{
    PAGE_IS_FILE, PAGE_IS_PRESENT, PAGE_IS_SWAPPED, PAGE_IS_WRITTEN, PM_SCAN_CHECK_WPASYNC,
    PM_SCAN_WP_MATCHING, page_region, pm_scan_arg,
};
use rustix::ioctl::{Opcode, opcode};

use super::address_space::RESERVED_BYTES;
use super::image::MemoryImage;
use super::sys::Reservation;
use super::written::WriteWatch;

/// Bits of a word of `/proc/self/pagemap`.
const WORD_IS_FILE: u64 = 1 << 61;
const WORD_IS_SWAPPED: u64 = 1 << 62;
const WORD_IS_PRESENT: u64 = 1 << 63;
/// Regions that one scan call returns; more need more calls.
const REGIONS: usize = 1024;
/// Words that the fallback reads at once.
const WORDS: usize = 8192;

/// Which pages a scan finds.
#[derive(Debug, Clone, Copy)]
struct PageFilter {
    flags: u32,
    inverted: u32,
    all_of: u32,
    any_of: u32,
}

/// Pages that were copied: they exist, and are not the file's.
const COPIED: PageFilter = PageFilter {
    flags: 0,
    inverted: PAGE_IS_FILE,
    all_of: PAGE_IS_FILE,
    any_of: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
};
/// Pages that are not marked, or were written to since they were. The scan marks them, and refuses
/// ranges that are not watched.
const WRITTEN: PageFilter = PageFilter {
    flags: PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
    inverted: 0,
    all_of: PAGE_IS_WRITTEN,
    any_of: PAGE_IS_WRITTEN,
};
/// Pages that are not marked, which stay so.
const UNMARKED: PageFilter = PageFilter { flags: PM_SCAN_CHECK_WPASYNC, ..WRITTEN };

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: Opcode = opcode::read_write::<pm_scan_arg>(b'f', 16);

/// Finds the pages of one memory that were copied.
#[derive(Debug)]
pub(super) struct Tracker {
    /// Of this process: opened for each memory, since one that was inherited through a fork
    /// would show the parent's pages.
    pagemap: Arc<File>,
    pub(super) has_scan: bool,
    /// Where a scan puts its result.
    regions: Vec<page_region>,
    /// Whether the kernel counts faults at all.
    counts_faults: bool,
    /// The pages that were copied.
    known: Option<DirtyPageCache>,
    /// When `copied` or `touched` last found that what it knew is still valid.
    valid_at: Option<FaultCount>,
    /// The pages that aren't marked, while `is_marked`.
    touched: Option<DirtyPageCache>,
    /// `None` until it is needed, `Some(None)` where it isn't supported.
    watch: Option<Option<WriteWatch>>,
    /// All pages are marked, except those written to since.
    pub(super) is_marked: bool,
    /// Some pages may be marked, since some were.
    pub(super) has_marks: bool,
}

/// What trackers open, kept by a process that may open nothing more. Both belong to the process that
/// opened them, so a fork must not have it.
static KEPT: OnceLock<KeptDescriptors> = OnceLock::new();

struct KeptDescriptors {
    pagemap: Arc<File>,
    watch: Option<WriteWatch>,
}

impl Tracker {
    /// Opens the page map of this process, and finds out what the kernel supports.
    ///
    /// # Errors
    /// This kernel has no page map that this process may read.
    pub(super) fn open() -> io::Result<Self> {
        let pagemap = match KEPT.get() {
            Some(kept) => Arc::clone(&kept.pagemap),
            None => Arc::new(File::open("/proc/self/pagemap")?),
        };
        let mut tracker = Self {
            pagemap,
            has_scan: true,
            regions: vec![page_region { start: 0, end: 0, categories: 0 }; REGIONS],
            counts_faults: counts_faults()?,
            known: None,
            valid_at: None,
            touched: None,
            watch: None,
            is_marked: false,
            has_marks: false,
        };
        let page = rustix::param::page_size() as u64;
        let probe = std::ptr::from_ref(&tracker).addr() as u64 / page * page;
        tracker.has_scan = tracker.scan(probe, probe + page, COPIED, |_| ()).is_ok();
        tracker.read_words(probe, probe + page, |_| ())?;
        Ok(tracker)
    }

    /// Makes the start of the reservation a private copy of the image.
    pub(super) fn map(reservation: &Reservation, image: &MemoryImage) -> io::Result<()> {
        let (file, offset) = image.file();
        reservation.map_copy(0, image.bytes().len(), file, offset)
    }

    /// Returns the pages in `range` of the reservation that were copied, in order, as ranges of
    /// offsets. Some of them may have been copied at the last call, and no longer are.
    pub(super) fn copied(
        &mut self,
        reservation: &Reservation,
        range: Range<usize>,
    ) -> io::Result<Vec<Range<usize>>> {
        let known = self.known.take();
        match self.if_valid(known) {
            Some(copied) => Ok(copied),
            None => self.ask_for_copied(reservation, range),
        }
    }

    /// Returns the pages that had been copied at the last `remember`, if nothing has ended that.
    pub(super) fn known(&self) -> Option<&[Range<usize>]> {
        self.known.as_ref().map(|known| &*known.pages)
    }

    /// Returns whether at most `count` pages can have been copied since `remember`.
    pub(super) fn has_copied_at_most(&self, count: u64) -> bool {
        self.known.as_ref().is_some_and(|known| known.lacks_at_most(count))
    }

    /// Returns whether at most `count` pages can have been written to since `remember_touched`.
    /// While pages aren't marked, those copied since `remember` count.
    pub(super) fn has_touched_at_most(&self, count: u64) -> bool {
        let known = self.touched.as_ref().or(self.known.as_ref());
        known.is_some_and(|known| known.lacks_at_most(count))
    }

    /// Returns the pages of `known` if they are still valid, and notes when.
    fn if_valid(&mut self, known: Option<DirtyPageCache>) -> Option<Vec<Range<usize>>> {
        let valid = known.filter(|known| known.lacks_at_most(0));
        self.valid_at = valid.as_ref().map(|known| known.at);
        valid.map(|known| known.pages)
    }

    /// Keeps pages that were just found. If they were found valid, the reading of that time will
    /// do.
    fn cache_now(&mut self, pages: Vec<Range<usize>>) -> Option<DirtyPageCache> {
        let at = self.valid_at.take();
        self.counts_faults.then(|| DirtyPageCache { pages, at: at.unwrap_or_else(FaultCount::now) })
    }

    /// Asks the kernel for the pages in `range` that were copied.
    fn ask_for_copied(
        &mut self,
        reservation: &Reservation,
        range: Range<usize>,
    ) -> io::Result<Vec<Range<usize>>> {
        let base = reservation.base().addr().get();
        let mut copied = Vec::with_capacity(256);
        let found =
            |range: Range<u64>| copied.push(range.start as usize - base..range.end as usize - base);
        let (start, end) = ((base + range.start) as u64, (base + range.end) as u64);
        if self.has_scan {
            self.scan(start, end, COPIED, found)
        } else {
            self.read_words(start, end, found)
        }?;
        Ok(copied)
    }

    /// Returns whether `found` has all pages in `range` that the kernel says were copied: E-9.
    pub(super) fn is_complete(
        &mut self,
        found: &[Range<usize>],
        reservation: &Reservation,
        range: Range<usize>,
    ) -> bool {
        // The kernel keeps marks of pages that it evicts, which then look copied.
        if self.has_marks {
            return true;
        }
        let page = rustix::param::page_size();
        let is_found = |at: usize| found.iter().any(|range| range.contains(&at));
        self.ask_for_copied(reservation, range).is_ok_and(|copied| {
            copied.into_iter().flat_map(|range| range.step_by(page)).all(is_found)
        })
    }

    /// Returns the pages in `range` that were written to since the last `mark`, in order, as ranges
    /// of offsets. Some of them were only read for the first time. `None` if that isn't known.
    pub(super) fn written(
        &mut self,
        reservation: &Reservation,
        range: Range<usize>,
    ) -> Option<Vec<Range<usize>>> {
        self.touched = None;
        let is_marked = std::mem::take(&mut self.is_marked);
        is_marked.then(|| self.find_unmarked(reservation, range, WRITTEN))?
    }

    /// Returns the same as `written`, but marks nothing. The next write to such a page takes no
    /// fault, and every later call returns it again.
    pub(super) fn touched(
        &mut self,
        reservation: &Reservation,
        range: Range<usize>,
    ) -> Option<Vec<Range<usize>>> {
        if !self.is_marked {
            return None;
        }
        let known = self.touched.take();
        let touched = self.if_valid(known).or_else(|| self.touched_part(reservation, range));
        // Without an answer, what the marks say isn't known any more.
        self.is_marked = touched.is_some();
        touched
    }

    /// Returns the same as `touched` for a `range` that was marked by `mark_part`.
    pub(super) fn touched_part(
        &mut self,
        reservation: &Reservation,
        range: Range<usize>,
    ) -> Option<Vec<Range<usize>>> {
        self.find_unmarked(reservation, range, UNMARKED)
    }

    fn find_unmarked(
        &mut self,
        reservation: &Reservation,
        range: Range<usize>,
        wanted: PageFilter,
    ) -> Option<Vec<Range<usize>>> {
        let base = reservation.base().addr().get();
        let mut unmarked = Vec::with_capacity(256);
        let found = |range: Range<u64>| {
            unmarked.push(range.start as usize - base..range.end as usize - base);
        };
        let (start, end) = ((base + range.start) as u64, (base + range.end) as u64);
        let scanned = self.scan(start, end, wanted, found);
        scanned
            .inspect_err(|error| tracing::debug!(%error, "writes are no longer watched"))
            .ok()?;
        Some(unmarked)
    }

    /// Opens what marking needs, if this system has it, unless that was done.
    fn open_watch(&mut self) {
        let can_watch = self.has_scan && self.counts_faults;
        self.watch.get_or_insert_with(|| {
            let watch = match KEPT.get() {
                Some(kept) => kept.watch.clone(),
                None => WriteWatch::open()
                    .inspect_err(|error| tracing::debug!(%error, "no write watch"))
                    .ok(),
            };
            watch.filter(|_| can_watch)
        });
    }

    /// Opens what this and later trackers of this process may need. It is for a process that soon
    /// may open nothing more and is never forked.
    pub(super) fn open_ahead(&mut self) {
        self.open_watch();
        let (pagemap, watch) = (Arc::clone(&self.pagemap), self.watch.clone().flatten());
        KEPT.get_or_init(|| KeptDescriptors { pagemap, watch });
    }

    /// Marks all pages, which `range` has, so that `written` finds those written to from now on.
    pub(super) fn mark(&mut self, reservation: &Reservation, range: Range<usize>) {
        self.touched = None;
        self.is_marked = self.mark_part(reservation, range);
    }

    /// Marks the pages in `range` alone, so that `touched_part` finds those written to from now on.
    /// Returns whether the system could.
    pub(super) fn mark_part(&mut self, reservation: &Reservation, range: Range<usize>) -> bool {
        self.open_watch();
        let Some(Some(watch)) = &self.watch else { return false };
        let base = reservation.base().addr().get();
        let (start, end) = ((base + range.start) as u64, (base + range.end) as u64);
        let registered = watch.register(reservation, RESERVED_BYTES);
        self.has_marks |= registered.is_ok();
        let marked = registered.and_then(|()| self.scan(start, end, WRITTEN, |_| ()));
        marked
            .inspect_err(|error| {
                tracing::debug!(%error, "writes can't be watched here");
                self.watch = Some(None);
            })
            .is_ok()
    }

    /// Keeps what `copied` found last: it is still valid, and from now on only this thread writes.
    pub(super) fn remember(&mut self, copied: Vec<Range<usize>>) {
        self.known = self.cache_now(copied);
    }

    /// Does the same for what `touched` found last.
    pub(super) fn remember_touched(&mut self, touched: Vec<Range<usize>>) {
        self.touched = self.cache_now(touched);
    }

    /// Drops all marks: other pages get mapped.
    pub(super) fn unmark(&mut self) {
        self.is_marked = false;
        self.touched = None;
    }

    /// Drops what `copied` and `touched` found last: another thread may write to a page.
    pub(super) fn forget(&mut self) {
        self.known = None;
        self.touched = None;
    }

    /// Calls `found` with each range of wanted pages, by the kernel's page scan.
    fn scan(
        &mut self,
        start: u64,
        end: u64,
        wanted: PageFilter,
        mut found: impl FnMut(Range<u64>),
    ) -> io::Result<()> {
        let mut argument = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: wanted.flags.into(),
            start,
            end,
            walk_end: 0,
            vec: self.regions.as_mut_ptr().addr() as u64,
            vec_len: self.regions.len() as u64,
            max_pages: 0,
            category_inverted: wanted.inverted.into(),
            category_mask: wanted.all_of.into(),
            category_anyof_mask: wanted.any_of.into(),
            // Without a category to return, the kernel reports regions twice.
            return_mask: wanted.any_of.into(),
        };
        let mut done = start;
        while argument.start < end {
            // SAFETY: the argument has the layout that the kernel reads and writes. It points to
            // `vec_len` regions that are ours to write. The kernel only looks at the address range
            // and refuses one that isn't this process's.
            let count = unsafe {
                libc::ioctl(
                    self.pagemap.as_raw_fd(),
                    PAGEMAP_SCAN as libc::Ioctl,
                    std::ptr::from_mut(&mut argument),
                )
            };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            for region in &self.regions[..count] {
                // After a call that filled the vector, the kernel may report its last pages again.
                let fresh = region.start.max(done)..region.end;
                if !fresh.is_empty() {
                    done = fresh.end;
                    found(fresh);
                }
            }
            if argument.walk_end <= argument.start {
                return Err(io::Error::other("the kernel's page scan doesn't advance"));
            }
            argument.start = argument.walk_end;
        }
        Ok(())
    }

    /// Calls `found` with each range of copied pages, by the words of the page map.
    fn read_words(
        &mut self,
        start: u64,
        end: u64,
        mut found: impl FnMut(Range<u64>),
    ) -> io::Result<()> {
        let page = rustix::param::page_size() as u64;
        let mut words = [0_u8; WORDS * 8];
        let mut range: Option<Range<u64>> = None;
        let mut at = start;
        while at < end {
            let count = (((end - at) / page) as usize).min(WORDS);
            let bytes = &mut words[..count * 8];
            self.pagemap.read_exact_at(bytes, at / page * 8)?;
            for word in bytes.as_chunks::<8>().0 {
                let word = u64::from_le_bytes(*word);
                let is_copied =
                    word & WORD_IS_FILE == 0 && word & (WORD_IS_PRESENT | WORD_IS_SWAPPED) != 0;
                match &mut range {
                    Some(range) if is_copied && range.end == at => range.end += page,
                    _ if is_copied => {
                        if let Some(done) = range.replace(at..at + page) {
                            found(done);
                        }
                    }
                    _ => {}
                }
                at += page;
            }
        }
        if let Some(done) = range {
            found(done);
        }
        Ok(())
    }
}

/// The result of a scan. Invariant E-9: it stays valid as long as this thread alone writes and has
/// had no more faults. A write from another thread ends that by `forget`.
#[derive(Debug)]
struct DirtyPageCache {
    pages: Vec<Range<usize>>,
    at: FaultCount,
}

impl DirtyPageCache {
    /// Returns whether at most `count` pages can have been copied since.
    fn lacks_at_most(&self, count: u64) -> bool {
        let now = FaultCount::now();
        self.at.thread == now.thread && now.faults <= self.at.faults + count
    }
}

/// A thread's number of page faults since it began.
#[derive(Debug, Clone, Copy)]
struct FaultCount {
    thread: ThreadId,
    faults: u64,
}

impl FaultCount {
    fn now() -> Self {
        Self { thread: std::thread::current().id(), faults: faults() }
    }
}

/// Returns the number of page faults of this thread since it began.
fn faults() -> u64 {
    // SAFETY: all zeroes are a value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours to write.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0, "a thread may ask for its own usage");
    (usage.ru_minflt + usage.ru_majflt).cast_unsigned()
}

/// Returns whether the kernel counts the faults of this thread, by causing some. Some kernels that
/// look like Linux count none.
fn counts_faults() -> io::Result<bool> {
    let page = rustix::param::page_size();
    let reservation = Reservation::new(0, page)?;
    reservation.make_accessible(0, page)?;
    let before = faults();
    // SAFETY: accessible, and nobody else has it.
    let is_zero = unsafe {
        reservation.with_bytes(0, page, |bytes| {
            let is_zero = std::hint::black_box(&*bytes)[0] == 0;
            std::hint::black_box(bytes)[0] = 1;
            is_zero
        })
    };
    Ok(is_zero && faults() >= before + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tracker {
        /// Reads the page map's words at every call from now on, as on a kernel without the scan.
        pub(in crate::memory) fn without_scan(&mut self) {
            self.has_scan = false;
            self.counts_faults = false;
        }
    }
}
