//! Seals: a keyed hash beside each cached file, checked before the file is used.
//!
//! Compiled modules are native code and are loaded unchecked, so a truncated, flipped or foreign
//! file must never get that far. A seal binds contents, label and the secret of this cache
//! directory; a file copied from elsewhere, or under another label, doesn't match. It does not
//! defend against somebody who can already read the secret: that is this user.
//!
//! Layout of `NAME.seal`, 40 bytes: magic `HTCHSL01` (8), keyed BLAKE3 of the length-prefixed
//! label and the contents (32).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::cache::{CacheDir, write_atomically};
use crate::error::CacheError;

const MAGIC: [u8; 8] = *b"HTCHSL01";
const SEAL_BYTES: usize = MAGIC.len() + blake3::OUT_LEN;

/// Seals and checks the files of one cache directory.
#[derive(Clone)]
pub(crate) struct Sealer {
    secret: [u8; crate::cache::SECRET_BYTES],
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl Sealer {
    pub(crate) fn new(cache: &CacheDir) -> Result<Self, CacheError> {
        Ok(Self { secret: cache.secret()? })
    }

    /// Writes `contents` to `path` and seals it under `label`.
    ///
    /// The old seal goes first: a kill between the steps leaves a file without a seal, which is
    /// remade, never a new file under an old seal.
    pub(crate) fn write(
        &self,
        path: &Path,
        label: &str,
        contents: &[u8],
    ) -> Result<(), CacheError> {
        let _ = fs::remove_file(seal_path(path));
        write_atomically(path, |file| file.write_all(contents))?;
        self.seal(path, label, contents)
    }

    /// Seals a file that is already in place and whose contents the caller has verified.
    pub(crate) fn seal(&self, path: &Path, label: &str, contents: &[u8]) -> Result<(), CacheError> {
        let hash = self.hash(label, contents);
        write_atomically(&seal_path(path), |file| {
            file.write_all(&MAGIC)?;
            file.write_all(hash.as_bytes())
        })
    }

    /// Reads `path` into private memory if it carries its seal; `None` if it is missing, damaged
    /// or foreign. The bytes returned are the bytes that were checked: the file isn't read again.
    pub(crate) fn read(&self, path: &Path, label: &str) -> Option<Vec<u8>> {
        let seal = fs::read(seal_path(path)).ok()?;
        let sealed_hash: [u8; blake3::OUT_LEN] = seal.strip_prefix(&MAGIC)?.try_into().ok()?;
        debug_assert_eq!(seal.len(), SEAL_BYTES);
        let contents = read_regular_file(path)
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "not readable"))
            .ok()?;
        // `blake3::Hash` compares in constant time.
        if self.hash(label, &contents) == blake3::Hash::from_bytes(sealed_hash) {
            return Some(contents);
        }
        tracing::warn!(path = %path.display(), "the seal doesn't match; the file is made again");
        None
    }

    fn hash(&self, label: &str, contents: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&(label.len() as u64).to_le_bytes());
        hasher.update(label.as_bytes());
        hasher.update_rayon(contents);
        hasher.finalize()
    }
}

fn seal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".seal");
    PathBuf::from(name)
}

/// Reads a file that is no link; anything else in its place is refused.
fn read_regular_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let mut file: File = OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut contents = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.read_to_end(&mut contents)?;
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed_file() -> (tempfile::TempDir, Sealer, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let sealer = Sealer::new(&CacheDir::open(Some(folder.path())).unwrap()).unwrap();
        let path = folder.path().join("module");
        sealer.write(&path, "key", &[7_u8; 10_000]).unwrap();
        (folder, sealer, path)
    }

    #[test]
    fn a_whole_file_is_read() {
        let (_folder, sealer, path) = sealed_file();
        assert_eq!(sealer.read(&path, "key").unwrap(), vec![7_u8; 10_000]);
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let (_folder, sealer, path) = sealed_file();
        for at in (0..10_000).step_by(997) {
            let mut contents = vec![7_u8; 10_000];
            contents[at] ^= 1;
            fs::write(&path, &contents).unwrap();
            assert!(sealer.read(&path, "key").is_none(), "byte {at}");
        }
    }

    #[test]
    fn truncated_missing_foreign_and_linked_files_are_refused() {
        let (folder, sealer, path) = sealed_file();
        assert!(sealer.read(&path, "another key").is_none(), "label");

        let other = tempfile::tempdir().unwrap();
        let foreign = Sealer::new(&CacheDir::open(Some(other.path())).unwrap()).unwrap();
        assert!(foreign.read(&path, "key").is_none(), "secret of another directory");

        fs::rename(&path, folder.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("moved"), &path).unwrap();
        assert!(sealer.read(&path, "key").is_none(), "link");
        fs::remove_file(&path).unwrap();
        assert!(sealer.read(&path, "key").is_none(), "missing");

        fs::write(&path, vec![7_u8; 9_999]).unwrap();
        assert!(sealer.read(&path, "key").is_none(), "truncated");
        fs::write(seal_path(&path), b"short").unwrap();
        assert!(sealer.read(&path, "key").is_none(), "damaged seal");
    }
}
