//! Segments: long ranges of pages that a session has filled, such as the columns of a data frame.
//!
//! The store keeps them in one file in memory, from which interpreters map them as they map the
//! image. So suspending, resuming or forking a session copies none of these pages. Later writes to
//! them are found like writes to the image. `patch.rs` holds the scattered rest.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;
use range_alloc::RangeAllocator;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate};
use rustix::process::{Resource, getrlimit};

use super::address_space::PAGE_BYTES;
use super::sys::FileView;
use crate::owner::OwnerProcess;

/// Address space for the segments of all sessions of one image; unused pages take no memory.
const STORE_PAGES: usize = (64 << 30) / PAGE_BYTES;
/// Shorter ranges of filled pages are not worth a mapping of their own.
pub(super) const LEAST_PAGES: usize = 16;
/// Segments of one patch.
pub(super) const MOST_SEGMENTS: usize = 32;
/// Mappings that one memory needs for segments, up to some more; the system has 65,530 for the
/// process. Segments that were given up stay mapped until the next restore.
pub(super) const MOST_MAPPED: usize = 256;

/// Returns how many segments a patch may add that keeps `kept` of the `mapped` ones.
pub(super) fn room_for(kept: usize, mapped: usize) -> usize {
    MOST_SEGMENTS.saturating_sub(kept).min(MOST_MAPPED.saturating_sub(mapped))
}

/// The file in memory that holds the segments of all sessions of one image.
#[derive(Debug)]
pub(super) struct SegmentStore {
    view: FileView,
    /// The pages without a segment.
    pages: Mutex<RangeAllocator<usize>>,
    owner: OwnerProcess,
}

/// A range of pages of a memory, whose contents are in the store. Immutable and shared.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// The first page of the memory.
    page: u32,
    /// Number of pages.
    count: usize,
    stored: Arc<Stored>,
    /// Pages of `stored` before the first one of this segment.
    skipped: usize,
}

/// Pages of the store, which are free again when the last segment that uses them is dropped.
#[derive(Debug)]
struct Stored {
    store: Arc<SegmentStore>,
    pages: Range<usize>,
}

impl SegmentStore {
    /// Opens a store; `None` if the system has no such file, or no address space for it.
    pub(super) fn open() -> Option<Arc<Self>> {
        if rustix::param::page_size() != PAGE_BYTES {
            return None;
        }
        let view = FileView::new(sparse_file(STORE_PAGES * PAGE_BYTES)?);
        let view = view.inspect_err(|error| tracing::debug!(%error, "no segment store")).ok()?;
        let pages = Mutex::new(RangeAllocator::new(0..STORE_PAGES));
        Some(Arc::new(Self { view, pages, owner: OwnerProcess::current() }))
    }

    /// Stores `bytes`, one or more whole pages, as the segment of a memory that begins at `page`.
    /// Returns `None` if the store or the system has no room.
    pub(super) fn put(self: &Arc<Self>, page: u32, bytes: &[u8]) -> Option<Segment> {
        let pages = self.pages.lock().allocate_range(bytes.len() / PAGE_BYTES).ok()?;
        let (at, count) = (pages.start * PAGE_BYTES, pages.len());
        let stored = Arc::new(Stored { store: Arc::clone(self), pages });
        let written = self.view.file().write_all_at(bytes, at as u64);
        written.inspect_err(|error| tracing::debug!(%error, "no memory for a segment")).ok()?;
        Some(Segment { page, count, stored, skipped: 0 })
    }
}

/// Creates a file in memory that is all holes.
fn sparse_file(bytes: usize) -> Option<File> {
    // Growing a file beyond this limit raises a signal.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes as u64) {
        return None;
    }
    let file = rustix::fs::memfd_create("hatchery-segments", MemfdFlags::CLOEXEC).ok()?;
    rustix::fs::ftruncate(&file, bytes as u64).ok()?;
    Some(File::from(file))
}

impl Drop for Stored {
    fn drop(&mut self) {
        if !self.store.owner.is_current() {
            // A copy that a fork made. The file's pages are the parent's.
            return;
        }
        let pages = self.pages.clone();
        give_back(self.store.view.file(), &pages);
        self.store.pages.lock().free_range(pages);
    }
}

