//! Locks a file that another process may replace meanwhile, and compares files.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How often a file may be replaced while it is being locked.
const MOST_TRIES: usize = 10;

/// Opens and locks a file, again if another process has replaced it meanwhile. So the path names
/// the locked file. `None` if another process has the lock. Where the file system has no locks, the
/// file is returned without one. `open` opens what is at the path, or creates it.
///
/// # Errors
/// `open` fails, or the file is replaced again and again.
pub fn lock_current(
    path: &Path,
    mut open: impl FnMut() -> io::Result<File>,
) -> io::Result<Option<File>> {
    for _ in 0..MOST_TRIES {
        let file = open()?;
        // A file system without locks can't have one held.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Ok(None);
        }
        if is_at(&file, path)? {
            return Ok(Some(file));
        }
    }
    Err(io::Error::other("it is being replaced again and again"))
}

/// Returns whether the path names this file.
///
/// # Errors
/// One of them can't be examined, for another reason than that nothing is at the path.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match path.metadata() {
        Ok(there) => Ok(identity(&there) == identity(&file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether both paths name the same existing file. Neither is opened: it may be a pipe.
pub fn is_same(first: &Path, second: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|found| identity(&found)).ok();
    identity(first).is_some() && identity(first) == identity(second)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, replace};
    use std::fs;

    #[test]
    fn the_locked_file_is_the_one_at_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let mut opened = 0;
        let locked = lock_current(&path, || {
            let file = File::open(&path)?;
            opened += 1;
            if opened == 1 {
                replace(&path, Access::Private, |_| Ok(()))?;
            }
            Ok(file)
        });
        let locked = locked.unwrap().expect("nobody else has a lock");
        assert_eq!((opened, is_at(&locked, &path).unwrap()), (2, true));
        assert!(lock_current(&path, || File::open(&path)).unwrap().is_none());
        drop(locked);
        assert!(lock_current(&path, || File::open(&path)).unwrap().is_some());
    }

    #[test]
    fn a_file_that_never_stays_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut opened = 0;
        let locked = lock_current(&path, || {
            opened += 1;
            let file = File::create(&path)?;
            fs::remove_file(&path)?;
            Ok(file)
        });
        assert_eq!((locked.is_err(), opened), (true, MOST_TRIES));
    }

    #[test]
    fn a_file_may_have_several_names() {
        let folder = tempfile::tempdir().unwrap();
        let [file, name, other] = ["file", "name", "other"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        fs::write(&other, "").unwrap();
        fs::hard_link(&file, &name).unwrap();
        assert!(is_same(&file, &name) && !is_same(&file, &other));
        let missing = folder.path().join("missing");
        assert!(!is_same(&missing, &missing));
    }
}
