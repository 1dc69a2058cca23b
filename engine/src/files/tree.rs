//! The tree of a guest's files: a table of nodes, the folders that name them, and their usage.
//!
//! Nodes and folder entries are in persistent maps. So copying a whole tree costs a few references
//! and copies share what they have in common. The library that every guest sees is the fixed part
//! of the tree.
//!
//! Limits are checked before anything is allocated. Nothing here recurses, so deep trees are safe.

use std::sync::Arc;

use bytes::Bytes;
use rpds::RedBlackTreeMapSync;

use super::contents::Contents;
use super::mount::Mount;
use super::quota::{FileQuota, FileUsage, Refusals};
use crate::errno::{Errno, Result};
use crate::limits::{LimitHit, LimitKind};

pub(crate) mod names;
pub(crate) mod saved;

/// Identifies a file, folder or link in its tree and in copies of that tree.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct NodeId(u64);

impl NodeId {
    pub(crate) const ROOT: Self = Self(0);

    /// Returns the inode number that `stat` reports.
    pub(crate) fn number(self) -> u64 {
        self.0 + 1
    }
}

pub(crate) type Entries = RedBlackTreeMapSync<Arc<str>, NodeId>;

/// Nanoseconds since 1970.
pub(crate) type Timestamp = u64;

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// The number of names. A file without one lives until its last descriptor is closed.
    pub(crate) links: u64,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    /// Whether no guest can change this node.
    pub(crate) is_fixed: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    File(Contents),
    /// A file of the library, shared by every guest.
    Fixed(Bytes),
    Device(Device),
    Folder {
        parent: NodeId,
        entries: Entries,
    },
    Link(Arc<str>),
    /// A folder of the host, read through its descriptor.
    Mount {
        parent: NodeId,
        mount: Arc<Mount>,
    },
}

impl Node {
    fn new(kind: NodeKind, now: Timestamp) -> Self {
        Self { kind, links: 1, accessed: now, modified: now, changed: now, is_fixed: false }
    }

    /// Returns the length of a file or of a link's target, in bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.kind {
            NodeKind::File(contents) => contents.len(),
            NodeKind::Fixed(contents) => contents.len() as u64,
            NodeKind::Link(target) => target.len() as u64,
            NodeKind::Device(_) | NodeKind::Folder { .. } | NodeKind::Mount { .. } => 0,
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, NodeKind::File(_) | NodeKind::Fixed(_))
    }

    /// Returns the charge for `bytes` of this file: once per name, since an export contains a file
    /// for each name. A file without a name is charged once.
    fn charged(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.links.max(1))
    }

    fn touch(&mut self, now: Timestamp) {
        self.modified = now;
        self.changed = now;
    }
}

/// The tree of a guest's files. Clones are independent and share unchanged nodes.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: RedBlackTreeMapSync<NodeId, Node>,
    next: NodeId,
    /// Invariant E-6: the usage of the nodes that aren't fixed.
    usage: FileUsage,
    /// The highest byte usage since the run began.
    peak_bytes: u64,
    quota: FileQuota,
    is_read_only: bool,
    /// Grows with every change.
    version: u64,
    refusals: Refusals,
}

impl Default for Tree {
    fn default() -> Self {
        let root = NodeKind::Folder { parent: NodeId::ROOT, entries: Entries::new_sync() };
        let root = Node { is_fixed: true, ..Node::new(root, 0) };
        let mut nodes = RedBlackTreeMapSync::new_sync();
        nodes.insert_mut(NodeId::ROOT, root);
        Self {
            nodes,
            next: NodeId(1),
            usage: FileUsage::default(),
            peak_bytes: 0,
            quota: FileQuota::NONE,
            is_read_only: false,
            version: 0,
            refusals: Refusals::default(),
        }
    }
}

impl Tree {
    /// Begins a run with its quota; a run that `is_read_only` can't change anything.
    pub(crate) fn begin(&mut self, quota: FileQuota, is_read_only: bool) {
        self.quota = quota;
        self.is_read_only = is_read_only;
        self.refusals = Refusals::default();
        self.peak_bytes = self.usage.bytes;
    }

