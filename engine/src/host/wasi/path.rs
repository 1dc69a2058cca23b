//! The functions of WASI preview 1 that work on paths, and WASIX's `path_open2`.
#![expect(clippy::too_many_arguments, reason = "the signatures are WASI's")]

use std::collections::VecDeque;

use super::Wasi;
use super::bytes::Buffer;
use super::descriptors::{CLOSES_ON_EXEC, Open, OpenAccess, host_file, host_folder};
use super::stat::{Filestat, RIGHT_READ, RIGHT_WRITE};
use crate::errno::{Errno, Result};
use crate::files::quota::MOST_PATH_BYTES;
use crate::files::resolve::{
    Base, HostPlace, Links, ResolvedPath, absolute, resolve, resolve_parent,
};
use crate::files::tree::Device;
use crate::files::tree::{NodeId, NodeKind};
use crate::limits::LimitKind;

const FOLLOW: u32 = 1;

const CREATE: u32 = 1;
const FOLDER: u32 = 2;
const EXCLUSIVE: u32 = 4;
const TRUNCATE: u32 = 8;

const APPEND: u32 = 1;

pub(super) const SET_ACCESSED: u32 = 1;
pub(super) const ACCESSED_NOW: u32 = 2;
pub(super) const SET_MODIFIED: u32 = 4;
pub(super) const MODIFIED_NOW: u32 = 8;

impl Wasi {
    pub(crate) fn path_create_directory(&mut self, fd: u32, path: u32, len: u32) -> Result {
        let path = Buffer { at: path, len };
        match self.place(fd, 0, path) {
            Ok(ResolvedPath::Node(_)) => return Err(Errno::Exists),
            Ok(ResolvedPath::Host(place)) => {
                return Err(match place.mount.stat(&place.path()) {
                    Ok(_) => Errno::Exists,
                    Err(Errno::NoEntry) => Errno::ReadOnly,
                    Err(errno) => errno,
                });
            }
            Ok(ResolvedPath::Vacant { .. }) | Err(_) => {}
        }
        let (folder, name, _) = self.parent(fd, path)?;
        self.tree.create_folder(folder, &name, self.clock.timestamp()).map(drop)
    }

    pub(crate) fn path_filestat_get(
        &mut self,
        fd: u32,
        flags: u32,
        path: u32,
        len: u32,
        out: u32,
    ) -> Result {
        let filestat = self.filestat_at(fd, flags, Buffer { at: path, len })?;
        self.guest.write(out, &filestat.encode())
    }

    pub(super) fn filestat_at(&mut self, fd: u32, flags: u32, path: Buffer) -> Result<Filestat> {
        let filestat = self.place(fd, flags, path).and_then(|place| match place {
            ResolvedPath::Node(node) => Filestat::node(&self.tree, node),
            ResolvedPath::Host(place) => Ok(Filestat::host(&place.mount.stat(&place.path())?)),
            ResolvedPath::Vacant { .. } => Err(Errno::NoEntry),
        });
        self.note_missed(path, filestat.as_ref().err());
        filestat
    }

    pub(crate) fn path_filestat_set_times(
        &mut self,
        fd: u32,
        flags: u32,
        path: u32,
        len: u32,
        accessed: u64,
        modified: u64,
        times: u32,
    ) -> Result {
        let node = self.own_node(fd, flags, Buffer { at: path, len })?;
        self.set_times(node, accessed, modified, times)
    }

    pub(crate) fn path_link(
        &mut self,
        old_fd: u32,
        old_flags: u32,
        old_path: u32,
        old_len: u32,
        new_fd: u32,
        new_path: u32,
        new_len: u32,
    ) -> Result {
        let file = self.own_node(old_fd, old_flags, Buffer { at: old_path, len: old_len })?;
        let (folder, name, is_folder) =
            self.parent(new_fd, Buffer { at: new_path, len: new_len })?;
        if is_folder {
            return Err(Errno::NoEntry);
        }
        self.tree.add_name(file, folder, &name, self.clock.timestamp())
    }

    pub(crate) fn path_open(
        &mut self,
        fd: u32,
        look: u32,
        path: u32,
        len: u32,
        how: u32,
        rights: u64,
        inherited: u64,
        flags: u32,
        out: u32,
    ) -> Result {
        self.path_open2(fd, look, path, len, how, rights, inherited, flags, 0, out)
    }

    /// WASIX's `path_open`, with the flag that closes the descriptor when another program starts.
    pub(crate) fn path_open2(
        &mut self,
        fd: u32,
        look: u32,
        path: u32,
        len: u32,
        how: u32,
        rights: u64,
        _inherited: u64,
        flags: u32,
        more_flags: u32,
        out: u32,
    ) -> Result {
        let path = Buffer { at: path, len };
        let closes_on_exec = more_flags & CLOSES_ON_EXEC != 0;
        let opened = self.open_path(fd, look, path, how, rights, flags, closes_on_exec)?;
        self.guest.write_u32(out, opened)
    }

