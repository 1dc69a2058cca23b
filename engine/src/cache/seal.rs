//! Seals: a keyed hash beside each cached file, checked before the file is used.
//!
//! Compiled modules are native code and are loaded unchecked, so a truncated, damaged or foreign
//! file must never be loaded. A seal binds contents, label and the secret of this cache directory.
//! A file copied from elsewhere, or sealed under another label, doesn't match. It doesn't defend
//! against this user, who can read the secret.
//!
//! The modification time of a seal is when its file was last used.
//!
//! Mapped files are hashed once for each start of the system, unless they change (`stamp.rs`).
//!
//! Layout of `NAME.seal`, 40 bytes: magic `HTCHSL01` (8), keyed BLAKE3 of the length-prefixed
//! label and the contents (32).

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};

use crate::cache::stamp::{Stamp, stamp_path};
use crate::cache::{CacheDir, hash_into, read_hash, write_atomically, write_hash};
use crate::error::CacheError;
use crate::memory::sys::FileView;

const MAGIC: [u8; 8] = *b"HTCHSL01";

/// Seals and checks the files of one cache directory.
#[derive(Clone, derive_more::Debug)]
#[debug("Sealer")]
pub(crate) struct Sealer {
    secret: [u8; crate::cache::SECRET_BYTES],
}

impl Sealer {
    pub(crate) fn new(cache: &CacheDir) -> Result<Self, CacheError> {
        Ok(Self { secret: cache.secret()? })
    }

    /// Seals a file that is already in place and whose contents the caller has verified.
    pub(crate) fn seal(&self, path: &Path, label: &str, contents: &[u8]) -> Result<(), CacheError> {
        write_hash(&seal_path(path), &MAGIC, &self.hash(label, contents))
    }

    /// Lets `write` fill `path` and seals it under `label`.
    ///
    /// The old seal is removed first. So a kill between the steps leaves a file without a seal,
    /// which is built again.
    pub(crate) fn write(
        &self,
        path: &Path,
        label: &str,
        write: impl FnOnce(&mut File) -> std::io::Result<()>,
    ) -> Result<(), CacheError> {
        let _ = fs::remove_file(seal_path(path));
        write_atomically(path, write)?;
        let view = File::open(path).and_then(FileView::new);
        let view = view.map_err(|source| CacheError::io("read", path, source))?;
        self.seal(path, label, view.bytes())
    }

    /// Maps `path` if its seal matches; `None` if it is missing, damaged or foreign. It counts as
    /// in use while it is mapped (`prune.rs`).
    ///
    /// The mapping is the file itself, so changing the file in place would change what was checked.
    /// Nothing here does that.
    pub(crate) fn view(&self, path: &Path, label: &str) -> Option<FileView> {
        let view = self.look_at(path, label)?;
        note_use(path);
        Some(view)
    }

    /// Maps `path` as `view` does, without recording a use.
    pub(crate) fn look_at(&self, path: &Path, label: &str) -> Option<FileView> {
        self.look_at_time(path, label, SystemTime::now())
    }

    fn look_at_time(&self, path: &Path, label: &str, now: SystemTime) -> Option<FileView> {
        let sealed = read_hash(&seal_path(path), &MAGIC)?;
        let view = open_regular_file(path)
            .inspect(hold)
            .and_then(FileView::new)
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "a file of the cache can't be read"))
            .ok()?;
        let stamp = Stamp::of(&self.secret, path, view.file(), self.bind(label, sealed), now);
        if stamp.as_ref().is_some_and(Stamp::is_there) {
            return Some(view);
        }
        let is_whole = self.matches(path, label, view.bytes(), sealed);
        view.forget();
        is_whole.then(|| {
            stamp.as_ref().inspect(|stamp| stamp.leave());
            view
        })
    }

    /// Removes `path` and its seal, the seal first.
    pub(crate) fn remove(path: &Path) -> Result<(), CacheError> {
        let _ = fs::remove_file(seal_path(path));
        let _ = fs::remove_file(stamp_path(path));
        fs::remove_file(path).map_err(|source| CacheError::io("remove", path, source))
    }

    fn matches(&self, path: &Path, label: &str, contents: &[u8], sealed: blake3::Hash) -> bool {
        let is_same = self.hash(label, contents) == sealed;
        if !is_same {
            tracing::warn!(path = %path.display(), "the seal doesn't match; the file is built again");
        }
        is_same
    }

    /// Returns a hash of the seal's hash and of the label under which a file is wanted.
    fn bind(&self, label: &str, sealed: blake3::Hash) -> blake3::Hash {
        self.hash(label, sealed.as_bytes())
    }

    fn hash(&self, label: &str, contents: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&(label.len() as u64).to_le_bytes());
        hasher.update(label.as_bytes());
        hash_into(&mut hasher, contents);
        hasher.finalize()
    }
}

