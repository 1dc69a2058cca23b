//! How long copied pages are kept that runs leave unchanged (`memory/layers/restore.rs`).

/// A page that no run has changed in this many runs is kept no longer. Comparing it each time has
/// then cost more than the fault that brings it back.
pub(super) const MOST_RUNS: u16 = 16;
/// Idle pages that are kept longer, since a single fault costs more than comparing all of them. The
/// reset after it has to ask the kernel which pages were copied.
pub(super) const FEW_PAGES: usize = 64;
/// A page of few is kept no longer after this many runs.
pub(super) const MOST_RUNS_OF_FEW: u16 = 200;
/// How often the time that a page is kept can grow fourfold.
const MOST_EXTENSIONS: u16 = 3;

/// How long a copied page of the image has been idle.
///
/// A page can be idle and yet be written to in every run. Its reference counts go up and down
/// again. Such a page comes back by a fault in the run after it was returned to the system. Both
/// the fault and the return interrupt all other CPUs that run this process. So it is kept four
/// times as long the next time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageAge {
    /// How many restores in a row found it unchanged.
    runs: u16,
    extensions: u16,
}

impl PageAge {
    /// Takes in whether a run has changed the page; `idle_pages` were idle at the last restore.
    /// Returns whether the page is kept no longer.
    pub(super) fn note(&mut self, is_changed: bool, idle_pages: usize) -> bool {
        self.runs = if is_changed { 0 } else { self.runs + 1 };
        let most_runs = if idle_pages > FEW_PAGES { MOST_RUNS } else { MOST_RUNS_OF_FEW };
        let is_over = self.runs > most_runs << (2 * self.extensions);
        if is_over {
            self.runs = 0;
        }
        is_over
    }

    /// Takes in that the page has been used, without comparing it.
    pub(super) fn note_use(&mut self) {
        self.runs = 0;
    }

    /// Takes in whether the page came back in the run after it was returned.
    pub(super) fn note_return(&mut self, came_back: bool) {
        self.extensions = if came_back { (self.extensions + 1).min(MOST_EXTENSIONS) } else { 0 };
    }
}
