//! The files of one notebook: the copy with its outputs. If it didn't complete, also its session
//! from before the failed cell, and a record of the earlier cells.
//!
//! The record is written last and removed first, and each step is on disk before the next. So if
//! there is a record, the session next to it matches, even after a power failure.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use replace::{Access, Unfinished, replace};

use crate::error::Error;
use crate::saved::SavedState;

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
            .map_err(|source| Error::Write(self.copy.clone(), source))
    }

    /// Writes the record of the saved session.
    pub(crate) fn write_record(&self, state: &SavedState) -> Result<(), Error> {
        let written = state.write(&self.record, usize::MAX).map(drop);
        written.map_err(|source| Error::Write(self.record.clone(), source))
    }

    /// Reads the record, or says why there is none.
    pub(crate) fn record(&self) -> Result<SavedState, String> {
        let record = self.record.display();
        match SavedState::read(&self.record) {
            Ok(state) => state.ok_or_else(|| format!("`{record}` is damaged")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(format!("nothing is saved in `{}`", self.session.display()))
            }
            Err(error) => Err(format!("can't read `{record}`: {error}")),
        }
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
    replace::remove(file).map_err(|source| Error::Remove(file.to_owned(), source))
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::document::Notebook;
    use crate::saved::Traces;

    fn notebook() -> Notebook {
        let text = r#"{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [
            {"cell_type": "code", "metadata": {}, "source": "a"}]}"#;
        Notebook::read(text).unwrap()
    }

    fn record() -> SavedState {
        SavedState::of(&notebook(), 1, &Traces::default())
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
}
