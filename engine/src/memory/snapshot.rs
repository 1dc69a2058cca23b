//! What a memory holds beyond its image, as a session keeps it between two of its turns.
//!
//! A patch is small and fits any memory of its image, but making one means to compare pages. A
//! session that stays where it is needs a patch only if its next turn has to be undone. A snapshot
//! is the last patch, together with the whole content of the pages that were copied from the image.
//! It becomes a patch when somebody asks for one.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::address_space::PAGE_BYTES;
use super::image::MemoryImage;
use super::patch::{MemoryPatch, PagePatch, base_page, overwrite};

/// The content of a memory beyond its image. Immutable as long as it is shared.
#[derive(Debug)]
pub(crate) struct Snapshot {
    image: Arc<MemoryImage>,
    /// The content of all pages that `copied` lacks.
    base: Arc<MemoryPatch>,
    /// Bytes of the memory.
    len: usize,
    /// Ranges of offsets, in order and apart.
    copied: Vec<Range<usize>>,
    /// Their content, one range after the other.
    bytes: Vec<u8>,
    /// All of it as a patch, once that was asked for.
    patch: OnceLock<Arc<MemoryPatch>>,
}

impl Snapshot {
    /// Returns a snapshot of a memory that holds what `base` says. No page was copied.
    pub(super) fn new(image: Arc<MemoryImage>, base: Arc<MemoryPatch>) -> Self {
        let (len, copied, bytes, patch) = (base.len, Vec::new(), Vec::new(), OnceLock::new());
        Self { image, base, len, copied, bytes, patch }
    }

    /// Replaces the content by that of `memory`, of which these ranges may differ from `base`.
    pub(super) fn refresh(&mut self, memory: &[u8], copied: &[Range<usize>]) {
        self.patch = OnceLock::new();
        self.len = memory.len();
        if self.copied != copied {
            self.copied = copied.to_vec();
            self.bytes.resize(copied.iter().map(ExactSizeIterator::len).sum(), 0);
        }
        let mut rest = self.bytes.as_mut_slice();
        for range in copied {
            let (own, after) = rest.split_at_mut(range.len());
            overwrite(own, &memory[range.clone()]);
            rest = after;
        }
    }

    /// Returns the bytes that the snapshot takes, shared ones included.
    pub(crate) fn bytes(&self) -> u64 {
        self.base.bytes() + self.bytes.len() as u64
    }

    /// Returns the same content as a patch. The first call takes as long as comparing the pages.
    pub(crate) fn patch(&self) -> &Arc<MemoryPatch> {
        self.patch.get_or_init(|| Arc::new(self.to_patch()))
    }

    fn to_patch(&self) -> MemoryPatch {
        let segments = self.base.segments.clone();
        let numbers = self.copied.iter().cloned().flat_map(|range| range.step_by(PAGE_BYTES));
        let contents = self.bytes.chunks_exact(PAGE_BYTES);
        let copied = numbers.zip(contents).filter_map(|(at, now)| {
            let page = at / PAGE_BYTES;
            let number = u32::try_from(page).expect("E-1");
            let base = base_page(self.image.bytes(), &segments, page);
            PagePatch::between(number, base, now, self.base.page(number))
        });
        let is_not_copied = |patch: &&PagePatch| {
            let at = patch.page as usize * PAGE_BYTES;
            let before = self.copied.partition_point(|range| range.end <= at);
            self.copied.get(before).is_none_or(|range| !range.contains(&at))
        };
        let others = self.base.pages.iter().filter(is_not_copied).cloned();
        let mut pages: Vec<PagePatch> = copied.chain(others).collect();
        pages.sort_unstable_by_key(|patch| patch.page);
        MemoryPatch { len: self.len, segments, pages }
    }
}
