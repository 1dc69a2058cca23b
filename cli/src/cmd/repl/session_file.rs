//! The file that a session is kept in from one prompt to the next.
//!
//! Two prompts on one file would each keep a session of their own there, and the last one would win.
//! So the file is locked while a prompt is open, as far as the filesystem has locks, and if it has
//! changed all the same, the session goes into a file beside it. A file that isn't there yet is made,
//! empty, and counts as none.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hatchery::Session;

use crate::exit::UsageError;
use crate::replace::{Access, Unfinished, through_links};

/// How often the file may be replaced while it is being opened.
const MOST_TRIES: usize = 10;

/// The file of `--session`.
#[derive(Debug)]
pub(in crate::cmd) struct SessionFile {
    path: PathBuf,
    /// The file that this prompt made, read or wrote last, locked, and what it was like.
    last: (File, Stamp),
}

/// Tells whether a file is the one that it was.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl SessionFile {
    /// Checks that a session can be kept in this file, and that no other prompt does so.
    pub(in crate::cmd) fn open(path: &Path) -> anyhow::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let is_place =
            folder.unwrap_or(Path::new(".")).is_dir() && (!path.exists() || path.is_file());
        let shown = path.display();
        if !is_place {
            let text = format!("`{shown}` can't be a session's file; name one in a folder");
            return Err(UsageError(text).into());
        }
        for _ in 0..MOST_TRIES {
            let file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
                opened => opened,
            };
            let file =
                file.map_err(|error| UsageError(format!("can't open `{shown}`: {error}")))?;
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                let text = format!(
                    "another prompt goes on with the session in `{shown}`; end that one, or copy \
                     the file and go on with the copy"
                );
                return Err(UsageError(text).into());
            }
            let stamp = Stamp::of(&file.metadata()?);
            // Another prompt may have ended since it was opened, and left a file of its own.
            if stamp_at(path)?.as_ref() == Some(&stamp) {
                let path = through_links(path);
                return Ok(Self { path, last: (file, stamp) });
            }
        }
        Err(UsageError(format!("`{shown}` is replaced again and again")).into())
    }

    /// The file, if there is a session in it.
    pub(in crate::cmd) fn existing(&self) -> Option<&Path> {
        (!self.last.1.is_empty()).then_some(self.path.as_path())
    }

    /// Whether this path names the same file.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        path == self.path || stamp_at(path).ok().flatten().is_some_and(|stamp| stamp == self.last.1)
    }

    /// Writes the session to the file, unless somebody else has written there since.
    pub(in crate::cmd) async fn save(&mut self, session: &Session) -> anyhow::Result<u64> {
        let (unfinished, _) = Unfinished::beside(&self.path, Access::Private)?;
        let bytes = session.save(unfinished.path()).await?;
        let file = File::open(unfinished.path())?;
        // Where there are no locks, the stamps have to do.
        let _ = file.try_lock();
        if stamp_at(&self.path)?.is_some_and(|stamp| stamp != self.last.1) {
            let other = free_beside(&self.path);
            unfinished.finish(&other)?;
            anyhow::bail!(
                "it was changed since this prompt read it, and is left as it is; the session is in \
                 `{}`",
                other.display()
            );
        }
        unfinished.finish(&self.path)?;
        let stamp = Stamp::of(&file.metadata()?);
        self.last = (file, stamp);
        Ok(bytes)
    }
}

impl Drop for SessionFile {
    /// Removes a file that no session came into.
    fn drop(&mut self) {
        let (_, stamp) = &self.last;
        if stamp.is_empty() && stamp_at(&self.path).is_ok_and(|now| now.as_ref() == Some(stamp)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes an empty file, unless another prompt has done so just now.
fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

impl Stamp {
    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

fn stamp_at(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(Stamp::of(&metadata))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a session to a file, which then has all of it, or what it had before.
pub(super) async fn save(session: &Session, path: &Path) -> anyhow::Result<u64> {
    let path = through_links(path);
    if !may_be_replaced(&path)? {
        anyhow::bail!("it is there and holds no session; give another name");
    }
    Ok(session.save(&path).await?)
}

/// Whether nothing is there, or a session, or nothing is in it.
fn may_be_replaced(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(SESSION_BEGINS.len() as u64).read_to_end(&mut begin)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    Ok(begin.is_empty() || begin == SESSION_BEGINS)
}

/// What the file of a session begins with, whatever its version.
const SESSION_BEGINS: &[u8] = b"HTCHSES";

/// The first of `FILE.1`, `FILE.2` and so on that isn't there.
fn free_beside(path: &Path) -> PathBuf {
    let mut paths = (1..).map(|number: u64| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    });
    paths.find(|path| path.symlink_metadata().is_err()).expect("numbers go on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_prompt_at_a_time_has_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("work.session");
        let new = SessionFile::open(&path).unwrap();
        assert!(new.existing().is_none());
        let second = SessionFile::open(&path).unwrap_err();
        assert!(second.is::<UsageError>() && second.to_string().contains("another prompt"));
        drop(new);
        assert!(!path.exists(), "nothing was kept there");
        fs::write(&path, "state").unwrap();
        let first = SessionFile::open(&path).unwrap();
        assert_eq!(first.existing(), Some(path.as_path()));
        assert!(first.is_at(&folder.path().join(".").join("work.session")));
        let second = SessionFile::open(&path).unwrap_err();
        assert!(second.is::<UsageError>() && second.to_string().contains("another prompt"));
        drop(first);
        assert!(SessionFile::open(&path).is_ok());
    }

    #[test]
    fn places_that_can_hold_no_session_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("missing").join("x")] {
            assert!(SessionFile::open(&path).is_err_and(|error| error.is::<UsageError>()));
        }
    }

    #[test]
    fn a_free_name_is_one_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(folder.path().join("x.1"), "").unwrap();
        assert_eq!(free_beside(&path), folder.path().join("x.2"));
    }
}