    /// Opens a path. Returns its descriptor.
    pub(super) fn open_path(
        &mut self,
        fd: u32,
        look: u32,
        path: Buffer,
        how: u32,
        rights: u64,
        flags: u32,
        closes_on_exec: bool,
    ) -> Result<u32> {
        let opened = self.open_at(fd, look, path, how, rights, flags);
        if how & CREATE == 0 {
            self.note_missed(path, opened.as_ref().err());
        } else if opened.is_err() {
            self.sought.forget(&self.guest.text(path, MOST_PATH_BYTES)?);
        }
        let opened = opened?;
        self.open.set_closes_on_exec(opened, closes_on_exec)?;
        Ok(opened)
    }

    /// Notes that a path was to be read, if the reason why it wasn't is that nothing is there.
    fn note_missed(&mut self, path: Buffer, errno: Option<&Errno>) {
        if errno == Some(&Errno::NoEntry)
            && let Ok(path) = self.guest.text(path, MOST_PATH_BYTES)
        {
            self.sought.miss(&path);
        }
    }

    fn open_at(
        &mut self,
        fd: u32,
        look: u32,
        path: Buffer,
        how: u32,
        rights: u64,
        flags: u32,
    ) -> Result<u32> {
        self.admit_descriptors(1)?;
        let access = OpenAccess {
            read: rights & RIGHT_READ != 0,
            write: rights & RIGHT_WRITE != 0,
            append: flags & APPEND != 0,
        };
        // Exclusive creation refuses even a dangling link.
        let look = if how & (CREATE | EXCLUSIVE) == CREATE | EXCLUSIVE { 0 } else { look };
        let open = match self.place(fd, look, path)? {
            ResolvedPath::Node(node) => self.open_node(node, how, access)?,
            ResolvedPath::Host(place) => open_host(place, how, access)?,
            ResolvedPath::Vacant { .. } if how & CREATE == 0 => return Err(Errno::NoEntry),
            ResolvedPath::Vacant { .. } if how & FOLDER != 0 => return Err(Errno::Invalid),
            ResolvedPath::Vacant { folder, name } => {
                let node = self.tree.create_file(folder, &name, self.clock.timestamp())?;
                Open::File { node, offset: 0, access }
            }
        };
        Ok(self.open.insert(open))
    }

    /// Refuses more descriptors than the limit.
    pub(super) fn admit_descriptors(&mut self, more: usize) -> Result {
        let quota = self.tree.quota().open;
        let wanted = self.open.count().saturating_add(more);
        if wanted > quota {
            let refusals = self.tree.refusals_mut();
            refusals.note(LimitKind::OpenFiles, quota as u64, wanted as u64);
            return Err(Errno::TooManyOpen);
        }
        Ok(())
    }

    pub(crate) fn path_readlink(
        &mut self,
        fd: u32,
        path: u32,
        len: u32,
        buffer: u32,
        buffer_len: u32,
        out: u32,
    ) -> Result {
        let into = Buffer { at: buffer, len: buffer_len };
        let count = self.read_link(fd, Buffer { at: path, len }, into)?;
        self.guest.write_u32(out, count)
    }

    /// Writes where a link leads, as far as that fits. Returns the length of what is written.
    pub(super) fn read_link(&mut self, fd: u32, path: Buffer, into: Buffer) -> Result<u32> {
        let node = match self.place(fd, 0, path)? {
            ResolvedPath::Node(node) => node,
            ResolvedPath::Vacant { .. } => return Err(Errno::NoEntry),
            ResolvedPath::Host(place) => {
                place.mount.stat(&place.path())?;
                return Err(Errno::Invalid);
            }
        };
        let NodeKind::Link(target) = &self.tree.node(node)?.kind else {
            return Err(Errno::Invalid);
        };
        let count = target.len().min(into.len as usize);
        self.guest.write(into.at, &target.as_bytes()[..count])?;
        Ok(count as u32)
    }

    pub(crate) fn path_remove_directory(&mut self, fd: u32, path: u32, len: u32) -> Result {
        let (folder, name, _) = self.parent(fd, Buffer { at: path, len })?;
        self.tree.remove_folder(folder, &name, self.clock.timestamp())
    }