/// Marks a file or a folder of the cache as in use while `file` is open, which prevents its
/// removal. Where there are no locks, nothing is removed.
pub(crate) fn hold(file: &File) {
    if let Err(error) = file.lock_shared() {
        tracing::debug!(%error, "can't mark a file of the cache as in use");
    }
}

/// Records the time of use as the modification time of the file's seal.
fn note_use(path: &Path) {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: omitted, last_modification: now };
    if let Err(error) = utimensat(CWD, seal_path(path), &times, AtFlags::SYMLINK_NOFOLLOW) {
        // The cache is read-only.
        tracing::debug!(path = %path.display(), %error, "can't record the use of a file of the cache");
    }
}

pub(crate) fn seal_path(path: &Path) -> PathBuf {
    path.with_added_extension("seal")
}

/// Opens a regular file and refuses anything else, links included.
fn open_regular_file(path: &Path) -> std::io::Result<File> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(std::io::Error::other("not a regular file"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn sealed_file() -> (tempfile::TempDir, Sealer, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let sealer = Sealer::new(&CacheDir::open(Some(folder.path())).unwrap()).unwrap();
        let path = folder.path().join("module");
        sealer.write(&path, "key", |file| file.write_all(&[7_u8; 10_000])).unwrap();
        (folder, sealer, path)
    }

    #[test]
    fn a_whole_file_is_read() {
        let (_folder, sealer, path) = sealed_file();
        assert_eq!(sealer.view(&path, "key").unwrap().bytes(), [7_u8; 10_000]);
        assert!(sealer.view(&path, "another key").is_none());
        sealer.write(&path, "key", |file| file.write_all(b"others")).unwrap();
        assert_eq!(sealer.view(&path, "key").unwrap().bytes(), b"others");
        fs::write(&path, b"another").unwrap();
        assert!(sealer.view(&path, "key").is_none());
        Sealer::remove(&path).unwrap();
        assert!(sealer.view(&path, "key").is_none() && !seal_path(&path).exists());
    }

    #[test]
    fn a_file_is_hashed_again_after_every_change_to_it() {
        let (_folder, sealer, path) = sealed_file();
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        let view = |label| sealer.look_at_time(&path, label, later);
        let is_recorded = || stamp_path(&path).exists();
        assert!(sealer.look_at(&path, "key").is_some() && !is_recorded(), "it is too young");
        assert!(view("another key").is_none() && !is_recorded());
        assert!(view("key").is_some() && is_recorded());
        assert_eq!(view("key").unwrap().bytes(), [7_u8; 10_000]);
        assert!(view("another key").is_none(), "a stamp is of one label");

        // Damaged in place, with the times restored.
        let file = File::options().write(true).open(&path).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[6], 5000).unwrap();
        file.set_modified(modified).unwrap();
        for _ in 0..2 {
            assert!(view("key").is_none());
        }
        std::os::unix::fs::FileExt::write_all_at(&file, &[7], 5000).unwrap();
        assert!(view("key").is_some());
        Sealer::remove(&path).unwrap();
        assert!(!is_recorded());
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let (_folder, sealer, path) = sealed_file();
        for at in (0..10_000).step_by(997) {
            let mut contents = vec![7_u8; 10_000];
            contents[at] ^= 1;
            fs::write(&path, &contents).unwrap();
            assert!(sealer.view(&path, "key").is_none(), "byte {at}");
        }
    }

    #[test]
    fn truncated_missing_foreign_and_linked_files_are_refused() {
        let (folder, sealer, path) = sealed_file();
        assert!(sealer.view(&path, "another key").is_none(), "label");

        let other = tempfile::tempdir().unwrap();
        let foreign = Sealer::new(&CacheDir::open(Some(other.path())).unwrap()).unwrap();
        assert!(foreign.view(&path, "key").is_none(), "secret of another directory");

        fs::rename(&path, folder.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("moved"), &path).unwrap();
        assert!(sealer.view(&path, "key").is_none(), "link");
        fs::remove_file(&path).unwrap();
        assert!(sealer.view(&path, "key").is_none(), "missing");

        fs::write(&path, vec![7_u8; 9_999]).unwrap();
        assert!(sealer.view(&path, "key").is_none(), "truncated");
    }

    #[test]
    fn a_damaged_seal_is_no_seal_and_can_be_made_anew() {
        let (_folder, sealer, path) = sealed_file();
        let seal = fs::read(seal_path(&path)).unwrap();
        let longer = [&seal[..], b"more"].concat();
        for damaged in [&b""[..], b"short", &seal[..seal.len() - 1], &longer] {
            fs::write(seal_path(&path), damaged).unwrap();
            assert!(sealer.view(&path, "key").is_none(), "{} bytes", damaged.len());
        }
        sealer.write(&path, "key", |file| file.write_all(b"again")).unwrap();
        assert_eq!(sealer.view(&path, "key").unwrap().bytes(), b"again");
    }
}
