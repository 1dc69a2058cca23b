//! The functions of WASI preview 1 that work on descriptors.

use std::sync::Arc;

use super::Wasi;
use super::bytes::{Buffer, GuestBytes};
use super::descriptors::{CLOSES_ON_EXEC, FolderEntry, Open, OpenAccess};
use super::stat::{self, Filestat};
use crate::errno::{Errno, Result};
use crate::files::mount;
use crate::files::resolve::Base;
use crate::files::tree::Device;
use crate::files::tree::{NodeId, NodeKind};
use crate::interrupt::reason::StopReason;
use crate::run::transcript::Stream;

/// The most bytes that one call reads from a file of the host, so that no call takes long.
const MOST_HOST_BYTES: u32 = 1 << 20;
/// The fixed part of a folder's entry: next cookie, inode, length of the name, type.
const DIRENT_BYTES: usize = 24;

const APPEND: u32 = 1;
const SEEK_SET: u32 = 0;
const SEEK_CURRENT: u32 = 1;
const SEEK_END: u32 = 2;

impl Wasi {
    pub(crate) fn fd_advise(&mut self, fd: u32, _offset: u64, _len: u64, _advice: u32) -> Result {
        self.open.get(fd).map(drop)
    }

    /// Makes a file at least as long as the range; its blocks are allocated when they are written.
    pub(crate) fn fd_allocate(&mut self, fd: u32, offset: u64, len: u64) -> Result {
        let (node, ..) = self.file(fd, OpenAccess::WRITE)?;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(Errno::Invalid)?;
        match self.tree.node(node)?.len() {
            len if len < end => self.tree.set_len(node, end, self.clock.timestamp()),
            _ => Ok(()),
        }
    }

    pub(crate) fn fd_close(&mut self, fd: u32) -> Result {
        if let Some(file) = self.open.remove(fd)? {
            self.tree.drop_if_nameless(file);
        }
        Ok(())
    }

    pub(crate) fn fd_datasync(&mut self, fd: u32) -> Result {
        self.open.get(fd).map(drop)
    }

    pub(crate) fn fd_sync(&mut self, fd: u32) -> Result {
        self.open.get(fd)?;
        self.synced = Some(fd);
        Ok(())
    }

    pub(crate) fn fd_fdstat_get(&mut self, fd: u32, out: u32) -> Result {
        self.guest.write(out, &stat::fdstat(self.open.get(fd)?))
    }

