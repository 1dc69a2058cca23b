//! Replaces a file atomically, and locks one that others may replace.
//!
//! A reader finds either the old file or the new one, complete, even if this process is killed or
//! the machine loses power. Note that a link at the path is replaced, not followed, unless the
//! caller uses [`through_links`] first, as for files that the user named.

use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::TempPath;

use crate::exit::UsageError;

/// How often a file may be replaced while it is being locked.
const MOST_TRIES: usize = 10;

/// Who may read a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// This user alone.
    Private,
    /// The permissions of the previous file; without one, those of any new file.
    AsBefore,
}

/// A file that isn't complete yet. It is removed unless it is finished.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: TempPath,
}

impl Unfinished {
    /// Creates an empty file in the folder of `target`, open for writing.
    pub(crate) fn beside(target: &Path, access: Access) -> io::Result<(Self, File)> {
        let mode = if access == Access::Private { 0o600 } else { 0o666 };
        let made = tempfile::Builder::new()
            .prefix(".unfinished-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder_of(target))?;
        let (file, path) = made.into_parts();
        let before = fs::metadata(target).ok().filter(Metadata::is_file);
        if let Some(before) = before.filter(|_| access == Access::AsBefore)
            && before.permissions() != file.metadata()?.permissions()
        {
            file.set_permissions(before.permissions())?;
        }
        Ok((Self { path }, file))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to `target`, replacing any existing file. Its contents must be on disk
    /// already.
    pub(crate) fn finish(self, target: &Path) -> io::Result<()> {
        self.path.persist(target).map_err(|error| error.error)?;
        sync(folder_of(target))
    }
}

/// Creates a file that `write` fills, then renames it to `path`.
pub(crate) fn replace(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (unfinished, mut file) = Unfinished::beside(path, access)?;
    write(&mut file)?;
    file.sync_all()?;
    unfinished.finish(path)
}

/// Opens and locks a file, again if another process has replaced it meanwhile, so that the path
/// names the locked file. `verb` is what this process wants with the file, and `busy` the error if
/// another has the lock.
pub(crate) fn claim(
    path: &Path,
    verb: &str,
    busy: &str,
    mut open: impl FnMut() -> io::Result<File>,
) -> anyhow::Result<File> {
    let shown = path.display();
    let unusable = || UsageError(format!("can't {verb} `{shown}`"));
    for _ in 0..MOST_TRIES {
        let file = open().with_context(unusable)?;
        // A file system without locks can't have one held.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(UsageError(busy.to_owned()).into());
        }
        if is_at(&file, path).with_context(unusable)? {
            return Ok(file);
        }
    }
    Err(UsageError(format!("`{shown}` is being replaced again and again")).into())
}

/// Returns whether the path names this file.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match path.metadata() {
        Ok(there) => Ok(identity(&there) == identity(&file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether both paths name the same existing file. Neither is opened: it may be a pipe.
pub(crate) fn is_same(first: &Path, second: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|found| identity(&found)).ok();
    identity(first).is_some() && identity(first) == identity(second)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Removes a file if it exists, durably.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync(folder_of(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the file that a path leads to, if it exists, so that links to it stay.
pub(crate) fn through_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the folder that a path names a file in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Flushes a folder's entries to disk.
fn sync(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems do so by themselves, and a writable folder need not be readable.
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn count(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_file_is_the_old_one_or_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x".repeat(255));
        for access in [Access::Private, Access::AsBefore] {
            fs::write(&path, b"old").unwrap();
            let failed = replace(&path, access, |file| {
                file.write_all(b"half")?;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            });
            assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(fs::read(&path).unwrap(), b"old");
            replace(&path, access, |file| file.write_all(b"new")).unwrap();
            assert_eq!((fs::read(&path).unwrap(), count(folder.path())), (b"new".to_vec(), 1));
        }
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for before in [0o600, 0o640, 0o666] {
            fs::write(&path, b"").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
            replace(&path, Access::AsBefore, |_| Ok(())).unwrap();
            assert_eq!(mode(&path), before);
            replace(&path, Access::Private, |_| Ok(())).unwrap();
            assert_eq!(mode(&path), 0o600);
        }
        fs::write(folder.path().join("other"), b"").unwrap();
        let new = folder.path().join("new");
        replace(&new, Access::AsBefore, |_| Ok(())).unwrap();
        assert_eq!(mode(&new), mode(&folder.path().join("other")));
    }

    #[test]
    fn a_failed_replacement_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("folder");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, Access::AsBefore, |file| file.write_all(b"new")).is_err());
        assert!(replace(&path.join("missing/x"), Access::Private, |_| Ok(())).is_err());
        assert_eq!((count(folder.path()), count(&path)), (1, 0));
    }

    #[test]
    fn each_writer_has_its_own_unfinished_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (first, _) = Unfinished::beside(&path, Access::Private).unwrap();
        let (second, _) = Unfinished::beside(&path, Access::Private).unwrap();
        fs::write(second.path(), b"second").unwrap();
        drop(first);
        second.finish(&path).unwrap();
        assert_eq!((fs::read(&path).unwrap(), count(folder.path())), (b"second".to_vec(), 1));
    }

    #[test]
    fn a_link_or_its_target_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        fs::write(&file, b"old").unwrap();
        symlink(&file, &link).unwrap();
        replace(&through_links(&link), Access::AsBefore, |file| file.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        replace(&link, Access::AsBefore, |file| file.write_all(b"its own")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn only_existing_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"").unwrap();
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists() && remove(folder.path()).is_err());
    }
}
