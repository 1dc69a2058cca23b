//! What to run, and how.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery::{Hatchery, Job, Limits, Session};
use replace::{Access, Unfinished, replace};

use crate::check::Error;
use crate::document::{CodeCell, Notebook};
use crate::event::Observer;
use crate::guest;
use crate::guest::Prepared;
use crate::prefixes::{Key, PrefixCache, Seen, chain};
use crate::report::Record;

/// A notebook to run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Task {
    /// Its place among the notebooks of the command, for the [`Observer`].
    pub index: usize,
    /// The notebook.
    pub notebook: Notebook,
    /// Where its outputs go. No two notebooks of a pool may have the same places.
    pub places: Places,
    /// A job whose folders the notebook gets, and which isn't run: see [`Job::beside`].
    pub folders: Job,
}

impl Task {
    /// Describes a notebook that gets no folder.
    pub fn new(index: usize, notebook: Notebook, places: Places) -> Self {
        Self { index, notebook, places, folders: Job::default() }
    }
}

/// What all notebooks of a command have in common.
#[derive(Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The pool in which they run.
    pub pool: Hatchery,
    /// The limits of each cell.
    pub limits: Limits,
    /// A job whose folders all notebooks get, and which isn't run: see [`Job::mount`]. Default:
    /// none.
    pub mounts: Job,
    /// Whether a notebook continues from its saved session, if it has one that fits. Default: no.
    pub resumes: bool,
    /// Whether notebooks continue after cells that raise. Default: no.
    pub allows_errors: bool,
    /// Whether copies are written, and sessions of notebooks that don't complete. Default: yes.
    pub writes: bool,
    /// The states after cells that notebooks take over, and to which they add theirs. Default: none,
    /// so every cell runs. Notebooks that may connect to something always run from their start, and
    /// so do those that get folders of more than 10,000 files or 1 GiB.
    pub prefixes: Option<PrefixCache>,
    /// Receives the progress. Default: nobody.
    pub observer: Arc<dyn Observer>,
    prepared: Prepared,
    /// The input files in each workspace, and a digest of their names and contents.
    inputs: Job,
    input_digest: String,
}

impl Settings {
    /// Describes notebooks with these limits for each cell.
    pub fn new(pool: Hatchery, limits: Limits) -> Self {
        Self {
            pool,
            limits,
            mounts: Job::default(),
            resumes: false,
            allows_errors: false,
            writes: true,
            prefixes: None,
            observer: Arc::new(()),
            prepared: Prepared::default(),
            inputs: Job::default(),
            input_digest: digest(&[]),
        }
    }

    /// Puts files into each notebook's workspace: their names there, and their contents.
    ///
    /// # Errors
    /// A name isn't one of a plain file below the workspace.
    pub fn inputs(self, files: Vec<(String, Vec<u8>)>) -> Result<Self, hatchery::Error> {
        let input_digest = digest(&files);
        let mut inputs = Job::default();
        for (name, contents) in files {
            inputs = inputs.input(name, contents)?;
        }
        Ok(Self { inputs, input_digest, ..self })
    }

    /// Tells the prefixes which notebooks will run, so that they know which states several of them
    /// need. Without it, each notebook runs all cells that no earlier command has run. Reads the
    /// folders of the notebooks.
    pub fn announce(&self, tasks: &[Task]) {
        if let Some(prefixes) = &self.prefixes {
            for task in tasks {
                let seen = self.seen(task).and_then(|seen| seen.digest());
                prefixes.shared.expect(&self.keys(task, seen.as_deref()));
            }
        }
    }

    /// Returns what a notebook sees in folders of the host. `None` if its states can't be shared.
    fn seen(&self, task: &Task) -> Option<Seen> {
        let prefixes = self.prefixes.as_ref().filter(|_| !self.resumes)?;
        if self.pool.allows_connections() {
            return None;
        }
        prefixes.folders.seen(&task.notebook, [&task.folders, &self.mounts])
    }

    /// Returns a digest of what a notebook sees now. `None` if its states can't be shared.
    pub(crate) async fn look(&self, task: &Task) -> Option<String> {
        self.seen(task)?.digest_soon().await
    }

    /// Returns the keys of the states after each of the notebook's cells, as far as these can be
    /// shared.
    pub(crate) fn keys(&self, task: &Task, seen: Option<&str>) -> Vec<Key> {
        let Some(seen) = seen else { return Vec::new() };
        let limits = format!("{:?}", self.limits);
        let begin = [self.image(), &self.input_digest, &limits, seen];
        chain(&task.notebook, self.allows_errors, &begin)
    }

