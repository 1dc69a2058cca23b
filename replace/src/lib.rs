//! Replaces a file in one step, and locks one that others may replace.
//!
//! A reader finds either the old file or the new one, complete. That holds even if this process is
//! killed or the machine loses power. A link at the path is replaced, not followed. For files that
//! the user named, callers use [`through_links`] first. A killed process leaves its unfinished
//! file, whose name begins with [`UNFINISHED_PREFIX`].
//!
//! `lock.rs` locks a file and says which file a path names.
#![forbid(unsafe_code)]

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

pub use lock::{is_at, is_same, lock_current};

mod lock;

/// The prefix of the names of unfinished files.
pub const UNFINISHED_PREFIX: &str = ".unfinished-";

/// Who may read a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// This user alone.
    Private,
    /// The permissions of the previous file; without one, those of any new file.
    AsBefore,
}

/// A file that isn't complete yet. It is removed unless it is finished.
#[derive(Debug)]
#[must_use = "the file is removed when this is dropped"]
pub struct Unfinished {
    path: TempPath,
}

impl Unfinished {
    /// Creates an empty file in the folder of `target`, open for writing.
    ///
    /// # Errors
    /// The folder is missing or can't be written to.
    pub fn beside(target: &Path, access: Access) -> io::Result<(Self, File)> {
        let mode = if access == Access::Private { 0o600 } else { 0o666 };
        let made = tempfile::Builder::new()
            .prefix(UNFINISHED_PREFIX)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder_of(target))
            .map_err(without_path)?;
        let (file, path) = made.into_parts();
        if access == Access::AsBefore
            && let Some(before) = fs::metadata(target).ok().filter(Metadata::is_file)
            && before.permissions() != file.metadata()?.permissions()
        {
            file.set_permissions(before.permissions())?;
        }
        Ok((Self { path }, file))
    }

    /// Returns where the file is until it is finished.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to `target`, replacing any existing file. Its contents must be on disk
    /// already.
    ///
    /// # Errors
    /// A folder is there, or the folder can't be written to.
    pub fn finish(self, target: &Path) -> io::Result<()> {
        self.path.persist(target).map_err(|error| error.error)?;
        sync(folder_of(target))
    }
}

/// Creates a file that `write` fills, then renames it to `path`.
///
/// # Errors
/// As `write` and [`Unfinished`]; the old file is then as it was.
pub fn replace(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (unfinished, mut file) = Unfinished::beside(path, access)?;
    write(&mut file)?;
    file.sync_all()?;
    unfinished.finish(path)
}

/// Removes a file if it exists, durably.
///
/// # Errors
/// It is a folder, or its folder can't be written to.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync(folder_of(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes the unfinished file's name out of an error: the user knows the file by another one.
fn without_path(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path ") {
        Some((cause, _)) => io::Error::new(error.kind(), cause),
        None => error,
    }
}

/// Returns the file that a path leads to, if it exists, so that links to it stay.
pub fn through_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the folder that a path names a file in.
pub fn folder_of(path: &Path) -> &Path {
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
        let missing = replace(&path.join("missing/x"), Access::Private, |_| Ok(())).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(missing.to_string(), "No such file or directory (os error 2)");
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
