//! Puts a patch into a memory, whatever the memory held before.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{IS_CHECKED, pages_of};
use crate::memory::address_space::{PAGE_BYTES, is_length};
use crate::memory::idle::PageAge;
use crate::memory::image::MemoryImage;
use crate::memory::patch::{MemoryPatch, PagePatch, base_page, overwrite, page_in};
use crate::memory::segments::Segment;
use crate::memory::{GuestMemory, MemoryState};

/// Copied pages that a memory keeps when it goes back to its image. They don't fault again, but
/// each is compared every time. Comparing 1,024 takes 0.3 ms, and simple programs touch 50 to 100.
pub(super) const MOST_KEPT_PAGES: usize = 1024;

impl GuestMemory {
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
            state.returned.clear();
            false
        };

        // Put in what lies above the image now: the patch's segments, and its other pages.
        self.put_segments(state, &patch.segments)?;
        self.put_pages(state, patch.pages.iter().zip(is_patched));

        // Remember what the memory holds. Every patched page is a copy now. If nothing but copied
        // pages was touched, their list is still complete (E-9).
        state.copied_bytes = state.copied_bytes.max(patch.pages.len() * PAGE_BYTES);
        state.hold(Arc::clone(patch));
        state.copies_taken = 0;
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

    /// Makes the memory `len` bytes long, but not shorter than the image. Clears all pages beyond
    /// the image but those of segments. Returns whether the memory had grown beyond the image.
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

    /// Makes copied pages of the image what they are with `patch`. Notes in `is_patched` which
    /// pages of the patch are done. Returns pages that no run has changed for long to the system.
    /// The result is whether all copies are still there.
    fn put_back(
        &self,
        state: &mut MemoryState,
        image: &[u8],
        copied: &[Range<usize>],
        patch: &MemoryPatch,
        is_patched: &mut [bool],
    ) -> io::Result<bool> {
        for page in std::mem::take(&mut state.returned).into_iter().flatten() {
            let following = copied.partition_point(|range| range.start <= page * PAGE_BYTES);
            let came_back =
                copied[..following].last().is_some_and(|range| page * PAGE_BYTES < range.end);
            state.page_ages[page].note_return(came_back);
        }
        let unused = self.copy_back(state, image, copied, patch, is_patched);
        // A page that is returned while it is marked would be found as one that was copied.
        if state.tracker.as_ref().is_some_and(|tracker| tracker.has_marks) {
            return Ok(true);
        }
        for pages in &unused {
            self.reservation.give_back(pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES)?;
        }
        let has_all = unused.is_empty();
        state.returned = unused;
        Ok(has_all)
    }

    /// Does the copying for `put_back`, except for pages that a segment will be mapped over.
    /// Returns the pages that no run has changed for long.
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
        let idle_pages = std::mem::take(&mut state.idle_pages);
        let mut unused: Vec<Range<usize>> = Vec::new();
        let within = |range: &Range<usize>| range.start..range.end.min(image.len());
        let pages = copied.iter().map(within).flat_map(pages_of);
        let is_plain = patch.pages.is_empty() && patch.segments.is_empty();
        let pages = pages.filter(|page| is_plain || !is_replaced(*page));
        // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
        unsafe {
            self.reservation.with_bytes(0, image.len(), |memory| {
                for page in pages {
                    let now = &mut memory[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
                    let base = base_page(image, &state.mapped, page);
                    let idle = state.page_ages.get_mut(page);
                    if let Some(index) = patched(page) {
                        // In one pass, while the page's lines are in the CPU's cache.
                        patch.pages[index].apply_over(base, now);
                        is_patched[index] = true;
                        idle.into_iter().for_each(PageAge::note_use);
                        continue;
                    }
                    let is_changed = overwrite(now, base);
                    let Some(idle) = idle else { continue };
                    state.idle_pages += usize::from(!is_changed);
                    if idle.note(is_changed, idle_pages) {
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
                // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
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
        // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
        unsafe {
            self.reservation.with_bytes(0, state.len, |memory| {
                for (patch, _) in patches.filter(|(_, is_patched)| !is_patched) {
                    let at = patch.page as usize * PAGE_BYTES;
                    patch.apply(&mut memory[at..at + PAGE_BYTES]);
                }
            });
        }
    }

    /// Takes over what `predecessor` has learned. The pages that runs write to are copied now, and
    /// kept as long as there. Does nothing if its image has another length.
    ///
    /// Otherwise the first runs take two page faults for each of some 70 pages. For the second,
    /// which copies the page, the kernel interrupts all other CPUs that run this process. It
    /// needn't if the page wasn't read before.
    ///
    /// For the thread of the guest, before `restore`. Systems that can't do this at once leave it
    /// to the faults.
    pub(crate) fn prefault_from(&self, predecessor: &Self) {
        let (pages, page_ages) = {
            let state = predecessor.state.lock();
            let pages = state.tracker.as_ref().and_then(|tracker| tracker.known());
            (pages.unwrap_or_default().to_vec(), state.page_ages.clone())
        };
        let mut state = self.state.lock();
        if page_ages.len() != state.page_ages.len() {
            return;
        }
        // Pages beyond the image were grown.
        let len = page_ages.len() * PAGE_BYTES;
        let of_image = |pages: Range<usize>| pages.start.min(len)..pages.end.min(len);
        let pages: Vec<_> = pages.into_iter().map(of_image).collect();
        if pages.iter().map(Range::len).sum::<usize>() > MOST_KEPT_PAGES * PAGE_BYTES {
            return;
        }
        let copied = pages
            .into_iter()
            .filter(|pages| !pages.is_empty())
            .try_for_each(|pages| self.reservation.populate(pages.start, pages.len()));
        if let Err(error) = copied {
            tracing::debug!(%error, "pages are copied as they are written to");
        }
        state.page_ages = page_ages;
    }
}
