//! What a memory holds beyond its image: `patch` takes it out, `restore` puts it in.
//!
//! Isolation hangs on these two: after `restore` the memory is the image with the patch, byte by
//! byte, whatever ran before. A memory consists of layers. The topmost one that covers a page gives
//! its content:
//!
//! ```text
//!  written pages        #    #                  #           copied by the kernel at the first write
//!  segments               [=======]     [=======]           mapped from the segment store
//!  image          [=======================]                 mapped from its file
//!  zeroes                                  [===========]    pages that were grown
//!                 0                                    len
//! ```
//!
//! The page below a written one is its *base*. A patch has the segments, and of the written pages
//! the blocks that differ from the base.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::address_space::{PAGE_BYTES, is_length};
use super::cow::Tracker;
use super::image::MemoryImage;
use super::patch::{MemoryPatch, PagePatch, base_page, differing, page_in};
use super::segments::{self, Segment};
use super::{GuestMemory, MemoryState};

/// Copied pages that a memory keeps when it goes back to its image. They don't fault again, but
/// each is copied back every time: 1,024 take 0.3 ms, and simple programs touch 100 to 200.
const MOST_KEPT_PAGES: usize = 1024;
/// A page that no run has written to in this many runs is kept no longer.
const MOST_IDLE_RUNS: u8 = 16;
/// Restores between two checks of whether a page that had changed at the last one changed again.
const RESTORES_PER_CHECK: usize = 8;
/// A page is filled if this many of its 64 blocks differ from the image.
const FILLED_BLOCKS: u32 = 32;

/// Whether invariants are asserted that take a pass of their own.
const IS_CHECKED: bool = cfg!(any(test, debug_assertions));

