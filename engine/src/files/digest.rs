//! Digests of what guests see in folders of the host, so that results of programs there can be
//! reused.
//!
//! Contents count, not only what `stat` reports. A file is read once: while its size, times and
//! inode number stay the same, so do its contents. A file that changed just now may change again
//! within one tick of the file system's clock. So it is read each time, until it has been unchanged
//! for [`SETTLES`].

use std::collections::HashMap;
use std::io::Read;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::mount::{FolderIdentity, HostStat, Mount, stat_file};
use crate::errno::{Errno, Result};

/// The most files and folders below one folder: they are listed each time.
const MOST_ENTRIES: usize = 10_000;
/// The most bytes of the files below one folder, which are read once.
const MOST_BYTES: u64 = 1 << 30;
/// The most files whose contents are remembered.
const MOST_KNOWN: usize = 100_000;
/// How long after a change a file may change again unseen. FAT has the coarsest clock of a file
/// system in use.
const SETTLES: Duration = Duration::from_secs(2);

/// Digests of folders. Remembers the contents of files that it has read.
#[derive(derive_more::Debug)]
#[debug("FolderDigests")]
pub struct FolderDigests {
    ignores: fn(&str) -> bool,
    known: Mutex<HashMap<DigestedFile, blake3::Hash>>,
}

/// A file as it was when it was read.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DigestedFile {
    folder: FolderIdentity,
    path: String,
    inode: u64,
    len: u64,
    modified: u64,
    changed: u64,
}

impl FolderDigests {
    /// Takes digests without the files and folders whose names `ignores` accepts.
    pub fn new(ignores: fn(&str) -> bool) -> Self {
        Self { ignores, known: Mutex::default() }
    }

    /// Returns a digest of the folder's identity, and of the paths, contents and modification times
    /// of the files below it. `now` is the system's time. The result is `None` if the folder is
    /// gone or can't be listed. More than 10,000 files or 1 GiB also give `None`.
    pub fn digest(&self, folder: &Mount, now: SystemTime) -> Option<[u8; 32]> {
        let identity = folder.identity()?;
        let settled = now.checked_sub(SETTLES)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let settled = u64::try_from(settled.as_nanos()).ok()?;
        let mut digest = blake3::Hasher::new();
        digest.update(format!("{identity:?}").as_bytes());
        let (mut entries, mut bytes) = (0, 0_u64);
        let mut folders = vec![".".to_owned()];
        while let Some(below) = folders.pop() {
            for (name, stat) in folder.list(&below).ok()? {
                if (self.ignores)(&name) {
                    continue;
                }
                entries += 1;
                bytes = bytes.saturating_add(if stat.is_folder { 0 } else { stat.len });
                if entries > MOST_ENTRIES || bytes > MOST_BYTES {
                    return None;
                }
                let path = if below == "." { name } else { format!("{below}/{name}") };
                digest.update(&(path.len() as u64).to_le_bytes()).update(path.as_bytes());
                if stat.is_folder {
                    digest.update(b"folder");
                    folders.push(path);
                } else {
                    let contents = self.contents(folder, identity, path, stat, settled);
                    digest.update(&stat.modified.to_le_bytes()).update(contents?.as_bytes());
                }
            }
        }
        Some(*digest.finalize().as_bytes())
    }

    /// Returns the digest of a file's contents. Files that changed after `settled` are read in any
    /// case.
    fn contents(
        &self,
        folder: &Mount,
        identity: FolderIdentity,
        path: String,
        stat: HostStat,
        settled: u64,
    ) -> Option<blake3::Hash> {
        let HostStat { inode, len, modified, changed, .. } = stat;
        let known = DigestedFile { folder: identity, path, inode, len, modified, changed };
        if let Some(contents) = self.known.lock().get(&known) {
            return Some(*contents);
        }
        let contents = match read(folder, &known.path) {
            Ok(contents) => contents,
            // A guest can't read it either.
            Err(Errno::Access) => return Some(blake3::hash(b"unreadable")),
            Err(_) => return None,
        };
        let mut all = self.known.lock();
        if changed.max(modified) < settled && all.len() < MOST_KNOWN {
            all.insert(known, contents);
        }
        Some(contents)
    }
}

