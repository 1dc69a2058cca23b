//! The files of a hierarchy of control groups.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;

/// Keeps others from removing a folder for as long as it lives.
pub(super) type Claim = Box<dyn Debug + Send + Sync>;

/// What the groups of a pool need of a system. Unit tests have one that keeps the rules of version 2.
pub(crate) trait Files: Debug + Send + Sync {
    /// Returns `$HATCHERY_CGROUP`.
    fn wanted(&self) -> Option<PathBuf>;
    /// Returns the groups of this process and the mounts that it sees: `/proc/self/cgroup` and
    /// `/proc/self/mountinfo`.
    fn own(&self) -> io::Result<(String, String)>;
    /// Returns whether a service manager has marked a group as delegated.
    fn is_marked(&self, group: &Path) -> bool;
    fn read(&self, file: &Path) -> io::Result<String>;
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
    /// Opens a file that is there, to write to it.
    fn open(&self, file: &Path) -> io::Result<OwnedFd>;
    fn make(&self, group: &Path) -> io::Result<()>;
    /// Removes a group that has neither processes nor groups.
    fn remove(&self, group: &Path) -> io::Result<()>;
    /// Returns the groups right below a group.
    fn groups_in(&self, group: &Path) -> io::Result<Vec<PathBuf>>;
    /// Claims a group for this process; `None` if another one has it, or it is gone.
    fn claim(&self, group: &Path) -> io::Result<Option<Claim>>;
}

/// The hierarchies of this system.
#[derive(Debug)]
pub(crate) struct Kernel;

impl Files for Kernel {
    fn wanted(&self) -> Option<PathBuf> {
        std::env::var_os("HATCHERY_CGROUP").filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn own(&self) -> io::Result<(String, String)> {
        Ok((fs::read_to_string("/proc/self/cgroup")?, fs::read_to_string("/proc/self/mountinfo")?))
    }

    fn is_marked(&self, group: &Path) -> bool {
        // systemd sets both, of which only root can read the second.
        ["user.delegate", "trusted.delegate"].into_iter().any(|name| {
            let mut value = [0; 8];
            getxattr(group, name, &mut value).is_ok_and(|length| value[..length] == *b"1")
        })
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        fs::read_to_string(file)
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
    }

    fn open(&self, file: &Path) -> io::Result<OwnedFd> {
        Ok(OpenOptions::new().write(true).open(file)?.into())
    }

    fn make(&self, group: &Path) -> io::Result<()> {
        fs::create_dir(group)
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        fs::remove_dir(group)
    }

    fn groups_in(&self, group: &Path) -> io::Result<Vec<PathBuf>> {
        let mut groups = Vec::new();
        for entry in fs::read_dir(group)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                groups.push(entry.path());
            }
        }
        Ok(groups)
    }

    fn claim(&self, group: &Path) -> io::Result<Option<Claim>> {
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let folder = match File::open(group) {
            Err(error) if is_gone(&error) => return Ok(None),
            folder => folder?,
        };
        match folder.try_lock() {
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        // Its owner may have removed it meanwhile.
        match fs::metadata(group) {
            Err(error) if is_gone(&error) => Ok(None),
            found => Ok((found?.ino() == folder.metadata()?.ino()).then(|| Box::new(folder) as _)),
        }
    }
}
