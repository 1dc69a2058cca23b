//! States on disk, in a folder with a bound: for each key a saved session, and a record of outputs.
//!
//! The record is written after the session and removed before it, so a record says that there is a
//! session. Several commands may use the folder at once: whatever has gone meanwhile is as if it had
//! never been there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use replace::{Access, replace};

use super::key::Key;
use super::state::Kept;

/// The most states, so that listing the folder stays quick.
const MOST_STATES: usize = 1000;
/// The largest record. One with more outputs isn't worth its place, since each later cell repeats
/// them.
const LARGEST_RECORD_BYTES: usize = 16 << 20;

/// The folder.
#[derive(Debug)]
pub(crate) struct Shelf {
    folder: PathBuf,
    most_bytes: u64,
}

/// A state in the folder.
#[derive(Debug)]
struct Entry {
    record: PathBuf,
    session: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Shelf {
    pub(crate) fn new(folder: PathBuf, most_bytes: u64) -> Self {
        Self { folder, most_bytes }
    }

    /// Returns the path of a saved session. Creates the folder, which is private.
    pub(crate) fn place(&self, key: Key) -> io::Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        Ok(self.session(key))
    }

    /// Returns whether there is a state of this key.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.record(key).exists()
    }

    /// Writes the record of a saved session. Returns whether it has; if not, the session goes.
    pub(crate) fn keep(&self, key: Key, kept: &Kept) -> io::Result<bool> {
        let bytes = serde_json::to_vec(kept)?;
        if bytes.len() > LARGEST_RECORD_BYTES {
            fs::remove_file(self.session(key))?;
            return Ok(false);
        }
        replace(&self.record(key), Access::Private, |file| file.write_all(&bytes))?;
        Ok(true)
    }

    /// Returns the record of this key and the path of its session, and notes that they were used;
    /// `None` if there is none that describes so many cells.
    pub(crate) fn find(&self, key: Key, count: usize) -> Option<(Kept, PathBuf)> {
        let path = self.record(key);
        let bytes = fs::read(&path).ok()?;
        let kept: Option<Kept> = serde_json::from_slice(&bytes).ok();
        let kept = kept.filter(|kept| kept.fits(count));
        if kept.is_none() {
            self.remove(key);
        }
        let touched = File::options().append(true).open(&path);
        // If that fails, it only goes earlier.
        let _ = touched.and_then(|file| file.set_modified(now()));
        Some((kept?, self.session(key)))
    }

    /// Removes a state, for example a damaged one.
    pub(crate) fn remove(&self, key: Key) {
        remove(&self.record(key), &self.session(key));
    }

    /// Removes the states that weren't used for the longest time, until the folder has its bound.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        let mut entries = self.entries()?;
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        let mut bytes = 0;
        for (place, entry) in entries.iter().enumerate() {
            bytes += entry.bytes;
            if bytes > self.most_bytes || place >= MOST_STATES {
                remove(&entry.record, &entry.session);
            }
        }
        Ok(())
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.folder)? {
            let record = file?.path();
            if record.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let session = record.with_extension("session");
            let of = |path: &Path| path.metadata().ok();
            // Another command may have removed it.
            let (Some(of_record), Some(of_session)) = (of(&record), of(&session)) else { continue };
            let used = of_record.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let bytes = of_record.len() + of_session.len();
            entries.push(Entry { record, session, bytes, used });
        }
        Ok(entries)
    }

    fn record(&self, key: Key) -> PathBuf {
        self.folder.join(key.name()).with_extension("json")
    }

    fn session(&self, key: Key) -> PathBuf {
        self.folder.join(key.name()).with_extension("session")
    }
}

/// Removes a state, the record first. What can't be removed stays, and is tried again later.
fn remove(record: &Path, session: &Path) {
    if fs::remove_file(record).is_ok() || !record.exists() {
        let _ = fs::remove_file(session);
    }
}

fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::document::Notebook;
    use crate::prefixes::state::Traces;

    fn kept(sources: usize) -> Kept {
        let cell = r#"{"cell_type": "code", "metadata": {}, "source": "1"}"#;
        let cells = vec![cell; sources].join(",");
        let text = format!(r#"{{"nbformat": 4, "metadata": {{}}, "cells": [{cells}]}}"#);
        Kept::of(&Notebook::read(&text).unwrap(), sources, &Traces::default())
    }

    fn put(shelf: &Shelf, name: &str, bytes: usize, age: u64) -> Key {
        let key = Key::named(name);
        fs::write(shelf.place(key).unwrap(), vec![0; bytes]).unwrap();
        assert!(shelf.keep(key, &kept(1)).unwrap());
        let record = File::options().append(true).open(shelf.record(key)).unwrap();
        record.set_modified(now() - Duration::from_secs(age)).unwrap();
        key
    }

    #[test]
    fn the_states_that_were_not_used_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().join("states"), 2500);
        let old = put(&shelf, "old", 1000, 30);
        let used = put(&shelf, "used", 1000, 40);
        let new = put(&shelf, "new", 1000, 10);
        assert!(shelf.find(used, 1).is_some());
        shelf.tidy().unwrap();
        assert_eq!([old, used, new].map(|key| shelf.has(key)), [false, true, true]);
        assert_eq!(fs::read_dir(&shelf.folder).unwrap().count(), 4);
        // One that is larger than the bound doesn't stay.
        let large = put(&shelf, "large", 3000, 0);
        shelf.tidy().unwrap();
        assert!(!shelf.has(large));
    }

    #[test]
    fn a_record_that_does_not_fit_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().to_owned(), 1 << 20);
        let key = put(&shelf, "a", 10, 0);
        assert!(shelf.find(key, 1).is_some());
        assert!(shelf.find(key, 2).is_none());
        assert!(shelf.find(key, 1).is_none(), "it was removed");
        let key = put(&shelf, "b", 10, 0);
        fs::write(shelf.record(key), "{").unwrap();
        assert!(shelf.find(key, 1).is_none());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
