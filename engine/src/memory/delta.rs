//! What a patch holds beyond another one: how a fork at rest keeps what its own turns changed.
//! Pure.
//!
//! A fork writes to pages that its base has patched before, mostly a few blocks of each. A patch
//! would hold every block that differs from the image, and an entry for each page. A delta holds
//! the blocks that differ from the base's patch, and entries for those pages alone.

use std::cmp::Ordering;

use super::patch::{BLOCK_BYTES, MemoryPatch, PagePatch, offsets};
use super::segments::Segment;

/// A patch without what its base has.
#[derive(Debug)]
pub(crate) struct PatchDelta {
    len: usize,
    segments: Vec<Segment>,
    /// In order; other pages are as in the base.
    pages: Vec<PageDelta>,
    /// The blocks that are its own, one after another.
    bytes: Box<[u8]>,
    /// The pages of the base that aren't patched here, in order.
    gone: Box<[u32]>,
}

/// One page that is patched otherwise than in the base.
#[derive(Debug)]
struct PageDelta {
    page: u32,
    /// The blocks of its patch.
    blocks: u64,
    /// Those of them that the base doesn't have.
    own: u64,
}

impl PatchDelta {
    /// Returns what turns `base` into `now`.
    pub(crate) fn between(base: &MemoryPatch, now: &MemoryPatch) -> Self {
        let (mut pages, mut bytes, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for_each_pair(
            &base.pages,
            &now.pages,
            |page| page.page,
            |base, now| match (base, now) {
                (Some(base), None) => gone.push(base.page),
                (Some(base), Some(now)) if base.shares_bytes(now) => {}
                (base, Some(now)) => {
                    let is_own =
                        |at: &usize| base.and_then(|base| base.block(*at)) != now.block(*at);
                    let own: Vec<usize> = offsets(now.blocks).filter(is_own).collect();
                    let is_as_base = base.is_some_and(|base| base.blocks == now.blocks);
                    if own.is_empty() && is_as_base {
                        return;
                    }
                    let bit = |at: &usize| 1 << (at / BLOCK_BYTES);
                    bytes.extend(own.iter().filter_map(|at| now.block(*at)).flatten());
                    let own = own.iter().map(bit).fold(0, std::ops::BitOr::bitor);
                    pages.push(PageDelta { page: now.page, blocks: now.blocks, own });
                }
                (None, None) => {}
            },
        );
        pages.shrink_to_fit();
        let (len, segments) = (now.len, now.segments.clone());
        Self { len, segments, pages, bytes: bytes.into(), gone: gone.into() }
    }

    /// Returns the patch that `between` was given, if `base` is the same. Pages that are as in the
    /// base share its bytes.
    pub(crate) fn over(&self, base: &MemoryPatch) -> MemoryPatch {
        let mut own = self.bytes.as_chunks::<BLOCK_BYTES>().0.iter();
        let mut gone = self.gone.iter().peekable();
        let mut pages = Vec::with_capacity(base.pages.len() + self.pages.len());
        for_each_pair(&base.pages, &self.pages, PageDelta::number, |base, delta| {
            let Some(delta) = delta else {
                let kept = base.filter(|base| gone.next_if_eq(&&base.page).is_none());
                pages.extend(kept.cloned());
                return;
            };
            let blocks = offsets(delta.blocks).filter_map(|at| {
                let is_own = delta.own & (1 << (at / BLOCK_BYTES)) != 0;
                if is_own { own.next() } else { base?.block(at) }
            });
            let bytes: Vec<u8> = blocks.flatten().copied().collect();
            pages.push(PagePatch { page: delta.page, blocks: delta.blocks, bytes: bytes.into() });
        });
        MemoryPatch { len: self.len, segments: self.segments.clone(), pages }
    }

    /// Returns the bytes that it takes beside `base`.
    pub(crate) fn bytes(&self, base: &MemoryPatch) -> u64 {
        let entries = size_of_val(&*self.pages) + size_of_val(&*self.segments);
        let own = self.bytes.len() + size_of_val(&*self.gone) + entries;
        own as u64 + base.segment_bytes_missing(&self.segments)
    }
}

impl PageDelta {
    fn number(&self) -> u32 {
        self.page
    }
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

    fn patch(writes: &[(usize, u8)], before: Option<&MemoryPatch>) -> MemoryPatch {
        let mut memory = vec![0; PAGES * PAGE_BYTES];
        writes.iter().for_each(|(at, byte)| memory[*at] = *byte);
        let of = |(page, now): (usize, &[u8])| {
            let before = before.and_then(|before| before.page(page as u32));
            PagePatch::between(page as u32, &[0; PAGE_BYTES], now, before)
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
            let delta = PatchDelta::between(&base_patch, &now);
            let made = delta.over(&base_patch);
            prop_assert!(made.is_sound());
            prop_assert_eq!(&made, &now);
        }
    }

    #[test]
    fn a_block_that_changed_in_a_full_page_costs_a_block() {
        let full: Vec<(usize, u8)> = (0..PAGES * PAGE_BYTES).map(|at| (at, 1)).collect();
        let base = patch(&full, None);
        let now = patch(&[&full[..], &[(5000, 7)]].concat(), Some(&base));
        let delta = PatchDelta::between(&base, &now);
        assert_eq!(delta.bytes(&base), (BLOCK_BYTES + size_of::<PageDelta>()) as u64);
        assert_eq!(PatchDelta::between(&base, &base).bytes(&base), 0);
        let made = delta.over(&base);
        assert!(made.pages[0].shares_bytes(&base.pages[0]));
    }
}
