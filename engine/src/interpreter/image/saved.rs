//! The saved form of a host's state: plain data, checked when it is read back.

use std::fs::File;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::files::mount::Mount;
use crate::files::tree::saved::SavedTree;
use crate::host::layout::{Layout, put_mount};
use crate::host::wasi::HostState;
use crate::host::wasi::clock::SavedClock;
use crate::host::wasi::descriptors::saved::{HostParts, SavedDescriptors};
use crate::host::wasi::path::is_workdir;
use crate::host::wasi::random::Random;

/// The saved form of one guest's host. Mounted folders and what was open in them have no byte form: a
/// file leaves them out, and the jobs that need them mount them again; a state for another process
/// has them beside it.
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
        Self::with_parts(state, None)
    }

    pub(crate) fn whole(state: &HostState) -> (Self, HostParts) {
        let mounts = state.tree.mounts().map(|(node, mount)| (node, Arc::clone(mount))).collect();
        let mut parts = HostParts { mounts, files: Vec::new() };
        let saved = Self::with_parts(state, Some(&mut parts));
        (saved, parts)
    }

    fn with_parts(state: &HostState, parts: Option<&mut HostParts>) -> Self {
        Self {
            tree: state.tree.saved(),
            open: state.open.saved(&state.tree, parts),
            workdir: state.workdir.to_string(),
            clock: state.clock.saved(),
            random: state.random.clone(),
        }
    }

    /// Returns whether `of` leaves nothing out: no folder of the host is mounted, open or being
    /// listed.
    pub(crate) fn is_all_of(state: &HostState) -> bool {
        state.tree.mounts().next().is_none() && state.open.can_be_saved(&state.tree)
    }

    /// Restores the host for a guest of the build with this layout; `None` if it is invalid.
    pub(crate) fn revive(self, layout: &Layout) -> Option<HostState> {
        self.revive_with(layout, &[], Vec::new())
    }

    /// Restores the host with these folders at these paths, and these open files.
    pub(crate) fn revive_with(
        self,
        layout: &Layout,
        mounts: &[(String, Arc<Mount>)],
        files: Vec<Arc<File>>,
    ) -> Option<HostState> {
        let mut state = HostState::new(layout, None);
        state.tree = state.tree.with_saved(self.tree)?;
        let now = state.clock.timestamp();
        let mut parts = HostParts { mounts: Vec::new(), files };
        for (path, mount) in mounts {
            let node = put_mount(&mut state.tree, path, mount, now).ok()?;
            parts.mounts.push((node, Arc::clone(mount)));
        }
        state.open = state.open.reopen(&self.open, &state.tree, &parts)?;
        state.workdir = Some(self.workdir).filter(|path| is_workdir(path))?.into();
        state.clock = self.clock.into();
        state.random = self.random;
        Some(state)
    }
}
