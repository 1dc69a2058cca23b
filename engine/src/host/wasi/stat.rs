//! What `stat` and its relatives report. Layouts: WASI preview 1, `filestat` (64 bytes) and
//! `fdstat` (24 bytes); Emscripten, `struct stat` (96 bytes).

use super::descriptors::{Channel, FolderEntry, Open, OpenAccess};
use crate::errno::Result;
use crate::files::mount::HostStat;
use crate::files::tree::{NodeId, NodeKind, Tree};

/// The file type of a pipe, which WASI has no number for.
const PIPE: u8 = 0;
/// The file type of a character device, which streams have.
pub(super) const STREAM: u8 = 2;
pub(super) const FOLDER: u8 = 3;
pub(super) const FILE: u8 = 4;
/// The file type of a socket for a stream of bytes.
const SOCKET: u8 = 6;
pub(super) const LINK: u8 = 7;

/// Rights of preview 1. Only reading and writing have an effect here.
pub(super) const RIGHT_READ: u64 = 1 << 1;
pub(super) const RIGHT_WRITE: u64 = 1 << 6;
/// All 30 rights. A character device with the right to seek is no terminal to the guest's C
/// library.
const EVERY_RIGHT: u64 = (1 << 30) - 1;

pub(super) const APPEND: u32 = 1;
pub(super) const NONBLOCKING: u32 = 4;

/// What `stat` says about reading and writing at once.
const BLOCK_BYTES: u32 = 4096;
const NANOSECONDS: u64 = 1_000_000_000;

/// The device numbers of in-memory files and of mounted folders.
const DEVICE_MEMORY: u64 = 1;
const DEVICE_HOST: u64 = 2;

/// The result of `stat`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filestat {
    device: u64,
    inode: u64,
    kind: u8,
    links: u64,
    len: u64,
    accessed: u64,
    modified: u64,
    changed: u64,
}

impl Filestat {
    pub(super) fn stream(fd: u32) -> Self {
        Self { inode: u64::from(fd), kind: STREAM, links: 1, ..Self::default() }
    }

    pub(super) fn channel(fd: u32, channel: Channel) -> Self {
        Self { inode: u64::from(fd), kind: kind_of(channel), links: 1, ..Self::default() }
    }

    pub(super) fn socket(fd: u32) -> Self {
        Self { inode: u64::from(fd), kind: SOCKET, links: 1, ..Self::default() }
    }

    pub(super) fn node(tree: &Tree, id: NodeId) -> Result<Self> {
        let node = tree.node(id)?;
        Ok(Self {
            device: DEVICE_MEMORY,
            inode: id.number(),
            kind: filetype(&node.kind),
            links: node.links,
            len: node.len(),
            accessed: node.accessed,
            modified: node.modified,
            changed: node.changed,
        })
    }

    pub(super) fn removed_folder(id: NodeId) -> Self {
        Self { device: DEVICE_MEMORY, inode: id.number(), kind: FOLDER, ..Self::default() }
    }

    pub(super) fn host(stat: &HostStat) -> Self {
        Self {
            device: DEVICE_HOST,
            inode: stat.inode,
            kind: if stat.is_folder { FOLDER } else { FILE },
            links: 1,
            len: stat.len,
            accessed: stat.accessed,
            modified: stat.modified,
            changed: stat.changed,
        }
    }

    pub(super) fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let words = [
            self.device,
            self.inode,
            u64::from(self.kind),
            self.links,
            self.len,
            self.accessed,
            self.modified,
            self.changed,
        ];
        for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn encode_for_emscripten(&self) -> [u8; 96] {
        let mut bytes = [0; 96];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &(self.device as u32).to_le_bytes());
        put(4, &mode(self.kind).to_le_bytes());
        put(8, &(self.links as u32).to_le_bytes());
        put(24, &self.len.to_le_bytes());
        put(32, &BLOCK_BYTES.to_le_bytes());
        put(36, &(self.len.div_ceil(512) as u32).to_le_bytes());
        for (at, time) in [(40, self.accessed), (56, self.modified), (72, self.changed)] {
            put(at, &(time / NANOSECONDS).to_le_bytes());
            put(at + 8, &((time % NANOSECONDS) as u32).to_le_bytes());
        }
        put(88, &self.inode.to_le_bytes());
        bytes
    }
}

/// Returns a kind of file as Linux has it, and permissions, which a guest always has.
pub(super) fn mode(kind: u8) -> u32 {
    match kind {
        FOLDER => 0o040_755,
        FILE => 0o100_644,
        LINK => 0o120_777,
        STREAM => 0o020_666,
        SOCKET => 0o140_666,
        _ => 0o010_666,
    }
}

/// Encodes type, flags and rights of an open descriptor.
pub(super) fn fdstat(open: &Open) -> [u8; 24] {
    let (kind, flags, rights) = match open {
        Open::Stdin | Open::Stdout | Open::Stderr => (STREAM, 0, EVERY_RIGHT),
        Open::Folder { .. } => (FOLDER, 0, EVERY_RIGHT),
        Open::HostFile { .. } => (FILE, 0, EVERY_RIGHT & !RIGHT_WRITE),
        Open::Device { access, .. } => (STREAM, flags(*access), rights(*access)),
        Open::File { access, .. } => (FILE, flags(*access), rights(*access)),
        Open::Channel(channel) => {
            let flags = if channel.is_nonblocking { NONBLOCKING as u16 } else { 0 };
            let is_socket = channel.is_socket;
            let read = is_socket || channel.receives.is_some();
            let write = is_socket || channel.sends.is_some();
            (kind_of(*channel), flags, rights(OpenAccess { read, write, append: false }))
        }
        Open::Network(socket) => {
            let flags = if socket.is_nonblocking { NONBLOCKING as u16 } else { 0 };
            (SOCKET, flags, EVERY_RIGHT)
        }
    };
    let mut bytes = [0; 24];
    bytes[0] = kind;
    bytes[2..4].copy_from_slice(&flags.to_le_bytes());
    bytes[8..16].copy_from_slice(&rights.to_le_bytes());
    bytes[16..24].copy_from_slice(&EVERY_RIGHT.to_le_bytes());
    bytes
}

fn kind_of(channel: Channel) -> u8 {
    if channel.is_socket { SOCKET } else { PIPE }
}

/// Returns the flags of a file that was opened with `access`.
fn flags(access: OpenAccess) -> u16 {
    if access.append { APPEND as u16 } else { 0 }
}

/// Returns the rights of a file that was opened with `access`.
fn rights(access: OpenAccess) -> u64 {
    let mut rights = EVERY_RIGHT;
    if !access.read {
        rights &= !RIGHT_READ;
    }
    if !access.write {
        rights &= !RIGHT_WRITE;
    }
    rights
}

pub(super) fn filetype(kind: &NodeKind) -> u8 {
    match kind {
        NodeKind::File(_) | NodeKind::Fixed(_) => FILE,
        NodeKind::Device(_) => STREAM,
        NodeKind::Folder { .. } | NodeKind::Mount { .. } => FOLDER,
        NodeKind::Link(_) => LINK,
    }
}

pub(super) fn folder_entry(name: &str) -> FolderEntry {
    FolderEntry { name: name.into(), inode: 0, kind: FOLDER }
}