fn give_back(file: &File, pages: &Range<usize>) {
    let (at, len) = (pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if let Err(error) = fallocate(file, hole, at as u64, len as u64) {
        tracing::warn!(%error, len, "can't return the pages of a segment to the system");
    }
}

impl Segment {
    pub(crate) fn pages(&self) -> Range<usize> {
        let first = self.page as usize;
        first..first + self.count
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let Range { start, end } = self.place();
        // Nobody writes there until `stored` is dropped.
        self.stored.store.view.part(start * PAGE_BYTES..end * PAGE_BYTES)
    }

    /// Returns the contents of page `page` of the memory, if the segment covers it.
    pub(super) fn page_bytes(&self, page: usize) -> Option<&[u8]> {
        let at = page.checked_sub(self.page as usize).filter(|at| *at < self.count)?;
        let at = (self.place().start + at) * PAGE_BYTES;
        Some(self.stored.store.view.part(at..at + PAGE_BYTES))
    }

    /// Returns what is left of the segment without `pages`: up to two segments.
    pub(super) fn without(&self, pages: Range<usize>) -> impl Iterator<Item = Self> + use<'_> {
        let own = self.pages();
        let before = own.start..own.end.min(pages.start);
        let after = own.start.max(pages.end)..own.end;
        [before, after].into_iter().filter(|part| !part.is_empty()).map(move |part| Self {
            page: u32::try_from(part.start).expect("part of this segment"),
            count: part.len(),
            stored: Arc::clone(&self.stored),
            skipped: self.skipped + part.start - own.start,
        })
    }

    /// Returns the store's file, and the offset of the segment in it.
    pub(super) fn file(&self) -> (&File, u64) {
        (self.stored.store.view.file(), (self.place().start * PAGE_BYTES) as u64)
    }

    /// Returns which pages of the store it uses.
    fn place(&self) -> Range<usize> {
        let start = self.stored.pages.start + self.skipped;
        start..start + self.count
    }
}

impl PartialEq for Segment {
    fn eq(&self, other: &Self) -> bool {
        (self.pages(), self.place()) == (other.pages(), other.place())
            && Arc::ptr_eq(&self.stored, &other.stored)
    }
}

impl Eq for Segment {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_holds_its_bytes_until_its_last_owner_is_dropped() {
        let store = SegmentStore::open().expect("Linux has such files");
        let first = store.put(7, &[1; 3 * PAGE_BYTES]).unwrap();
        let second = store.put(7, &[2; 2 * PAGE_BYTES]).unwrap();
        assert_eq!((first.pages(), second.pages()), (7..10, 7..9));
        assert!(first.bytes().iter().all(|byte| *byte == 1));
        let copy = second.clone();
        drop((first, second));
        assert!(copy.bytes().iter().all(|byte| *byte == 2));
        assert_eq!(copy.page_bytes(8), Some(&[2; PAGE_BYTES][..]));
        assert_eq!((copy.page_bytes(6), copy.page_bytes(9)), (None, None));
        let left: Vec<Range<usize>> = copy.without(0..8).map(|segment| segment.pages()).collect();
        assert_eq!((left.len(), left[0].clone()), (1, 8..9));
        assert!(copy.without(20..30).eq([copy.clone()]));
        drop(copy);
        assert!(store.pages.lock().is_empty());
        let empty = store.view.part(0..10 * PAGE_BYTES);
        assert!(empty.iter().all(|byte| *byte == 0), "the pages were returned");
    }

    #[test]
    fn a_process_that_has_forked_off_returns_no_pages() {
        let store = SegmentStore::open().expect("Linux has such files");
        let store = Arc::into_inner(store).expect("nobody else has it");
        let store = Arc::new(SegmentStore { owner: OwnerProcess::other(), ..store });
        drop(store.put(7, &[1; 3 * PAGE_BYTES]).unwrap());
        assert!(store.view.part(0..3 * PAGE_BYTES).iter().all(|byte| *byte == 1));
        assert!(!store.pages.lock().is_empty());
    }
}
