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

/// Bytes that are copied in all before pages are marked for the first time. Marking costs a session
/// 1.3 ms, most of it for faults in its next turns and when another session follows it, and saves
/// 30 to 50 µs of CPU time a turn. A small session copies 1.4 MB after each turn, of which marked
/// pages are a third: this is 14 of its turns.
const MOST_UNMARKED_BYTES: usize = 20 << 20;

/// The ranges of offsets that a snapshot copies.
struct ToCopy {
    touched: Vec<Range<usize>>,
    /// They are the pages that were written to since pages were marked; else all copies of pages of
    /// the image.
    is_marked: bool,
}

impl GuestMemory {
    /// Returns what differs from the image, for a session that goes on here. Copies the pages that
    /// were written to since pages were last marked, and leaves them unmarked, so that they take no
    /// fault in the next turn. While nothing is marked, copies all pages that may differ from the
    /// image: marking them costs more than a short session gains from it. `None` if too much was
    /// copied; then `patch` is due, which marks.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// The memory was revoked or has no image, or the system doesn't say which pages were copied.
    pub(crate) fn snapshot(&self) -> io::Result<Option<Arc<Snapshot>>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.image_of(state)?;
        let Some(ToCopy { touched, is_marked }) = self.find_to_copy(state)? else {
            return Ok(None);
        };
        let bytes: usize = touched.iter().map(ExactSizeIterator::len).sum();
        let (spent, most) = if is_marked {
            let needed = *state.first_touched.get_or_insert(bytes);
            (bytes.saturating_sub(needed), MOST_WASTED_BYTES)
        } else {
            (bytes, MOST_UNMARKED_BYTES)
        };
        state.spent = state.spent.saturating_add(spent);
        if bytes > MOST_TOUCHED_BYTES || state.spent > most {
            return Ok(None);
        }
        state.snapshot = self.copy_touched(state, &touched);
        state.copies_taken += u32::from(!is_marked);
        match &mut state.tracker {
            Some(tracker) if is_marked => tracker.remember_touched(touched),
            // A list with pages that segments cover doesn't stay true when those go.
            Some(tracker) if state.mapped.is_empty() => tracker.remember(touched),
            _ => {}
        }
        Ok(state.snapshot.clone())
    }

    fn find_to_copy(&self, state: &mut MemoryState) -> io::Result<Option<ToCopy>> {
        let Some(tracker) = &mut state.tracker else { return Ok(None) };
        if let Some(touched) = tracker.touched(&self.reservation, 0..state.len) {
            return Ok(Some(ToCopy { touched, is_marked: true }));
        }
        let (_, touched) = self.find_copied(state)?;
        Ok(Some(ToCopy { touched, is_marked: false }))
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
