//! Replaces a file in one step.
//!
//! Readers find either the whole old file or the whole new one, even if this process is killed or
//! the machine loses power. New files are readable by this user alone. A link at that path is
//! replaced, not followed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The prefix of the names of unfinished files.
pub(crate) const UNFINISHED_PREFIX: &str = ".unfinished-";

/// Creates a file, lets `write` fill it, and moves it to `path`.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut unfinished = tempfile::Builder::new()
        .prefix(UNFINISHED_PREFIX)
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder)?;
    write(unfinished.as_file_mut())?;
    unfinished.as_file().sync_all()?;
    unfinished.persist(path).map_err(|error| error.error)?;
    sync(folder)
}

/// Makes the disk store the folder's entries.
fn sync(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some filesystems store them anyway, and a writable folder need not be readable.
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

    #[test]
    fn a_file_is_the_old_one_or_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"old").unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_replacement_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("folder");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, |file| file.write_all(b"new")).is_err());
        assert!(replace(&path.join("missing/file"), |_| Ok(())).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("link"), folder.path().join("other"));
        fs::write(&other, b"other's").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        replace(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"other's");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
}
