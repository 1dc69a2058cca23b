//! Copies files into and out of a session.
//!
//! Existing files of the host are never overwritten.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use hatchery::error::{SessionError, chain};
use hatchery::files::{ChangeKind, ChangedFile, OutputFolder};
use hatchery::{Error, Outcome, Session, Verdict};
use replace::{Access, Unfinished, folder_of, lock_current, through_links};

use crate::exit::UsageError;
use crate::{output, terminal};

/// Where a session's files are.
const WORKSPACE: &str = "/workspace/";

/// Describes why a job that should have completed didn't.
pub(super) fn failure(outcome: &Outcome) -> String {
    match &outcome.verdict {
        Verdict::Raised(exception) => format!("{}: {}", exception.type_name, exception.message),
        Verdict::Limit(hit) => hit.to_string(),
        Verdict::SandboxFailed(failure) => chain(failure).to_string(),
        verdict => format!("ended as {}", verdict.name()),
    }
}

/// Returns the name in a workspace for a file of the host.
pub(super) fn name_for(local: &Path, path: Option<&str>) -> Result<String, String> {
    let path = path.map_or("", |path| path.strip_prefix(WORKSPACE).unwrap_or(path));
    // As in `cp`.
    if !path.is_empty() && !path.ends_with('/') {
        return Ok(path.to_owned());
    }
    let own = local.file_name().and_then(|name| name.to_str());
    let own = own.ok_or_else(|| format!("`{}` is not a file name", local.display()))?;
    Ok(format!("{path}{own}"))
}

/// Returns the path on the host for a file of a session.
pub(super) fn local_for(path: &str, local: Option<&Path>) -> Result<PathBuf, String> {
    let name = || match path.rsplit('/').next() {
        Some("" | "." | "..") | None => Err(format!("`{path}` is not a file name")),
        Some(name) => Ok(name),
    };
    match local {
        Some(folder) if folder.is_dir() => Ok(folder.join(name()?)),
        Some(local) => Ok(local.to_owned()),
        None => Ok(PathBuf::from(name()?)),
    }
}

/// The folder of `--output-dir`, which receives the files that inputs create and change.
#[derive(Debug)]
pub(super) struct Outputs {
    folder: OutputFolder,
    /// The files there that this prompt wrote, and so may replace.
    own: BTreeSet<String>,
}

impl Outputs {
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { folder: output::open(folder)?, own: BTreeSet::new() })
    }

    /// Writes the files, and returns whether all were written.
    pub(super) fn keep(&mut self, files: &[ChangedFile]) -> bool {
        let mut are_kept = true;
        for file in files.iter().filter(|file| file.kind != ChangeKind::Deleted) {
            let path = &file.path;
            let problem = match self.folder.write(file, self.own.contains(path)) {
                Ok(()) => {
                    self.own.insert(path.clone());
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => format!(
                    "`{}` existed before and is unchanged; use `:get` to fetch the file under \
                     another name",
                    self.folder.path().join(path).display()
                ),
                Err(error) => error.to_string(),
            };
            terminal::error(format_args!("can't write `{path}`: {problem}"));
            are_kept = false;
        }
        are_kept
    }
}

// The file that keeps a session from one prompt to the next.
//
// Two prompts on one file would each save their own session there, and the last one would win. So
// the file is locked while a prompt is open, if the file system has locks. If the file changes
// anyway, the session goes into another file beside it. A missing file is created empty, and
// counts as having no session.

/// The file of `--session`.
#[derive(Debug)]
pub(in crate::cmd) struct SessionFile {
    path: PathBuf,
    /// The file that this prompt last created, read or wrote, locked, and its stamp.
    last: (File, Stamp),
}

/// Identifies a file and its state: the device, the inode, the length, and when it was modified.
type Stamp = (u64, u64, u64, (i64, i64));

impl SessionFile {
    /// Opens and locks the file. Fails if a session can't be saved there, or if another prompt uses
    /// it.
    pub(in crate::cmd) fn open(path: &Path) -> anyhow::Result<Self> {
        let is_place = folder_of(path).is_dir() && (!path.exists() || path.is_file());
        let shown = path.display();
        if !is_place {
            let text = format!("`{shown}` can't hold a session; name a file in an existing folder");
            return Err(UsageError(text).into());
        }
        let locked = lock_current(path, || match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
            opened => opened,
        });
        let locked = locked.with_context(|| UsageError(format!("can't open `{shown}`")))?;
        let busy = || {
            UsageError(format!(
                "another prompt uses the session in `{shown}`; end that prompt, or continue with a \
                 copy of the file"
            ))
        };
        let file = locked.ok_or_else(busy)?;
        let stamp = stamp_of(&file.metadata()?);
        Ok(Self { path: through_links(path), last: (file, stamp) })
    }

    /// Returns the path, if the file holds a session.
    pub(in crate::cmd) fn existing(&self) -> Option<&Path> {
        (!is_empty(&self.last.1)).then_some(self.path.as_path())
    }

    /// Returns whether this path names the same file.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        path == self.path || stamp_at(path).ok().flatten().is_some_and(|stamp| stamp == self.last.1)
    }

    /// Saves the session to the file, unless somebody else has written there meanwhile.
    pub(in crate::cmd) async fn save(&mut self, session: &Session) -> anyhow::Result<u64> {
        let (unfinished, _) = Unfinished::beside(&self.path, Access::Private)?;
        let saved = session.save(unfinished.path()).await;
        let bytes = saved.map_err(|error| about(&self.path, error))?;
        let file = File::open(unfinished.path())?;
        // Without locks, comparing the stamps has to do.
        let _ = file.try_lock();
        if stamp_at(&self.path)?.is_some_and(|stamp| stamp != self.last.1) {
            let other = free_beside(&self.path);
            unfinished.finish(&other)?;
            anyhow::bail!(
                "another program changed the file, so it was not overwritten; the session is in \
                 `{}`",
                other.display()
            );
        }
        unfinished.finish(&self.path)?;
        let stamp = stamp_of(&file.metadata()?);
        self.last = (file, stamp);
        Ok(bytes)
    }
}

