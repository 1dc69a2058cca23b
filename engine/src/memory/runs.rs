//! Long runs of pages that a session has filled, such as the columns of a data frame: kept in one
//! file in memory, from which slots map them as they map the image.
//!
//! A session that is put aside and taken up again, or forked, so copies none of these pages, and
//! what was written to them since is known as exactly as for the image. The scattered rest is what
//! `patch.rs` holds.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::patch::PAGE_BYTES;
use super::sys::FileView;

/// Address space for the pages of all sessions of one image; what isn't used takes no memory.
const STORE_PAGES: usize = (64 << 30) / PAGE_BYTES;
/// Shorter runs are not worth a mapping of their own.
pub(super) const LEAST_PAGES: usize = 16;
/// Mappings that one memory may need beyond its image; the system has 65,530 for the process.
pub(super) const MOST_RUNS: usize = 32;

/// The pages of all runs.
#[derive(Debug)]
pub(super) struct RunStore {
    view: FileView,
    extents: Mutex<Extents>,
}

/// Where in the store pages are free.
#[derive(Debug)]
struct Extents {
    /// In order, with gaps between them.
    free: Vec<Range<usize>>,
}

/// Consecutive pages of a memory, which are in the store. Immutable and shared.
#[derive(Debug, Clone)]
pub(crate) struct PageRun {
    /// The first page of the memory.
    page: u32,
    /// How many.
    count: usize,
    stored: Arc<Stored>,
    /// How many of the stored pages come before.
    skipped: usize,
}

/// Pages of the store, free again when the last that holds them goes.
#[derive(Debug)]
struct Stored {
    store: Arc<RunStore>,
    pages: Range<usize>,
}

impl RunStore {
    /// `None` if the system has no such file, or no address space for it.
    pub(super) fn open() -> Option<Arc<Self>> {
        if rustix::param::page_size() != PAGE_BYTES {
            return None;
        }
        let view = FileView::new(sparse_file(STORE_PAGES * PAGE_BYTES)?);
        let view = view.inspect_err(|error| tracing::debug!(%error, "no store for runs")).ok()?;
        Some(Arc::new(Self { view, extents: Mutex::new(Extents::new(STORE_PAGES)) }))
    }

    /// Keeps `bytes`, whole pages, as those of a memory from `page` on; `None` if the store or the
    /// system has no room.
    pub(super) fn put(self: &Arc<Self>, page: u32, bytes: &[u8]) -> Option<PageRun> {
        let pages = self.extents.lock().take(bytes.len() / PAGE_BYTES)?;
        let (at, count) = (pages.start * PAGE_BYTES, pages.len());
        let stored = Arc::new(Stored { store: Arc::clone(self), pages });
        let written = self.view.file().write_all_at(bytes, at as u64);
        written.inspect_err(|error| tracing::debug!(%error, "no memory for a run")).ok()?;
        Some(PageRun { page, count, stored, skipped: 0 })
    }
}

/// A file in memory, all of it holes.
#[cfg(target_os = "linux")]
fn sparse_file(bytes: usize) -> Option<File> {
    use rustix::fs::MemfdFlags;
    use rustix::process::{Resource, getrlimit};
    // Growing a file beyond this limit would be answered by a signal.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes as u64) {
        return None;
    }
    let file = rustix::fs::memfd_create("hatchery-runs", MemfdFlags::CLOEXEC).ok()?;
    rustix::fs::ftruncate(&file, bytes as u64).ok()?;
    Some(File::from(file))
}

#[cfg(not(target_os = "linux"))]
fn sparse_file(_bytes: usize) -> Option<File> {
    None
}

impl Drop for Stored {
    fn drop(&mut self) {
        let pages = self.pages.clone();
        give_back(self.store.view.file(), &pages);
        self.store.extents.lock().give(pages);
    }
}

