//! Copying what a memory holds between two turns of a session, for the case that the next turn has
//! to be undone.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::IS_CHECKED;
use crate::memory::snapshot::Snapshot;
use crate::memory::{GuestMemory, MemoryState};

/// The most bytes that are copied after a turn, in about 0.1 ms. A small program writes to 50
/// pages.
const MOST_COPIED_BYTES: usize = 2 << 20;

impl GuestMemory {
    /// Copies all pages that may differ from the image, which is faster than comparing them, for a
    /// session that continues here. `None` if these are too many or unknown; then `patch` is due.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// The memory was revoked or has no image, or the system doesn't say which pages were copied.
    pub(crate) fn snapshot(&self) -> io::Result<Option<Arc<Snapshot>>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (_, copied) = self.find_copied(state)?;
        let bytes: usize = copied.iter().map(ExactSizeIterator::len).sum();
        if state.tracker.is_none() || bytes > MOST_COPIED_BYTES {
            return Ok(None);
        }
        state.snapshot = self.copy_pages(state, &copied);
        // A list with pages that segments cover doesn't stay true when those go.
        if let Some(tracker) = state.tracker.as_mut().filter(|_| state.mapped.is_empty()) {
            tracker.remember(copied);
        }
        Ok(state.snapshot.clone())
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
        let refresh = |memory: &mut [u8]| own.refresh(memory, pages);
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
