//! What a guest has open.

use std::fs::File;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::errno::Errno;
use crate::files::device::Device;
use crate::files::mount::Mount;
use crate::files::resolve::{Base, HostPlace};
use crate::files::tree::{NodeId, Tree};

/// One thing that is open.
#[derive(Debug, Clone)]
pub(crate) enum Open {
    Stdin,
    Stdout,
    Stderr,
    File { node: NodeId, offset: u64, access: Access },
    Folder { base: Base, listing: Option<Arc<Vec<Entry>>>, preopened_as: Option<&'static str> },
    HostFile { file: Arc<File>, offset: u64 },
    Device { node: NodeId, device: Device, access: Access },
}

/// What may be done with an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Every write goes to the end.
    pub(crate) append: bool,
}

/// One entry of a folder, as it stood when the folder began to be read.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    pub(crate) inode: u64,
    pub(crate) kind: u8,
}

/// Standard input, output and error.
const STANDARD: usize = 3;
/// Descriptors that are taken back when a guest comes back; no bound on open files is as large.
const MOST_SAVED: usize = 1 << 20;

/// The table of descriptors.
#[derive(Debug, Clone)]
pub(crate) struct Descriptors {
    slots: Vec<Option<Open>>,
}

impl Descriptors {
    /// The standard streams, and folders that are open from the start.
    pub(crate) fn new(preopened: impl IntoIterator<Item = (NodeId, &'static str)>) -> Self {
        let mut slots = vec![Some(Open::Stdin), Some(Open::Stdout), Some(Open::Stderr)];
        slots.extend(preopened.into_iter().map(|(node, path)| {
            let base = Base::Node(node);
            Some(Open::Folder { base, listing: None, preopened_as: Some(path) })
        }));
        Self { slots }
    }

    /// Opens the standard streams again that an earlier job closed.
    pub(crate) fn restore_standard_streams(&mut self) {
        let streams = [Open::Stdin, Open::Stdout, Open::Stderr];
        for (slot, stream) in self.slots.iter_mut().zip(streams) {
            *slot = Some(stream);
        }
    }

    pub(crate) fn get(&self, fd: u32) -> Result<&Open, Errno> {
        self.slots.get(fd as usize).and_then(Option::as_ref).ok_or(Errno::BadDescriptor)
    }

    pub(crate) fn get_mut(&mut self, fd: u32) -> Result<&mut Open, Errno> {
        self.slots.get_mut(fd as usize).and_then(Option::as_mut).ok_or(Errno::BadDescriptor)
    }

    /// The folder that a path is looked up from.
    pub(crate) fn base(&self, fd: u32) -> Result<Base, Errno> {
        match self.get(fd)? {
            Open::Folder { base, .. } => Ok(base.clone()),
            _ => Err(Errno::NotFolder),
        }
    }

    /// Open descriptors that count against the bound.
    pub(crate) fn count(&self) -> usize {
        let counts = |slot: &&Option<Open>| match slot {
            None | Some(Open::Stdin | Open::Stdout | Open::Stderr) => false,
            Some(Open::Folder { preopened_as, .. }) => preopened_as.is_none(),
            Some(Open::File { .. } | Open::HostFile { .. } | Open::Device { .. }) => true,
        };
        self.slots.iter().filter(counts).count()
    }

    /// Opens at the lowest free number, as POSIX has it.
    pub(crate) fn insert(&mut self, open: Open) -> u32 {
        let free = self.slots.iter().skip(STANDARD).position(Option::is_none);
        let index = free.map_or(self.slots.len(), |index| index + STANDARD);
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(open);
        u32::try_from(index).expect("descriptors are bounded")
    }

    /// Closes a descriptor. The folders that were open from the start stay: without them the
    /// guest's C library finds nothing any more, also in later jobs.
    pub(crate) fn remove(&mut self, fd: u32) -> Result<Open, Errno> {
        if let Open::Folder { preopened_as: Some(_), .. } = self.get(fd)? {
            return Err(Errno::NotPermitted);
        }
        self.slots[fd as usize].take().ok_or(Errno::BadDescriptor)
    }

    pub(crate) fn is_open(&self, file: NodeId) -> bool {
        let is_file = |open: &Open| matches!(open, Open::File { node, .. } if *node == file);
        self.slots.iter().flatten().any(is_file)
    }
}

/// One thing that is open, as it is put away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SavedOpen {
    Stdin,
    Stdout,
    Stderr,
    File {
        node: NodeId,
        offset: u64,
        access: Access,
    },
    Folder {
        node: NodeId,
    },
    /// A folder that is open from the start.
    Preopened,
    Device {
        node: NodeId,
        access: Access,
    },
}