    /// Returns the first job of a fresh session.
    pub(crate) async fn begin(&self, session: &Session, task: &Task) -> Job {
        let first = self.prepared.first_job(&self.pool, session, &self.limits).await;
        first.with_files_of(&task.folders).with_files_of(&self.mounts).with_files_of(&self.inputs)
    }

    /// Returns the first job of a session that continues from a saved state.
    pub(crate) fn resume(&self, task: &Task) -> Job {
        guest::resume(&self.limits).with_files_of(&task.folders).with_files_of(&self.mounts)
    }

    /// Returns the limits of a cell, whose tag lowers the time.
    pub(crate) fn limits_of(&self, cell: &CodeCell) -> Limits {
        let wall_time = cell.time_limit.unwrap_or(self.limits.wall_time);
        Limits { wall_time: wall_time.min(self.limits.wall_time), ..self.limits.clone() }
    }

    /// Returns the key of the image from which sessions begin.
    pub(crate) fn image(&self) -> &str {
        self.pool.image().map_or("", |image| image.key.as_str())
    }

    pub(crate) fn input_digest(&self) -> &str {
        &self.input_digest
    }
}

/// Returns a digest of the names and contents of input files.
fn digest(files: &[(String, Vec<u8>)]) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, contents) in files {
        for part in [name.as_bytes(), contents] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
    }
    hasher.finalize().to_hex().to_string()
}

// The files of one notebook: the copy with its outputs, and what remains if it didn't complete, its
// session as it was before the failed cell and a record of the cells before that.
//
// The record is written last and removed first, and each step is on disk before the next. So if
// there is a record, the session next to it matches, even after a power failure.

/// How the names of copies, sessions and records end.
pub(crate) const COPY_SUFFIX: &str = ".ipynb";
pub(crate) const SESSION_SUFFIX: &str = ".resume.session";
pub(crate) const RECORD_SUFFIX: &str = ".resume.json";

/// The paths of one notebook's files.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Places {
    /// The copy with the outputs.
    pub copy: PathBuf,
    /// The session, in the format of `Session::save`.
    pub(crate) session: PathBuf,
    record: PathBuf,
}

impl Places {
    /// Returns the paths that belong to a copy.
    pub fn of(copy: PathBuf) -> Self {
        let session = copy.with_extension(&SESSION_SUFFIX[1..]);
        let record = copy.with_extension(&RECORD_SUFFIX[1..]);
        Self { copy, session, record }
    }

    /// Writes the copy, with the permissions of the previous one, in one step.
    pub(crate) fn write_copy(&self, notebook: &[u8]) -> Result<(), Error> {
        replace(&self.copy, Access::AsBefore, |file| file.write_all(notebook))
            .map_err(|source| Error::Write { path: self.copy.clone(), source })
    }

    /// Writes the record of the saved session. It contains outputs, and so is as private as the
    /// session.
    pub(crate) fn write_record(&self, record: &Record) -> Result<(), Error> {
        replace(&self.record, Access::Private, |file| file.write_all(&record.write()))
            .map_err(|source| Error::Write { path: self.record.clone(), source })
    }

    /// Reads the record, or says why there is none.
    pub(crate) fn record(&self) -> Result<Record, String> {
        let record = match fs::read(&self.record) {
            Ok(record) => record,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(format!("nothing is saved in `{}`", self.session.display()));
            }
            Err(error) => return Err(format!("can't read `{}`: {error}", self.record.display())),
        };
        Record::read(&record).ok_or_else(|| format!("`{}` is damaged", self.record.display()))
    }

    /// Removes the record and the session, if they exist.
    pub(crate) fn forget(&self) -> Result<(), Error> {
        self.forget_record()?;
        remove(&self.session)
    }

    /// Removes only the record, before the session is overwritten. If that fails, the session must
    /// stay as it is.
    pub(crate) fn forget_record(&self) -> Result<(), Error> {
        remove(&self.record)
    }
}

fn remove(file: &Path) -> Result<(), Error> {
    replace::remove(file).map_err(|source| Error::Remove { path: file.to_owned(), source })
}

/// Checks whether a file can be written here.
///
/// # Errors
/// It can't, for this reason.
pub fn check_place(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    Unfinished::beside(path, Access::AsBefore).map(drop)
}

/// What nbval's markers say of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Markers {
    /// Whether its outputs are compared, if it says so.
    pub(crate) checks: Option<bool>,
    /// Whether it isn't run.
    pub(crate) is_skipped: bool,
    /// Whether it may raise.
    pub(crate) may_raise: bool,
}

