//! Mounts on systems that can't confine a lookup to a folder: no host folder can be granted.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::errno::Errno;

/// A folder of the host that a guest may read. There is none on this system.
#[derive(Debug)]
pub struct Mount(std::convert::Infallible);

/// The error for a folder of the host that can't be granted.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[error("can't mount `{}`: {cause}", path.display())]
pub struct InvalidMount {
    /// The folder.
    pub path: PathBuf,
    /// The system's error.
    pub cause: std::io::Error,
}

/// The `stat` result of a file or folder of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// Whether both mounts are the same folder of the host. No mount exists on this system.
    pub fn is_same_folder(&self, _other: &Self) -> bool {
        match self.0 {}
    }

    pub(crate) fn stat(&self, _path: &str) -> Result<HostStat, Errno> {
        match self.0 {}
    }

    pub(crate) fn file(&self, _path: &str) -> Result<File, Errno> {
        match self.0 {}
    }

    pub(crate) fn list(&self, _path: &str) -> Result<Vec<(String, HostStat)>, Errno> {
        match self.0 {}
    }
}

pub(crate) fn read_at(_file: &File, _offset: u64, _buffer: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::InputOutput)
}

pub(crate) fn stat_file(_file: &File) -> Result<HostStat, Errno> {
    Err(Errno::InputOutput)
}
