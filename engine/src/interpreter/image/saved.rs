//! What a guest's host holds, as it is put into a file: plain data, checked when it comes back.

use serde::{Deserialize, Serialize};

use crate::files::tree::saved::SavedTree;
use crate::host::layout::Layout;
use crate::host::wasi::HostState;
use crate::host::wasi::clock::SavedClock;
use crate::host::wasi::descriptors::SavedOpen;
use crate::host::wasi::random::Random;

/// The host of one guest as it is put into a file. Mounted folders, and what was open in them, are
/// left out: they are mounted again by the jobs that want them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedHost {
    tree: SavedTree,
    open: Vec<Option<SavedOpen>>,
    clock: SavedClock,
    random: Random,
}

impl SavedHost {
    pub(crate) fn of(state: &HostState) -> Self {
        Self {
            tree: state.tree.saved(),
            open: state.open.saved(&state.tree),
            clock: state.clock.saved(),
            random: state.random.clone(),
        }
    }

    /// Whether `of` leaves nothing out: no folder of the host is mounted or open, and none is being
    /// listed.
    pub(crate) fn is_all_of(state: &HostState) -> bool {
        !state.tree.has_mounts() && state.open.can_be_saved(&state.tree)
    }

    /// The host again, for a guest of the build with this layout; `None` if it can't be one.
    pub(crate) fn revive(self, layout: &Layout) -> Option<HostState> {
        let mut state = HostState::new(layout, None);
        state.tree = state.tree.with_saved(self.tree)?;
        state.open = state.open.reopen(&self.open, &state.tree)?;
        state.clock = self.clock.into();
        state.random = self.random;
        Some(state)
    }
}
