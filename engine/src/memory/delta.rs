//! What a patch holds beyond another one: how a fork at rest keeps what its own turns changed.
//! Pure.
//!
//! A fork writes to pages that its base has patched before, mostly a few reference counts of each. A
//! patch would hold every block that differs from the image, and an entry for each page. A delta
//! holds the words that differ from the base, and entries for those pages alone. It is compressed:
//! half of the words are like their neighbours, such as zeroes and addresses.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::patch::{BLOCK_BYTES, MemoryPatch, PagePatch, base_page, offsets};
use super::segments::Segment;

/// A reference count has this size.
const WORD_BYTES: usize = 4;
/// A bit for each word of a block, before those that differ.
const MASK_BYTES: usize = 2;

type Block = [u8; BLOCK_BYTES];

/// A patch without what its base has.
#[derive(Debug)]
pub(crate) struct PatchDelta {
    len: usize,
    segments: Vec<Segment>,
    /// The [`DeltaPages`] in postcard's format, as a block of LZ4.
    packed: Box<[u8]>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct DeltaPages {
    /// In order; other pages are as in the base. While packed, each has the distance from the one
    /// before it.
    pages: Vec<PageDelta>,
    /// The words of the blocks that differ, each block after its mask.
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
    /// The pages of the base that aren't patched here, in order.
    gone: Vec<u32>,
}

/// One page that is patched otherwise than in the base.
#[derive(Debug, Serialize, Deserialize)]
struct PageDelta {
    page: u32,
    /// The blocks that either its patch or the base's has, but not both. Mostly none.
    blocks: u64,
    /// The blocks of its patch that differ from the base.
    own: u64,
}

/// What a delta is made against: a patch of an image, whose segments don't matter here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeltaBase<'a> {
    pub(crate) image: &'a [u8],
    pub(crate) patch: &'a MemoryPatch,
}

impl DeltaBase<'_> {
    /// Returns the block at an offset of a page, whose patch this is.
    fn block(&self, page: u32, patch: Option<&PagePatch>, at: usize) -> Block {
        let patched = patch.and_then(|patch| patch.block(at)).copied();
        patched.unwrap_or_else(|| {
            let mut block = [0; BLOCK_BYTES];
            block.copy_from_slice(&base_page(self.image, &[], page as usize)[at..at + BLOCK_BYTES]);
            block
        })
    }
}

impl PatchDelta {
    /// Returns what turns `base` into `now`.
    pub(crate) fn between(base: DeltaBase<'_>, now: &MemoryPatch) -> Self {
        let DeltaPages { mut pages, mut bytes, mut gone } = DeltaPages::default();
        for_each_pair(
            &base.patch.pages,
            &now.pages,
            |page| page.page,
            |before, now| {
                let Some(now) = now else {
                    gone.extend(before.map(|before| before.page));
                    return;
                };
                if before.is_some_and(|before| before.shares_bytes(now)) {
                    return;
                }
                let mut own = 0;
                for at in offsets(now.blocks) {
                    let before = base.block(now.page, before, at);
                    if let Some(block) = now.block(at).filter(|block| **block != before) {
                        own |= 1 << (at / BLOCK_BYTES);
                        put_words(&before, block, &mut bytes);
                    }
                }
                let blocks = now.blocks ^ blocks_of(before);
                if own != 0 || blocks != 0 || before.is_none() {
                    pages.push(PageDelta { page: now.page, blocks, own });
                }
            },
        );
        let packed = DeltaPages { pages, bytes, gone }.packed();
        Self { len: now.len, segments: now.segments.clone(), packed }
    }

    /// Returns the patch that `between` was given, if `base` is the same. Pages that are as in the
    /// base share its bytes.
    pub(crate) fn over(&self, base: DeltaBase<'_>) -> MemoryPatch {
        let DeltaPages { pages: own, bytes, gone } = DeltaPages::of(&self.packed);
        let (mut words, mut gone) = (&*bytes, gone.iter().peekable());
        let mut pages = Vec::with_capacity(base.patch.pages.len() + own.len());
        for_each_pair(&base.patch.pages, &own, PageDelta::number, |before, delta| {
            let Some(delta) = delta else {
                let kept = before.filter(|before| gone.next_if_eq(&&before.page).is_none());
                pages.extend(kept.cloned());
                return;
            };
            let blocks = delta.blocks ^ blocks_of(before);
            let mut bytes = Vec::with_capacity(PagePatch::bytes_of(blocks));
            for at in offsets(blocks) {
                let mut block = base.block(delta.page, before, at);
                if delta.own & (1 << (at / BLOCK_BYTES)) != 0 {
                    words = take_words(words, &mut block);
                }
                bytes.extend_from_slice(&block);
            }
            pages.push(PagePatch { page: delta.page, blocks, bytes: bytes.into() });
        });
        MemoryPatch { len: self.len, segments: self.segments.clone(), pages }
    }

    /// Returns the bytes that it takes beside `base`.
    pub(crate) fn bytes(&self, base: &MemoryPatch) -> u64 {
        let own = self.packed.len() + size_of_val(&*self.segments);
        own as u64 + base.segment_bytes_missing(&self.segments)
    }
}

