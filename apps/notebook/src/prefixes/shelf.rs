//! States on disk, in a folder with a bound: for each key a saved session, and a record of outputs.
//!
//! The record is written after the session and removed before it, so a record says that there is a
//! session. It names the session's file, whose name is used once: of two commands that write the
//! same key, the later one's record leads to the later one's session. Several commands may use the
//! folder at once: whatever has gone meanwhile is as if it had never been there.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use replace::{Access, replace};
use serde::Deserialize;

use super::key::Key;
use super::state::Kept;

/// The most states, so that listing the folder stays quick.
const MOST_STATES: usize = 1000;
/// The largest record. One with more outputs isn't worth its place, since each later cell repeats
/// them.
const LARGEST_RECORD_BYTES: usize = 16 << 20;
/// The age at which a session without a record goes. A younger one's record may be on its way.
const LONGEST_ALONE: Duration = Duration::from_secs(3600);
/// The length of a key's name, in hexadecimal digits.
const KEY_DIGITS: usize = 64;

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

/// What a record says of its session.
#[derive(Debug, Deserialize)]
struct Named {
    session: String,
}

impl Shelf {
    pub(crate) fn new(folder: PathBuf, most_bytes: u64) -> Self {
        Self { folder, most_bytes }
    }

    /// Returns a new path for a saved session. Creates the folder, which is private.
    pub(crate) fn place(&self, key: Key) -> io::Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut random = [0; 8];
        getrandom::fill(&mut random)?;
        let random = u64::from_le_bytes(random);
        Ok(self.folder.join(format!("{}.{random:016x}.session", key.name())))
    }

    /// Returns whether there is a state of this key.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.record(key).exists()
    }

    /// Writes the record of a session that was saved at this [`place`](Self::place). Returns whether
    /// it has; if not, also because of an error, the session goes.
    pub(crate) fn keep(&self, key: Key, session: &Path, mut kept: Kept) -> io::Result<bool> {
        let name = session.file_name().unwrap_or_default();
        kept.session = name.to_string_lossy().into_owned();
        let written = self.write(key, &kept);
        if !matches!(written, Ok(true)) {
            // What can't be removed now goes with those that have no record.
            let _ = fs::remove_file(session);
        }
        written
    }

    fn write(&self, key: Key, kept: &Kept) -> io::Result<bool> {
        let bytes = serde_json::to_vec(kept)?;
        if bytes.len() > LARGEST_RECORD_BYTES {
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
        let found = kept.and_then(|kept| Some((self.session(&path, &kept.session)?, kept)));
        let Some((session, kept)) = found else {
            self.remove(key);
            return None;
        };
        let touched = File::options().append(true).open(&path);
        // If that fails, it only goes earlier.
        let _ = touched.and_then(|file| file.set_modified(now()));
        Some((kept, session))
    }

    /// Removes a state, for example a damaged one.
    pub(crate) fn remove(&self, key: Key) {
        let record = self.record(key);
        let session = self.session_of(&record);
        remove(&record, session.as_deref());
    }

    /// Removes the states that weren't used for the longest time, until the folder has its bound,
    /// and sessions that have had no record for long.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        let files = fs::read_dir(&self.folder)?.map(|file| Ok(file?.path()));
        let files: Vec<PathBuf> = files.collect::<io::Result<_>>()?;
        let mut entries = self.entries(&files);
        let named: HashSet<&Path> = entries.iter().map(|entry| entry.session.as_path()).collect();
        for file in files.iter().filter(|file| is_session(file) && !named.contains(file.as_path()))
        {
            let written = file.metadata().and_then(|metadata| metadata.modified());
            let age = written.ok().and_then(|written| now().duration_since(written).ok());
            if age.is_some_and(|age| age > LONGEST_ALONE) {
                // Another command may have removed it.
                let _ = fs::remove_file(file);
            }
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        let mut bytes = 0;
        for (place, entry) in entries.iter().enumerate() {
            bytes += entry.bytes;
            if bytes > self.most_bytes || place >= MOST_STATES {
                remove(&entry.record, Some(&entry.session));
            }
        }
        Ok(())
    }

    /// Returns the states whose records are among these files.
    fn entries(&self, files: &[PathBuf]) -> Vec<Entry> {
        let mut entries = Vec::new();
        let is_record = |file: &&PathBuf| file.extension().is_some_and(|it| it == "json");
        for record in files.iter().filter(is_record) {
            let Some(session) = self.session_of(record) else { continue };
            let of = |path: &Path| path.metadata().ok();
            // Another command may have removed it.
            let (Some(of_record), Some(of_session)) = (of(record), of(&session)) else { continue };
            let used = of_record.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let bytes = of_record.len() + of_session.len();
            entries.push(Entry { record: record.clone(), session, bytes, used });
        }
        entries
    }

    fn record(&self, key: Key) -> PathBuf {
        self.folder.join(key.name()).with_extension("json")
    }

    /// Returns the path of the session that a record names.
    fn session_of(&self, record: &Path) -> Option<PathBuf> {
        let named: Named = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
        self.session(record, &named.session)
    }

    /// Returns the path of a session of this name; `None` if it isn't one for this record.
    fn session(&self, record: &Path, name: &str) -> Option<PathBuf> {
        let is_for_it = name.starts_with(record.file_stem()?.to_str()?) && !name.contains('/');
        let session = self.folder.join(name);
        (is_for_it && is_session(&session)).then_some(session)
    }
}

