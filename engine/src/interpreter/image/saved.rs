//! The saved form of a host's state: plain data, checked when it is read back.

use serde::{Deserialize, Serialize};

use crate::files::tree::saved::SavedTree;
use crate::host::layout::Layout;
use crate::host::wasi::HostState;
use crate::host::wasi::clock::SavedClock;
use crate::host::wasi::descriptors::saved::SavedDescriptors;
use crate::host::wasi::random::Random;
use crate::host::wasi::workdir::is_workdir;

/// The saved form of one guest's host. It leaves out mounted folders and what was open in them; the
/// jobs that need them mount them again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedHost {
    tree: SavedTree,
    open: SavedDescriptors,
    workdir: String,
    clock: SavedClock,
    random: Random,
}

impl SavedHost {
    pub(crate) fn of(state: &HostState) -> Self {
        Self {
            tree: state.tree.saved(),
            open: state.open.saved(&state.tree),
            workdir: state.workdir.to_string(),
            clock: state.clock.saved(),
            random: state.random.clone(),
        }
    }

    /// Returns whether `of` leaves nothing out: no folder of the host is mounted, open or being
    /// listed.
    pub(crate) fn is_all_of(state: &HostState) -> bool {
        !state.tree.has_mounts() && state.open.can_be_saved(&state.tree)
    }

    /// Restores the host for a guest of the build with this layout; `None` if it is invalid.
    pub(crate) fn revive(self, layout: &Layout) -> Option<HostState> {
        let mut state = HostState::new(layout, None);
        state.tree = state.tree.with_saved(self.tree)?;
        state.open = state.open.reopen(&self.open, &state.tree)?;
        state.workdir = Some(self.workdir).filter(|path| is_workdir(path))?.into();
        state.clock = self.clock.into();
        state.random = self.random;
        Some(state)
    }
}
