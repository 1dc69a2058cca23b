//! A guest's table of open descriptors.
//!
//! A descriptor is a number that names an open file. Duplicates name the same one and share its
//! position, as in POSIX.

use std::fs::File;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pipe::{PipeId, Pipes};
use crate::errno::{Errno, Result};
use crate::files::mount::Mount;
use crate::files::resolve::{Base, HostPlace};
use crate::files::tree::Device;
use crate::files::tree::NodeId;
use crate::host::network::socket::NetSocket;

pub(crate) mod saved;

#[derive(Debug, Clone)]
pub(crate) enum Open {
    Stdin,
    Stdout,
    Stderr,
    File {
        node: NodeId,
        offset: u64,
        access: OpenAccess,
    },
    Folder {
        base: Base,
        listing: Option<Arc<Vec<FolderEntry>>>,
        preopened_as: Option<&'static str>,
    },
    HostFile {
        file: Arc<File>,
        offset: u64,
    },
    Device {
        node: NodeId,
        device: Device,
        access: OpenAccess,
    },
    Channel(Channel),
    /// A socket of a network.
    Network(NetSocket),
}

/// The operations that an open file allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenAccess {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Every write goes to the end.
    pub(crate) append: bool,
}

/// An end of a pipe, or one of two connected sockets, which are two pipes in opposite directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Channel {
    pub(crate) receives: Option<PipeId>,
    pub(crate) sends: Option<PipeId>,
    pub(crate) is_socket: bool,
    /// A call that would wait fails with `Again` instead.
    pub(crate) is_nonblocking: bool,
}

/// A folder's entry as it was when reading the folder began.
#[derive(Debug, Clone)]
pub(crate) struct FolderEntry {
    pub(crate) name: Arc<str>,
    pub(crate) inode: u64,
    pub(crate) kind: u8,
}

/// The number of standard streams: input, output and error.
const STANDARD: usize = 3;
/// Descriptors beyond the first have smaller numbers than this if a guest chooses them, so that the
/// table stays small.
const MOST_NUMBERS: usize = 1 << 16;
/// The flag of descriptors that close when the guest starts another program, which it can't.
pub(super) const CLOSES_ON_EXEC: u32 = 1;

#[derive(Debug, Clone)]
pub(crate) struct Descriptors {
    /// Shared until it changes: every reset copies a table, and few runs change theirs.
    slots: Arc<Vec<Option<Slot>>>,
    /// Invariant: an entry's count is the number of slots that name it, and at least one.
    opens: Arc<Vec<Option<SharedOpen>>>,
    /// The standard streams and the preopened folders, which come first.
    first: usize,
    pub(super) pipes: Pipes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    open: u32,
    /// Has no effect, since a guest can't start programs; it reads back what it set.
    closes_on_exec: bool,
}

/// What one or more descriptors name.
#[derive(Debug, Clone)]
struct SharedOpen {
    open: Open,
    count: u32,
}

impl Descriptors {
    /// Creates a table with the standard streams and preopened folders.
    pub(crate) fn new(preopened: impl IntoIterator<Item = (NodeId, &'static str)>) -> Self {
        let pipes = Pipes::default();
        let mut table = Self { slots: Arc::default(), opens: Arc::default(), first: 0, pipes };
        let folders = preopened.into_iter().map(|(node, path)| {
            let base = Base::Node(node);
            Open::Folder { base, listing: None, preopened_as: Some(path) }
        });
        for open in [Open::Stdin, Open::Stdout, Open::Stderr].into_iter().chain(folders) {
            let slot = table.share(open);
            Arc::make_mut(&mut table.slots).push(Some(slot));
        }
        table.first = table.slots.len();
        table
    }

    /// Reopens standard streams that an earlier run closed or replaced. Returns the files in their
    /// places that no descriptor names any more.
    pub(crate) fn restore_standard_streams(&mut self) -> Vec<NodeId> {
        let mut released = Vec::new();
        for (index, stream) in [Open::Stdin, Open::Stdout, Open::Stderr].into_iter().enumerate() {
            let is_there =
                |open: &Open| std::mem::discriminant(open) == std::mem::discriminant(&stream);
            if !self.get(index as u32).is_ok_and(is_there) {
                let slot = self.share(stream);
                let before = Arc::make_mut(&mut self.slots)[index].replace(slot);
                released.extend(before.and_then(|before| self.release(before)));
            }
        }
        released
    }

    /// Returns whether standard input is open and in its place.
    pub(crate) fn has_stdin(&self) -> bool {
        matches!(self.get(0), Ok(Open::Stdin))
    }

    pub(crate) fn get(&self, fd: u32) -> Result<&Open> {
        let slot = self.slot(fd)?;
        Ok(&self.opens[slot.open as usize].as_ref().expect("a slot names what is open").open)
    }

    pub(crate) fn get_mut(&mut self, fd: u32) -> Result<&mut Open> {
        let slot = self.slot(fd)?;
        Ok(&mut self.shared(slot).open)
    }

    fn shared(&mut self, slot: Slot) -> &mut SharedOpen {
        let shared = &mut Arc::make_mut(&mut self.opens)[slot.open as usize];
        shared.as_mut().expect("a slot names what is open")
    }

    fn slot(&self, fd: u32) -> Result<Slot> {
        self.slots.get(fd as usize).copied().flatten().ok_or(Errno::BadDescriptor)
    }

    pub(crate) fn preopened(&self, fd: u32) -> Result<&'static str> {
        match self.get(fd)? {
            Open::Folder { preopened_as: Some(path), .. } if (fd as usize) < self.first => Ok(path),
            _ => Err(Errno::BadDescriptor),
        }
    }

