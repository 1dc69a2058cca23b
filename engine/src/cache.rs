//! The cache directory: where builds, compiled modules, images and packages live between processes.
//!
//! Owns its location, its privacy (0700, owned by this user), locks between processes and the
//! removal of unfinished files. It doesn't know what is stored in it. A present file may still be
//! damaged: `cache/seal.rs` decides whether it may be used, and `cache/stamp.rs` whether that was
//! decided before. May use `memory/` and the wings beside it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use replace::{Access, UNFINISHED_PREFIX, replace};

use crate::error::CacheError;

pub(crate) mod seal;
pub(crate) mod stamp;

/// The file with the secret, which also marks a directory as a cache.
const SECRET_NAME: &str = "secret";

/// The bytes of the secret that seals the files of one cache directory.
pub(crate) const SECRET_BYTES: usize = 32;

/// A private directory for artifacts that are expensive to build.
#[derive(Debug, Clone)]
pub struct CacheDir {
    root: PathBuf,
}

impl CacheDir {
    /// Opens the cache at `explicit`, or at the default place: `$XDG_CACHE_HOME/hatchery`, else
    /// `$HOME/.cache/hatchery`. Creates it if it is missing.
    ///
    /// # Errors
    /// There is no default place, or the directory can't be created or closed to others. Or it
    /// belongs to another user.
    pub fn open(explicit: Option<&Path>) -> Result<Self, CacheError> {
        let root = match explicit {
            Some(path) => {
                std::path::absolute(path).map_err(|source| CacheError::io("find", path, source))?
            }
            None => default_root()?,
        };
        check_dedicated(&root)?;
        make_private(&root)?;
        Ok(Self { root })
    }

    /// Returns the directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns a private folder inside the cache, and creates it if it is missing.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, CacheError> {
        let path = self.root.join(name);
        make_private(&path)?;
        Ok(path)
    }

    /// Returns the paths in a folder of the cache, without unfinished ones; none if it is missing.
    pub(crate) fn paths(&self, folder: &str) -> Result<Vec<PathBuf>, CacheError> {
        let folder = self.root.join(folder);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| CacheError::io("read", &folder, source))?,
        };
        let whole = entries.flatten().filter(|entry| !is_unfinished(&entry.file_name()));
        Ok(whole.map(|entry| entry.path()).collect())
    }

    /// Acquires the lock `name`, waiting while another process or thread holds it.
    ///
    /// It is held while the file is open. The kernel closes the files of a killed process, so that
    /// never blocks the next one.
    pub(crate) fn lock(&self, name: &str) -> Result<File, CacheError> {
        let (file, path) = self.lock_file(name)?;
        file.lock().map_err(|source| CacheError::io("lock", &path, source))?;
        Ok(file)
    }

    /// Acquires the lock `name`, unless somebody else holds it.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<File>, CacheError> {
        let (file, path) = self.lock_file(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(CacheError::io("lock", &path, source)),
        }
    }

    fn lock_file(&self, name: &str) -> Result<(File, PathBuf), CacheError> {
        let path = self.folder("locks")?.join(name);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| CacheError::io("open", &path, source))?;
        Ok((file, path))
    }

    /// Returns the secret of this cache directory, which the first call creates.
    ///
    /// Invariant: it never changes while the directory exists, else every sealed file is built
    /// again.
    pub(crate) fn secret(&self) -> Result<[u8; SECRET_BYTES], CacheError> {
        let path = self.root.join(SECRET_NAME);
        let make = || {
            let mut secret = [0_u8; SECRET_BYTES];
            getrandom::fill(&mut secret)
                .map_err(|error| CacheError::io("read", Path::new("/dev/urandom"), error.into()))?;
            write_atomically(&path, |file| file.write_all(&secret))?;
            Ok(secret)
        };
        self.find_or_make(SECRET_NAME, || read_secret(&path), |_lock| make())
    }

    /// Returns what `find` finds, or else what `make` makes under the lock `lock`. A caller that
    /// waited for the lock looks again, since another process or thread may have made it meanwhile.
    /// `make` may keep the lock.
    pub(crate) fn find_or_make<T, E: From<CacheError>>(
        &self,
        lock: &str,
        find: impl Fn() -> Result<Option<T>, E>,
        make: impl FnOnce(File) -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(found) = find()? {
            return Ok(found);
        }
        let lock = self.lock(lock)?;
        match find()? {
            Some(found) => Ok(found),
            None => make(lock),
        }
    }
}

/// Reads the secret in `path`; `None` if it is missing or truncated. Any other failure is an error,
/// because a new secret would invalidate everything that the old one sealed.
fn read_secret(path: &Path) -> Result<Option<[u8; SECRET_BYTES]>, CacheError> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes.try_into().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CacheError::io("read", path, source)),
    }
}

/// Writes `path` in one step, for this user alone: readers see either the whole new file or the old
/// one.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), CacheError> {
    replace(path, Access::Private, write).map_err(|source| CacheError::io("write", path, source))
}

/// Writes a hash after `magic`, as seals and stamps have it.
fn write_hash(path: &Path, magic: &[u8; 8], hash: &blake3::Hash) -> Result<(), CacheError> {
    write_atomically(path, |file| {
        file.write_all(magic)?;
        file.write_all(hash.as_bytes())
    })
}

/// Reads such a hash, which compares in constant time; `None` if there is none.
fn read_hash(path: &Path, magic: &[u8; 8]) -> Option<blake3::Hash> {
    blake3::Hash::from_slice(fs::read(path).ok()?.strip_prefix(magic)?).ok()
}