impl Markers {
    /// Reads the comments and tags of a cell. Comments overrule tags.
    pub(crate) fn of(source: &str, tags: &[String]) -> Self {
        let mut markers = Self::default();
        for tag in tags {
            let is_marker = tag.starts_with("nbval-");
            markers.take(&tag.to_ascii_uppercase().replace('-', "_"), is_marker);
        }
        for line in source.lines() {
            if let Some(comment) = line.trim().strip_prefix('#') {
                markers.take(comment.trim_start_matches('#').trim(), true);
            }
        }
        markers
    }

    fn take(&mut self, name: &str, is_marker: bool) {
        match name {
            _ if !is_marker => {}
            // The second is nbval's own earlier name.
            "NBVAL_IGNORE_OUTPUT" | "PYTEST_VALIDATE_IGNORE_OUTPUT" => self.checks = Some(false),
            "NBVAL_CHECK_OUTPUT" => self.checks = Some(true),
            "NBVAL_RAISES_EXCEPTION" => self.may_raise = true,
            "NBVAL_SKIP" => self.is_skipped = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Notebook;

    #[test]
    fn inputs_differ_by_name_and_contents() {
        let of = |files: &[(&str, &str)]| {
            let owned = |(name, contents): &(&str, &str)| {
                ((*name).to_owned(), contents.as_bytes().to_vec())
            };
            digest(&files.iter().map(owned).collect::<Vec<_>>())
        };
        assert_eq!(of(&[("x", "1")]), of(&[("x", "1")]));
        assert_ne!(of(&[("x", "1")]), of(&[("y", "1")]));
        assert_ne!(of(&[("x", "1")]), of(&[("x", "2")]));
        assert_ne!(of(&[("x", "1")]), of(&[("x1", "")]));
    }

    fn notebook() -> Notebook {
        let text = r#"{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [
            {"cell_type": "code", "metadata": {}, "source": "a"}]}"#;
        Notebook::read(text).unwrap()
    }

    fn record() -> Record {
        Record::of(&notebook(), 1, "image", "inputs", &[])
    }

    #[test]
    fn a_record_that_can_not_be_removed_keeps_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::of(folder.path().join("a.ipynb"));
        places.forget_record().unwrap();
        fs::write(&places.session, "session").unwrap();
        fs::create_dir(&places.record).unwrap();
        for forgotten in [places.forget_record(), places.forget()] {
            let problem = forgotten.unwrap_err().to_string();
            assert!(problem.contains("can't remove") && problem.contains("a.resume.json"));
        }
        assert_eq!(fs::read(&places.session).unwrap(), b"session");
        fs::remove_dir(&places.record).unwrap();
        places.forget_record().unwrap();
        assert!(places.session.exists());
    }

    #[test]
    fn a_record_is_found_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::of(folder.path().join("a.b.ipynb"));
        assert_eq!(places.session, folder.path().join("a.b.resume.session"));
        assert!(places.record().unwrap_err().contains("nothing is saved"));
        places.write_record(&record()).unwrap();
        assert_eq!(places.record(), Ok(record()));
        fs::write(&places.record, "{").unwrap();
        assert!(places.record().unwrap_err().contains("damaged"));
        places.forget().unwrap();
        places.forget().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn records_are_private_and_copies_as_they_were() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let places = Places::of(folder.path().join("a.ipynb"));
        let one = notebook();
        places.write_copy(&one.write()).unwrap();
        fs::set_permissions(&places.copy, fs::Permissions::from_mode(0o640)).unwrap();
        places.write_copy(&one.write()).unwrap();
        places.write_record(&record()).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&places.copy), mode(&places.record)), (0o640, 0o600));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_place_must_be_writable() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_place(folder.path()).is_err());
        assert!(check_place(&folder.path().join("missing/a.ipynb")).is_err());
        check_place(&folder.path().join("a.ipynb")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn markers_are_comments_or_tags() {
        let of = |source: &str, tags: &[&str]| {
            Markers::of(source, &tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of("x # NBVAL_SKIP", &[]), Markers::default());
        assert!(of("x\n  # NBVAL_SKIP ", &[]).is_skipped);
        assert!(of("x", &["nbval-skip"]).is_skipped);
        assert!(!of("x", &["NBVAL_SKIP"]).is_skipped);
        assert!(of("##NBVAL_RAISES_EXCEPTION", &[]).may_raise);
        assert_eq!(of("# NBVAL_CHECK_OUTPUT", &["nbval-ignore-output"]).checks, Some(true));
        assert_eq!(of("", &["nbval-ignore-output"]).checks, Some(false));
        assert_eq!(of("# PYTEST_VALIDATE_IGNORE_OUTPUT", &[]).checks, Some(false));
    }
}