    /// Returns the folder from which paths are resolved.
    pub(crate) fn base(&self, fd: u32) -> Result<Base> {
        match self.get(fd)? {
            Open::Folder { base, .. } => Ok(base.clone()),
            _ => Err(Errno::NotFolder),
        }
    }

    /// Returns the number of descriptors that count against the limit: all but those that a guest
    /// starts with.
    pub(crate) fn count(&self) -> usize {
        self.slots.iter().skip(self.first).flatten().count()
    }

    /// Inserts at the lowest free number, as POSIX requires.
    pub(crate) fn insert(&mut self, open: Open) -> u32 {
        let slot = self.share(open);
        self.put(0, slot)
    }

    /// Duplicates a descriptor at the lowest free number from `least` on. Numbers stay below what
    /// `most` descriptors can need.
    pub(crate) fn duplicate(
        &mut self,
        fd: u32,
        least: u32,
        closes_on_exec: bool,
        most: usize,
    ) -> Result<u32> {
        let slot = self.slot(fd)?;
        if least as usize >= self.numbers(most) {
            return Err(Errno::Invalid);
        }
        self.shared(slot).count += 1;
        Ok(self.put(least as usize, Slot { closes_on_exec, ..slot }))
    }

    /// Makes `to` a duplicate of `fd`, and closes what it was before. Returns a file that no
    /// descriptor names any more.
    pub(crate) fn replace(&mut self, fd: u32, to: u32, most: usize) -> Result<Option<NodeId>> {
        let slot = self.slot(fd)?;
        if fd == to {
            return Ok(None);
        }
        let index = to as usize;
        if self.is_preopened(to) {
            return Err(Errno::NotPermitted);
        }
        if index >= self.numbers(most) {
            return Err(Errno::BadDescriptor);
        }
        self.shared(slot).count += 1;
        let slots = Arc::make_mut(&mut self.slots);
        if slots.len() <= index {
            slots.resize(index + 1, None);
        }
        let before = slots[index].replace(Slot { closes_on_exec: false, ..slot });
        Ok(before.and_then(|before| self.release(before)))
    }

    /// Returns how many numbers a guest can choose from that may have `most` descriptors.
    fn numbers(&self, most: usize) -> usize {
        self.first + most.min(MOST_NUMBERS)
    }

    /// Whether `replace` needs a descriptor more for `to`.
    pub(crate) fn is_free(&self, to: u32) -> bool {
        to as usize >= self.first && self.slot(to).is_err()
    }

    /// Closes a descriptor. Returns a file that no descriptor names any more. Preopened folders
    /// stay open: without them the guest's C library finds no files, in later runs either.
    pub(crate) fn remove(&mut self, fd: u32) -> Result<Option<NodeId>> {
        let slot = self.slot(fd)?;
        if self.is_preopened(fd) {
            return Err(Errno::NotPermitted);
        }
        Arc::make_mut(&mut self.slots)[fd as usize] = None;
        Ok(self.release(slot))
    }

    fn is_preopened(&self, fd: u32) -> bool {
        (STANDARD..self.first).contains(&(fd as usize))
    }

    pub(crate) fn closes_on_exec(&self, fd: u32) -> Result<bool> {
        Ok(self.slot(fd)?.closes_on_exec)
    }

    pub(crate) fn set_closes_on_exec(&mut self, fd: u32, closes: bool) -> Result {
        self.slot(fd)?;
        let slot = &mut Arc::make_mut(&mut self.slots)[fd as usize];
        slot.iter_mut().for_each(|slot| slot.closes_on_exec = closes);
        Ok(())
    }

