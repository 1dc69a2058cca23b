//! Taking out what a memory holds beyond its image, as a patch.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{IS_CHECKED, pages_of};
use crate::memory::address_space::PAGE_BYTES;
use crate::memory::image::MemoryImage;
use crate::memory::patch::{MemoryPatch, PagePatch, base_page, differing, page_in};
use crate::memory::segments::{self, Segment};
use crate::memory::{GuestMemory, MemoryState};

/// A page is filled if this many of its 64 blocks differ from the image.
const FILLED_BLOCKS: u32 = 32;

impl GuestMemory {
    /// Returns what differs from the image. Pages that haven't changed since the last `patch` or
    /// `restore` share their blocks with it. Long ranges of filled pages become segments, which
    /// other memories can map, and which this one maps from now on.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// The memory was revoked or has no image, or the system doesn't say which pages were copied.
    pub(crate) fn patch(&self) -> io::Result<Arc<MemoryPatch>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let before = Arc::clone(&state.base_patch);

        // Find the pages to compare, and the mapped segments that stay.
        let (image, copied) = self.find_copied(state)?;
        let mut pages = copied.into_iter().flat_map(pages_of).collect();
        let kept = keep_segments(state, &mut pages);
        let (fresh, mut patches) = self.compare(state, image, &pages, &kept, &before);

        // Map the new segments in place of the pages that they were made of.
        let map = |segment: &Segment| self.map_segment(state, segment);
        let (mut segments, not_mapped) = map_or_patch(fresh, image.bytes(), map);
        segments.extend(kept);
        segments.sort_unstable_by_key(|segment| segment.pages().start);
        patches.extend(not_mapped);
        patches.sort_unstable_by_key(|patch| patch.page);

        state.hold(Arc::new(MemoryPatch { len: state.len, segments, pages: patches }));
        assert!(!IS_CHECKED || state.base_patch.is_sound(), "E-8: a patch that was taken out");
        Ok(Arc::clone(&state.base_patch))
    }

    /// Opens what this and later memories of this process may need.
    pub(crate) fn open_ahead(&self) {
        if let Some(tracker) = &self.state.lock().tracker {
            tracker.open_ahead();
        }
    }

    /// Compares `pages` with their bases. Returns new segments for long ranges of filled pages, and
    /// patches for the other pages that differ.
    fn compare(
        &self,
        state: &MemoryState,
        image: &MemoryImage,
        pages: &[usize],
        kept: &[Segment],
        before: &MemoryPatch,
    ) -> (Vec<Segment>, Vec<PagePatch>) {
        assert!(!state.revoked, "E-2: the memory is read");
        let store = image.segment_store().filter(|_| state.tracker.is_some());
        let room = store.map_or(0, |_| segments::room_for(kept.len(), state.mapped.len()));
        let image = image.bytes();
        // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
        unsafe {
            self.reservation.with_bytes(0, state.len, |memory| {
                let now = |page: usize| &memory[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
                let differing = |page| (page, differing(base_page(image, kept, page), now(page)));
                let pages: Vec<(usize, u64)> = pages.iter().copied().map(differing).collect();
                let filled = filled_ranges(&pages, kept).into_iter().take(room);
                let fresh = filled.filter_map(|range| {
                    let bytes = &memory[range.start * PAGE_BYTES..range.end * PAGE_BYTES];
                    store?.put(u32::try_from(range.start).expect("E-1"), bytes)
                });
                let fresh: Vec<Segment> = fresh.collect();
                let others = pages.into_iter().filter(|(page, _)| page_in(&fresh, *page).is_none());
                let patches = others.filter_map(|(page, blocks)| {
                    let number = u32::try_from(page).expect("E-1");
                    PagePatch::of(number, blocks, now(page), before.page(number))
                });
                let patches: Vec<PagePatch> = patches.collect();
                (fresh, patches)
            })
        }
    }
}

/// Returns the long ranges of filled pages outside of `kept`. `pages` are in order, with the blocks
/// that differ.
fn filled_ranges(pages: &[(usize, u64)], kept: &[Segment]) -> Vec<Range<usize>> {
    let mut filled: Vec<Range<usize>> = Vec::new();
    for (page, blocks) in pages {
        if blocks.count_ones() < FILLED_BLOCKS || page_in(kept, *page).is_some() {
            continue;
        }
        match filled.last_mut() {
            Some(last) if last.end == *page => last.end += 1,
            _ => filled.push(*page..page + 1),
        }
    }
    filled.retain(|range| range.len() >= segments::LEAST_PAGES);
    filled
}

/// Maps segments that were just made. Returns them, and patches for the pages of those that the
/// system refuses to map, as when the process has too many mappings: they stay copied.
pub(super) fn map_or_patch(
    mut fresh: Vec<Segment>,
    image: &[u8],
    mut map: impl FnMut(&Segment) -> io::Result<()>,
) -> (Vec<Segment>, Vec<PagePatch>) {
    let mut patches = Vec::new();
    fresh.retain(|segment| {
        let Err(error) = map(segment) else { return true };
        tracing::debug!(%error, "a segment isn't mapped");
        let patch = |(page, now): (usize, &[u8])| {
            let number = u32::try_from(page).expect("E-1");
            PagePatch::between(number, base_page(image, &[], page), now, None)
        };
        patches.extend(segment.pages().zip(segment.bytes().chunks(PAGE_BYTES)).filter_map(patch));
        false
    });
    (fresh, patches)
}

/// Returns the mapped segments that the next patch keeps.
///
/// A segment of which more than half was written to is given up: all its pages are added to
/// `pages`, the copied ones. It stays mapped, but is given up by later patches too, whatever is
/// written to it.
fn keep_segments(state: &MemoryState, pages: &mut Vec<usize>) -> Vec<Segment> {
    let stays = |segment: &Segment| {
        let own = segment.pages();
        let first = pages.partition_point(|page| *page < own.start);
        let written = pages[first..].partition_point(|page| *page < own.end);
        state.base_patch.segments.contains(segment) && 2 * written <= own.len()
    };
    let (kept, given_up): (Vec<Segment>, Vec<Segment>) =
        state.mapped.iter().cloned().partition(stays);
    if !given_up.is_empty() {
        pages.extend(given_up.iter().flat_map(Segment::pages));
        pages.sort_unstable();
        pages.dedup();
    }
    kept
}
