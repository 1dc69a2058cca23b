//! Stamps record that a file's seal was checked since the system started. So the next start of a
//! process needn't hash hundreds of megabytes again.
//!
//! A stamp names the file's identity: device, inode, size, and when its contents and its metadata
//! last changed. No program can set the latter. So a write to the file invalidates the stamp, even
//! if its other times are restored. So does a file put in its place. A stamp holds until the system
//! restarts. Until then, damage by a failing disk goes unnoticed.
//!
//! Layout of `NAME.checked`, 40 bytes: magic `HTCHCK01` (8), keyed BLAKE3 of the seal, the identity
//! and the system's boot (32). The key is the secret of the cache directory, so stamps from
//! elsewhere are invalid.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cache::{SECRET_BYTES, read_hash, write_hash};

const MAGIC: [u8; 8] = *b"HTCHCK01";
/// A file that changed this recently gets no stamp. File systems count time in coarse steps. So a
/// write right after the check could leave all its times as they were. The coarsest is 2 s.
const SETTLED: Duration = Duration::from_secs(2);
/// Changes each time the system starts.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// What a check of an open file's seal says about the file, before and after it.
pub(super) struct Stamp {
    path: PathBuf,
    hash: blake3::Hash,
    is_settled: bool,
}

impl Stamp {
    /// Describes the opened `file` at the time `now`, whose seal has the hash `sealed`. Returns
    /// `None` if the system can't tell when it was started. To be called before the file is
    /// checked.
    pub(super) fn of(
        secret: &[u8; SECRET_BYTES],
        path: &Path,
        file: &File,
        sealed: blake3::Hash,
        now: SystemTime,
    ) -> Option<Self> {
        let boot = fs::read(BOOT).ok()?;
        let metadata = file.metadata().ok()?;
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(&MAGIC).update(sealed.as_bytes());
        for number in identity(&metadata) {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(&boot);
        let (path, hash) = (stamp_path(path), hasher.finalize());
        Some(Self { path, hash, is_settled: is_settled(&metadata, now) })
    }

    /// Returns whether the file was checked in this state since the system started.
    pub(super) fn is_there(&self) -> bool {
        read_hash(&self.path, &MAGIC) == Some(self.hash)
    }

    /// Records that the file in this state was found whole.
    pub(super) fn leave(&self) {
        if !self.is_settled {
            return;
        }
        if let Err(error) = write_hash(&self.path, &MAGIC, &self.hash) {
            // The cache is read-only, so each start checks the file.
            tracing::debug!(path = %self.path.display(), %error, "can't record a check");
        }
    }
}

pub(crate) fn stamp_path(path: &Path) -> PathBuf {
    path.with_added_extension("checked")
}

fn identity(metadata: &Metadata) -> [u64; 7] {
    [
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mtime().cast_unsigned(),
        metadata.mtime_nsec().cast_unsigned(),
        metadata.ctime().cast_unsigned(),
        metadata.ctime_nsec().cast_unsigned(),
    ]
}

fn is_settled(metadata: &Metadata, now: SystemTime) -> bool {
    let Ok(seconds) = u64::try_from(metadata.ctime()) else { return false };
    let age = now.duration_since(UNIX_EPOCH + Duration::from_secs(seconds));
    // A change in the future, by a clock that was set back, could be repeated.
    age.is_ok_and(|age| age > SETTLED + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;
    use std::os::unix::fs::FileExt;

    use super::*;

    const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];

    struct Checked {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    impl Checked {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            fs::write(&path, [1; 5000]).unwrap();
            let checked = Self { _folder: folder, path };
            assert!(!checked.stamp().is_there());
            checked.stamp().leave();
            assert!(checked.stamp().is_there());
            checked
        }

        fn stamp_at(&self, secret: u8, sealed: u8, now: SystemTime) -> Stamp {
            let file = File::open(&self.path).unwrap();
            let sealed = blake3::Hash::from_bytes([sealed; 32]);
            Stamp::of(&[secret; SECRET_BYTES], &self.path, &file, sealed, now).unwrap()
        }

        /// What a check would say later.
        fn stamp(&self) -> Stamp {
            self.stamp_at(SECRET[0], 1, SystemTime::now() + Duration::from_secs(60))
        }

        fn times(&self) -> FileTimes {
            let metadata = fs::metadata(&self.path).unwrap();
            let accessed = metadata.accessed().unwrap();
            FileTimes::new().set_accessed(accessed).set_modified(metadata.modified().unwrap())
        }
    }

    #[test]
    fn a_write_ends_a_stamp_even_if_the_times_are_restored() {
        let checked = Checked::new();
        let (times, file) =
            (checked.times(), File::options().write(true).open(&checked.path).unwrap());
        file.write_all_at(&[2], 4000).unwrap();
        file.set_times(times).unwrap();
        assert_eq!(fs::metadata(&checked.path).unwrap().len(), 5000);
        assert!(!checked.stamp().is_there());
    }

    #[test]
    fn another_file_with_the_same_times_has_no_stamp() {
        let checked = Checked::new();
        let (times, other) = (checked.times(), checked.path.with_extension("other"));
        fs::write(&other, [2; 5000]).unwrap();
        File::options().write(true).open(&other).unwrap().set_times(times).unwrap();
        fs::rename(&other, &checked.path).unwrap();
        assert!(!checked.stamp().is_there());
    }

    #[test]
    fn a_file_of_another_length_has_no_stamp() {
        let checked = Checked::new();
        let times = checked.times();
        let file = File::options().write(true).open(&checked.path).unwrap();
        file.set_len(4999).unwrap();
        file.set_times(times).unwrap();
        assert!(!checked.stamp().is_there());
    }

    #[test]
    fn a_stamp_is_of_one_seal_and_of_one_secret() {
        let checked = Checked::new();
        let later = SystemTime::now() + Duration::from_secs(60);
        assert!(checked.stamp_at(SECRET[0], 1, later).is_there());
        assert!(!checked.stamp_at(SECRET[0], 2, later).is_there());
        assert!(!checked.stamp_at(8, 1, later).is_there());
    }

    #[test]
    fn a_damaged_stamp_is_none() {
        let checked = Checked::new();
        let path = stamp_path(&checked.path);
        let whole = fs::read(&path).unwrap();
        let flipped = [&whole[..39], &[whole[39] ^ 1]].concat();
        for damaged in [&b""[..], &whole[..39], &flipped, &[&whole[..], b"x"].concat()] {
            fs::write(&path, damaged).unwrap();
            assert!(!checked.stamp().is_there(), "{} bytes", damaged.len());
        }
    }

    /// A file system with coarse times shows no difference between two writes in a row.
    #[test]
    fn a_file_that_has_just_changed_gets_no_stamp() {
        let checked = Checked::new();
        fs::write(&checked.path, [3; 5000]).unwrap();
        for seconds in [-3600, 0, 1] {
            let now = SystemTime::now();
            let offset = Duration::from_secs(i64::unsigned_abs(seconds));
            let now = if seconds < 0 { now - offset } else { now + offset };
            let stamp = checked.stamp_at(SECRET[0], 1, now);
            stamp.leave();
            assert!(!stamp.is_there(), "{seconds} s later");
        }
    }
}
