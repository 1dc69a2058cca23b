//! Copying what a memory holds between two turns of a session, for the case that the next turn has
//! to be undone.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::IS_CHECKED;
use crate::memory::snapshot::Snapshot;
use crate::memory::{GuestMemory, MemoryState};

/// The most bytes that are copied after a turn, in about 0.1 ms. If the turns of a session have
/// written to more, its pages are compared and marked again. A small program writes to 60 pages.
const MOST_TOUCHED_BYTES: usize = 2 << 20;
/// Bytes that are copied in vain before the pages are marked again: what that costs, together with
/// the faults that follow from it, 0.2 ms. More and more pages are written to by some turn, and all
/// of them are copied after every turn.
const MOST_WASTED_BYTES: usize = 8 << 20;

impl GuestMemory {
    /// Returns what differs from the image, for a session that goes on here. Copies the pages that
    /// were written to since pages were last marked, and leaves them unmarked, so that they take no
    /// fault in the next turn. `None` if nothing is marked or too much was written to; then `patch`
    /// is due, which marks.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// The memory was revoked or has no image.
    pub(crate) fn snapshot(&self) -> io::Result<Option<Arc<Snapshot>>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.image_of(state)?;
        let len = state.len;
        let Some(tracker) = &mut state.tracker else { return Ok(None) };
        let Some(touched) = tracker.touched(&self.reservation, 0..len) else { return Ok(None) };
        let bytes: usize = touched.iter().map(ExactSizeIterator::len).sum();
        let needed = *state.first_touched.get_or_insert(bytes);
        state.wasted = state.wasted.saturating_add(bytes.saturating_sub(needed));
        if bytes > MOST_TOUCHED_BYTES || state.wasted > MOST_WASTED_BYTES {
            return Ok(None);
        }
        state.snapshot = self.copy_touched(state, &touched);
        if let Some(tracker) = &mut state.tracker {
            tracker.remember_touched(touched);
        }
        Ok(state.snapshot.clone())
    }

    /// Copies the ranges into the last snapshot if nobody else has it, else into a new one.
    fn copy_touched(
        &self,
        state: &mut MemoryState,
        touched: &[Range<usize>],
    ) -> Option<Arc<Snapshot>> {
        assert!(!state.revoked, "E-2: the memory is read");
        let image = self.image.as_ref()?;
        let last = state.snapshot.take().filter(|last| last.is_upon(&state.held));
        let mut snapshot = last
            .filter(|last| Arc::strong_count(last) == 1)
            .unwrap_or_else(|| Snapshot::new(Arc::clone(image), Arc::clone(&state.held)).into());
        let own = Arc::get_mut(&mut snapshot).expect("nobody else has it");
        // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
        unsafe { self.reservation.with_bytes(0, state.len, |memory| own.refresh(memory, touched)) };
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
        // SAFETY: as in `copy_touched`.
        unsafe { self.reservation.with_bytes(0, state.len, |memory| *memory == expected) }
    }
}
