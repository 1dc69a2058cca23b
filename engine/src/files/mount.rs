//! A folder of the host that a guest may read, and nothing outside it.
//!
//! The caller who grants the folder opens it once; scripts in the same folder share its descriptor.
//! Every lookup then asks the kernel to stay below that descriptor and to follow no link. It uses
//! `openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`. So neither `..` nor a link nor a
//! well-timed rename leads outside. Only files and folders are shown, since opening a pipe or a
//! device could block or have side effects.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use rustix::io::Errno as SystemError;
use serde::{Deserialize, Serialize};

use crate::errno::{Errno, Result};
pub use proxied::{FolderAnswer, FolderAsk, FolderIdentity, FolderServer, ProxiedFolder};

mod proxied;

/// The most entries that a listing returns; listing a larger folder is an error.
const MOST_ENTRIES: usize = 100_000;

/// The open folders of scripts, by path: thousands of waiting jobs whose scripts are in one folder
/// share one descriptor. A folder is closed when no job uses it.
static FOLDERS_OF_SCRIPTS: Mutex<BTreeMap<PathBuf, Weak<OwnedFd>>> = Mutex::new(BTreeMap::new());

/// A folder of the host that a guest may read.
#[derive(derive_more::Debug)]
#[debug("Mount({place:?})")]
pub struct Mount {
    place: MountSource,
}

#[derive(Clone, derive_more::Debug)]
enum MountSource {
    #[debug("{:?}", _0.path)]
    Here(Folder),
    /// Another process has opened the folder.
    #[debug("{_0:?}")]
    Proxied(ProxiedFolder),
}

#[derive(Clone)]
struct Folder {
    folder: Arc<OwnedFd>,
    #[expect(dead_code, reason = "`Debug` alone shows it")]
    path: PathBuf,
    /// The name of the script, if only the script and modules are shown.
    script: Option<String>,
}

/// The error for a folder of the host that can't be granted.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[error("can't mount `{}` (give a folder that exists and that you can read)", path.display())]
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
    /// Opens the folder, following links to it. The grant stays with this folder, even if its path
    /// comes to name another.
    ///
    /// # Errors
    /// The path doesn't exist, isn't a folder, or can't be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, InvalidMount> {
        let path = path.as_ref();
        let folder = Folder { folder: open(path)?, path: path.to_owned(), script: None };
        Ok(Self { place: MountSource::Here(folder) })
    }

    /// Opens the folder of a script. A guest sees only the script itself and what it can import as
    /// Python source. Those are files that end in `.py`, in the folder and in subfolders without a
    /// dot in their names. Scripts granted from the same folder share one descriptor.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_modules(path: impl AsRef<Path>, script: &str) -> Result<Self, InvalidMount> {
        let path = path.as_ref();
        let (folder, script) = (open_shared(path)?, Some(script.to_owned()));
        Ok(Self { place: MountSource::Here(Folder { folder, path: path.to_owned(), script }) })
    }

    /// Returns a folder that another process has opened and serves.
    pub fn proxied(folder: ProxiedFolder) -> Self {
        Self { place: MountSource::Proxied(folder) }
    }

    /// Whether both are the same folder of the host.
    pub fn is_same_folder(&self, other: &Self) -> bool {
        self.identity().is_some_and(|own| other.identity() == Some(own))
    }

    /// Returns what tells folders of this host apart, if the folder is still there.
    pub fn identity(&self) -> Option<FolderIdentity> {
        match &self.place {
            MountSource::Here(Folder { folder, .. }) => {
                let stat = fstat(folder).ok()?;
                Some(FolderIdentity { device: stat.st_dev, inode: stat.st_ino })
            }
            MountSource::Proxied(folder) => Some(folder.identity()),
        }
    }

    /// Returns what the process that has opened the folder calls it, if another one has.
    pub fn lent_number(&self) -> Option<u64> {
        match &self.place {
            MountSource::Here(_) => None,
            MountSource::Proxied(folder) => Some(folder.number()),
        }
    }

    /// Answers what another process asks of the folder. A file comes with its descriptor.
    pub fn serve(&self, ask: &FolderAsk) -> (FolderAnswer, Option<OwnedFd>) {
        proxied::serve(self, ask)
    }

    pub(crate) fn stat(&self, path: &str) -> Result<HostStat> {
        match &self.place {
            MountSource::Here(folder) => folder.stat(path),
            MountSource::Proxied(folder) => folder.stat(path),
        }
    }

    pub(crate) fn file(&self, path: &str) -> Result<File> {
        match &self.place {
            MountSource::Here(folder) => folder.file(path),
            MountSource::Proxied(folder) => folder.file(path),
        }
    }

    /// Lists the names in a folder that a guest is shown, sorted.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<(String, HostStat)>> {
        match &self.place {
            MountSource::Here(folder) => folder.list(path),
            MountSource::Proxied(folder) => folder.list(path),
        }
    }
}

