//! What a memory holds beyond its image, as a session keeps it between two of its turns.
//!
//! A patch is small and can be put into any memory. But making one means to scan for written pages,
//! compare them and mark them again. Then every marked page faults at its next write. A session
//! that stays in its slot needs a patch only if its next turn must be undone. A snapshot is the
//! patch from when the pages were marked, with the whole content of the pages written since. It
//! becomes a patch on request.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::address_space::PAGE_BYTES;
use super::image::MemoryImage;
use super::patch::{MemoryPatch, PagePatch, base_page, overwrite};

/// The content of a memory beyond its image. Immutable as long as it is shared.
#[derive(Debug)]
pub(crate) struct Snapshot {
    image: Arc<MemoryImage>,
    /// The content when the pages were marked.
    marked: Arc<MemoryPatch>,
    marked_bytes: u64,
    /// Bytes of the memory.
    len: usize,
    /// The ranges of offsets that were written to since, in order and apart.
    touched: Vec<Range<usize>>,
    /// Their content, one range after the other.
    bytes: Vec<u8>,
    /// All of it as a patch, once that was asked for.
    patch: OnceLock<Arc<MemoryPatch>>,
}

impl Snapshot {
    /// Returns a snapshot of a memory that holds what `marked` says. Nothing was written since.
    pub(super) fn new(image: Arc<MemoryImage>, marked: Arc<MemoryPatch>) -> Self {
        let (marked_bytes, len) = (marked.bytes(), marked.len);
        let (touched, bytes, patch) = (Vec::new(), Vec::new(), OnceLock::new());
        Self { image, marked, marked_bytes, len, touched, bytes, patch }
    }

    /// Takes over the content of all ranges of `memory` that were written to since it was marked.
    /// When it was, it held what `marked` says.
    pub(super) fn refresh(
        &mut self,
        marked: &Arc<MemoryPatch>,
        memory: &[u8],
        touched: &[Range<usize>],
    ) {
        if !Arc::ptr_eq(&self.marked, marked) {
            self.marked = Arc::clone(marked);
            self.marked_bytes = marked.bytes();
        }
        self.patch = OnceLock::new();
        self.len = memory.len();
        let count = touched.iter().map(ExactSizeIterator::len).sum();
        if self.touched != touched {
            self.touched = touched.to_vec();
            self.bytes.resize(count, 0);
        }
        let mut rest = self.bytes.as_mut_slice();
        for range in touched {
            let (own, after) = rest.split_at_mut(range.len());
            overwrite(own, &memory[range.clone()]);
            rest = after;
        }
    }

    /// Returns the bytes that the snapshot takes, shared ones included.
    pub(crate) fn bytes(&self) -> u64 {
        self.marked_bytes + self.bytes.len() as u64
    }

    /// Returns the bytes that the snapshot takes beside `base`.
    pub(crate) fn bytes_beside(&self, base: &MemoryPatch) -> u64 {
        self.marked.bytes_beside(base) + self.bytes.len() as u64
    }

    /// Returns the same content as a patch. The first call takes as long as comparing the pages.
    pub(crate) fn patch(&self) -> &Arc<MemoryPatch> {
        self.patch.get_or_init(|| Arc::new(self.to_patch()))
    }

    fn to_patch(&self) -> MemoryPatch {
        let segments = self.marked.segments.clone();
        let numbers = self.touched.iter().cloned().flat_map(|range| range.step_by(PAGE_BYTES));
        let contents = self.bytes.chunks_exact(PAGE_BYTES);
        let touched = numbers.zip(contents).filter_map(|(at, now)| {
            let page = at / PAGE_BYTES;
            let number = u32::try_from(page).expect("E-1");
            let base = base_page(self.image.bytes(), &segments, page);
            PagePatch::between(number, base, now, self.marked.page(number))
        });
        let is_untouched = |patch: &&PagePatch| {
            let at = patch.page as usize * PAGE_BYTES;
            let before = self.touched.partition_point(|range| range.end <= at);
            self.touched.get(before).is_none_or(|range| !range.contains(&at))
        };
        let untouched = self.marked.pages.iter().filter(is_untouched).cloned();
        let mut pages: Vec<PagePatch> = touched.chain(untouched).collect();
        pages.sort_unstable_by_key(|patch| patch.page);
        MemoryPatch { len: self.len, segments, pages }
    }
}
