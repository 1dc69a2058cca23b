//! Copies what a memory holds between two turns of a session, in case the next turn must be undone.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::IS_CHECKED;
use crate::memory::snapshot::Snapshot;
use crate::memory::{GuestMemory, MemoryState};

/// The most bytes that are copied after a turn, in about 0.1 ms. If the turns of a session have
/// written to more, its pages are compared and marked again. A small program writes to 50 pages.
const MOST_TOUCHED_BYTES: usize = 2 << 20;
/// Bytes that are copied needlessly before the pages are marked again. That costs 0.2 ms, with the
/// faults that follow from it. More and more pages are written to by some turn, and all of them are
/// copied after every turn.
const MOST_WASTED_BYTES: usize = 8 << 20;

/// The ranges of offsets that a snapshot copies.
enum ToCopy {
    /// All pages that were copied from the image: none is marked.
    Copied(Vec<Range<usize>>),
    /// Those of them that aren't marked: some parts are.
    Unmarked(Vec<Range<usize>>),
    /// Those that were written to since all pages were marked.
    Touched(Vec<Range<usize>>),
}

impl GuestMemory {
    /// Returns what differs from the image, for a session that goes on here. Copies the pages that
    /// were written to since pages were last marked. Leaves them unmarked, so that they take no
    /// fault in the next turn. While nothing is marked, copies all pages that may differ from the
    /// image. Marking them costs more than a short session gains from it (`marking.rs`). `None` if
    /// too much was copied, or pages can't be marked; then `patch` is due.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// The memory was revoked or has no image, or the system doesn't say which pages were copied.
    pub(crate) fn snapshot(&self) -> io::Result<Option<Arc<Snapshot>>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.image_of(state)?;
        let Some(to_copy) = self.find_to_copy(state)? else { return Ok(None) };
        let (ToCopy::Copied(pages) | ToCopy::Unmarked(pages) | ToCopy::Touched(pages)) = &to_copy;
        state.snapshot = self.copy_pages(state, pages);
        state.copies_taken += u32::from(!matches!(to_copy, ToCopy::Touched(_)));
        match (&mut state.tracker, to_copy) {
            (Some(tracker), ToCopy::Touched(touched)) => tracker.remember_touched(touched),
            // A list with pages that segments cover doesn't stay true when those go.
            (Some(tracker), ToCopy::Copied(copied)) if state.mapped.is_empty() => {
                tracker.remember(copied);
            }
            _ => {}
        }
        Ok(state.snapshot.clone())
    }

    /// Finds what to copy; `None` if that is too much, or isn't known.
    fn find_to_copy(&self, state: &mut MemoryState) -> io::Result<Option<ToCopy>> {
        let Some(tracker) = &mut state.tracker else { return Ok(None) };
        if let Some(touched) = tracker.touched(&self.reservation, 0..state.len) {
            let bytes = total(&touched);
            let needed = *state.first_touched.get_or_insert(bytes);
            state.spent = state.spent.saturating_add(bytes.saturating_sub(needed));
            let is_much = bytes > MOST_TOUCHED_BYTES || state.spent > MOST_WASTED_BYTES;
            return Ok((!is_much).then_some(ToCopy::Touched(touched)));
        }
        let copied = match state.marked {
            0 => self.find_copied(state)?.1,
            // A mark makes a page look copied, also one that was never used.
            marked => tracker.copied(&self.reservation, marked..state.len)?,
        };
        let bytes = total(&copied);
        state.spent = state.spent.saturating_add(bytes);
        if bytes > MOST_TOUCHED_BYTES {
            return Ok(None);
        }
        if state.spent <= state.pace.unmarked_bytes {
            return Ok(Some(ToCopy::Copied(copied)));
        }
        Ok(self.mark_next_part(state, copied).map(ToCopy::Unmarked))
    }

    /// Copies the ranges into the last snapshot if nobody else has it, else into a new one.
    fn copy_pages(&self, state: &mut MemoryState, pages: &[Range<usize>]) -> Option<Arc<Snapshot>> {
        assert!(!state.revoked, "E-2: the memory is read");
        let image = self.image.as_ref()?;
        let last = state.snapshot.take().filter(|last| Arc::strong_count(last) == 1);
        let mut snapshot = last.unwrap_or_else(|| {
            Snapshot::new(Arc::clone(image), Arc::clone(&state.base_patch)).into()
        });
        let own = Arc::get_mut(&mut snapshot).expect("nobody else has it");
        let refresh = |memory: &mut [u8]| own.refresh(&state.base_patch, memory, pages);
        // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
        unsafe { self.reservation.with_bytes(0, state.len, refresh) };
        assert!(!IS_CHECKED || self.is_as(state, &snapshot), "E-11: a snapshot is the content");
        Some(snapshot)
    }

    /// Returns whether the memory holds the image with what the snapshot says.
    fn is_as(&self, state: &MemoryState, snapshot: &Snapshot) -> bool {
        let Some(image) = &self.image else { return false };
        let patch = snapshot.patch();
        let mut expected = image.bytes().to_vec();
        expected.resize(patch.len, 0);
        patch.put_into(&mut expected);
        // SAFETY: as in `copy_pages`.
        unsafe { self.reservation.with_bytes(0, state.len, |memory| *memory == expected) }
    }
}

/// Returns how many bytes the ranges have.
fn total(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(ExactSizeIterator::len).sum()
}