impl Drop for SessionFile {
    /// Removes the file if it is still empty.
    fn drop(&mut self) {
        let (_, stamp) = &self.last;
        if is_empty(stamp) && stamp_at(&self.path).is_ok_and(|now| now.as_ref() == Some(stamp)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Names the user's file in an error, in place of the unfinished one.
fn about(file: &Path, error: Error) -> Error {
    match error {
        Error::Session(SessionError::File { action, cause, .. }) => {
            SessionError::File { action, path: file.to_owned(), cause }.into()
        }
        error => error,
    }
}

/// Creates an empty file, unless another prompt just did.
fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn is_empty((_, _, length, _): &Stamp) -> bool {
    *length == 0
}

fn stamp_of(metadata: &Metadata) -> Stamp {
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    (metadata.dev(), metadata.ino(), metadata.len(), modified)
}

fn stamp_at(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(stamp_of(&metadata))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a session to a file atomically: the file then has all of it, or its old contents.
pub(super) async fn save(session: &Session, path: &Path) -> anyhow::Result<u64> {
    let path = through_links(path);
    if !may_be_replaced(&path)? {
        anyhow::bail!("it exists and is not a session; give another name");
    }
    Ok(session.save(&path).await?)
}

/// Returns whether the file doesn't exist, is empty or holds a session.
fn may_be_replaced(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(SESSION_BEGINS.len() as u64).read_to_end(&mut begin)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    Ok(begin.is_empty() || begin == SESSION_BEGINS)
}

/// The first bytes of every session file, whatever its version.
const SESSION_BEGINS: &[u8] = b"HTCHSES";

/// Returns the first of `FILE.1`, `FILE.2` and so on that doesn't exist.
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
    use std::fs;

    use super::*;

    fn changed(path: &str, contents: &str) -> ChangedFile {
        ChangedFile::new(path, ChangeKind::Created, contents)
    }

    #[test]
    fn only_what_this_prompt_wrote_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("out");
        let mut outputs = Outputs::open(&base).unwrap();
        fs::write(base.join("mine"), "mine").unwrap();
        assert!(outputs.keep(&[changed("a/b", "1"), changed("c", "2")]));
        assert!(outputs.keep(&[changed("a/b", "3")]));
        assert!(!outputs.keep(&[changed("mine", "4"), changed("d", "5")]));
        let read = |name: &str| fs::read_to_string(base.join(name)).unwrap();
        let found = ["a/b", "c", "mine", "d"].map(read);
        assert_eq!(found, ["3", "2", "mine", "5"]);
        // It may have been removed meanwhile.
        fs::remove_file(base.join("c")).unwrap();
        assert!(outputs.keep(&[changed("c", "6")]));
    }

    #[test]
    fn nothing_is_written_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("out");
        let mut outputs = Outputs::open(&base).unwrap();
        std::os::unix::fs::symlink(folder.path(), base.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("new"), base.join("file")).unwrap();
        for path in ["link/x", "file", "../x", "/x", "a/../../x"] {
            assert!(!outputs.keep(&[changed(path, "")]), "{path}");
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn files_are_named_as_cp_names_them() {
        let name = |local: &str, path| name_for(Path::new(local), path);
        assert_eq!(name("/tmp/a.csv", None).as_deref(), Ok("a.csv"));
        assert_eq!(name("a.csv", Some("data/")).as_deref(), Ok("data/a.csv"));
        assert_eq!(name("a.csv", Some("/workspace/b")).as_deref(), Ok("b"));
        assert!(name("..", None).is_err());
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(local_for("a/b.csv", None), Ok("b.csv".into()));
        assert_eq!(local_for("b", Some(folder.path())), Ok(folder.path().join("b")));
        assert_eq!(local_for("b", Some(Path::new("other"))), Ok("other".into()));
        assert!(local_for("a/..", None).is_err());
    }

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
    fn errors_name_the_users_file() {
        let unfinished = SessionError::File {
            action: "write",
            path: "/w/.unfinished-x".into(),
            cause: io::ErrorKind::StorageFull.into(),
        };
        let said = about("/w/mine.session".as_ref(), unfinished.into()).to_string();
        assert_eq!(said, "can't write `/w/mine.session`");
    }

    #[test]
    fn a_free_name_does_not_exist_yet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(folder.path().join("x.1"), "").unwrap();
        assert_eq!(free_beside(&path), folder.path().join("x.2"));
    }
}