    pub(crate) fn is_open(&self, file: NodeId) -> bool {
        let is_file = |open: &Open| matches!(open, Open::File { node, .. } if *node == file);
        self.opens.iter().flatten().any(|shared| is_file(&shared.open))
    }

    /// Opens a pipe. Returns the descriptors of the ends that read and write.
    pub(crate) fn open_pipe(&mut self) -> (u32, u32) {
        let pipe = self.pipes.create();
        let end = |receives, sends| {
            Open::Channel(Channel { receives, sends, is_socket: false, is_nonblocking: false })
        };
        (self.insert(end(Some(pipe), None)), self.insert(end(None, Some(pipe))))
    }

    pub(crate) fn open_sockets(&mut self) -> (u32, u32) {
        let (there, back) = (self.pipes.create(), self.pipes.create());
        let socket = |receives, sends| {
            let (receives, sends) = (Some(receives), Some(sends));
            Open::Channel(Channel { receives, sends, is_socket: true, is_nonblocking: false })
        };
        (self.insert(socket(back, there)), self.insert(socket(there, back)))
    }

    /// Closes one direction or both of a socket, for all its descriptors.
    pub(crate) fn shut_down(&mut self, fd: u32, reading: bool, writing: bool) -> Result {
        let Open::Channel(channel) = self.get_mut(fd)? else { return Err(Errno::NotSocket) };
        let receives = reading.then(|| channel.receives.take()).flatten();
        let sends = writing.then(|| channel.sends.take()).flatten();
        self.close_ends(receives, sends);
        Ok(())
    }

    /// Returns the number of sockets of a network that aren't lost.
    pub(crate) fn sockets(&self) -> usize {
        let is_one = |open: &Open| matches!(open, Open::Network(socket) if !socket.is_lost());
        self.opens.iter().flatten().filter(|shared| is_one(&shared.open)).count()
    }

    /// Ends every connection. Their descriptors stay open, so that their numbers don't come to name
    /// something else behind the guest's back.
    pub(crate) fn lose_sockets(&mut self) {
        let is_socket = |shared: &SharedOpen| matches!(shared.open, Open::Network(_));
        if !self.opens.iter().flatten().any(is_socket) {
            // The list stays shared with the state that it was copied from.
            return;
        }
        for shared in Arc::make_mut(&mut self.opens).iter_mut().flatten() {
            if let Open::Network(socket) = &mut shared.open {
                socket.lose();
            }
        }
    }

    fn close_ends(&mut self, receives: Option<PipeId>, sends: Option<PipeId>) {
        if let Some(pipe) = receives {
            self.pipes.close_reader(pipe);
        }
        if let Some(pipe) = sends {
            self.pipes.close_writer(pipe);
        }
    }

    fn share(&mut self, open: Open) -> Slot {
        let opens = Arc::make_mut(&mut self.opens);
        let free = opens.iter().position(Option::is_none).unwrap_or(opens.len());
        if free == opens.len() {
            opens.push(None);
        }
        opens[free] = Some(SharedOpen { open, count: 1 });
        let open = u32::try_from(free).expect("descriptors are bounded");
        Slot { open, closes_on_exec: false }
    }

    /// Puts a slot at the lowest free number from `least` on that isn't a standard stream's.
    fn put(&mut self, least: usize, slot: Slot) -> u32 {
        let least = least.max(STANDARD);
        let slots = Arc::make_mut(&mut self.slots);
        let free = slots.iter().skip(least).position(Option::is_none);
        let index = free.map_or(slots.len().max(least), |index| index + least);
        if index >= slots.len() {
            slots.resize(index + 1, None);
        }
        slots[index] = Some(slot);
        u32::try_from(index).expect("descriptors are bounded")
    }

    /// Takes back a name of what is open. Returns a file that has no name left.
    fn release(&mut self, slot: Slot) -> Option<NodeId> {
        let shared = self.shared(slot);
        shared.count -= 1;
        if shared.count > 0 {
            return None;
        }
        match Arc::make_mut(&mut self.opens)[slot.open as usize].take()?.open {
            Open::File { node, .. } => Some(node).filter(|node| !self.is_open(*node)),
            Open::Channel(Channel { receives, sends, .. }) => {
                self.close_ends(receives, sends);
                None
            }
            _ => None,
        }
    }
}

pub(crate) fn host_folder(place: HostPlace) -> Open {
    Open::Folder { base: Base::Host(place), listing: None, preopened_as: None }
}

pub(crate) fn host_file(mount: &Mount, path: &str) -> Result<Open> {
    Ok(Open::HostFile { file: Arc::new(mount.file(path)?), offset: 0 })
}

#[cfg(test)]
mod tests;
