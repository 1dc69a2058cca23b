//! Results in a file: one line each, written as samples end, and read again to go on or to compare.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{GradeError, InvalidLine};
use crate::lines;
use crate::verdict::{Graded, Verdict};

/// Reads results. Of two of one sample the later one counts, as after a resumed run in which the sample
/// had changed.
///
/// # Errors
/// The file can't be read, or a line is no result.
pub fn read_results(path: &Path) -> Result<Vec<Graded>, GradeError> {
    let mut results: Vec<Graded> = Vec::new();
    let mut places = HashMap::new();
    let parse = |_, object| {
        let parsed: Result<Graded, _> = serde_json::from_value(Value::Object(object));
        parsed.map_err(|_| InvalidLine::NoResult)
    };
    for graded in lines::read(path, parse)?.all()? {
        match places.entry((graded.task_id.clone(), graded.sample)) {
            Entry::Occupied(place) => results[*place.get()] = graded,
            Entry::Vacant(place) => {
                place.insert(results.len());
                results.push(graded);
            }
        }
    }
    Ok(results)
}

/// A file to which results are written.
#[derive(Debug)]
pub struct ResultsFile {
    file: File,
    path: PathBuf,
}

impl ResultsFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// It can't be written, or another process grades into it.
    pub fn create(path: &Path) -> Result<Self, GradeError> {
        let file = Self::open(path)?;
        file.file.set_len(0).map_err(|source| file.unwritable(source))?;
        Ok(file)
    }

    /// Opens the file to append to it, and returns what is there. A line at its end that was cut off
    /// is removed. Failures of the sandbox aren't returned: their samples are graded again.
    ///
    /// # Errors
    /// The file can't be read or written, another process grades into it, or a line before the last
    /// one is no result.
    pub fn resume(path: &Path) -> Result<(Self, Earlier), GradeError> {
        let mut file = Self::open(path)?;
        let text = std::fs::read(path).map_err(|source| file.unwritable(source))?;
        let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |place| place + 1);
        file.file.set_len(end as u64).map_err(|source| file.unwritable(source))?;
        file.file.seek(SeekFrom::End(0)).map_err(|source| file.unwritable(source))?;
        let earlier = Earlier::new(read_results(path)?);
        Ok((file, earlier))
    }

    /// Opens the file, and locks it for as long as it is open.
    fn open(path: &Path) -> Result<Self, GradeError> {
        let unwritable = |source| GradeError::Write { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(unwritable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file, path: path.to_owned() }),
            Err(TryLockError::WouldBlock) => Err(GradeError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(unwritable(source)),
        }
    }

    fn unwritable(&self, source: io::Error) -> GradeError {
        GradeError::Write { path: self.path.clone(), source }
    }

    /// Writes a result.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn put(&mut self, graded: &Graded) -> Result<(), GradeError> {
        let line = serde_json::to_string(graded).map_err(|error| self.unwritable(error.into()))?;
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|source| self.unwritable(source))
    }
}

/// Results by which samples needn't be graded: of an earlier run, and of equal samples of this one.
#[derive(Debug, Default)]
pub struct Earlier {
    by_digest: HashMap<String, Graded>,
    /// Those that are in the file.
    written: HashMap<(String, u64), String>,
}

impl Earlier {
    fn new(results: Vec<Graded>) -> Self {
        let mut earlier = Self::default();
        for graded in results {
            if graded.verdict != Verdict::Sandbox {
                let key = (graded.task_id.clone(), graded.sample);
                earlier.written.insert(key, graded.digest.clone());
                earlier.by_digest.insert(graded.digest.clone(), graded);
            }
        }
        earlier
    }

    /// Returns the result of a sample with this digest under another number, if there is one.
    pub(crate) fn find(&self, digest: &str, task_id: &str, sample: u64) -> Option<Graded> {
        let found = self.by_digest.get(digest)?;
        Some(Graded { task_id: task_id.to_owned(), sample, ..found.clone() })
    }

    /// Returns whether the file has the result of this very sample.
    pub(crate) fn is_written(&self, graded: &Graded) -> bool {
        self.written.get(&(graded.task_id.clone(), graded.sample)) == Some(&graded.digest)
    }

    pub(crate) fn add(&mut self, graded: &Graded) {
        if graded.verdict != Verdict::Sandbox {
            self.by_digest.insert(graded.digest.clone(), graded.clone());
        }
    }
}
