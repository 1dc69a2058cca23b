//! What remains of a notebook that didn't complete: its session, as it was before the failed cell,
//! and a record of the cells before that.
//!
//! The record is written last and removed first, and each step is on disk before the next. So if
//! there is a record, the session next to it matches, even after a power failure.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use replace::{Access, Unfinished, replace};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document::Notebook;

/// The version of the record's format, and of the functions that a saved session has for its cells.
const VERSION: u32 = 2;

/// The paths of one notebook's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// The copy with the outputs.
    pub(super) copy: PathBuf,
    /// The session, in the format of `Session::save`.
    pub(super) session: PathBuf,
    record: PathBuf,
}

/// What a notebook resumes from.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    /// The key of the session's image.
    image: String,
    /// A digest of the input files.
    inputs: String,
    cells: Vec<DoneCell>,
}

/// A cell that need not run again.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct DoneCell {
    source: String,
    outputs: Vec<Value>,
}

impl Places {
    /// Returns the paths that belong to a copy.
    pub(super) fn of(copy: PathBuf) -> Self {
        let session = copy.with_extension("resume.session");
        let record = copy.with_extension("resume.json");
        Self { copy, session, record }
    }

    /// Writes the copy, with the permissions of the previous one.
    pub(super) fn write_copy(&self, notebook: &Notebook) -> anyhow::Result<()> {
        replace(&self.copy, Access::AsBefore, |file| file.write_all(&notebook.write()))
            .with_context(|| format!("can't write `{}`", self.copy.display()))
    }

    /// Writes the record of the session's state after the first `count` cells. It contains their
    /// outputs, and so is as private as the session.
    pub(super) fn write_record(
        &self,
        notebook: &Notebook,
        count: usize,
        image: &str,
        inputs: &str,
    ) -> anyhow::Result<()> {
        let record = serde_json::to_vec(&Record::of(notebook, count, image, inputs))?;
        replace(&self.record, Access::Private, |file| file.write_all(&record))
            .with_context(|| format!("can't write `{}`", self.record.display()))
    }

    /// Reads the record, or says why there is none.
    pub(super) fn record(&self) -> Result<Record, String> {
        let record = match fs::read(&self.record) {
            Ok(record) => record,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(format!("nothing is saved in `{}`", self.session.display()));
            }
            Err(error) => return Err(format!("can't read `{}`: {error}", self.record.display())),
        };
        let damaged = |_| format!("`{}` is damaged", self.record.display());
        serde_json::from_slice(&record).map_err(damaged)
    }

    /// Removes the record and the session, if they exist.
    pub(super) fn forget(&self) -> anyhow::Result<()> {
        self.forget_record()?;
        remove(&self.session)
    }

    /// Removes only the record, before the session is overwritten. If that fails, the session must
    /// stay as it is.
    pub(super) fn forget_record(&self) -> anyhow::Result<()> {
        remove(&self.record)
    }
}

fn remove(file: &Path) -> anyhow::Result<()> {
    replace::remove(file).with_context(|| format!("can't remove `{}`", file.display()))
}

impl Record {
    fn of(notebook: &Notebook, count: usize, image: &str, inputs: &str) -> Self {
        let cells = notebook
            .code()
            .take(count)
            .map(|cell| DoneCell { source: cell.source.clone(), outputs: cell.outputs.clone() });
        let (image, inputs) = (image.to_owned(), inputs.to_owned());
        Self { version: VERSION, image, inputs, cells: cells.collect() }
    }