    pub(crate) fn path_rename(
        &mut self,
        fd: u32,
        path: u32,
        len: u32,
        new_fd: u32,
        new_path: u32,
        new_len: u32,
    ) -> Result {
        let from = self.parent(fd, Buffer { at: path, len })?;
        let to = self.parent(new_fd, Buffer { at: new_path, len: new_len })?;
        if from.2 || to.2 {
            // A path that ends in `/` names a folder.
            let node = self.tree.lookup(from.0, &from.1)?.ok_or(Errno::NoEntry)?;
            self.tree.entries(node)?;
        }
        let (open, now) = (&self.open, self.clock.timestamp());
        let (from, to) = ((from.0, &*from.1), (to.0, &*to.1));
        self.tree.rename(from, to, |node| open.is_open(node), now)
    }

    pub(crate) fn path_symlink(
        &mut self,
        target: u32,
        target_len: u32,
        fd: u32,
        path: u32,
        len: u32,
    ) -> Result {
        let target = self.guest.text(Buffer { at: target, len: target_len }, MOST_PATH_BYTES)?;
        if target.contains('\0') {
            return Err(Errno::Invalid);
        }
        let (folder, name, is_folder) = self.parent(fd, Buffer { at: path, len })?;
        if is_folder {
            return Err(Errno::NoEntry);
        }
        self.tree.create_link(folder, &name, &target, self.clock.timestamp()).map(drop)
    }

    pub(crate) fn path_unlink_file(&mut self, fd: u32, path: u32, len: u32) -> Result {
        let (folder, name, is_folder) = self.parent(fd, Buffer { at: path, len })?;
        if is_folder {
            return Err(Errno::NotFolder);
        }
        let open = &self.open;
        let now = self.clock.timestamp();
        self.tree.remove_file(folder, &name, |node| open.is_open(node), now)
    }

    /// Resolves a path of the guest.
    fn place(&self, fd: u32, flags: u32, path: Buffer) -> Result<ResolvedPath> {
        let base = self.base(fd)?;
        let path = self.guest.text(path, MOST_PATH_BYTES)?;
        let links = if flags & FOLLOW != 0 { Links::Follow } else { Links::Keep };
        resolve(&self.tree, base, &path, links).map_err(gone)
    }

    /// Resolves a path of the guest to a node that isn't in a mounted folder.
    pub(super) fn own_node(&self, fd: u32, flags: u32, path: Buffer) -> Result<NodeId> {
        match self.place(fd, flags, path)? {
            ResolvedPath::Node(node) => Ok(node),
            ResolvedPath::Host(_) => Err(Errno::ReadOnly),
            ResolvedPath::Vacant { .. } => Err(Errno::NoEntry),
        }
    }

    /// Resolves a path of the guest at which something is to be made, moved or removed.
    fn parent(&mut self, fd: u32, path: Buffer) -> Result<(NodeId, std::sync::Arc<str>, bool)> {
        let base = self.base(fd)?;
        let path = self.guest.text(path, MOST_PATH_BYTES)?;
        self.sought.forget(&path);
        resolve_parent(&self.tree, base, &path).map_err(gone)
    }

    fn open_node(&mut self, node: NodeId, how: u32, access: OpenAccess) -> Result<Open> {
        if how & (CREATE | EXCLUSIVE) == CREATE | EXCLUSIVE {
            return Err(Errno::Exists);
        }
        if self.is_link(node) {
            return Err(Errno::Loop);
        }
        if matches!(self.tree.node(node)?.kind, NodeKind::Folder { .. }) {
            if access.write || how & (CREATE | TRUNCATE) != 0 {
                return Err(Errno::IsFolder);
            }
            let base = Base::Node(node);
            return Ok(Open::Folder { base, listing: None, preopened_as: None });
        }
        if how & FOLDER != 0 {
            return Err(Errno::NotFolder);
        }
        if let Some(device) = self.tree.device(node) {
            return Ok(match device {
                Device::Stdin => Open::Stdin,
                Device::Stdout => Open::Stdout,
                Device::Stderr => Open::Stderr,
                device => Open::Device { node, device, access },
            });
        }
        if access.write || how & TRUNCATE != 0 {
            self.tree.writable(node)?;
        }
        if how & TRUNCATE != 0 {
            self.tree.set_len(node, 0, self.clock.timestamp())?;
        }
        Ok(Open::File { node, offset: 0, access })
    }

    pub(super) fn set_times(
        &mut self,
        node: NodeId,
        accessed: u64,
        modified: u64,
        flags: u32,
    ) -> Result {
        let now = self.clock.timestamp();
        let pick = |set, set_now, given| match (flags & set != 0, flags & set_now != 0) {
            (true, true) => Err(Errno::Invalid),
            (true, false) => Ok(Some(given)),
            (false, true) => Ok(Some(now)),
            (false, false) => Ok(None),
        };
        let accessed = pick(SET_ACCESSED, ACCESSED_NOW, accessed)?;
        let modified = pick(SET_MODIFIED, MODIFIED_NOW, modified)?;
        self.tree.set_times(node, accessed, modified, now)
    }
}