impl Folder {
    /// Whether a guest is shown this path below the folder.
    fn shows(&self, path: &str, is_folder: bool) -> bool {
        let Some(script) = &self.script else { return true };
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_shown = match is_folder {
            true => path == "." || !name.contains('.'),
            false => path == script || name.ends_with(".py") && !name.starts_with('.'),
        };
        is_shown && !folders.contains('.')
    }

    fn stat(&self, path: &str) -> Result<HostStat> {
        let place = self.open_below(path, OFlags::PATH)?;
        let stat = shown(&fstat(&place).map_err(errno)?)?;
        if self.shows(path, stat.is_folder) { Ok(stat) } else { Err(Errno::NoEntry) }
    }

    fn file(&self, path: &str) -> Result<File> {
        if self.stat(path)?.is_folder {
            return Err(Errno::IsFolder);
        }
        // Something else may be there by now. So don't block while opening it, and check it again.
        let file = self.open_below(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        if shown(&fstat(&file).map_err(errno)?)?.is_folder {
            return Err(Errno::IsFolder);
        }
        Ok(File::from(file))
    }

    /// Lists the names in a folder that a guest is shown, sorted.
    fn list(&self, path: &str) -> Result<Vec<(String, HostStat)>> {
        if !self.shows(path, true) {
            return Err(Errno::NoEntry);
        }
        let folder = self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let below =
            |name: &str| if path == "." { name.to_owned() } else { format!("{path}/{name}") };
        let entries = rustix::fs::Dir::read_from(&folder).map_err(errno)?;
        let mut names = Vec::new();
        for (index, entry) in entries.enumerate() {
            if index >= MOST_ENTRIES {
                return Err(Errno::Overflow);
            }
            let entry = entry.map_err(errno)?;
            // A name that isn't UTF-8 can't be passed to a guest.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            let stat = statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.ok().and_then(|stat| shown(&stat).ok());
            if let Some(stat) = stat.filter(|stat| self.shows(&below(name), stat.is_folder)) {
                names.push((name.to_owned(), stat));
            }
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    fn open_below(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat2(&self.folder, path, flags, Mode::empty(), resolve).map_err(errno)
    }
}

fn open(path: &Path) -> Result<Arc<OwnedFd>, InvalidMount> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty());
    let folder =
        folder.map_err(|error| InvalidMount { path: path.to_owned(), cause: error.into() })?;
    Ok(Arc::new(folder))
}

fn open_shared(path: &Path) -> Result<Arc<OwnedFd>, InvalidMount> {
    let known = FOLDERS_OF_SCRIPTS.lock().get(path).and_then(Weak::upgrade);
    if let Some(folder) = known.filter(|folder| is_at(folder, path)) {
        return Ok(folder);
    }
    // Not under the lock, so that a file system that hangs blocks nobody else.
    let folder = open(path)?;
    let mut folders = FOLDERS_OF_SCRIPTS.lock();
    folders.retain(|_, folder| folder.strong_count() > 0);
    folders.insert(path.to_owned(), Arc::downgrade(&folder));
    Ok(folder)
}

/// Whether the path still names this folder. Its inode number can't be reused while it is open.
fn is_at(folder: &OwnedFd, path: &Path) -> bool {
    let number = |stat: Stat| (stat.st_dev, stat.st_ino);
    let there = rustix::fs::stat(path).map(number);
    there.is_ok() && there == fstat(folder).map(number)
}

/// Reads from a file of the host without moving its position.
pub(crate) fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    file.read_at(buffer, offset).map_err(|_| Errno::InputOutput)
}

pub(crate) fn stat_file(file: &File) -> Result<HostStat> {
    shown(&fstat(file).map_err(errno)?)
}

fn shown(stat: &Stat) -> Result<HostStat> {
    let is_folder = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => true,
        FileType::RegularFile => false,
        _ => return Err(Errno::Access),
    };
    let time = |seconds: i64, nanoseconds: u64| {
        u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000) + nanoseconds
    };
    Ok(HostStat {
        is_folder,
        inode: stat.st_ino,
        len: u64::try_from(stat.st_size).unwrap_or(0),
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed: time(stat.st_ctime, stat.st_ctime_nsec),
    })
}

