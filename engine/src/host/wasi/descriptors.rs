//! A guest's table of open descriptors.

use std::fs::File;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::errno::Errno;
use crate::files::device::Device;
use crate::files::mount::Mount;
use crate::files::resolve::{Base, HostPlace};
use crate::files::tree::{NodeId, Tree};

/// What a descriptor refers to.
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

/// The operations that an open file allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Every write goes to the end.
    pub(crate) append: bool,
}

/// A folder's entry as it was when reading the folder began.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    pub(crate) inode: u64,
    pub(crate) kind: u8,
}

/// The number of standard streams: input, output and error.
const STANDARD: usize = 3;
/// The most descriptors that a saved guest can have; every limit on open files is smaller.
const MOST_SAVED: usize = 1 << 20;

/// A table of descriptors.
#[derive(Debug, Clone)]
pub(crate) struct Descriptors {
    slots: Vec<Option<Open>>,
}

impl Descriptors {
    /// Creates a table with the standard streams and preopened folders.
    pub(crate) fn new(preopened: impl IntoIterator<Item = (NodeId, &'static str)>) -> Self {
        let mut slots = vec![Some(Open::Stdin), Some(Open::Stdout), Some(Open::Stderr)];
        slots.extend(preopened.into_iter().map(|(node, path)| {
            let base = Base::Node(node);
            Some(Open::Folder { base, listing: None, preopened_as: Some(path) })
        }));
        Self { slots }
    }

    /// Reopens standard streams that an earlier run closed.
    pub(crate) fn restore_standard_streams(&mut self) {
        let streams = [Open::Stdin, Open::Stdout, Open::Stderr];
        for (slot, stream) in self.slots.iter_mut().zip(streams) {
            *slot = Some(stream);
        }
    }

    /// Returns whether standard input is open and in its place.
    pub(crate) fn has_stdin(&self) -> bool {
        matches!(self.slots.first(), Some(Some(Open::Stdin)))
    }

    pub(crate) fn get(&self, fd: u32) -> Result<&Open, Errno> {
        self.slots.get(fd as usize).and_then(Option::as_ref).ok_or(Errno::BadDescriptor)
    }

    pub(crate) fn get_mut(&mut self, fd: u32) -> Result<&mut Open, Errno> {
        self.slots.get_mut(fd as usize).and_then(Option::as_mut).ok_or(Errno::BadDescriptor)
    }

    /// Returns the folder from which paths are resolved.
    pub(crate) fn base(&self, fd: u32) -> Result<Base, Errno> {
        match self.get(fd)? {
            Open::Folder { base, .. } => Ok(base.clone()),
            _ => Err(Errno::NotFolder),
        }
    }

    /// Returns the number of open descriptors that count against the limit.
    pub(crate) fn count(&self) -> usize {
        let counts = |slot: &&Option<Open>| match slot {
            None | Some(Open::Stdin | Open::Stdout | Open::Stderr) => false,
            Some(Open::Folder { preopened_as, .. }) => preopened_as.is_none(),
            Some(Open::File { .. } | Open::HostFile { .. } | Open::Device { .. }) => true,
        };
        self.slots.iter().filter(counts).count()
    }

    /// Inserts at the lowest free number, as POSIX requires.
    pub(crate) fn insert(&mut self, open: Open) -> u32 {
        let free = self.slots.iter().skip(STANDARD).position(Option::is_none);
        let index = free.map_or(self.slots.len(), |index| index + STANDARD);
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(open);
        u32::try_from(index).expect("descriptors are bounded")
    }

    /// Closes a descriptor. Preopened folders stay open: without them the guest's C library finds
    /// no files, in later runs either.
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

/// The saved form of an open descriptor.
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
    /// A preopened folder.
    Preopened,
    Device {
        node: NodeId,
        access: Access,
    },
}

impl Descriptors {
    /// Returns the descriptors to save. Leaves out those whose node is gone because a run was
    /// undone, and those of mounted folders, which belong to the host and may have changed when the
    /// guest is restored.
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

    /// Opens saved descriptors in a guest that has just started. Returns `None` if they are
    /// invalid.
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

/// Returns a descriptor of a mounted folder or of a folder below it.
pub(crate) fn host_folder(place: HostPlace) -> Open {
    Open::Folder { base: Base::Host(place), listing: None, preopened_as: None }
}

/// Opens a file of a mounted folder.
pub(crate) fn host_file(mount: &Mount, path: &str) -> Result<Open, Errno> {
    Ok(Open::HostFile { file: Arc::new(mount.file(path)?), offset: 0 })
}
