//! Names in folders: creating, linking, renaming and removing entries.

use std::sync::Arc;

use super::{Entries, Node, NodeId, NodeKind, Timestamp, Tree};
use crate::errno::{Errno, Result};
use crate::files::contents::Contents;
use crate::files::mount::Mount;
use crate::files::quota::{MOST_DEPTH, MOST_NAME_BYTES, MOST_PATH_BYTES};

impl Tree {
    pub(crate) fn create_file(
        &mut self,
        folder: NodeId,
        name: &str,
        now: Timestamp,
    ) -> Result<NodeId> {
        self.create(folder, name, NodeKind::File(Contents::default()), now)
    }

    pub(crate) fn create_folder(
        &mut self,
        folder: NodeId,
        name: &str,
        now: Timestamp,
    ) -> Result<NodeId> {
        let kind = NodeKind::Folder { parent: folder, entries: Entries::new_sync() };
        self.create(folder, name, kind, now)
    }

    pub(crate) fn create_link(
        &mut self,
        folder: NodeId,
        name: &str,
        target: &str,
        now: Timestamp,
    ) -> Result<NodeId> {
        if target.is_empty() {
            return Err(Errno::NoEntry);
        }
        if target.len() > MOST_PATH_BYTES {
            return Err(Errno::NameTooLong);
        }
        self.create(folder, name, NodeKind::Link(target.into()), now)
    }

    /// Adds a node under a new name.
    fn create(
        &mut self,
        folder: NodeId,
        name: &str,
        kind: NodeKind,
        now: Timestamp,
    ) -> Result<NodeId> {
        self.check_new_name(folder, name)?;
        let node = Node::new(kind, now);
        self.charge_name(node.len())?;
        Ok(self.insert(folder, name, node, now))
    }

    /// Adds a node to the library, even below a fixed folder. Only the host does this.
    pub(crate) fn create_fixed(
        &mut self,
        folder: NodeId,
        name: &str,
        kind: NodeKind,
        now: Timestamp,
    ) -> Result<NodeId> {
        check_name(name)?;
        if self.lookup(folder, name)?.is_some() {
            return Err(Errno::Exists);
        }
        let node = Node { is_fixed: true, ..Node::new(kind, now) };
        Ok(self.insert(folder, name, node, now))
    }

    /// Replaces the host folder that a mount shows.
    pub(crate) fn replace_mount(&mut self, id: NodeId, mount: &Arc<Mount>) -> Result {
        if !matches!(self.node(id)?.kind, NodeKind::Mount { .. }) {
            return Err(Errno::Exists);
        }
        if let NodeKind::Mount { mount: shown, .. } = &mut self.node_mut(id).kind {
            *shown = Arc::clone(mount);
        }
        Ok(())
    }

    /// Charges one name of a node with `len` bytes: entry and bytes, or neither.
    fn charge_name(&mut self, len: u64) -> Result {
        self.charge_count()?;
        self.charge_bytes(len).inspect_err(|_| self.usage.count -= 1)
    }

    fn insert(&mut self, folder: NodeId, name: &str, node: Node, now: Timestamp) -> NodeId {
        let id = self.next;
        self.next = NodeId(id.0 + 1);
        self.nodes.insert_mut(id, node);
        self.set_entry(folder, name, Some(id), now);
        id
    }

    pub(crate) fn add_name(
        &mut self,
        file: NodeId,
        folder: NodeId,
        name: &str,
        now: Timestamp,
    ) -> Result {
        self.check_new_name(folder, name)?;
        if matches!(self.node(file)?.kind, NodeKind::Folder { .. } | NodeKind::Mount { .. }) {
            return Err(Errno::NotPermitted);
        }
        // Guests may not link to the library's files.
        self.changeable(file)?;
        // A name is charged like a file.
        let len = self.node(file)?.len();
        self.charge_name(len)?;
        let node = self.node_mut(file);
        node.links += 1;
        node.changed = now;
        self.set_entry(folder, name, Some(file), now);
        Ok(())
    }

    /// Removes a name of a file or link. A file that `is_open` lives on without a name.
    pub(crate) fn remove_file(
        &mut self,
        folder: NodeId,
        name: &str,
        is_open: impl Fn(NodeId) -> bool,
        now: Timestamp,
    ) -> Result {
        let id = self.lookup(folder, name)?.ok_or(Errno::NoEntry)?;
        self.changeable(folder)?;
        match &self.node(id)?.kind {
            NodeKind::Folder { .. } | NodeKind::Mount { .. } => return Err(Errno::IsFolder),
            NodeKind::File(_) | NodeKind::Fixed(_) | NodeKind::Device(_) | NodeKind::Link(_) => {}
        }
        self.changeable(id)?;
        self.set_entry(folder, name, None, now);
        self.unlink(id, is_open(id), now);
        Ok(())
    }

    pub(crate) fn remove_folder(&mut self, folder: NodeId, name: &str, now: Timestamp) -> Result {
        let id = self.lookup(folder, name)?.ok_or(Errno::NoEntry)?;
        self.changeable(folder)?;
        self.changeable(id)?;
        if !self.entries(id)?.is_empty() {
            return Err(Errno::NotEmpty);
        }
        self.set_entry(folder, name, None, now);
        self.usage.count -= 1;
        self.nodes.remove_mut(&id);
        Ok(())
    }