    /// Restores the outputs of the cells that need not run again, and returns their number; or says
    /// why the notebook must run from its start.
    pub(super) fn apply(
        self,
        notebook: &mut Notebook,
        image: &str,
        inputs: &str,
    ) -> Result<usize, String> {
        if self.version != VERSION {
            return Err("it was saved by another version of hatchery".to_owned());
        }
        if self.image != image {
            return Err("the image has changed".to_owned());
        }
        if self.inputs != inputs {
            return Err("an input has changed".to_owned());
        }
        let mut now = notebook.code();
        for (number, done) in (1..).zip(&self.cells) {
            match now.next() {
                Some(cell) if cell.source == done.source => {}
                Some(_) => return Err(format!("cell {number} has changed")),
                None => return Err(format!("cell {number} is gone")),
            }
        }
        drop(now);
        let count = self.cells.len();
        for ((number, cell), done) in (1..).zip(notebook.code_mut()).zip(self.cells) {
            cell.execution_count = Some(number);
            cell.outputs = done.outputs;
        }
        Ok(count)
    }
}

/// Checks whether a file can be written here.
pub(super) fn check_place(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    Unfinished::beside(path, Access::AsBefore).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn notebook(sources: &[&str]) -> Notebook {
        let cells: Vec<Value> = sources
            .iter()
            .map(|source| json!({ "cell_type": "code", "metadata": {}, "source": source }))
            .collect();
        let text = json!({ "nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells });
        Notebook::read(&text.to_string()).unwrap()
    }

    #[test]
    fn a_record_applies_only_to_its_own_notebook() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::of(folder.path().join("a.b.ipynb"));
        assert_eq!(places.session, folder.path().join("a.b.resume.session"));
        assert!(places.record().unwrap_err().contains("nothing is saved"));
        let mut first = notebook(&["a", "b", "c"]);
        first.code_mut().next().unwrap().outputs.push(json!("out"));
        places.write_record(&first, 2, "image", "inputs").unwrap();

        // The third failed; it may have changed, and so may what follows.
        for sources in [&["a", "b", "c"][..], &["a", "b", "d", "e"], &["a", "b"]] {
            let mut fixed = notebook(sources);
            assert_eq!(places.record().unwrap().apply(&mut fixed, "image", "inputs"), Ok(2));
            let counts: Vec<_> = fixed.code().map(|cell| cell.execution_count).collect();
            assert_eq!(counts[..2], [Some(1), Some(2)]);
            assert!(counts[2..].iter().all(Option::is_none));
            assert_eq!(fixed.code().next().unwrap().outputs, [json!("out")]);
        }
        for (sources, image, inputs, expected) in [
            (&["a", "B", "c"][..], "image", "inputs", "cell 2 has changed"),
            (&["a"], "image", "inputs", "cell 2 is gone"),
            (&["a", "b"], "other", "inputs", "image"),
            (&["a", "b"], "image", "other", "input"),
        ] {
            let mut other = notebook(sources);
            let problem = places.record().unwrap().apply(&mut other, image, inputs).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
            assert!(other.code().all(|cell| cell.execution_count.is_none()));
        }
        fs::write(&places.record, "{").unwrap();
        assert!(places.record().unwrap_err().contains("damaged"));
        places.forget().unwrap();
        places.forget().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_record_that_can_not_be_removed_keeps_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::of(folder.path().join("a.ipynb"));
        places.forget_record().unwrap();
        fs::write(&places.session, "session").unwrap();
        fs::create_dir(&places.record).unwrap();
        for forgotten in [places.forget_record(), places.forget()] {
            let problem = format!("{:#}", forgotten.unwrap_err());
            assert!(problem.contains("can't remove") && problem.contains("a.resume.json"));
        }
        assert_eq!(fs::read(&places.session).unwrap(), b"session");
        fs::remove_dir(&places.record).unwrap();
        places.forget_record().unwrap();
        assert!(places.session.exists());
    }

    #[test]
    fn records_are_private_and_copies_as_they_were() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let places = Places::of(folder.path().join("a.ipynb"));
        let one = notebook(&["a"]);
        places.write_copy(&one).unwrap();
        fs::set_permissions(&places.copy, fs::Permissions::from_mode(0o640)).unwrap();
        places.write_copy(&one).unwrap();
        places.write_record(&one, 1, "image", "inputs").unwrap();
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
}