/// Returns whether a path is one of a saved session. The folder may be one that has other files.
fn is_session(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_key = |key: &[u8]| key.iter().all(u8::is_ascii_hexdigit);
    let has_key = stem.as_bytes().get(..KEY_DIGITS).is_some_and(is_key);
    has_key && path.extension().is_some_and(|extension| extension == "session")
}

/// Removes a state, the record first. What can't be removed stays, and is tried again later.
fn remove(record: &Path, session: Option<&Path>) {
    if (fs::remove_file(record).is_ok() || !record.exists())
        && let Some(session) = session
    {
        let _ = fs::remove_file(session);
    }
}

fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
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
        let session = shelf.place(key).unwrap();
        fs::write(&session, vec![0; bytes]).unwrap();
        assert!(shelf.keep(key, &session, kept(1)).unwrap());
        set_age(&shelf.record(key), age);
        key
    }

    fn set_age(path: &Path, seconds: u64) {
        let file = File::options().append(true).open(path).unwrap();
        file.set_modified(now() - Duration::from_secs(seconds)).unwrap();
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
        // Which session was its own isn't known any more, so that one waits.
        shelf.tidy().unwrap();
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        let [Ok(session)] = &files[..] else { panic!("{files:?}") };
        set_age(&session.path(), LONGEST_ALONE.as_secs() + 60);
        let other = folder.path().join("mine.session");
        fs::write(&other, "").unwrap();
        set_age(&other, LONGEST_ALONE.as_secs() + 60);
        shelf.tidy().unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert!(matches!(&left[..], [Ok(file)] if file.path() == other), "{left:?}");
    }

    #[test]
    fn a_record_leads_to_the_session_that_was_saved_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().to_owned(), 1 << 20);
        let key = Key::named("a");
        let [first, second] = [b"first", b"other"].map(|contents| {
            let session = shelf.place(key).unwrap();
            fs::write(&session, contents).unwrap();
            session
        });
        assert!(shelf.keep(key, &second, kept(1)).unwrap());
        assert!(shelf.keep(key, &first, kept(1)).unwrap());
        assert_eq!(shelf.find(key, 1).unwrap().1, first);
        assert!(second.exists(), "another command may be reading it");
        let mut outside = kept(1);
        outside.session = "../a.session".to_owned();
        shelf.write(key, &outside).unwrap();
        assert!(shelf.find(key, 1).is_none());
        assert!(!shelf.has(key));
    }
}
