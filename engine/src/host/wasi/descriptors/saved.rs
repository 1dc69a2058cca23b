//! The saved form of a table of descriptors. It is untrusted input, and checked.

use std::fs::File;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Channel, Descriptors, Open, OpenAccess, SharedOpen, Slot, host_folder};
use crate::files::mount::Mount;
use crate::files::resolve::{Base, HostPlace};
use crate::files::tree::{NodeId, Tree};
use crate::host::network::socket::NetSocket;
use crate::host::wasi::pipe::Pipes;

/// The most descriptors that a saved guest can have; every limit on open files is smaller.
const MOST_SAVED: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedDescriptors {
    /// What each descriptor names, by its place in `opens`.
    slots: Vec<Option<Slot>>,
    opens: Vec<Option<SavedOpen>>,
    /// What each pipe holds.
    pipes: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum SavedOpen {
    Stdin,
    Stdout,
    Stderr,
    File {
        node: NodeId,
        offset: u64,
        access: OpenAccess,
    },
    Folder {
        node: NodeId,
    },
    /// A preopened folder, by its descriptor.
    Preopened {
        fd: u32,
    },
    Device {
        node: NodeId,
        access: OpenAccess,
    },
    Channel(Channel),
    /// A file of a mounted folder, by its place in [`HostParts`].
    HostFile {
        file: u32,
        offset: u64,
    },
    /// A mounted folder, by its place in [`HostParts`], or a folder below it.
    HostFolder {
        mount: u32,
        names: Vec<String>,
    },
    /// A socket of a network, whose connection isn't saved.
    LostSocket {
        is_nonblocking: bool,
    },
}

/// What a guest has of the host's folders, and what a saved form refers to by its place here.
#[derive(Debug, Default)]
pub(crate) struct HostParts {
    /// Each mounted folder and its node.
    pub(crate) mounts: Vec<(NodeId, Arc<Mount>)>,
    /// The open files.
    pub(crate) files: Vec<Arc<File>>,
}

impl HostParts {
    /// Adds what a descriptor names, and returns its saved form; `None` if its folder is no longer
    /// mounted.
    fn add(&mut self, open: &Open) -> Option<SavedOpen> {
        match open {
            Open::HostFile { file, offset } => {
                let place = u32::try_from(self.files.len()).ok()?;
                self.files.push(Arc::clone(file));
                Some(SavedOpen::HostFile { file: place, offset: *offset })
            }
            Open::Folder { base: Base::Host(place), .. } => {
                let is_its = |(node, mount): &(NodeId, Arc<Mount>)| {
                    *node == place.node() && Arc::ptr_eq(mount, &place.mount)
                };
                let mount = u32::try_from(self.mounts.iter().position(is_its)?).ok()?;
                let names = place.names().iter().map(|name| name.to_string()).collect();
                Some(SavedOpen::HostFolder { mount, names })
            }
            _ => None,
        }
    }
}

impl Descriptors {
    /// Returns the descriptors to save. Leaves out those whose node is gone because a run was
    /// undone. Those of mounted folders refer to `parts`. Without it they are left out: they belong
    /// to the host and may have changed when the guest is restored.
    pub(crate) fn saved(&self, tree: &Tree, mut parts: Option<&mut HostParts>) -> SavedDescriptors {
        let mut saved = |open: &Open| {
            let own = self.saved_open(open, tree);
            own.or_else(|| parts.as_deref_mut()?.add(open))
        };
        let opens: Vec<Option<SavedOpen>> = self
            .opens
            .iter()
            .map(|shared| shared.as_ref().and_then(|shared| saved(&shared.open)))
            .collect();
        let is_saved = |slot: &Slot| opens[slot.open as usize].is_some();
        let slots = self.slots.iter().map(|slot| slot.filter(is_saved)).collect();
        SavedDescriptors { slots, opens, pipes: self.pipes.saved() }
    }

    fn saved_open(&self, open: &Open, tree: &Tree) -> Option<SavedOpen> {
        let is_there = |node: &NodeId| tree.node(*node).is_ok();
        Some(match open {
            Open::Stdin => SavedOpen::Stdin,
            Open::Stdout => SavedOpen::Stdout,
            Open::Stderr => SavedOpen::Stderr,
            Open::File { node, offset, access } if is_there(node) => {
                SavedOpen::File { node: *node, offset: *offset, access: *access }
            }
            Open::Device { node, access, .. } => SavedOpen::Device { node: *node, access: *access },
            Open::Folder { preopened_as: Some(path), .. } => {
                let fd = (0..self.first as u32).find(|fd| self.preopened(*fd) == Ok(path))?;
                SavedOpen::Preopened { fd }
            }
            Open::Folder { base: Base::Node(node), .. } if is_there(node) => {
                SavedOpen::Folder { node: *node }
            }
            Open::Channel(channel) => SavedOpen::Channel(*channel),
            Open::Network(socket) => {
                SavedOpen::LostSocket { is_nonblocking: socket.is_nonblocking }
            }
            Open::File { .. } | Open::Folder { .. } | Open::HostFile { .. } => return None,
        })
    }

    /// Whether `saved` without [`HostParts`] leaves nothing out.
    pub(crate) fn can_be_saved(&self, tree: &Tree) -> bool {
        self.opens.iter().flatten().all(|SharedOpen { open, .. }| {
            let is_listed = matches!(open, Open::Folder { listing: Some(_), .. });
            !is_listed && self.saved_open(open, tree).is_some()
        })
    }

    /// Opens saved descriptors in a guest that has just started. Returns `None` if they are
    /// invalid.
    pub(crate) fn reopen(
        self,
        saved: &SavedDescriptors,
        tree: &Tree,
        parts: &HostParts,
    ) -> Option<Self> {
        let SavedDescriptors { slots, opens, pipes } = saved;
        let most = slots.len().max(opens.len()).max(pipes.len());
        if most > MOST_SAVED || slots.len() < self.first {
            return None;
        }
        let mut pipes = Pipes::revived(pipes.clone())?;
        let mut reopened = Vec::new();
        for open in opens {
            let open = match open {
                None => None,
                Some(open) => Some(self.reopen_one(open, tree, parts, &mut pipes)?),
            };
            reopened.push(open.map(|open| SharedOpen { open, count: 0 }));
        }
        for slot in slots.iter().flatten() {
            reopened.get_mut(slot.open as usize)?.as_mut()?.count += 1;
        }
        if reopened.iter().flatten().any(|shared| shared.count == 0) {
            return None;
        }
        let table = Self {
            slots: slots.clone().into(),
            opens: reopened.into(),
            first: self.first,
            pipes: pipes.settled()?,
        };
        let same = |fd: u32| table.preopened(fd).ok() == self.preopened(fd).ok();
        (0..self.first as u32).all(same).then_some(table)
    }

    fn reopen_one(
        &self,
        open: &SavedOpen,
        tree: &Tree,
        parts: &HostParts,
        pipes: &mut Pipes,
    ) -> Option<Open> {
        Some(match *open {
            SavedOpen::Stdin => Open::Stdin,
            SavedOpen::Stdout => Open::Stdout,
            SavedOpen::Stderr => Open::Stderr,
            SavedOpen::Preopened { fd } => {
                self.preopened(fd).ok()?;
                self.get(fd).ok()?.clone()
            }
            SavedOpen::File { node, offset, access } => {
                tree.node(node).ok().filter(|node| node.is_file())?;
                Open::File { node, offset, access }
            }
            SavedOpen::Device { node, access } => {
                Open::Device { node, device: tree.device(node)?, access }
            }
            SavedOpen::Folder { node } => {
                tree.entries(node).ok()?;
                Open::Folder { base: Base::Node(node), listing: None, preopened_as: None }
            }
            SavedOpen::Channel(channel) => {
                channel.receives.map_or(Some(()), |pipe| pipes.revive_reader(pipe))?;
                channel.sends.map_or(Some(()), |pipe| pipes.revive_writer(pipe))?;
                Open::Channel(channel)
            }
            SavedOpen::LostSocket { is_nonblocking } => {
                Open::Network(NetSocket::lost(is_nonblocking))
            }
            SavedOpen::HostFile { file, offset } => {
                Open::HostFile { file: Arc::clone(parts.files.get(file as usize)?), offset }
            }
            SavedOpen::HostFolder { mount, ref names } => {
                let (node, mount) = parts.mounts.get(mount as usize)?;
                let names = names.iter().map(|name| name.as_str().into()).collect();
                host_folder(HostPlace::below(Arc::clone(mount), *node, names)?)
            }
        })
    }
}
