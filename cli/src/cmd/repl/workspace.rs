//! Copies files into and out of a session.
//!
//! Files of the host that were there before are never overwritten.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hatchery::error::chain;
use hatchery::files::{ChangeKind, ChangedFile, OutputFolder};
use hatchery::{Outcome, Verdict};

use crate::output;
use crate::terminal;

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
    let own = local.file_name().and_then(|name| name.to_str());
    match path {
        // As in `cp`.
        Some(folder) if folder.ends_with('/') => {
            let name = own.ok_or_else(|| format!("`{}` is not a file name", local.display()))?;
            Ok(format!("{}{name}", below_workspace(folder)))
        }
        Some(path) => Ok(below_workspace(path).to_owned()),
        None => own
            .map(str::to_owned)
            .ok_or_else(|| format!("`{}` is not a file name", local.display())),
    }
}

fn below_workspace(path: &str) -> &str {
    path.strip_prefix(WORKSPACE).unwrap_or(path)
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

/// Writes a new file. Fails if it exists.
pub(super) fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(contents)
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
                    "`{}` existed before and is left alone; use `:get` to fetch the file under \
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
}