#[cfg(target_os = "linux")]
fn give_back(file: &File, pages: &Range<usize>) {
    use rustix::fs::{FallocateFlags, fallocate};
    let (at, len) = (pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if let Err(error) = fallocate(file, hole, at as u64, len as u64) {
        tracing::warn!(%error, len, "can't return the pages of a run to the system");
    }
}

#[cfg(not(target_os = "linux"))]
fn give_back(_file: &File, _pages: &Range<usize>) {}

impl PageRun {
    /// The pages of the memory.
    pub(crate) fn pages(&self) -> Range<usize> {
        let first = self.page as usize;
        first..first + self.count
    }

    /// What they hold.
    pub(crate) fn bytes(&self) -> &[u8] {
        let Range { start, end } = self.place();
        // Nobody writes there until `stored` is dropped.
        self.stored.store.view.part(start * PAGE_BYTES..end * PAGE_BYTES)
    }

    /// What page `page` of the memory holds, if it is one of these.
    pub(super) fn page_bytes(&self, page: usize) -> Option<&[u8]> {
        let at = page.checked_sub(self.page as usize).filter(|at| *at < self.count)?;
        let at = (self.place().start + at) * PAGE_BYTES;
        Some(self.stored.store.view.part(at..at + PAGE_BYTES))
    }

    /// What is left of the run without `pages`.
    pub(super) fn without(&self, pages: Range<usize>) -> impl Iterator<Item = Self> + use<'_> {
        let own = self.pages();
        let before = own.start..own.end.min(pages.start);
        let after = own.start.max(pages.end)..own.end;
        [before, after].into_iter().filter(|part| !part.is_empty()).map(move |part| Self {
            page: u32::try_from(part.start).expect("it is one of the run's"),
            count: part.len(),
            stored: Arc::clone(&self.stored),
            skipped: self.skipped + part.start - own.start,
        })
    }

    /// The file, and where the pages begin in it.
    pub(super) fn file(&self) -> (&File, u64) {
        (self.stored.store.view.file(), (self.place().start * PAGE_BYTES) as u64)
    }

    /// The pages of the store.
    fn place(&self) -> Range<usize> {
        let start = self.stored.pages.start + self.skipped;
        start..start + self.count
    }
}

impl PartialEq for PageRun {
    fn eq(&self, other: &Self) -> bool {
        (self.pages(), self.place()) == (other.pages(), other.place())
            && Arc::ptr_eq(&self.stored, &other.stored)
    }
}

impl Eq for PageRun {}

impl Extents {
    fn new(pages: usize) -> Self {
        Self { free: vec![Range { start: 0, end: pages }] }
    }

    /// The first place that has room.
    fn take(&mut self, pages: usize) -> Option<Range<usize>> {
        let found = self.free.iter().position(|free| free.len() >= pages)?;
        let free = &mut self.free[found];
        let taken = free.start..free.start + pages;
        free.start = taken.end;
        if Range::is_empty(free) {
            self.free.remove(found);
        }
        Some(taken)
    }

    fn give(&mut self, pages: Range<usize>) {
        let next = self.free.partition_point(|free| free.start < pages.start);
        self.free.insert(next, pages);
        for first in [next, next.saturating_sub(1)] {
            if self.free.get(first + 1).is_some_and(|next| next.start == self.free[first].end) {
                self.free[first].end = self.free.remove(first + 1).end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Takes and returns at random: nothing is handed out twice, and all comes back.
        #[test]
        fn extents_are_handed_out_once(
            steps in proptest::collection::vec((any::<bool>(), 1..40_usize), 0..200),
        ) {
            let mut extents = Extents::new(500);
            let mut taken: Vec<Range<usize>> = Vec::new();
            for (takes, number) in steps {
                if takes {
                    if let Some(new) = extents.take(number) {
                        prop_assert_eq!(new.len(), number);
                        let apart = |old: &Range<usize>| old.end <= new.start || new.end <= old.start;
                        prop_assert!(taken.iter().all(apart));
                        taken.push(new);
                    }
                } else if !taken.is_empty() {
                    extents.give(taken.swap_remove(number % taken.len()));
                }
            }
            taken.into_iter().for_each(|pages| extents.give(pages));
            prop_assert_eq!(extents.free, Extents::new(500).free);
        }
    }

    #[test]
    fn a_run_holds_its_bytes_until_the_last_holder_goes() {
        let store = RunStore::open().expect("Linux has such files");
        let first = store.put(7, &[1; 3 * PAGE_BYTES]).unwrap();
        let second = store.put(7, &[2; 2 * PAGE_BYTES]).unwrap();
        assert_eq!((first.pages(), second.pages()), (7..10, 7..9));
        assert!(first.bytes().iter().all(|byte| *byte == 1));
        let copy = second.clone();
        drop((first, second));
        assert!(copy.bytes().iter().all(|byte| *byte == 2));
        assert_eq!(copy.page_bytes(8), Some(&[2; PAGE_BYTES][..]));
        assert_eq!((copy.page_bytes(6), copy.page_bytes(9)), (None, None));
        let left: Vec<Range<usize>> = copy.without(0..8).map(|run| run.pages()).collect();
        assert_eq!((left.len(), left[0].clone()), (1, 8..9));
        assert!(copy.without(20..30).eq([copy.clone()]));
        drop(copy);
        assert_eq!(store.extents.lock().free, Extents::new(STORE_PAGES).free);
        let empty = store.view.part(0..10 * PAGE_BYTES);
        assert!(empty.iter().all(|byte| *byte == 0), "the pages were returned");
    }
}