    pub(crate) fn fd_fdstat_set_flags(&mut self, fd: u32, flags: u32) -> Result {
        match self.open.get_mut(fd)? {
            Open::File { access, .. } | Open::Device { access, .. } => {
                access.append = flags & APPEND != 0;
            }
            Open::Channel(channel) => channel.is_nonblocking = flags & stat::NONBLOCKING != 0,
            Open::Network(socket) => socket.is_nonblocking = flags & stat::NONBLOCKING != 0,
            // Nothing else ever blocks, so the other flags have no effect.
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn fd_filestat_get(&mut self, fd: u32, out: u32) -> Result {
        let filestat = self.filestat_of(fd)?;
        self.guest.write(out, &filestat.encode())
    }

    pub(super) fn filestat_of(&self, fd: u32) -> Result<Filestat> {
        Ok(match self.open.get(fd)? {
            Open::Stdin | Open::Stdout | Open::Stderr => Filestat::stream(fd),
            Open::Folder { base: Base::Node(node), .. } if self.tree.node(*node).is_err() => {
                Filestat::removed_folder(*node)
            }
            Open::File { node, .. }
            | Open::Device { node, .. }
            | Open::Folder { base: Base::Node(node), .. } => Filestat::node(&self.tree, *node)?,
            Open::Folder { base: Base::Host(place), .. } => {
                Filestat::host(&place.mount.stat(&place.path())?)
            }
            Open::HostFile { file, .. } => Filestat::host(&mount::stat_file(file)?),
            Open::Channel(channel) => Filestat::channel(fd, *channel),
            Open::Network(_) => Filestat::socket(fd),
        })
    }

    pub(crate) fn fd_filestat_set_size(&mut self, fd: u32, size: u64) -> Result {
        let (node, ..) = self.file(fd, OpenAccess::WRITE)?;
        self.tree.set_len(node, size, self.clock.timestamp())
    }

    pub(crate) fn fd_filestat_set_times(
        &mut self,
        fd: u32,
        accessed: u64,
        modified: u64,
        flags: u32,
    ) -> Result {
        let node = match self.open.get(fd)? {
            Open::File { node, .. }
            | Open::Device { node, .. }
            | Open::Folder { base: Base::Node(node), .. } => *node,
            Open::HostFile { .. } | Open::Folder { .. } => return Err(Errno::ReadOnly),
            Open::Stdin | Open::Stdout | Open::Stderr | Open::Channel(_) | Open::Network(_) => {
                return Err(Errno::Invalid);
            }
        };
        self.set_times(node, accessed, modified, flags)
    }

    pub(crate) fn fd_read(&mut self, fd: u32, buffers: u32, count: u32, out: u32) -> Result {
        let buffers = self.guest.buffers(buffers, count)?;
        let read = match self.open.get(fd)? {
            Open::Stdin => self.read_stdin(&buffers)?,
            Open::Stdout | Open::Stderr => return Err(Errno::BadDescriptor),
            Open::Folder { .. } => return Err(Errno::IsFolder),
            Open::Device { device, access, .. } => {
                let (device, access) = (*device, *access);
                self.read_device(device, access, &buffers)?
            }
            Open::Channel(channel) => self.receive(*channel, &buffers, false)?,
            Open::Network(_) => self.receive_from_network(fd, &buffers, 0)?,
            Open::File { offset, .. } | Open::HostFile { offset, .. } => {
                let offset = *offset;
                self.read_at(fd, &buffers, offset)?
            }
        };
        if let Open::File { offset, .. } | Open::HostFile { offset, .. } = self.open.get_mut(fd)? {
            *offset += u64::from(read);
        }
        self.guest.write_u32(out, read)
    }

    pub(crate) fn fd_pread(
        &mut self,
        fd: u32,
        buffers: u32,
        count: u32,
        offset: u64,
        out: u32,
    ) -> Result {
        let buffers = self.guest.buffers(buffers, count)?;
        let read = match self.open.get(fd)? {
            Open::Device { device, access, .. } => {
                let (device, access) = (*device, *access);
                self.read_device(device, access, &buffers)?
            }
            _ => self.read_at(fd, &buffers, offset)?,
        };
        self.guest.write_u32(out, read)
    }

    pub(crate) fn fd_write(&mut self, fd: u32, buffers: u32, count: u32, out: u32) -> Result {
        let buffers = self.guest.buffers(buffers, count)?;
        let written = match self.open.get(fd)? {
            Open::Stdout => self.write_stream(Stream::Stdout, &buffers)?,
            Open::Stderr => self.write_stream(Stream::Stderr, &buffers)?,
            Open::Stdin => return Err(Errno::BadDescriptor),
            Open::Device { access, .. } => write_device(&self.guest, *access, &buffers)?,
            Open::Channel(channel) => self.send(*channel, &buffers)?,
            Open::Network(_) => self.send_to_network(fd, &buffers)?,
            Open::File { .. } | Open::Folder { .. } | Open::HostFile { .. } => {
                let (node, offset, access) = self.file(fd, OpenAccess::WRITE)?;
                let start = if access.append { self.tree.node(node)?.len() } else { offset };
                let written = self.write_at(node, &buffers, start)?;
                if let Open::File { offset, .. } = self.open.get_mut(fd)? {
                    *offset = start + u64::from(written);
                }
                written
            }
        };
        self.guest.write_u32(out, written)
    }

    pub(crate) fn fd_pwrite(
        &mut self,
        fd: u32,
        buffers: u32,
        count: u32,
        offset: u64,
        out: u32,
    ) -> Result {
        let buffers = self.guest.buffers(buffers, count)?;
        let written = match self.open.get(fd)? {
            Open::Device { access, .. } => write_device(&self.guest, *access, &buffers)?,
            _ => {
                let (node, ..) = self.file(fd, OpenAccess::WRITE)?;
                self.write_at(node, &buffers, offset)?
            }
        };
        self.guest.write_u32(out, written)
    }

    pub(crate) fn fd_prestat_get(&mut self, fd: u32, out: u32) -> Result {
        let mut prestat = [0; 8];
        prestat[4..].copy_from_slice(&(self.open.preopened(fd)?.len() as u32).to_le_bytes());
        self.guest.write(out, &prestat)
    }

    pub(crate) fn fd_prestat_dir_name(&mut self, fd: u32, at: u32, len: u32) -> Result {
        let path = self.open.preopened(fd)?;
        if path.len() > len as usize {
            return Err(Errno::NameTooLong);
        }
        self.guest.write(at, path.as_bytes())
    }

    pub(crate) fn fd_readdir(
        &mut self,
        fd: u32,
        at: u32,
        len: u32,
        cookie: u64,
        out: u32,
    ) -> Result {
        let entries = self.listing(fd, cookie == 0)?;
        let first = usize::try_from(cookie).unwrap_or(usize::MAX).min(entries.len());
        let used = self.guest.with(Buffer { at, len: self.guest.bounded(len) }, |buffer| {
            let mut used = 0;
            for (index, entry) in entries.iter().enumerate().skip(first) {
                if used == buffer.len() {
                    break;
                }
                let mut dirent = [0; DIRENT_BYTES];
                dirent[..8].copy_from_slice(&(index as u64 + 1).to_le_bytes());
                dirent[8..16].copy_from_slice(&entry.inode.to_le_bytes());
                dirent[16..20].copy_from_slice(&(entry.name.len() as u32).to_le_bytes());
                dirent[20] = entry.kind;
                for piece in [&dirent[..], entry.name.as_bytes()] {
                    let fits = piece.len().min(buffer.len() - used);
                    buffer[used..used + fits].copy_from_slice(&piece[..fits]);
                    used += fits;
                }
            }
            used
        })?;
        self.guest.write_u32(out, used as u32)
    }

    pub(crate) fn fd_seek(&mut self, fd: u32, delta: i64, whence: u32, out: u32) -> Result {
        let (current, end) = match self.open.get(fd)? {
            Open::File { node, offset, .. } => (*offset, self.tree.node(*node)?.len()),
            Open::HostFile { file, offset } => (*offset, mount::stat_file(file)?.len),
            // Every seek on a device ends at 0, as on Linux.
            Open::Device { .. } => return self.guest.write_u64(out, 0),
            Open::Stdin | Open::Stdout | Open::Stderr | Open::Channel(_) | Open::Network(_) => {
                return Err(Errno::NotSeekable);
            }
            Open::Folder { .. } => return Err(Errno::IsFolder),
        };
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CURRENT => current,
            SEEK_END => end,
            _ => return Err(Errno::Invalid),
        };
        let position = from.checked_add_signed(delta).filter(|at| i64::try_from(*at).is_ok());
        let position = position.ok_or(Errno::Invalid)?;
        if let Open::File { offset, .. } | Open::HostFile { offset, .. } = self.open.get_mut(fd)? {
            *offset = position;
        }
        self.guest.write_u64(out, position)
    }

    pub(crate) fn fd_tell(&mut self, fd: u32, out: u32) -> Result {
        self.fd_seek(fd, 0, SEEK_CURRENT, out)
    }

    /// Returns the node, position and access of an open file of the tree, if the access allows
    /// `wanted`.
    fn file(&self, fd: u32, wanted: OpenAccess) -> Result<(NodeId, u64, OpenAccess)> {
        match self.open.get(fd)? {
            Open::File { node, offset, access } => {
                let is_allowed = (access.read || !wanted.read) && (access.write || !wanted.write);
                let file = (*node, *offset, *access);
                if is_allowed { Ok(file) } else { Err(Errno::BadDescriptor) }
            }
            Open::Folder { .. } => Err(Errno::IsFolder),
            Open::HostFile { .. } => Err(Errno::BadDescriptor),
            Open::Device { .. } => Err(Errno::Invalid),
            Open::Stdin | Open::Stdout | Open::Stderr | Open::Channel(_) | Open::Network(_) => {
                Err(Errno::NotSeekable)
            }
        }
    }

    fn read_stdin(&mut self, buffers: &[Buffer]) -> Result<u32> {
        self.stdin_number = self.stdin_numbers.next();
        let mut total = 0;
        for buffer in buffers {
            let rest = &self.stdin.0[self.stdin.1..];
            let count = rest.len().min(buffer.len as usize);
            self.guest.look(*buffer, |_| ())?;
            self.guest.write(buffer.at, &rest[..count])?;
            self.stdin.1 += count;
            total += count as u32;
        }
        Ok(total)
    }

    fn read_at(&self, fd: u32, buffers: &[Buffer], offset: u64) -> Result<u32> {
        let mut total = 0_u32;
        for buffer in buffers {
            let at = offset.checked_add(u64::from(total)).ok_or(Errno::Invalid)?;
            let read = match self.open.get(fd)? {
                Open::HostFile { file, .. } => {
                    let len = buffer.len.min(MOST_HOST_BYTES.saturating_sub(total));
                    self.guest
                        .with(Buffer { len, ..*buffer }, |to| mount::read_at(file, at, to))??
                }
                _ => {
                    let (node, ..) = self.file(fd, OpenAccess::READ)?;
                    self.guest.with(*buffer, |to| self.tree.read(node, at, to))??
                }
            };
            // Buffers can overlap, so their sum can exceed the guest's memory.
            total = total.checked_add(read as u32).ok_or(Errno::Invalid)?;
            if read < buffer.len as usize {
                break;
            }
        }
        Ok(total)
    }

    fn write_at(&mut self, node: NodeId, buffers: &[Buffer], offset: u64) -> Result<u32> {
        let now = self.clock.timestamp();
        let mut total = 0_u32;
        for buffer in buffers {
            let at = offset.checked_add(u64::from(total)).ok_or(Errno::TooLargeFile)?;
            let end = total.checked_add(buffer.len).ok_or(Errno::Invalid)?;
            let tree = &mut self.tree;
            match self.guest.look(*buffer, |from| tree.write(node, at, from, now))? {
                Ok(()) => total = end,
                // Report what was written; the next call gets the error.
                Err(_) if total > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(total)
    }

    fn write_stream(&mut self, stream: Stream, buffers: &[Buffer]) -> Result<u32> {
        let mut total = 0_u32;
        for buffer in buffers {
            let end = total.checked_add(buffer.len).ok_or(Errno::Invalid)?;
            self.guest.look(*buffer, |bytes| self.transcript.append(stream, bytes))?;
            total = end;
        }
        if self.stops_at_output_limit && self.transcript.is_truncated() {
            self.exceeded = Some(StopReason::Output);
        }
        Ok(total)
    }

    /// Returns the entries of an open folder as they were when it was last read from the start.
    pub(super) fn listing(&mut self, fd: u32, from_start: bool) -> Result<Arc<Vec<FolderEntry>>> {
        let Open::Folder { base, listing, .. } = self.open.get(fd)? else {
            return Err(Errno::NotFolder);
        };
        if let Some(listing) = listing.as_ref().filter(|_| !from_start) {
            return Ok(Arc::clone(listing));
        }
        let mut entries = vec![stat::folder_entry("."), stat::folder_entry("..")];
        match base {
            Base::Node(node) => {
                for (name, id) in self.tree.entries(*node)? {
                    let kind = stat::filetype(&self.tree.node(*id)?.kind);
                    entries.push(FolderEntry { name: Arc::clone(name), inode: id.number(), kind });
                }
            }
            Base::Host(place) => {
                for (name, stat) in place.mount.list(&place.path())? {
                    let kind = if stat.is_folder { stat::FOLDER } else { stat::FILE };
                    entries.push(FolderEntry { name: name.into(), inode: stat.inode, kind });
                }
            }
        }
        let entries = Arc::new(entries);
        if let Open::Folder { listing, .. } = self.open.get_mut(fd)? {
            *listing = Some(Arc::clone(&entries));
        }
        Ok(entries)
    }

    /// Whether the node is a link, which only some functions accept.
    pub(super) fn is_link(&self, node: NodeId) -> bool {
        matches!(self.tree.node(node).map(|node| &node.kind), Ok(NodeKind::Link(_)))
    }
}

impl OpenAccess {
    const READ: Self = Self { read: true, write: false, append: false };
    const WRITE: Self = Self { read: false, write: true, append: false };
}

/// In place of a descriptor in a request to duplicate one. `hatchery/_system.py` has it, too.
const SYNCED: u32 = u32::MAX - 1;

/// The most bytes that one call reads, so that no call takes long; programs call again.
const MOST_READ_BYTES: u32 = 1 << 20;

impl Wasi {
    pub(super) fn read_device(
        &mut self,
        device: Device,
        access: OpenAccess,
        buffers: &[Buffer],
    ) -> Result<u32> {
        if !access.read {
            return Err(Errno::BadDescriptor);
        }
        let mut total = 0_u32;
        for buffer in buffers {
            let len = buffer.len.min(MOST_READ_BYTES - total);
            let random = |bytes: &mut [u8]| self.random.fill(bytes);
            total +=
                self.guest.with(Buffer { len, ..*buffer }, |to| device.read(to, random))?? as u32;
        }
        Ok(total)
    }
}

/// Discards what is written, after checking that the buffers are in guest memory.
pub(super) fn write_device(
    guest: &GuestBytes,
    access: OpenAccess,
    buffers: &[Buffer],
) -> Result<u32> {
    if !access.write {
        return Err(Errno::BadDescriptor);
    }
    let mut total = 0_u32;
    for buffer in buffers {
        guest.look(*buffer, |_| ())?;
        total = total.checked_add(buffer.len).ok_or(Errno::Invalid)?;
    }
    Ok(total)
}

impl Wasi {
    /// WASIX's `fcntl(F_DUPFD)`.
    pub(crate) fn fd_dup2(&mut self, fd: u32, least: u32, closes_on_exec: u32, out: u32) -> Result {
        let copy = self.duplicate_from(fd, least, closes_on_exec != 0)?;
        self.guest.write_u32(out, copy)
    }

    /// Duplicates a descriptor, at this number or any. Returns the copy's. For [`SYNCED`], returns
    /// the number of the descriptor that was synchronised last, and forgets it.
    pub(crate) fn duplicate(&mut self, fd: u32, to: Option<u32>) -> Result<u32> {
        match (fd, to) {
            (SYNCED, _) => self.synced.take().ok_or(Errno::BadDescriptor),
            (_, Some(to)) => self.fd_renumber(fd, to).map(|()| to),
            (_, None) => self.duplicate_from(fd, 0, true),
        }
    }

    pub(super) fn duplicate_from(
        &mut self,
        fd: u32,
        least: u32,
        closes_on_exec: bool,
    ) -> Result<u32> {
        self.open.get(fd)?;
        self.admit_descriptors(1)?;
        self.open.duplicate(fd, least, closes_on_exec, self.tree.quota().open)
    }

    /// WASIX's meaning of `fd_renumber`, which is `dup2`: both descriptors stay open.
    pub(crate) fn fd_renumber(&mut self, fd: u32, to: u32) -> Result {
        self.open.get(fd)?;
        if self.open.is_free(to) {
            self.admit_descriptors(1)?;
        }
        let most = self.tree.quota().open;
        if let Some(file) = self.open.replace(fd, to, most)? {
            self.tree.drop_if_nameless(file);
        }
        Ok(())
    }

    /// Preview 1's meaning of `fd_renumber`: the first descriptor becomes the second.
    pub(crate) fn fd_move(&mut self, fd: u32, to: u32) -> Result {
        // Preview 1 replaces only what is open.
        self.open.get(to)?;
        self.fd_renumber(fd, to)?;
        if fd == to { Ok(()) } else { self.fd_close(fd) }
    }

    pub(crate) fn fd_fdflags_get(&mut self, fd: u32, out: u32) -> Result {
        let flags = if self.open.closes_on_exec(fd)? { CLOSES_ON_EXEC as u16 } else { 0 };
        self.guest.write(out, &flags.to_le_bytes())
    }

    pub(crate) fn fd_fdflags_set(&mut self, fd: u32, flags: u32) -> Result {
        self.open.set_closes_on_exec(fd, flags & CLOSES_ON_EXEC != 0)
    }
}
