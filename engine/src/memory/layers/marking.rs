//! Marking the pages of a session for the first time, a part after each of some turns.
//!
//! Marks let a turn's copy leave out the pages that no turn writes to. Those are two thirds of a
//! small session's. Comparing and marking all pages at once takes as long as fifteen turns. While
//! it goes on, the pages below [`MemoryState::marked`] are marked, but for those written to since.
//! The memory remembers their content. Of the pages above, all that were copied from the image may
//! differ from it.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::ops::Range;
use std::sync::Arc;

use super::pages_of;
use crate::memory::address_space::PAGE_BYTES;
use crate::memory::patch::{MemoryPatch, PagePatch, base_page};
use crate::memory::{GuestMemory, MemoryState};

impl GuestMemory {
    /// Returns whether all pages are marked but those written to since, as after many turns.
    pub(crate) fn is_marked(&self) -> bool {
        self.state.lock().tracker.as_ref().is_some_and(|tracker| tracker.is_marked)
    }

    /// Marks pages from the next snapshot on, since many turns will follow each other here.
    pub(crate) fn mark_soon(&self) {
        let mut state = self.state.lock();
        state.spent = state.pace.unmarked_bytes;
    }

    /// Marks the next part. `copied` are all pages that may differ from the image and aren't in a part
    /// that is marked. Returns those that aren't marked then; `None` if pages can't be marked here.
    pub(super) fn mark_next_part(
        &self,
        state: &mut MemoryState,
        copied: Vec<Range<usize>>,
    ) -> Option<Vec<Range<usize>>> {
        let part = next_part(state, &copied);
        let held = self.with_part(state, &part, &copied)?;
        let tracker = state.tracker.as_mut()?;
        let mut touched = match part.start {
            0 => Vec::new(),
            marked => tracker.touched_part(&self.reservation, 0..marked)?,
        };
        if !tracker.mark_part(&self.reservation, part.clone()) {
            return None;
        }
        state.base_patch = Arc::new(held);
        state.marked = part.end;
        if part.end == state.len {
            tracker.is_marked = true;
            (state.marked, state.spent) = (0, 0);
        }
        touched.extend(from(part.end, copied));
        Some(touched)
    }

    /// Returns what the memory remembers of its content, together with what the pages of `part` hold
    /// now.
    fn with_part(
        &self,
        state: &MemoryState,
        part: &Range<usize>,
        copied: &[Range<usize>],
    ) -> Option<MemoryPatch> {
        assert!(!state.revoked, "E-2: the memory is read");
        let (image, held) = (self.image.as_deref()?.bytes(), &state.base_patch);
        let is_in_part = |page: &usize| part.contains(&(page * PAGE_BYTES));
        let compared: Vec<usize> =
            copied.iter().cloned().flat_map(pages_of).filter(is_in_part).collect();
        let is_compared = |page: u32| compared.binary_search(&(page as usize)).is_ok();
        let others = held.pages.iter().filter(|patch| !is_compared(patch.page)).cloned();
        let compare = |memory: &mut [u8]| -> Vec<PagePatch> {
            let patch = |page: &usize| {
                let number = u32::try_from(*page).expect("E-1");
                let now = &memory[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
                let base = base_page(image, &held.segments, *page);
                PagePatch::between(number, base, now, held.page(number))
            };
            compared.iter().filter_map(patch).collect()
        };
        // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
        let fresh = unsafe { self.reservation.with_bytes(0, state.len, compare) };
        let mut pages: Vec<PagePatch> = others.chain(fresh).collect();
        pages.sort_unstable_by_key(|patch| patch.page);
        Some(MemoryPatch { len: state.len, segments: held.segments.clone(), pages })
    }
}

/// Returns the offsets of the next part: up to the end, unless that were too many pages.
fn next_part(state: &MemoryState, copied: &[Range<usize>]) -> Range<usize> {
    let start = state.marked;
    let pages = copied.iter().cloned().flat_map(pages_of);
    let mut above = pages.skip_while(|page| page * PAGE_BYTES < start);
    let first_left = above.nth(state.pace.compared_pages).map(|page| page * PAGE_BYTES);
    let end = first_left.unwrap_or(state.len).min(start + state.pace.pages * PAGE_BYTES);
    start..end.min(state.len)
}

/// Returns what of the ranges lies at `start` or above.
fn from(start: usize, ranges: Vec<Range<usize>>) -> impl Iterator<Item = Range<usize>> {
    let above = move |range: Range<usize>| range.start.max(start)..range.end;
    ranges.into_iter().map(above).filter(|range| !range.is_empty())
}
