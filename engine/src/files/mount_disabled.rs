//! Mounts on systems that can't confine a lookup to a folder: no host folder can be granted.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::errno::Errno;
pub use proxied::{FolderAnswer, FolderAsk, FolderIdentity, FolderServer, ProxiedFolder};

#[path = "mount/proxied.rs"]
mod proxied;

/// A folder of the host that a guest may read. On this system only other processes can have any.
#[derive(Debug, Clone)]
pub struct Mount(ProxiedFolder);

/// The error for a folder of the host that can't be granted.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[error("can't mount `{}`", path.display())]
pub struct InvalidMount {
    /// The folder.
    pub path: PathBuf,
    /// The system's error.
    #[source]
    pub cause: std::io::Error,
}

/// The `stat` result of a file or folder of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostStat {
    pub(crate) is_folder: bool,
    pub(crate) inode: u64,
    pub(crate) len: u64,
    pub(crate) accessed: u64,
    pub(crate) modified: u64,
    pub(crate) changed: u64,
}

impl Mount {
    /// Refuses every folder.
    ///
    /// # Errors
    /// Always: mounts need Linux.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, InvalidMount> {
        let cause = std::io::Error::new(std::io::ErrorKind::Unsupported, "mounts need Linux");
        Err(InvalidMount { path: path.as_ref().to_owned(), cause })
    }

    /// Refuses every folder.
    ///
    /// # Errors
    /// Always: mounts need Linux.
    pub fn open_modules(path: impl AsRef<Path>, _script: &str) -> Result<Self, InvalidMount> {
        Self::open(path)
    }

    /// Returns a folder that another process has opened and serves.
    pub fn proxied(folder: ProxiedFolder) -> Self {
        Self(folder)
    }

    /// Whether both are the same folder of the host.
    pub fn is_same_folder(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Returns what tells folders of this host apart.
    pub fn identity(&self) -> Option<FolderIdentity> {
        Some(self.0.identity())
    }

    /// Returns what the process that has opened the folder calls it.
    pub fn lent_number(&self) -> Option<u64> {
        Some(self.0.number())
    }

    /// Answers what another process asks of the folder. A file comes with its descriptor.
    pub fn serve(&self, ask: &FolderAsk) -> (FolderAnswer, Option<OwnedFd>) {
        proxied::serve(self, ask)
    }

    pub(crate) fn stat(&self, path: &str) -> Result<HostStat, Errno> {
        self.0.stat(path)
    }

    pub(crate) fn file(&self, path: &str) -> Result<File, Errno> {
        self.0.file(path)
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<(String, HostStat)>, Errno> {
        self.0.list(path)
    }
}

pub(crate) fn read_at(_file: &File, _offset: u64, _buffer: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::InputOutput)
}

pub(crate) fn stat_file(_file: &File) -> Result<HostStat, Errno> {
    Err(Errno::InputOutput)
}
