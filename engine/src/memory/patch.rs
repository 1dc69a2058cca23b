//! What a memory holds beyond its image: segments of full pages, and the differing blocks of other
//! pages. Pure.
//!
//! Most pages that a program touches differ in a few reference counts. So a block is a cache line
//! and not a page. Patches are immutable and shared. A fork is a reference, and a session that is
//! suspended again keeps the patches of unchanged pages.

use std::sync::Arc;

use super::address_space::PAGE_BYTES;
use super::segments::Segment;
use super::vectors::vectorized;

pub(super) const BLOCK_BYTES: usize = 64;
const ZEROES: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// What a memory holds beyond its image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemoryPatch {
    /// Bytes of the memory.
    pub(crate) len: usize,
    /// They replace what the image has there. Invariant E-8: in order, apart, and all below `len`.
    pub(crate) segments: Vec<Segment>,
    /// Invariant E-8: in order, each page once, and all below `len`.
    pub(crate) pages: Vec<PagePatch>,
}

/// The blocks of one page that differ from its base: its segment, else the image, else zeroes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PagePatch {
    /// Which page.
    pub(crate) page: u32,
    /// Bit `n` is set if block `n` differs.
    pub(crate) blocks: u64,
    /// The blocks that differ, one after another.
    pub(crate) bytes: Arc<[u8]>,
}

impl MemoryPatch {
    /// Returns the bytes that the patch takes, shared ones included.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |page: &PagePatch| (page.bytes.len() + size_of::<PagePatch>()) as u64;
        let segments = self.segments.iter().map(|segment| segment.bytes().len() as u64);
        segments.chain(self.pages.iter().map(of)).sum()
    }

    /// Returns the bytes that the patch takes beside `base`, without what the two share.
    pub(crate) fn bytes_beside(&self, base: &Self) -> u64 {
        if std::ptr::eq(self, base) {
            return 0;
        }
        let mut others = base.pages.iter().peekable();
        let of = |page: &PagePatch| {
            while others.next_if(|other| other.page < page.page).is_some() {}
            let is_shared = others.peek().is_some_and(|other| other.shares_bytes(page));
            size_of::<PagePatch>() + if is_shared { 0 } else { page.bytes.len() }
        };
        let pages: usize = self.pages.iter().map(of).sum();
        pages as u64 + base.segment_bytes_missing(&self.segments)
    }

    /// Returns the bytes of those segments that aren't among this patch's.
    pub(super) fn segment_bytes_missing(&self, segments: &[Segment]) -> u64 {
        let is_other = |segment: &&Segment| !self.segments.contains(segment);
        segments.iter().filter(is_other).map(|segment| segment.bytes().len() as u64).sum()
    }

    /// Returns how many pages differ from the image.
    pub(crate) fn page_count(&self) -> usize {
        let of_segments: usize = self.segments.iter().map(|segment| segment.pages().len()).sum();
        let in_segments = |page: &&PagePatch| page_in(&self.segments, page.page as usize).is_some();
        of_segments + self.pages.len() - self.pages.iter().filter(in_segments).count()
    }

    /// Returns the pages that differ from `image`, without segments: what a file holds of the
    /// patch.
    pub(crate) fn flat(&self, image: &[u8]) -> Vec<PagePatch> {
        let in_segments = self.segments.iter().flat_map(Segment::pages).map(|page| {
            let mut bytes = [0; PAGE_BYTES];
            bytes.copy_from_slice(base_page(image, &self.segments, page));
            let number = u32::try_from(page).expect("E-1");
            if let Some(patch) = self.page(number) {
                patch.apply(&mut bytes);
            }
            PagePatch::between(number, image_page(image, page), &bytes, None)
        });
        let others = self.pages.iter();
        let others = others.filter(|page| page_in(&self.segments, page.page as usize).is_none());
        let mut pages: Vec<PagePatch> = in_segments.flatten().chain(others.cloned()).collect();
        pages.sort_unstable_by_key(|page| page.page);
        pages
    }

    /// Makes `memory`, which holds the image and zeroes beyond it, what the patch says.
    pub(super) fn put_into(&self, memory: &mut [u8]) {
        for segment in &self.segments {
            let at = segment.pages().start * PAGE_BYTES;
            memory[at..at + segment.bytes().len()].copy_from_slice(segment.bytes());
        }
        for patch in &self.pages {
            let at = patch.page as usize * PAGE_BYTES;
            patch.apply(&mut memory[at..at + PAGE_BYTES]);
        }
    }

    /// Returns the patch of `page`, if there is one.
    pub(crate) fn page(&self, page: u32) -> Option<&PagePatch> {
        let at = self.pages.binary_search_by_key(&page, |patch| patch.page).ok()?;
        Some(&self.pages[at])
    }

    /// Returns whether E-8 holds and every page has as many bytes as its blocks say. Decides
    /// whether a patch that was read from a file is accepted.
    pub(crate) fn is_sound(&self) -> bool {
        let is_whole = |patch: &PagePatch| {
            patch.bytes.len() == PagePatch::bytes_of(patch.blocks)
                && (patch.page as usize) < self.len / PAGE_BYTES
        };
        self.segments.is_sorted_by(|a, b| a.pages().end <= b.pages().start)
            && self.segments.last().is_none_or(|last| last.pages().end <= self.len / PAGE_BYTES)
            && self.pages.iter().all(is_whole)
            && self.pages.is_sorted_by(|a, b| a.page < b.page)
    }
}

