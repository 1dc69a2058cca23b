//! Takes out what a memory holds beyond its image, as a patch.
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

/// Pages that may differ from their base, in order.
struct Candidates<'a> {
    image: &'a MemoryImage,
    pages: Vec<usize>,
    /// The pages were marked: all others are as [`MemoryState::base_patch`] says (E-10).
    is_marked: bool,
}

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
        let Candidates { image, mut pages, is_marked } = self.find_candidates(state)?;
        let unwritten = if is_marked { &before.pages[..] } else { &[] };
        let kept = keep_segments(state, &mut pages, unwritten);

        // Compare them, and carry over the patches of all others.
        let (fresh, mut patches) = self.compare(state, image, &pages, &kept, &before);
        let is_carried = |patch: &&PagePatch| {
            let page = patch.page as usize;
            pages.binary_search(&page).is_err() && page_in(&fresh, page).is_none()
        };
        let carried = unwritten.iter().filter(is_carried).inspect(|patch| {
            let base = |page| base_page(image.bytes(), &kept, page as usize);
            let holds = !IS_CHECKED || self.holds(base(patch.page), patch);
            assert!(holds, "E-10: page {} changed without being marked", patch.page);
        });
        patches.extend(carried.cloned());

        // Map the new segments in place of the pages that they were made of.
        let has_fresh = !fresh.is_empty();
        let map = |segment: &Segment| self.map_segment(state, segment);
        let (mut segments, not_mapped) = map_or_patch(fresh, image.bytes(), map);
        segments.extend(kept);
        segments.sort_unstable_by_key(|segment| segment.pages().start);
        patches.extend(not_mapped);
        patches.sort_unstable_by_key(|patch| patch.page);

        // Remember the patch, and mark the pages for the next one.
        state.hold(Arc::new(MemoryPatch { len: state.len, segments, pages: patches }));
        assert!(!IS_CHECKED || state.base_patch.is_sound(), "E-8: a patch that was taken out");
        state.copies_taken += 1;
        match &mut state.tracker {
            // `written` has marked them, and nothing was written since.
            Some(tracker) if is_marked && !has_fresh => tracker.is_marked = true,
            // Marking takes as long as comparing, and is wasted if the memory goes to another
            // session now.
            Some(tracker) if state.copies_taken > 1 => {
                tracker.mark(&self.reservation, 0..state.len);
            }
            _ => {}
        }
        Ok(Arc::clone(&state.base_patch))
    }

    /// Opens what this and later memories of this process may need.
    pub(crate) fn open_ahead(&self) {
        if let Some(tracker) = &mut self.state.lock().tracker {
            tracker.open_ahead();
        }
    }

    /// Returns the pages that may differ from their base. Those are the pages written to since they
    /// were marked, else all that were copied.
    fn find_candidates(&self, state: &mut MemoryState) -> io::Result<Candidates<'_>> {
        let written = match &mut state.tracker {
            Some(tracker) if !state.revoked => tracker.written(&self.reservation, 0..state.len),
            _ => None,
        };
        let is_marked = written.is_some();
        let (image, ranges) = match written {
            Some(written) => (self.image_of(state)?, written),
            None => self.find_copied(state)?,
        };
        let pages = ranges.into_iter().flat_map(pages_of).collect();
        Ok(Candidates { image, pages, is_marked })
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

    /// Returns whether a page is `base` with `patch`, as E-10 has it.
    fn holds(&self, base: &[u8], patch: &PagePatch) -> bool {
        let mut expected = [0; PAGE_BYTES];
        patch.apply_over(base, &mut expected);
        let at = patch.page as usize * PAGE_BYTES;
        // SAFETY: as in `compare`.
        unsafe { self.reservation.with_bytes(at, PAGE_BYTES, |now| *now == expected) }
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
/// system refuses to map. It does so when the process has too many mappings. These pages stay
/// copied.
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
/// A segment of which more than half was written to is given up. All its pages are added to
/// `pages`, which are those written to besides the ones in `unwritten`. It stays mapped, but is
/// given up by later patches too, whatever is written to it.
fn keep_segments(
    state: &MemoryState,
    pages: &mut Vec<usize>,
    unwritten: &[PagePatch],
) -> Vec<Segment> {
    let stays = |segment: &Segment| {
        let own = segment.pages();
        let first = pages.partition_point(|page| *page < own.start);
        let written = pages[first..].partition_point(|page| *page < own.end);
        let patched = unwritten.iter().filter(|patch| own.contains(&(patch.page as usize)));
        state.base_patch.segments.contains(segment) && 2 * (written + patched.count()) <= own.len()
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