/// Pages that may differ from their base, in order.
struct Suspects<'a> {
    image: &'a MemoryImage,
    pages: Vec<usize>,
    /// The pages were marked: all others are as [`MemoryState::held`] says (E-10).
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
        let before = Arc::clone(&state.held);

        // Find the pages to compare, and the mapped segments that stay.
        let Suspects { image, mut pages, is_marked } = self.find_suspects(state)?;
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
        patches.sort_by_key(|patch| patch.page);

        // Map the new segments in place of the pages that they were made of.
        for segment in &fresh {
            self.map_segment(state, segment)?;
        }
        let has_fresh = !fresh.is_empty();
        let mut segments = fresh;
        segments.extend(kept);
        segments.sort_unstable_by_key(|segment| segment.pages().start);

        // Remember the patch, and mark the pages for the next one.
        state.held = Arc::new(MemoryPatch { len: state.len, segments, pages: patches });
        assert!(!IS_CHECKED || state.held.is_sound(), "E-8: a patch that was taken out");
        state.patches_taken += 1;
        match &mut state.tracker {
            Some(tracker) if is_marked && !has_fresh => tracker.stay_marked(),
            // Marking takes as long as comparing, and is wasted if the memory goes to another
            // session now.
            Some(tracker) if state.patches_taken > 1 => {
                tracker.mark(&self.reservation, 0..state.len);
            }
            _ => {}
        }
        Ok(Arc::clone(&state.held))
    }

    /// Makes the memory the image with `patch`, whatever it was before. Returns grown pages beyond
    /// that to the system.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// As `patch`. The memory is then neither what it was nor what it was to be.
    pub(crate) fn restore(&self, patch: &Arc<MemoryPatch>) -> io::Result<()> {
        assert!(!IS_CHECKED || patch.is_sound(), "E-8: a patch that is put in");
        let mut state = self.state.lock();
        let state = &mut *state;

        // Find the copied pages.
        if let Some(tracker) = &mut state.tracker {
            tracker.unmark();
        }
        let (image, copied) = self.find_copied(state)?;
        let count: usize = copied.iter().map(|range| range.len() / PAGE_BYTES).sum();
        let keeps_copies = state.tracker.is_none() || count <= MOST_KEPT_PAGES + patch.pages.len();

        // Remove what lies above the image: other segments, grown pages.
        self.unmap_other_segments(state, image, if keeps_copies { &patch.segments } else { &[] })?;
        let had_grown = self.resize(state, image.bytes().len(), patch.len)?;

        // Put the image's pages back; those that are copied get their patch in the same pass.
        let mut is_patched = vec![false; patch.pages.len()];
        let has_all_copies = if keeps_copies {
            self.put_back(state, image.bytes(), &copied, patch, &mut is_patched)?
        } else {
            self.unmap(image, 0..image.bytes().len() / PAGE_BYTES)?;
            state.copied_bytes = 0;
            false
        };

        // Put in what lies above the image now: the patch's segments, and its other pages.
        self.put_segments(state, &patch.segments)?;
        self.put_pages(state, patch.pages.iter().zip(is_patched));

        // Remember what the memory holds. The list of copied pages is still complete if nothing
        // but those was touched.
        state.copied_bytes = state.copied_bytes.max(patch.pages.len() * PAGE_BYTES);
        state.held = Arc::clone(patch);
        state.patches_taken = 0;
        let is_plain = patch.segments.is_empty() && patch.pages.is_empty();
        if let Some(tracker) = &mut state.tracker
            && is_plain
            && !had_grown
            && has_all_copies
        {
            tracker.remember(copied);
        }
        Ok(())
    }

    /// Returns the pages that may differ from their base: those written to since the pages were
    /// marked, else all that were copied.
    fn find_suspects(&self, state: &mut MemoryState) -> io::Result<Suspects<'_>> {
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
        Ok(Suspects { image, pages, is_marked })
    }

    /// Returns the image, and the ranges of offsets that may differ from what is mapped, in order.
    fn find_copied(
        &self,
        state: &mut MemoryState,
    ) -> io::Result<(&MemoryImage, Vec<Range<usize>>)> {
        let image = self.image_of(state)?;
        let copied = match &mut state.tracker {
            Some(tracker) => {
                let (reservation, range) = (&self.reservation, 0..state.len);
                let copied = tracker.copied(reservation, range.clone())?;
                let is_complete = !IS_CHECKED || tracker.is_complete(&copied, reservation, range);
                assert!(is_complete, "E-9: a page was copied without a fault of its thread");
                copied
            }
            None => std::iter::once(0..state.len).collect(),
        };
        let of_image =
            |range: &Range<usize>| range.end.min(image.bytes().len()).saturating_sub(range.start);
        state.copied_bytes = copied.iter().map(of_image).sum();
        Ok((image, copied))
    }

    fn image_of(&self, state: &MemoryState) -> io::Result<&MemoryImage> {
        let image = self.image.as_deref().filter(|_| !state.revoked);
        image.ok_or_else(|| io::Error::other("the memory has no image to go back to"))
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
        let room = store.map_or(0, |_| segments::MOST_SEGMENTS.saturating_sub(kept.len()));
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

    /// Unmaps all segments but those in `kept`.
    fn unmap_other_segments(
        &self,
        state: &mut MemoryState,
        image: &MemoryImage,
        kept: &[Segment],
    ) -> io::Result<()> {
        for segment in std::mem::take(&mut state.mapped) {
            if kept.contains(&segment) {
                state.mapped.push(segment);
            } else {
                self.unmap(image, segment.pages())?;
            }
        }
        Ok(())
    }

    /// Makes the memory `len` bytes long, or as long as the image, and every page beyond the image
    /// that is no segment's zero. Returns whether it had grown beyond the image.
    fn resize(&self, state: &mut MemoryState, image_len: usize, len: usize) -> io::Result<bool> {
        let len = len.max(image_len);
        assert!(is_length(len), "E-1: {len} bytes");
        assert!(!state.revoked, "E-2: pages become accessible");
        self.reservation.give_back(image_len, state.len - image_len)?;
        if len < state.len {
            self.reservation.make_inaccessible(len, state.len - len)?;
        } else {
            self.reservation.make_accessible(state.len, len - state.len)?;
        }
        let had_grown = state.len > image_len;
        state.len = len;
        Ok(had_grown)
    }

    /// Makes copied pages of the image what they are with `patch`, and notes in `is_patched` which
    /// of its pages that were. Pages that no run has written to for long are returned to the
    /// system. Returns whether all copies are still there.
    fn put_back(
        &self,
        state: &mut MemoryState,
        image: &[u8],
        copied: &[Range<usize>],
        patch: &MemoryPatch,
        is_patched: &mut [bool],
    ) -> io::Result<bool> {
        let unused = self.copy_back(state, image, copied, patch, is_patched);
        // A page that is returned while it is marked would be found as one that was copied.
        if state.tracker.as_ref().is_some_and(Tracker::has_marks) {
            return Ok(true);
        }
        for pages in &unused {
            self.reservation.give_back(pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES)?;
        }
        Ok(unused.is_empty())
    }

    /// Does the copying for `put_back`, and returns the pages that no run has written to for long.
    /// Leaves out the pages that a segment will be mapped over.
    fn copy_back(
        &self,
        state: &mut MemoryState,
        image: &[u8],
        copied: &[Range<usize>],
        patch: &MemoryPatch,
        is_patched: &mut [bool],
    ) -> Vec<Range<usize>> {
        let is_replaced = |page: usize| {
            page_in(&patch.segments, page).is_some() && page_in(&state.mapped, page).is_none()
        };
        let patched =
            |page: usize| patch.pages.binary_search_by_key(&page, |patch| patch.page as usize).ok();
        state.restores = state.restores.wrapping_add(1);
        let round = state.restores as usize;
        // Comparing takes as long as copying, so pages that the last run wrote to are just copied,
        // and compared only now and then.
        let is_checked = |page: usize| (page + round).is_multiple_of(RESTORES_PER_CHECK);
        let mut unused: Vec<Range<usize>> = Vec::new();
        let within = |range: &Range<usize>| range.start..range.end.min(image.len());
        let pages = copied.iter().map(within).flat_map(pages_of);
        let is_plain = patch.pages.is_empty() && patch.segments.is_empty();
        let pages = pages.filter(|page| is_plain || !is_replaced(*page));
        // SAFETY: as in `compare`.
        unsafe {
            self.reservation.with_bytes(0, image.len(), |memory| {
                for page in pages {
                    let now = &mut memory[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
                    let base = base_page(image, &state.mapped, page);
                    let idle = state.idle_runs.get_mut(page);
                    if let Some(index) = patched(page) {
                        // In one pass, while the page's lines are in the CPU's cache.
                        patch.pages[index].apply_over(base, now);
                        is_patched[index] = true;
                        idle.into_iter().for_each(|idle| *idle = 0);
                        continue;
                    }
                    if idle.as_ref().is_some_and(|idle| **idle == 0) && !is_checked(page) {
                        now.copy_from_slice(base);
                        continue;
                    }
                    let is_changed = *now != *base;
                    if is_changed {
                        now.copy_from_slice(base);
                    }
                    let Some(idle) = idle else { continue };
                    *idle = if is_changed { 0 } else { *idle + 1 };
                    if *idle > MOST_IDLE_RUNS {
                        *idle = 0;
                        match unused.last_mut() {
                            Some(last) if last.end == page => last.end += 1,
                            _ => unused.push(page..page + 1),
                        }
                    }
                }
            });
        }
        unused
    }

    /// Maps the segments that aren't mapped yet; without a tracker, copies them.
    fn put_segments(&self, state: &mut MemoryState, segments: &[Segment]) -> io::Result<()> {
        for segment in segments {
            if state.tracker.is_none() {
                let at = segment.pages().start * PAGE_BYTES;
                let bytes = segment.bytes();
                // SAFETY: as in `compare`.
                unsafe {
                    self.reservation.with_bytes(at, bytes.len(), |to| to.copy_from_slice(bytes));
                }
            } else if !state.mapped.contains(segment) {
                self.map_segment(state, segment)?;
            }
        }
        Ok(())
    }

    /// Applies the patches that aren't applied yet to pages that are their bases.
    fn put_pages<'a>(
        &self,
        state: &MemoryState,
        patches: impl Iterator<Item = (&'a PagePatch, bool)>,
    ) {
        // SAFETY: as in `compare`.
        unsafe {
            self.reservation.with_bytes(0, state.len, |memory| {
                for (patch, _) in patches.filter(|(_, is_patched)| !is_patched) {
                    let at = patch.page as usize * PAGE_BYTES;
                    patch.apply(&mut memory[at..at + PAGE_BYTES]);
                }
            });
        }
    }

    /// Maps `segment` in its place. What is there has the same content or is of no use.
    fn map_segment(&self, state: &mut MemoryState, segment: &Segment) -> io::Result<()> {
        let (file, offset) = segment.file();
        let at = segment.pages().start * PAGE_BYTES;
        self.reservation.map_copy(at, segment.bytes().len(), file, offset)?;
        let mapped = std::mem::take(&mut state.mapped);
        state.mapped.extend(mapped.iter().flat_map(|other| other.without(segment.pages())));
        state.mapped.push(segment.clone());
        state.mapped.sort_unstable_by_key(|segment| segment.pages().start);
        Ok(())
    }

    /// Makes pages what they are without segments and copies: the image, then zeroes.
    fn unmap(&self, image: &MemoryImage, pages: Range<usize>) -> io::Result<()> {
        let (start, end) = (pages.start * PAGE_BYTES, pages.end * PAGE_BYTES);
        let in_image = image.bytes().len().clamp(start, end);
        let (file, offset) = image.file();
        self.reservation.map_copy(start, in_image - start, file, offset + start as u64)?;
        self.reservation.map_zeroes(in_image, end - in_image)
    }
}

fn pages_of(range: Range<usize>) -> Range<usize> {
    range.start / PAGE_BYTES..range.end / PAGE_BYTES
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

/// Returns the mapped segments that the next patch keeps.
///
/// A segment of which more than half was written to is given up: all its pages are added to
/// `pages`, which are those written to besides the ones in `unwritten`. It stays mapped, and later
/// patches don't take it up again.
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
        state.held.segments.contains(segment) && 2 * (written + patched.count()) <= own.len()
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

#[cfg(test)]
mod tests;
