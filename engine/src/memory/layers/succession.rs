//! A new memory in the place of another one on the same image.

use std::ops::Range;

use super::restore::MOST_KEPT_PAGES;
use crate::memory::GuestMemory;
use crate::memory::address_space::PAGE_BYTES;

impl GuestMemory {
    /// Takes over what `predecessor` has learned: the pages that runs write to are copied now, and
    /// kept as long as there. Does nothing if its image has another length.
    ///
    /// Otherwise the first runs take two page faults for each of some 70 pages. For the second,
    /// which copies the page, the kernel interrupts all other CPUs that run this process; it
    /// needn't if the page wasn't read before.
    ///
    /// For the thread of the guest, before `restore`. Systems that can't do this at once leave it
    /// to the faults.
    pub(crate) fn succeed(&self, predecessor: &Self) {
        let (pages, idleness) = {
            let state = predecessor.state.lock();
            let pages = state.tracker.as_ref().and_then(|tracker| tracker.known());
            (pages.unwrap_or_default().to_vec(), state.idleness.clone())
        };
        let mut state = self.state.lock();
        if idleness.len() != state.idleness.len() {
            return;
        }
        // Pages beyond the image were grown.
        let len = idleness.len() * PAGE_BYTES;
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
        state.idleness = idleness;
    }
}