impl PagePatch {
    /// Returns the patch that turns `base` into `now`; `None` if they are equal. If `before`, an
    /// earlier patch of this page, is the same, its bytes are shared.
    pub(crate) fn between(
        page: u32,
        base: &[u8],
        now: &[u8],
        before: Option<&Self>,
    ) -> Option<Self> {
        Self::of(page, differing(base, now), now, before)
    }

    /// Does the same as `between` for blocks of `now` that are known to differ.
    pub(super) fn of(page: u32, blocks: u64, now: &[u8], before: Option<&Self>) -> Option<Self> {
        if blocks == 0 {
            return None;
        }
        let is_same = |before: &&Self| {
            before.blocks == blocks
                && before.parts().all(|(at, bytes)| now[at..at + BLOCK_BYTES] == *bytes)
        };
        if let Some(before) = before.filter(is_same) {
            return Some(before.clone());
        }
        let bytes = if blocks == u64::MAX {
            Arc::from(now)
        } else {
            let mut bytes = Vec::with_capacity(Self::bytes_of(blocks));
            for at in offsets(blocks) {
                bytes.extend_from_slice(&now[at..at + BLOCK_BYTES]);
            }
            bytes.into()
        };
        Some(Self { page, blocks, bytes })
    }

    /// Writes the blocks into `target`, which holds the base that the patch was made against.
    pub(crate) fn apply(&self, target: &mut [u8]) {
        if self.is_whole() {
            target.copy_from_slice(&self.bytes);
            return;
        }
        for (at, bytes) in self.parts() {
            target[at..at + BLOCK_BYTES].copy_from_slice(bytes);
        }
    }

    /// Overwrites `target`, whatever it holds, with `base` and the blocks.
    pub(super) fn apply_over(&self, base: &[u8], target: &mut [u8]) {
        let mut own = self.bytes.as_chunks::<BLOCK_BYTES>().0.iter();
        let base = base.as_chunks::<BLOCK_BYTES>().0.iter();
        let target = target.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut();
        vectorized(|| {
            for (index, (target, base)) in target.zip(base).enumerate() {
                let differs = self.blocks & (1 << index) != 0;
                overwrite_block(target, if differs { own.next().unwrap_or(base) } else { base });
            }
        });
    }

    /// Returns whether both are the same patch with the same bytes in memory.
    pub(super) fn shares_bytes(&self, other: &Self) -> bool {
        (self.page, self.blocks) == (other.page, other.blocks)
            && Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// Returns the block at this offset of the page, if it differs.
    pub(super) fn block(&self, at: usize) -> Option<&[u8; BLOCK_BYTES]> {
        let bit = 1_u64 << (at / BLOCK_BYTES);
        let before = (self.blocks & (bit - 1)).count_ones() as usize;
        self.bytes.as_chunks().0.get(before).filter(|_| self.blocks & bit != 0)
    }

    /// Returns the bytes that `blocks` take.
    pub(crate) fn bytes_of(blocks: u64) -> usize {
        blocks.count_ones() as usize * BLOCK_BYTES
    }

    /// Returns whether every block of the page differs.
    pub(crate) fn is_whole(&self) -> bool {
        self.blocks == u64::MAX
    }

    fn parts(&self) -> impl Iterator<Item = (usize, &[u8; BLOCK_BYTES])> {
        offsets(self.blocks).zip(self.bytes.as_chunks().0)
    }
}

pub(super) fn offsets(mut blocks: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if blocks == 0 {
            return None;
        }
        let index = blocks.trailing_zeros() as usize;
        blocks &= blocks - 1;
        Some(index * BLOCK_BYTES)
    })
}

/// Compares two pages, and returns a bit for each block that differs.
pub(super) fn differing(base: &[u8], now: &[u8]) -> u64 {
    let pairs = base.as_chunks::<BLOCK_BYTES>().0.iter().zip(now.as_chunks::<BLOCK_BYTES>().0);
    let pairs = pairs.enumerate();
    vectorized(|| {
        pairs.fold(0, |blocks, (index, (base, now))| {
            blocks | u64::from(is_other(base, now)) << index
        })
    })
}

/// Returns whether two blocks differ. Comparing arrays would call `memcmp` for each block.
#[inline(always)]
fn is_other(one: &[u8; BLOCK_BYTES], other: &[u8; BLOCK_BYTES]) -> bool {
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let pairs = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
    pairs.fold(0, |bits, (one, other)| bits | (word(one) ^ word(other))) != 0
}