/// Reads a file. One that grows meanwhile is an error, so that this ends.
fn read(folder: &Mount, path: &str) -> Result<blake3::Hash> {
    let file = folder.file(path)?;
    let len = stat_file(&file)?.len;
    let mut digest = blake3::Hasher::new();
    digest.update_reader(file.take(len.saturating_add(1))).map_err(|_| Errno::InputOutput)?;
    if digest.count() > len { Err(Errno::InputOutput) } else { Ok(digest.finalize()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn digest(all: &FolderDigests, folder: &Path) -> Option<[u8; 32]> {
        all.digest(&Mount::open(folder).unwrap(), SystemTime::now())
    }

    fn set_modified(path: &Path, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_digest_changes_with_what_a_guest_sees() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path();
        fs::create_dir(folder.join("inner")).unwrap();
        let file = folder.join("inner/data.csv");
        fs::write(&file, "1").unwrap();
        set_modified(&file, 1000);
        let all = FolderDigests::new(|name| name.ends_with(".ipynb"));
        let first = digest(&all, folder);
        assert!(first.is_some());
        assert_eq!(digest(&all, folder), first);
        assert_eq!(digest(&FolderDigests::new(|_| false), folder), first);

        // What is ignored may come and change.
        fs::write(folder.join("a.ipynb"), "{}").unwrap();
        assert_eq!(digest(&all, folder), first);

        // Other contents of the same size and time.
        fs::write(&file, "2").unwrap();
        set_modified(&file, 1000);
        let second = digest(&all, folder);
        assert_ne!(second, first);
        // The same contents at another time, or at another path.
        set_modified(&file, 1001);
        assert!(![first, second].contains(&digest(&all, folder)));
        set_modified(&file, 1000);
        assert_eq!(digest(&all, folder), second);
        fs::rename(&file, folder.join("inner/other.csv")).unwrap();
        assert!(![first, second].contains(&digest(&all, folder)));
        fs::rename(folder.join("inner/other.csv"), &file).unwrap();
        assert_eq!(digest(&all, folder), second);
        fs::create_dir(folder.join("empty")).unwrap();
        assert_ne!(digest(&all, folder), second);
        // Another folder with the same files.
        let other = tempfile::tempdir().unwrap();
        fs::create_dir(other.path().join("inner")).unwrap();
        fs::rename(&file, other.path().join("inner/data.csv")).unwrap();
        assert_ne!(digest(&all, other.path()), second);
    }

    #[test]
    fn only_files_that_have_settled_are_remembered() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("a"), "1").unwrap();
        let all = FolderDigests::new(|_| false);
        let mount = Mount::open(base.path()).unwrap();
        all.digest(&mount, SystemTime::now()).unwrap();
        assert!(all.known.lock().is_empty());
        all.digest(&mount, SystemTime::now() + Duration::from_secs(60)).unwrap();
        assert_eq!(all.known.lock().len(), 1);
    }

    #[test]
    fn folders_beyond_the_bounds_have_no_digest() {
        let base = tempfile::tempdir().unwrap();
        let large = fs::File::create(base.path().join("large")).unwrap();
        large.set_len(MOST_BYTES + 1).unwrap();
        let all = FolderDigests::new(|_| false);
        assert_eq!(digest(&all, base.path()), None);
        fs::remove_file(base.path().join("large")).unwrap();
        assert!(digest(&all, base.path()).is_some());
        for number in 0..=MOST_ENTRIES {
            fs::create_dir(base.path().join(number.to_string())).unwrap();
        }
        assert_eq!(digest(&all, base.path()), None);
    }
}