fn errno(error: SystemError) -> Errno {
    match error {
        SystemError::NOENT => Errno::NoEntry,
        SystemError::NOTDIR => Errno::NotFolder,
        SystemError::ISDIR => Errno::IsFolder,
        // A link on the way, or a path that leads outside.
        SystemError::LOOP | SystemError::XDEV | SystemError::ACCESS | SystemError::PERM => {
            Errno::Access
        }
        SystemError::NAMETOOLONG => Errno::NameTooLong,
        _ => Errno::InputOutput,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether both have one descriptor.
    fn share(one: &Mount, other: &Mount) -> bool {
        match (&one.place, &other.place) {
            (MountSource::Here(one), MountSource::Here(other)) => {
                Arc::ptr_eq(&one.folder, &other.folder)
            }
            _ => false,
        }
    }
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_and_folders_below_are_shown() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("granted");
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::write(base.path().join("secret"), "s").unwrap();
        fs::write(folder.join("data"), "content").unwrap();
        fs::write(folder.join("inner/more"), "m").unwrap();
        symlink("../secret", folder.join("out")).unwrap();
        symlink("data", folder.join("within")).unwrap();
        symlink("..", folder.join("up")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let mount = Mount::open(&folder).unwrap();
        let names: Vec<_> = mount.list(".").unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["data", "inner"]);
        let mut buffer = [0; 10];
        let file = mount.file("data").unwrap();
        assert_eq!(read_at(&file, 3, &mut buffer), Ok(4));
        assert_eq!(mount.stat("inner/more").unwrap().len, 1);
        for (path, expected) in [
            ("out", Errno::Access),
            ("within", Errno::Access),
            ("up/secret", Errno::Access),
            ("../secret", Errno::Access),
            ("/etc/passwd", Errno::Access),
            ("pipe", Errno::Access),
            ("missing", Errno::NoEntry),
            ("data/x", Errno::NotFolder),
            ("inner", Errno::IsFolder),
        ] {
            assert_eq!(mount.file(path).map(drop), Err(expected), "{path}");
        }
    }

    #[test]
    fn a_scripts_folder_shows_only_modules() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path();
        for inner in ["package", "package/data", ".ssh", "dotted.name"] {
            fs::create_dir(folder.join(inner)).unwrap();
        }
        let shown = ["script", "other.py", "package/__init__.py", "package/data/deep.py"];
        let hidden = [
            "secret.txt",
            "script2",
            ".hidden.py",
            "package/script",
            "package/data/rows.csv",
            ".ssh/key.py",
            ".ssh/id",
            "dotted.name/x.py",
        ];
        for path in shown.iter().chain(&hidden) {
            fs::write(folder.join(path), "").unwrap();
        }
        let mount = Mount::open_modules(folder, "script").unwrap();
        for path in shown {
            assert!(mount.file(path).is_ok(), "{path}");
        }
        for path in hidden {
            assert_eq!(mount.file(path).map(drop), Err(Errno::NoEntry), "{path}");
        }
        let names = |path| mount.list(path).unwrap().into_iter().map(|(name, _)| name).collect();
        let listed: Vec<String> = names(".");
        assert_eq!(listed, ["other.py", "package", "script"]);
        let listed: Vec<String> = names("package");
        assert_eq!(listed, ["__init__.py", "data"]);
        assert_eq!(mount.list(".ssh").map(drop), Err(Errno::NoEntry));
        assert_eq!(mount.stat(".ssh").map(drop), Err(Errno::NoEntry));
    }

    #[test]
    fn a_mount_keeps_its_folder_when_the_path_names_another() {
        let base = tempfile::tempdir().unwrap();
        let (first, second) = (base.path().join("first"), base.path().join("second"));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        fs::write(second.join("secret"), "s").unwrap();
        let mount = Mount::open(&first).unwrap();
        fs::rename(&first, base.path().join("moved")).unwrap();
        fs::rename(&second, &first).unwrap();
        assert_eq!(mount.file("secret").map(drop), Err(Errno::NoEntry));
        assert!(Mount::open(base.path().join("none")).is_err());
        assert!(Mount::open(first.join("secret")).is_err());
    }

    #[test]
    fn scripts_share_an_open_folder_while_its_path_names_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("scripts");
        let is_open = || {
            let folders = FOLDERS_OF_SCRIPTS.lock();
            folders.get(&folder).is_some_and(|folder| folder.strong_count() > 0)
        };
        fs::create_dir(&folder).unwrap();
        for name in ["one", "two"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let one = Mount::open_modules(&folder, "one").unwrap();
        let two = Mount::open_modules(&folder, "two").unwrap();
        assert!(share(&one, &two));
        assert!(!share(&one, &Mount::open(&folder).unwrap()));
        // Each shows its own script.
        assert!(one.file("one").is_ok() && two.file("two").is_ok());
        assert_eq!(one.file("two").map(drop), Err(Errno::NoEntry));

        fs::rename(&folder, base.path().join("moved")).unwrap();
        assert!(Mount::open_modules(&folder, "one").is_err());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("new.py"), "").unwrap();
        let new = Mount::open_modules(&folder, "one").unwrap();
        assert!(!share(&one, &new));
        assert!(new.file("new.py").is_ok());
        assert_eq!(one.file("new.py").map(drop), Err(Errno::NoEntry));

        assert!(is_open());
        drop(new);
        assert!(!is_open(), "a folder that nobody uses is closed");
        let others: Vec<_> = (0..50)
            .map(|number| {
                let path = base.path().join(number.to_string());
                fs::create_dir(&path).unwrap();
                Mount::open_modules(&path, "one").unwrap()
            })
            .collect();
        drop(others);
        let last = Mount::open_modules(&folder, "one").unwrap();
        let below = |path: &&PathBuf| path.starts_with(base.path());
        assert_eq!(FOLDERS_OF_SCRIPTS.lock().keys().filter(below).count(), 1);
        drop(last);
    }
}