impl Descriptors {
    /// What is open, without what leads nowhere, since a job was undone, and without what belongs
    /// to mounted folders: those are the host's and may be other ones when this comes back.
    pub(crate) fn saved(&self, tree: &Tree) -> Vec<Option<SavedOpen>> {
        let is_there = |node: &NodeId| tree.node(*node).is_ok();
        let saved = |open: &Open| {
            Some(match open {
                Open::Stdin => SavedOpen::Stdin,
                Open::Stdout => SavedOpen::Stdout,
                Open::Stderr => SavedOpen::Stderr,
                Open::File { node, offset, access } if is_there(node) => {
                    SavedOpen::File { node: *node, offset: *offset, access: *access }
                }
                Open::Device { node, access, .. } => {
                    SavedOpen::Device { node: *node, access: *access }
                }
                Open::Folder { preopened_as: Some(_), .. } => SavedOpen::Preopened,
                Open::Folder { base: Base::Node(node), .. } if is_there(node) => {
                    SavedOpen::Folder { node: *node }
                }
                Open::File { .. } | Open::Folder { .. } | Open::HostFile { .. } => return None,
            })
        };
        self.slots.iter().map(|slot| slot.as_ref().and_then(saved)).collect()
    }

    /// Whether `saved` leaves nothing out.
    pub(crate) fn can_be_saved(&self, tree: &Tree) -> bool {
        let is_listed = |open: &Open| matches!(open, Open::Folder { listing: Some(_), .. });
        let saved = self.saved(tree);
        let mut both = self.slots.iter().zip(&saved);
        both.all(|(open, saved)| {
            open.is_some() == saved.is_some() && !open.as_ref().is_some_and(is_listed)
        })
    }

    /// Opens what was put away, in a guest that has just begun. `None` if that can't have been
    /// open.
    pub(crate) fn reopen(mut self, saved: &[Option<SavedOpen>], tree: &Tree) -> Option<Self> {
        let preopened = self.slots.clone();
        let is_preopened = |index: usize| {
            matches!(preopened.get(index), Some(Some(Open::Folder { preopened_as: Some(_), .. })))
        };
        if saved.len() > MOST_SAVED || saved.len() < preopened.len() {
            return None;
        }
        self.slots.clear();
        for (index, saved) in saved.iter().enumerate() {
            let open = match saved {
                Some(SavedOpen::Preopened) => preopened.get(index)?.clone(),
                _ if is_preopened(index) => return None,
                None => None,
                Some(SavedOpen::Stdin) => Some(Open::Stdin),
                Some(SavedOpen::Stdout) => Some(Open::Stdout),
                Some(SavedOpen::Stderr) => Some(Open::Stderr),
                Some(SavedOpen::File { node, offset, access }) => {
                    tree.node(*node).ok().filter(|node| node.is_file())?;
                    Some(Open::File { node: *node, offset: *offset, access: *access })
                }
                Some(SavedOpen::Device { node, access }) => {
                    let device = tree.device(*node)?;
                    Some(Open::Device { node: *node, device, access: *access })
                }
                Some(SavedOpen::Folder { node }) => {
                    tree.entries(*node).ok()?;
                    let base = Base::Node(*node);
                    Some(Open::Folder { base, listing: None, preopened_as: None })
                }
            };
            self.slots.push(open);
        }
        Some(self)
    }
}

/// A mounted folder, or one below it.
pub(crate) fn host_folder(place: HostPlace) -> Open {
    Open::Folder { base: Base::Host(place), listing: None, preopened_as: None }
}

/// An open file of a mounted folder.
pub(crate) fn host_file(mount: &Mount, path: &str) -> Result<Open, Errno> {
    Ok(Open::HostFile { file: Arc::new(mount.file(path)?), offset: 0 })
}