impl DeltaPages {
    fn packed(mut self) -> Box<[u8]> {
        if self.pages.is_empty() && self.gone.is_empty() {
            return Box::default();
        }
        let mut before = 0;
        for delta in &mut self.pages {
            (delta.page, before) = (delta.page - before, delta.page);
        }
        let plain = postcard::to_stdvec(&self).expect("plain data can be encoded");
        lz4_flex::compress_prepend_size(&plain).into()
    }

    /// Returns what `packed` was made of.
    fn of(packed: &[u8]) -> Self {
        if packed.is_empty() {
            return Self::default();
        }
        let plain = lz4_flex::decompress_size_prepended(packed).expect("it was compressed here");
        let mut delta: Self = postcard::from_bytes(&plain).expect("it was encoded here");
        let mut page = 0;
        for own in &mut delta.pages {
            page += own.page;
            own.page = page;
        }
        delta
    }
}

impl PageDelta {
    fn number(&self) -> u32 {
        self.page
    }
}

fn blocks_of(patch: Option<&PagePatch>) -> u64 {
    patch.map_or(0, |patch| patch.blocks)
}

/// Appends the words of `now` that differ from `before`, after their mask.
fn put_words(before: &Block, now: &Block, bytes: &mut Vec<u8>) {
    let (mut mask, start) = (0_u16, bytes.len());
    bytes.extend([0; MASK_BYTES]);
    let words = now.as_chunks::<WORD_BYTES>().0.iter().zip(before.as_chunks::<WORD_BYTES>().0);
    for (place, (now, _)) in words.enumerate().filter(|(_, (now, before))| now != before) {
        mask |= 1 << place;
        bytes.extend_from_slice(now);
    }
    bytes[start..start + MASK_BYTES].copy_from_slice(&mask.to_le_bytes());
}

/// Puts the first words of `words` into a block, which is as it was before. Returns the others.
fn take_words<'a>(words: &'a [u8], block: &mut Block) -> &'a [u8] {
    let Some((mask, mut rest)) = words.split_first_chunk::<MASK_BYTES>() else { return words };
    let mask = u16::from_le_bytes(*mask);
    let targets = block.as_chunks_mut::<WORD_BYTES>().0.iter_mut().enumerate();
    for (_, target) in targets.filter(|(place, _)| mask & (1 << place) != 0) {
        let Some((word, after)) = rest.split_first_chunk::<WORD_BYTES>() else { return rest };
        *target = *word;
        rest = after;
    }
    rest
}

/// Passes the entries of two ordered lists with their partner of the same page, in order.
fn for_each_pair<'a, B>(
    one: &'a [PagePatch],
    other: &'a [B],
    number: impl Fn(&B) -> u32,
    mut each: impl FnMut(Option<&'a PagePatch>, Option<&'a B>),
) {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    loop {
        let order = match (one.peek(), other.peek()) {
            (Some(one), Some(other)) => one.page.cmp(&number(other)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        let first = if order.is_le() { one.next() } else { None };
        let second = if order.is_ge() { other.next() } else { None };
        each(first, second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::address_space::PAGE_BYTES;
    use proptest::prelude::*;

    const PAGES: usize = 6;
    /// Some pages lie beyond it.
    const IMAGE: [u8; 4 * PAGE_BYTES] = [1; 4 * PAGE_BYTES];

    fn patch(writes: &[(usize, u8)], before: Option<&MemoryPatch>) -> MemoryPatch {
        let mut memory = vec![0; PAGES * PAGE_BYTES];
        memory[..IMAGE.len()].copy_from_slice(&IMAGE);
        writes.iter().for_each(|(at, byte)| memory[*at] = *byte);
        let of = |(page, now): (usize, &[u8])| {
            let before = before.and_then(|before| before.page(page as u32));
            PagePatch::between(page as u32, base_page(&IMAGE, &[], page), now, before)
        };
        let pages = memory.chunks(PAGE_BYTES).enumerate().filter_map(of).collect();
        MemoryPatch { len: memory.len(), segments: Vec::new(), pages }
    }

    fn writes() -> impl Strategy<Value = Vec<(usize, u8)>> {
        proptest::collection::vec((0..PAGES * PAGE_BYTES, 0..3_u8), 0..60)
    }

    proptest! {
        #[test]
        fn a_delta_over_its_base_is_the_patch(base in writes(), now in writes(), keeps: bool) {
            let base_patch = patch(&base, None);
            let all = if keeps { [base, now].concat() } else { now };
            let now = patch(&all, Some(&base_patch));
            let base = DeltaBase { image: &IMAGE, patch: &base_patch };
            let made = PatchDelta::between(base, &now).over(base);
            prop_assert!(made.is_sound());
            prop_assert_eq!(&made, &now);
        }
    }

    #[test]
    fn a_word_that_changed_in_a_full_page_costs_little() {
        let full: Vec<(usize, u8)> = (0..PAGES * PAGE_BYTES).map(|at| (at, 3)).collect();
        let base_patch = patch(&full, None);
        let now = patch(&[&full[..], &[(5000, 7)]].concat(), Some(&base_patch));
        let base = DeltaBase { image: &IMAGE, patch: &base_patch };
        let delta = PatchDelta::between(base, &now);
        assert!(delta.bytes(&base_patch) < BLOCK_BYTES as u64, "{delta:?}");
        assert_eq!(PatchDelta::between(base, &base_patch).bytes(&base_patch), 0);
        let made = delta.over(base);
        assert!(made.pages[0].shares_bytes(&base_patch.pages[0]));
    }
}