/// Overwrites `target`, whole blocks, with `content`. Returns whether they differed.
///
/// Writes only the blocks that differ. Of the pages that a run writes to, most blocks stay as they
/// are. What is only read needn't go back from the CPU's caches to memory.
pub(super) fn overwrite(target: &mut [u8], content: &[u8]) -> bool {
    // Isolation hangs on it: what isn't compared would stay.
    assert!(target.len() == content.len() && target.len().is_multiple_of(BLOCK_BYTES));
    let target = target.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut();
    let pairs = target.zip(content.as_chunks::<BLOCK_BYTES>().0);
    vectorized(|| {
        pairs.fold(false, |differed, (target, content)| overwrite_block(target, content) | differed)
    })
}

#[inline(always)]
fn overwrite_block(target: &mut [u8; BLOCK_BYTES], content: &[u8; BLOCK_BYTES]) -> bool {
    let differs = is_other(target, content);
    if differs {
        *target = *content;
    }
    differs
}

/// Returns the base of a page, which is what it holds before anything is written to it. That is its
/// segment's page, else the image's, else zeroes.
pub(super) fn base_page<'a>(image: &'a [u8], segments: &'a [Segment], page: usize) -> &'a [u8] {
    page_in(segments, page).unwrap_or_else(|| image_page(image, page))
}

/// Returns the contents of `page` in the segment that covers it, if there is one.
pub(super) fn page_in(segments: &[Segment], page: usize) -> Option<&[u8]> {
    let following = segments.partition_point(|segment| segment.pages().start <= page);
    segments[..following].last()?.page_bytes(page)
}

/// Returns page `page` of the image; zeroes beyond its end.
fn image_page(image: &[u8], page: usize) -> &[u8] {
    image.get(page * PAGE_BYTES..(page + 1) * PAGE_BYTES).unwrap_or(&ZEROES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::segments::SegmentStore;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_patch_makes_one_page_into_the_other(
            writes in proptest::collection::vec((0..PAGE_BYTES, any::<u8>()), 0..200),
        ) {
            let image: Vec<u8> = (0..PAGE_BYTES).map(|index| index as u8).collect();
            let mut now = image.clone();
            for (at, byte) in writes {
                now[at] = byte;
            }
            let mut made = image.clone();
            match PagePatch::between(7, &image, &now, None) {
                None => prop_assert_eq!(&image, &now),
                Some(patch) => {
                    patch.apply(&mut made);
                    prop_assert_eq!(&made, &now);
                    let again = PagePatch::between(7, &image, &now, Some(&patch)).unwrap();
                    prop_assert!(Arc::ptr_eq(&again.bytes, &patch.bytes));
                    let (len, segments) = (8 * PAGE_BYTES, Vec::new());
                    let whole = MemoryPatch { len, segments, pages: vec![patch] };
                    prop_assert!(whole.is_sound());
                }
            }
        }
    }

    #[test]
    fn an_earlier_patch_with_other_bytes_is_not_shared() {
        let image = ZEROES;
        let (mut first, mut second) = (ZEROES, ZEROES);
        first[100] = 1;
        second[100] = 2;
        let before = PagePatch::between(0, &image, &first, None).unwrap();
        let after = PagePatch::between(0, &image, &second, Some(&before)).unwrap();
        assert_ne!(before, after);
    }

    #[test]
    fn patches_that_are_out_of_order_out_of_bounds_or_cut_are_not_sound() {
        let page = |page, blocks, len| PagePatch { page, blocks, bytes: vec![0; len].into() };
        let sound =
            |pages| MemoryPatch { len: 2 * PAGE_BYTES, segments: Vec::new(), pages }.is_sound();
        assert!(sound(vec![page(0, 1, 64), page(1, 3, 128)]));
        assert!(!sound(vec![page(1, 1, 64), page(0, 1, 64)]));
        assert!(!sound(vec![page(0, 1, 64), page(0, 1, 64)]));
        assert!(!sound(vec![page(2, 1, 64)]));
        assert!(!sound(vec![page(0, 3, 64)]));
    }

    #[test]
    fn segments_that_are_out_of_order_overlap_or_end_out_of_bounds_are_not_sound() {
        let store = SegmentStore::open().expect("Linux has such files");
        let segment = |page, count| store.put(page, &vec![1; count * PAGE_BYTES]).unwrap();
        let sound =
            |segments| MemoryPatch { len: 8 * PAGE_BYTES, segments, pages: Vec::new() }.is_sound();
        assert!(sound(vec![segment(0, 2), segment(2, 6)]));
        assert!(!sound(vec![segment(2, 6), segment(0, 2)]));
        assert!(!sound(vec![segment(0, 3), segment(2, 2)]));
        assert!(!sound(vec![segment(6, 3)]));
    }
}