/// Maps `Stale` to `NoEntry`: nothing exists in a folder that was removed while it was open.
fn gone(errno: Errno) -> Errno {
    if errno == Errno::Stale { Errno::NoEntry } else { errno }
}

fn open_host(place: HostPlace, how: u32, access: OpenAccess) -> Result<Open> {
    let path = place.path();
    match place.mount.stat(&path) {
        Err(Errno::NoEntry) if how & CREATE != 0 => Err(Errno::ReadOnly),
        Err(errno) => Err(errno),
        Ok(_) if how & (CREATE | EXCLUSIVE) == CREATE | EXCLUSIVE => Err(Errno::Exists),
        Ok(_) if access.write || how & TRUNCATE != 0 => Err(Errno::ReadOnly),
        Ok(stat) if stat.is_folder => Ok(host_folder(place)),
        Ok(_) if how & FOLDER != 0 => Err(Errno::NotFolder),
        Ok(_) => host_file(&place.mount, &path),
    }
}

/// How many paths are remembered, the latest ones. Imports look for some, too.
const MOST: usize = 64;

/// Paths that were to be read, and weren't there.
#[derive(Debug, Default)]
pub(crate) struct Sought(VecDeque<Box<str>>);

impl Sought {
    /// Notes that nothing was found at this path.
    pub(super) fn miss(&mut self, path: &str) {
        self.forget(path);
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(path.into());
    }

    /// Notes that something was to be changed or made at this path: an error is about that.
    pub(super) fn forget(&mut self, path: &str) {
        self.0.retain(|missed| &**missed != path);
    }

    /// Returns whether a file was missed that a program calls this, perhaps in another folder.
    pub(crate) fn has_missed(&self, path: &str) -> bool {
        let name = |path: &str| path.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
        self.0.iter().any(|missed| name(missed) == name(path))
    }
}

/// Returns whether a guest's current folder can have this path; it needn't exist.
pub(crate) fn is_workdir(path: &str) -> bool {
    path.starts_with('/') && path.len() <= MOST_PATH_BYTES
}

impl Wasi {
    pub(crate) fn chdir(&mut self, path: u32, len: u32) -> Result {
        let path = self.guest.text(Buffer { at: path, len }, MOST_PATH_BYTES)?;
        let from = if path.starts_with('/') { Base::Node(NodeId::ROOT) } else { self.workdir()? };
        self.enter(&self.folder(from, &path)?)
    }

    /// Makes a folder the current one.
    pub(super) fn enter(&mut self, folder: &Base) -> Result {
        let path = absolute(&self.tree, folder)?;
        if path.len() > MOST_PATH_BYTES {
            return Err(Errno::NameTooLong);
        }
        self.workdir = path.into();
        Ok(())
    }

    /// Writes the path with a NUL at its end, and its length without. If it doesn't fit, writes the
    /// length that it needs.
    pub(crate) fn getcwd(&mut self, path: u32, len: u32) -> Result {
        self.workdir()?;
        let room = u32::from_le_bytes(self.guest.read(len)?) as usize;
        if self.workdir.len() >= room {
            self.guest.write_u32(len, self.workdir.len() as u32 + 1)?;
            return Err(Errno::Range);
        }
        self.guest.write(path, &[self.workdir.as_bytes(), &[0]].concat())?;
        self.guest.write_u32(len, self.workdir.len() as u32)
    }

    /// Returns the current folder, if it still exists.
    pub(super) fn workdir(&self) -> Result<Base> {
        self.folder(Base::Node(NodeId::ROOT), &self.workdir)
    }

    fn folder(&self, from: Base, path: &str) -> Result<Base> {
        match resolve(&self.tree, from, path, Links::Follow)? {
            ResolvedPath::Node(node) => {
                self.tree.entries(node)?;
                Ok(Base::Node(node))
            }
            ResolvedPath::Host(place) if place.mount.stat(&place.path())?.is_folder => {
                Ok(Base::Host(place))
            }
            ResolvedPath::Host(_) => Err(Errno::NotFolder),
            ResolvedPath::Vacant { .. } => Err(Errno::NoEntry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_missed_until_something_else_was_done_with_its_path() {
        let mut sought = Sought::default();
        sought.miss("workspace/d/a.csv");
        assert!(sought.has_missed("a.csv") && sought.has_missed("/workspace/d/a.csv"));
        assert!(!sought.has_missed("d") && !sought.has_missed("b.csv"));
        sought.forget("workspace/d/a.csv");
        assert!(!sought.has_missed("a.csv"));
        (0..=MOST).for_each(|number| sought.miss(&number.to_string()));
        assert!(!sought.has_missed("0") && sought.has_missed("1"));
    }
}