/// A folder that is being filled and gets its name only when it is complete.
#[derive(Debug)]
pub(crate) struct UnfinishedFolder {
    folder: tempfile::TempDir,
}

impl UnfinishedFolder {
    pub(crate) fn new_in(parent: &Path) -> Result<Self, CacheError> {
        let folder = tempfile::Builder::new()
            .prefix(UNFINISHED_PREFIX)
            .tempdir_in(parent)
            .map_err(|source| CacheError::io("write to", parent, source))?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives the folder its name, after removing what had that name before.
    pub(crate) fn finish(self, target: &Path) -> Result<(), CacheError> {
        if let Err(source) = fs::remove_dir_all(target)
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(CacheError::io("replace", target, source));
        }
        fs::rename(self.folder.path(), target)
            .map_err(|source| CacheError::io("write", target, source))
    }
}

/// Removes what killed processes left unfinished in `folder`. The caller holds the lock that guards
/// the folder.
pub(crate) fn remove_unfinished(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if !is_unfinished(&entry.file_name()) {
            continue;
        }
        let path = entry.path();
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Ok(()) => tracing::info!(path = %path.display(), "removed an unfinished cache entry"),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "can't remove an unfinished cache entry");
            }
        }
    }
}

fn is_unfinished(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED_PREFIX.as_bytes())
}

fn default_root() -> Result<PathBuf, CacheError> {
    let folder = |variable: &str| {
        std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    };
    folder("XDG_CACHE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".cache")))
        .map(|base| base.join("hatchery"))
        .ok_or(CacheError::NoPlace)
}

/// Refuses a directory with other people's files, since the cache would close it to them.
fn check_dedicated(path: &Path) -> Result<(), CacheError> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let Ok(mut entries) = fs::read_dir(path) else { return Ok(()) };
    let is_open = metadata.mode() & 0o077 != 0;
    let is_used = entries.next().is_some() && !path.join(SECRET_NAME).is_file();
    if is_open && is_used {
        return Err(CacheError::NotDedicated(path.to_owned()));
    }
    Ok(())
}

/// Creates `path` as a directory that only this user can enter.
fn make_private(path: &Path) -> Result<(), CacheError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| CacheError::io("make", path, source))?;
    let metadata = fs::metadata(path).map_err(|source| CacheError::io("read", path, source))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(CacheError::ForeignOwner { path: path.to_owned(), owner: metadata.uid() });
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(|source| CacheError::io("restrict access to", path, source))?;
    }
    Ok(())
}

static ON_ONE_THREAD: AtomicBool = AtomicBool::new(false);

/// From now on, this process hashes what it loads on the thread that loads it.
///
/// The threads that would share the work never end, and a process that is to fork must have none.
pub fn hash_on_one_thread() {
    ON_ONE_THREAD.store(true, Ordering::Relaxed);
}

pub(crate) fn hash_into(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    if ON_ONE_THREAD.load(Ordering::Relaxed) {
        hasher.update(bytes);
    } else {
        hasher.update_rayon(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn an_open_directory_is_made_private() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("cache");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        CacheDir::open(Some(&root)).unwrap();
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn an_open_directory_with_other_files_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(root.path().join("somebody's"), "").unwrap();
        let error = CacheDir::open(Some(root.path())).unwrap_err();
        assert!(matches!(error, CacheError::NotDedicated(..)), "{error}");
        assert_eq!(fs::metadata(root.path()).unwrap().mode() & 0o7777, 0o1777);
    }

    #[test]
    fn a_place_that_can_not_be_a_directory_is_an_error_that_names_the_variable() {
        let base = tempfile::NamedTempFile::new().unwrap();
        let error = CacheDir::open(Some(&base.path().join("cache"))).unwrap_err();
        assert!(error.to_string().contains(crate::places::CACHE_DIR_VARIABLE), "{error}");
    }

    #[test]
    fn a_full_disk_says_so() {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        let text = CacheError::io("write", Path::new("/cache/x"), source).to_string();
        assert!(text.contains("free some space"), "{text}");
    }

    #[test]
    fn the_secret_survives_and_differs_between_directories() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = CacheDir::open(Some(a.path())).unwrap().secret().unwrap();
        let again = CacheDir::open(Some(a.path())).unwrap().secret().unwrap();
        let other = CacheDir::open(Some(b.path())).unwrap().secret().unwrap();
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn what_others_made_while_one_waited_is_found() {
        let root = tempfile::tempdir().unwrap();
        let cache = CacheDir::open(Some(root.path())).unwrap();
        let path = root.path().join("made");
        let made = AtomicUsize::new(0);
        let make = || {
            made.fetch_add(1, Ordering::Relaxed);
            write_atomically(&path, |file| file.write_all(b"contents"))?;
            Ok(b"contents".to_vec())
        };
        let find = || Ok(fs::read(&path).ok());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let contents: Result<_, CacheError> =
                        cache.find_or_make("made", find, |_lock| make());
                    assert_eq!(contents.unwrap(), b"contents");
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn an_interrupted_write_leaves_nothing_under_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("artifact");
        let result = write_atomically(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert!(result.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_left_by_a_killed_process_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".unfinished-abc"), b"half").unwrap();
        fs::create_dir(folder.path().join(".unfinished-dir")).unwrap();
        fs::write(folder.path().join("whole"), b"whole").unwrap();
        remove_unfinished(folder.path());
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "whole");
    }
}