    pub(crate) fn exceeds(&self, quota: FileQuota) -> Option<LimitHit> {
        let FileUsage { bytes, count } = self.usage;
        [(LimitKind::FileBytes, quota.bytes, bytes), (LimitKind::FileCount, quota.count, count)]
            .into_iter()
            .find(|(_, allowed, used)| used > allowed)
            .map(|(limit, allowed, used)| LimitHit::new(limit, allowed, used))
    }

    /// Returns to an earlier state. Node ids are never reused, so descriptors of files that are
    /// gone become stale.
    pub(crate) fn undo_to(&mut self, earlier: &Self) {
        let next = self.next;
        let version = self.version + 1;
        *self = Self { next, version, ..earlier.clone() };
    }

    /// Returns the files without a name.
    pub(crate) fn nameless(&self) -> Vec<NodeId> {
        let nameless = |(id, node): (&NodeId, &Node)| (node.links == 0).then_some(*id);
        self.nodes.iter().filter_map(nameless).collect()
    }

    /// Makes everything so far part of the library, and fixed except for the `writable` folders.
    pub(crate) fn fix(&mut self, writable: &[NodeId]) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.node_mut(id).is_fixed = !writable.contains(&id);
        }
        self.usage = FileUsage::default();
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn quota(&self) -> FileQuota {
        self.quota
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn refusals_mut(&mut self) -> &mut Refusals {
        &mut self.refusals
    }

    /// Returns the node; `Stale` if it is gone because a run was undone.
    pub(crate) fn node(&self, id: NodeId) -> Result<&Node> {
        self.nodes.get(&id).ok_or(Errno::Stale)
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.version += 1;
        self.nodes.get_mut(&id).expect("the caller has looked the node up")
    }

    pub(crate) fn is_fixed(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.is_fixed)
    }

    pub(crate) fn device(&self, id: NodeId) -> Option<Device> {
        match self.nodes.get(&id)?.kind {
            NodeKind::Device(device) => Some(device),
            _ => None,
        }
    }

    pub(crate) fn entries(&self, folder: NodeId) -> Result<&Entries> {
        match &self.node(folder)?.kind {
            NodeKind::Folder { entries, .. } => Ok(entries),
            _ => Err(Errno::NotFolder),
        }
    }

    pub(crate) fn lookup(&self, folder: NodeId, name: &str) -> Result<Option<NodeId>> {
        Ok(self.entries(folder)?.get(name).copied())
    }

    /// Returns the parent folder; the root is its own parent.
    pub(crate) fn parent(&self, folder: NodeId) -> Result<NodeId> {
        match &self.node(folder)?.kind {
            NodeKind::Folder { parent, .. } | NodeKind::Mount { parent, .. } => Ok(*parent),
            _ => Err(Errno::NotFolder),
        }
    }

    pub(crate) fn read(&self, file: NodeId, at: u64, buffer: &mut [u8]) -> Result<usize> {
        match &self.node(file)?.kind {
            NodeKind::File(contents) => Ok(contents.read(at, buffer)),
            NodeKind::Fixed(contents) => {
                let rest = usize::try_from(at).ok().and_then(|at| contents.get(at..));
                let rest = rest.unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
            NodeKind::Folder { .. } | NodeKind::Mount { .. } => Err(Errno::IsFolder),
            NodeKind::Device(_) | NodeKind::Link(_) => Err(Errno::Invalid),
        }
    }

    pub(crate) fn write(&mut self, file: NodeId, at: u64, bytes: &[u8], now: Timestamp) -> Result {
        if bytes.is_empty() {
            return self.writable(file).map(drop);
        }
        let end = at.checked_add(bytes.len() as u64).ok_or(Errno::TooLargeFile)?;
        let len = self.writable(file)?;
        self.charge_bytes(self.node(file)?.charged(end.saturating_sub(len)))?;
        let node = self.node_mut(file);
        node.touch(now);
        let NodeKind::File(contents) = &mut node.kind else { unreachable!("`writable` checks it") };
        contents.write(at, bytes);
        Ok(())
    }

    pub(crate) fn set_len(&mut self, file: NodeId, len: u64, now: Timestamp) -> Result {
        let before = self.writable(file)?;
        self.charge_bytes(self.node(file)?.charged(len.saturating_sub(before)))?;
        self.usage.bytes -= self.node(file)?.charged(before.saturating_sub(len));
        let node = self.node_mut(file);
        node.touch(now);
        let NodeKind::File(contents) = &mut node.kind else { unreachable!("`writable` checks it") };
        contents.set_len(len);
        Ok(())
    }

    pub(crate) fn set_times(
        &mut self,
        id: NodeId,
        accessed: Option<Timestamp>,
        modified: Option<Timestamp>,
        now: Timestamp,
    ) -> Result {
        self.changeable(id)?;
        let node = self.node_mut(id);
        node.accessed = accessed.unwrap_or(node.accessed);
        node.modified = modified.unwrap_or(node.modified);
        node.changed = now;
        Ok(())
    }

    /// Returns the length of a file that can be written to.
    pub(crate) fn writable(&self, file: NodeId) -> Result<u64> {
        let node = self.node(file)?;
        match &node.kind {
            NodeKind::File(contents) if !self.is_read_only => Ok(contents.len()),
            NodeKind::File(_) | NodeKind::Fixed(_) => Err(Errno::ReadOnly),
            NodeKind::Folder { .. } | NodeKind::Mount { .. } => Err(Errno::IsFolder),
            NodeKind::Device(_) | NodeKind::Link(_) => Err(Errno::Invalid),
        }
    }

    /// Checks that the node, or the entries of a folder, can be changed.
    fn changeable(&self, id: NodeId) -> Result {
        let node = self.node(id)?;
        if node.is_fixed || self.is_read_only { Err(Errno::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.usage.bytes
    }

    /// Returns the bytes of files that it has beside `base`, an earlier state of it or of what it
    /// was copied from. Both are copies of `library`, which has files of its own.
    pub(crate) fn bytes_beside(&self, base: &Self, library: &Self) -> u64 {
        if self.version == base.version {
            return 0;
        }
        let of = |(id, node): (&NodeId, &Node)| match (&node.kind, base.nodes.get(id)) {
            (NodeKind::File(own), Some(Node { kind: NodeKind::File(base), .. })) => {
                own.bytes_beside(Some(base))
            }
            (NodeKind::File(own), _) => own.bytes_beside(None),
            _ => 0,
        };
        self.nodes.range(library.next..).map(of).sum()
    }

    /// Returns the most bytes charged since the run began.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    fn charge_bytes(&mut self, more: u64) -> Result {
        let wanted = self.usage.bytes.saturating_add(more);
        if more > 0 && wanted > self.quota.bytes {
            self.refusals.note(LimitKind::FileBytes, self.quota.bytes, wanted);
            return Err(Errno::NoSpace);
        }
        self.usage.bytes = wanted;
        self.peak_bytes = self.peak_bytes.max(wanted);
        Ok(())
    }

    fn charge_count(&mut self) -> Result {
        let wanted = self.usage.count + 1;
        if wanted > self.quota.count {
            self.refusals.note(LimitKind::FileCount, self.quota.count, wanted);
            return Err(Errno::NoSpace);
        }
        self.usage.count = wanted;
        Ok(())
    }
}

/// A device of the guest. Every device but the streams discards what is written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// Reads as empty.
    Null,
    /// Reads as endless zeroes.
    Zero,
    /// Reads as endless random bytes.
    Random,
    /// The channel of a command build's agent (`host/call_channel/device.rs`); here it reads as
    /// empty.
    CallChannel,
    /// Opening it opens standard input; the position is shared, as with a pipe.
    Stdin,
    /// Opening it opens standard output.
    Stdout,
    /// Opening it opens standard error.
    Stderr,
}

impl Device {
    /// Reads into `buffer`, taking random bytes from `random`; returns the number of bytes read.
    pub(crate) fn read(
        self,
        buffer: &mut [u8],
        random: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result<usize> {
        match self {
            Self::Null | Self::CallChannel | Self::Stdin | Self::Stdout | Self::Stderr => {
                return Ok(0);
            }
            Self::Zero => buffer.fill(0),
            Self::Random => random(buffer)?,
        }
        Ok(buffer.len())
    }
}

#[cfg(test)]
mod tests;
