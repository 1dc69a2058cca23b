//! The file that a session is kept in from one prompt to the next.
//!
//! Two prompts on one file would each keep a session of their own there, and the last one would win.
//! So the file is locked while a prompt is open, as far as the filesystem has locks, and if it has
//! changed all the same, the session goes into a file beside it.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
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
    /// The file that this prompt read or wrote last; `None` if there was none. It is locked.
    last: Option<(File, Stamp)>,
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
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Self { path: path.to_owned(), last: None });
                }
                Err(error) => {
                    return Err(UsageError(format!("can't read `{shown}`: {error}")).into());
                }
            };
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
                return Ok(Self { path, last: Some((file, stamp)) });
            }
        }
        Err(UsageError(format!("`{shown}` is replaced again and again")).into())
    }

    /// The file, if there is one.
    pub(in crate::cmd) fn existing(&self) -> Option<&Path> {
        self.last.as_ref().map(|_| self.path.as_path())
    }

    /// Whether this path names the same file.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let is_last = |stamp: Stamp| self.last.as_ref().is_some_and(|(_, last)| *last == stamp);
        path == self.path || stamp_at(path).ok().flatten().is_some_and(is_last)
    }

    /// Writes the session to the file, unless somebody else has written there since.
    pub(in crate::cmd) async fn save(&mut self, session: &Session) -> anyhow::Result<u64> {
        let (unfinished, _) = Unfinished::beside(&self.path, Access::Private)?;
        let bytes = session.save(unfinished.path()).await?;
        let file = File::open(unfinished.path())?;
        // Where there are no locks, the stamps have to do.
        let _ = file.try_lock();
        if stamp_at(&self.path)?.as_ref() != self.last.as_ref().map(|(_, stamp)| stamp)
            && self.path.exists()
        {
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
        self.last = Some((file, stamp));
        Ok(bytes)
    }
}

impl Stamp {
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
        assert!(SessionFile::open(&path).unwrap().existing().is_none());
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