    /// Renames an entry and replaces what the new name names, as POSIX requires.
    pub(crate) fn rename(
        &mut self,
        from: (NodeId, &str),
        to: (NodeId, &str),
        is_open: impl Fn(NodeId) -> bool,
        now: Timestamp,
    ) -> Result {
        let id = self.lookup(from.0, from.1)?.ok_or(Errno::NoEntry)?;
        self.changeable(from.0)?;
        self.changeable(to.0)?;
        self.changeable(id)?;
        check_name(to.1)?;
        let replaced = self.lookup(to.0, to.1)?;
        if replaced == Some(id) {
            return Ok(());
        }
        let is_folder = matches!(self.node(id)?.kind, NodeKind::Folder { .. });
        let height = if is_folder { self.height(id)? } else { 0 };
        if is_folder && self.is_within(to.0, id)? {
            return Err(Errno::Invalid);
        }
        if self.depth(to.0)? + height >= MOST_DEPTH {
            return Err(Errno::NameTooLong);
        }
        if let Some(replaced) = replaced {
            self.changeable(replaced)?;
            match (&self.node(replaced)?.kind, is_folder) {
                (NodeKind::Folder { entries, .. }, true) if !entries.is_empty() => {
                    return Err(Errno::NotEmpty);
                }
                (NodeKind::Folder { .. }, true) => self.remove_folder(to.0, to.1, now)?,
                (NodeKind::Folder { .. } | NodeKind::Mount { .. }, _) => {
                    return Err(Errno::IsFolder);
                }
                (_, true) => return Err(Errno::NotFolder),
                (_, false) => self.remove_file(to.0, to.1, is_open, now)?,
            }
        }
        self.set_entry(from.0, from.1, None, now);
        self.set_entry(to.0, to.1, Some(id), now);
        let node = self.node_mut(id);
        node.changed = now;
        if let NodeKind::Folder { parent, .. } = &mut node.kind {
            *parent = to.0;
        }
        Ok(())
    }

    /// Drops the file if it has no name. Call it only for files that aren't open.
    pub(crate) fn drop_if_nameless(&mut self, id: NodeId) {
        if let Ok(node) = self.node(id)
            && node.links == 0
        {
            self.usage.bytes -= node.len();
            self.nodes.remove_mut(&id);
        }
    }

    fn unlink(&mut self, id: NodeId, is_open: bool, now: Timestamp) {
        // The name is no longer charged; the bytes of an open file stay charged once.
        self.usage.count -= 1;
        let node = self.node_mut(id);
        node.links -= 1;
        node.changed = now;
        let (len, links) = (node.len(), node.links);
        if links > 0 {
            self.usage.bytes -= len;
        }
        if !is_open {
            self.drop_if_nameless(id);
        }
    }

    fn set_entry(&mut self, folder: NodeId, name: &str, id: Option<NodeId>, now: Timestamp) {
        let node = self.node_mut(folder);
        node.touch(now);
        let NodeKind::Folder { entries, .. } = &mut node.kind else {
            unreachable!("only folders have entries");
        };
        match id {
            Some(id) => entries.insert_mut(name.into(), id),
            None => drop(entries.remove_mut(name)),
        }
    }

    fn check_new_name(&self, folder: NodeId, name: &str) -> Result {
        check_name(name)?;
        if self.lookup(folder, name)?.is_some() {
            return Err(Errno::Exists);
        }
        self.changeable(folder)?;
        if self.depth(folder)? >= MOST_DEPTH { Err(Errno::NameTooLong) } else { Ok(()) }
    }

    /// Returns the number of folders above; the root has none.
    pub(super) fn depth(&self, mut folder: NodeId) -> Result<usize> {
        let mut depth = 0;
        while folder != NodeId::ROOT {
            folder = self.parent(folder)?;
            depth += 1;
        }
        Ok(depth)
    }

    /// Returns the height of the subtree; a folder without subfolders has height 1.
    fn height(&self, folder: NodeId) -> Result<usize> {
        let mut highest = 0;
        let mut pending = vec![(folder, 1)];
        while let Some((folder, height)) = pending.pop() {
            highest = highest.max(height);
            let NodeKind::Folder { entries, .. } = &self.node(folder)?.kind else { continue };
            for id in entries.values() {
                if matches!(self.node(*id)?.kind, NodeKind::Folder { .. }) {
                    pending.push((*id, height + 1));
                }
            }
        }
        Ok(highest)
    }

    fn is_within(&self, mut folder: NodeId, outer: NodeId) -> Result<bool> {
        loop {
            if folder == outer {
                return Ok(true);
            }
            if folder == NodeId::ROOT {
                return Ok(false);
            }
            folder = self.parent(folder)?;
        }
    }
}

pub(crate) fn check_name(name: &str) -> Result {
    match name {
        "" | "." | ".." => Err(Errno::Invalid),
        _ if name.len() > MOST_NAME_BYTES => Err(Errno::NameTooLong),
        _ => Ok(()),
    }
}
