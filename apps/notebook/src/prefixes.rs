//! States after cells, kept so that a notebook which begins like another one runs only from its
//! first different cell.
//!
//! A digest identifies a state. It covers the image, input files, folders of the host, limits, and
//! the sources of the cells so far. Within one command, notebooks share states in memory, and run a
//! common cell once. Between commands, states are files in a folder with a bound.
//!
//! A notebook runs from its start if a digest can't cover its inputs: too large folders, or allowed
//! network connections. Clocks and random numbers are not covered: a cell that isn't run again
//! keeps its outputs.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use hatchery::files::FolderDigests;
use hatchery::{Checkpoint, Job};
use indexmap::IndexMap;
use replace::UNFINISHED_PREFIX;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::document::Notebook;
use crate::guest;
use crate::places::{COPY_SUFFIX, RECORD_SUFFIX, SESSION_SUFFIX};
use crate::saved::{SavedState, Traces};

/// The states that the notebooks of a command share, and those of earlier commands.
///
/// Default bounds: 1 GiB and 1,000 states on disk, 64 states in memory.
#[derive(Debug)]
pub struct PrefixCache {
    pub(crate) shared: SharedPrefixes,
    pub(crate) cache: Option<Arc<CheckpointCache>>,
    /// Remembers what notebooks have read of folders.
    pub(crate) folders: Arc<FolderDigests>,
}

impl PrefixCache {
    /// Shares states only among the notebooks of this command.
    pub fn in_memory() -> Self {
        let folders = Arc::new(FolderDigests::new(is_of_notebooks));
        Self { shared: SharedPrefixes::default(), cache: None, folders }
    }

    /// Also keeps states in this folder, which is created if it doesn't exist, up to so many bytes.
    /// The states that weren't used for the longest time go first. `0` keeps none, and uses none.
    pub fn in_folder(folder: PathBuf, most_bytes: u64) -> Self {
        let cache = (most_bytes > 0).then(|| Arc::new(CheckpointCache::new(folder, most_bytes)));
        Self { cache, ..Self::in_memory() }
    }
}

/// The most states in memory. Above it, the oldest go, and their cells run again where needed.
const MOST_IN_MEMORY: usize = 64;

/// The states, and who needs them.
#[derive(Debug, Default)]
pub(crate) struct SharedPrefixes(Mutex<PrefixTable>);

#[derive(Debug, Default)]
struct PrefixTable {
    /// How many notebooks haven't passed this key yet.
    wanted: HashMap<Key, usize>,
    /// The oldest states first.
    slots: IndexMap<Key, PrefixSlot>,
}

#[derive(Debug)]
enum PrefixSlot {
    /// A notebook runs the cell. The channel closes when it has ended.
    Running(watch::Receiver<()>),
    Ready(Arc<PrefixState>),
}

/// What a notebook does next.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    /// It takes over this state, so many cells further.
    Take { steps: usize, state: Arc<PrefixState> },
    /// It waits until this channel closes, and asks again.
    Wait(watch::Receiver<()>),
    /// It runs its next cell, and others wait for that if there is a claim.
    Run(Option<Claim<'a>>),
}

/// The right to run a cell for others, who stop waiting when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    shared: &'a SharedPrefixes,
    key: Key,
    /// Closes the channel of those who wait.
    _waiting: watch::Sender<()>,
}

impl SharedPrefixes {
    /// Announces a notebook with these keys.
    pub(crate) fn expect(&self, keys: &[Key]) {
        let mut table = self.table();
        for key in keys {
            *table.wanted.entry(*key).or_default() += 1;
        }
    }

    /// Says what to do for the next of these keys.
    pub(crate) fn next(&self, keys: &[Key]) -> Next<'_> {
        let Some(key) = keys.first() else { return Next::Run(None) };
        let mut table = self.table();
        for (place, key) in keys.iter().enumerate().rev() {
            if let Some(PrefixSlot::Ready(state)) = table.slots.get(key) {
                return Next::Take { steps: place + 1, state: Arc::clone(state) };
            }
        }
        if let Some(PrefixSlot::Running(waiting)) = table.slots.get(key) {
            return Next::Wait(waiting.clone());
        }
        if table.wanted.get(key).is_none_or(|count| *count < 2) {
            return Next::Run(None);
        }
        let (sender, receiver) = watch::channel(());
        table.slots.insert(*key, PrefixSlot::Running(receiver));
        Next::Run(Some(Claim { shared: self, key: *key, _waiting: sender }))
    }

    /// Notes that a notebook needs these states no longer.
    pub(crate) fn passed(&self, keys: &[Key]) {
        let mut table = self.table();
        for key in keys {
            let left = table.wanted.get_mut(key).map(|count| {
                *count = count.saturating_sub(1);
                *count
            });
            if left == Some(0) {
                table.wanted.remove(key);
                if matches!(table.slots.get(key), Some(PrefixSlot::Ready(_))) {
                    table.slots.shift_remove(key);
                }
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, PrefixTable> {
        self.0.lock().expect("no holder panics")
    }
}

impl Claim<'_> {
    /// Publishes the state to the notebooks that wait, once the notebook that ran the cell has passed
    /// it. `before` is the key of the state before the cell. That state goes, unless more notebooks
    /// need it than this one.
    pub(crate) fn publish(self, state: PrefixState, before: Option<Key>) {
        let mut table = self.shared.table();
        table.slots.shift_remove(&self.key);
        let wanted = |key: &Key| table.wanted.get(key).copied().unwrap_or_default();
        let for_others = wanted(&self.key);
        if for_others == 0 {
            return;
        }
        if let Some(before) = before.filter(|before| wanted(before) == for_others) {
            table.slots.shift_remove(&before);
        }
        table.slots.insert(self.key, PrefixSlot::Ready(Arc::new(state)));
        let is_ready = |slot: &PrefixSlot| matches!(slot, PrefixSlot::Ready(_));
        let ready = table.slots.values().filter(|slot| is_ready(slot)).count();
        let oldest = table.slots.values().position(is_ready);
        if let Some(oldest) = oldest.filter(|_| ready > MOST_IN_MEMORY) {
            table.slots.shift_remove_index(oldest);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        if matches!(table.slots.get(&self.key), Some(PrefixSlot::Running(_))) {
            table.slots.shift_remove(&self.key);
        }
    }
}

// What notebooks see in folders of the host: data that their states depend on.
//
// Notebooks themselves are no data. They lie in the same folders, and their copies are written there
// while they run. States are kept for notebooks that change. But a notebook whose cells name notebooks
// may read them, so that one runs from its start.

/// How a cell names notebooks.
const NAMES_NOTEBOOKS: &str = "ipynb";
/// The folder beside notebooks where Jupyter keeps their earlier versions.
const CHECKPOINTS: &str = ".ipynb_checkpoints";

/// Returns those of these jobs that give a notebook folders. `None` if the folders aren't all that it
/// may read there.
pub(crate) fn folders_of(notebook: &Notebook, jobs: [&Job; 2]) -> Option<Vec<Job>> {
    let jobs: Vec<Job> = jobs.into_iter().filter(|job| job.has_folders()).cloned().collect();
    let names_notebooks = || notebook.code().any(|cell| cell.source.contains(NAMES_NOTEBOOKS));
    (jobs.is_empty() || !names_notebooks()).then_some(jobs)
}

/// Returns a digest of the folders of these jobs as they are now. Waits for the file system. `None` if
/// they are too large.
pub(crate) fn folders_digest(jobs: &[Job], folders: &FolderDigests) -> Option<String> {
    jobs.iter().map(|job| job.folders_digest(folders)).collect()
}

/// Returns whether a name is one of a notebook, or of what is written beside it.
fn is_of_notebooks(name: &str) -> bool {
    let suffixes = [COPY_SUFFIX, SESSION_SUFFIX, RECORD_SUFFIX];
    name == CHECKPOINTS
        || name.starts_with(UNFINISHED_PREFIX)
        || suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// The version of what is kept under a key. It changes whenever the same cells would give other
/// outputs or another state.
const VERSION: u32 = 2;

/// The tag of a cell that runs always, and with it all that follow.
const FRESH: &str = "fresh";

/// The key of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(blake3::Hash);

impl Key {
    /// Returns the key as a name of a file.
    pub(crate) fn name(self) -> String {
        self.0.to_string()
    }

    /// Returns the key of the state after a cell that runs in this state.
    fn then(self, parts: &[&str]) -> Self {
        let parts = parts.iter().map(|part| part.as_bytes());
        Self(digest([&self.0.as_bytes()[..]].into_iter().chain(parts)))
    }
}

/// Returns the keys of the states after each cell, up to the first one with the tag `fresh`.
/// `begin` is what the state before the first cell depends on.
pub(crate) fn chain(notebook: &Notebook, allows_errors: bool, begin: &[&str]) -> Vec<Key> {
    let version = format!("hatchery notebook {VERSION} {}", env!("CARGO_PKG_VERSION"));
    let mut key = Key(digest(guest::sources().map(str::as_bytes))).then(&[&version]).then(begin);
    let cells = notebook.code().take_while(|cell| !cell.has_tag(FRESH));
    let keys = cells.map(|cell| {
        let may_raise = allows_errors || cell.may_raise();
        let time_limit = cell.time_limit.map(|time| format!("{time:?}")).unwrap_or_default();
        key = key.then(&[&cell.source, if may_raise { "may raise" } else { "" }, &time_limit]);
        key
    });
    keys.collect()
}

/// Returns a digest of parts, which also tells where they end.
pub(crate) fn digest<'a>(parts: impl Iterator<Item = &'a [u8]>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
impl Key {
    /// Returns a key for tests.
    pub(crate) fn named(name: &str) -> Self {
        Self(digest([name.as_bytes()].into_iter()))
    }
}

/// The state after some cells of a notebook, in memory.
#[derive(Debug)]
pub(crate) struct PrefixState {
    pub(crate) checkpoint: Checkpoint,
    /// The outputs of each cell.
    pub(crate) outputs: Vec<Vec<Value>>,
    pub(crate) traces: Traces,
}

impl PrefixState {
    /// Describes the first `count` cells.
    pub(crate) fn of(
        checkpoint: Checkpoint,
        notebook: &Notebook,
        count: usize,
        traces: &Traces,
    ) -> Self {
        let outputs = notebook.code().take(count).map(|cell| cell.outputs.clone()).collect();
        Self { checkpoint, outputs, traces: traces.clone() }
    }
}

// States on disk, in a folder with a bound: for each key a saved session, and a record of outputs.
//
// The record is written after the session and removed before it, so a record says that there is a
// session. It names the session's file, whose name is used once. So if two commands write the same
// key, the later one's record leads to the later one's session. Several commands may use the folder
// at once: what is gone meanwhile counts as never written.

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
pub(crate) struct CheckpointCache {
    folder: PathBuf,
    most_bytes: u64,
}

/// A state in the folder.
#[derive(Debug)]
struct CachedFile {
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

impl CheckpointCache {
    pub(crate) fn new(folder: PathBuf, most_bytes: u64) -> Self {
        Self { folder, most_bytes }
    }

    /// Returns a new path for a saved session. Creates the folder, which is private.
    pub(crate) fn place(&self, key: Key) -> io::Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let random = getrandom::u64()?;
        Ok(self.folder.join(format!("{}.{random:016x}.session", key.name())))
    }

    /// Returns whether there is a state of this key.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.record(key).exists()
    }

    /// Writes the record of a session that was saved at this [`place`](Self::place). Returns whether
    /// it has; if not, also because of an error, the session goes.
    pub(crate) fn keep(&self, key: Key, session: &Path, mut kept: SavedState) -> io::Result<bool> {
        let name = session.file_name().unwrap_or_default();
        kept.session = name.to_string_lossy().into_owned();
        let written = kept.write(&self.record(key), LARGEST_RECORD_BYTES);
        if !matches!(written, Ok(true)) {
            // What can't be removed now goes with those that have no record.
            let _ = fs::remove_file(session);
        }
        written
    }

    /// Returns the record of this key and the path of its session, and notes that they were used.
    /// `None` if there is none that describes so many cells.
    pub(crate) fn find(&self, key: Key, count: usize) -> Option<(SavedState, PathBuf)> {
        let path = self.record(key);
        let kept = SavedState::read(&path).ok()?;
        let kept = kept.filter(|kept| kept.count() == count && kept.is_whole());
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

    /// Removes the least recently used states until the folder has its bound. Also removes sessions
    /// that have had no record for long.
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
    fn entries(&self, files: &[PathBuf]) -> Vec<CachedFile> {
        let mut entries = Vec::new();
        let is_record = |file: &&PathBuf| file.extension().is_some_and(|it| it == "json");
        for record in files.iter().filter(is_record) {
            let Some(session) = self.session_of(record) else { continue };
            let of = |path: &Path| path.metadata().ok();
            // Another command may have removed it.
            let (Some(of_record), Some(of_session)) = (of(record), of(&session)) else { continue };
            let used = of_record.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let bytes = of_record.len() + of_session.len();
            entries.push(CachedFile { record: record.clone(), session, bytes, used });
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

    fn keys(names: &str) -> Vec<Key> {
        (1..=names.len()).map(|length| Key::named(&names[..length])).collect()
    }

    #[test]
    fn a_cell_of_one_notebook_is_nobody_elses() {
        let shared = SharedPrefixes::default();
        shared.expect(&keys("ab"));
        assert!(matches!(shared.next(&keys("ab")), Next::Run(None)));
        assert!(matches!(shared.next(&[]), Next::Run(None)));
    }

    #[tokio::test]
    async fn others_wait_until_the_claim_ends_and_one_of_them_claims_again() {
        let shared = SharedPrefixes::default();
        for names in ["ab", "ac", "ad"] {
            shared.expect(&keys(names));
        }
        let Next::Run(Some(claim)) = shared.next(&keys("ab")) else { panic!("no claim") };
        let Next::Wait(mut waiting) = shared.next(&keys("ac")) else { panic!("doesn't wait") };
        assert!(matches!(shared.next(&keys("ad")), Next::Wait(_)));
        // The cell failed.
        drop(claim);
        assert!(waiting.changed().await.is_err());
        let Next::Run(Some(again)) = shared.next(&keys("ac")) else { panic!("no claim") };
        drop(again);
        // Those that ran the cell themselves no longer need its state.
        for names in ["ab", "ac"] {
            shared.passed(&keys(names));
        }
        assert!(matches!(shared.next(&keys("ad")), Next::Run(None)));
        assert_eq!(shared.table().wanted.len(), 2);
    }

    fn notebook(source: &str) -> Notebook {
        let cell = serde_json::json!({ "cell_type": "code", "metadata": {}, "source": source });
        let text = serde_json::json!({
            "nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [cell],
        });
        Notebook::read(&text.to_string()).unwrap()
    }

    #[test]
    fn what_is_written_beside_notebooks_is_no_data() {
        for name in [
            "a.ipynb",
            "a.executed.ipynb",
            "a.executed.resume.session",
            "a.executed.resume.json",
            ".ipynb_checkpoints",
            ".unfinished-x",
        ] {
            assert!(is_of_notebooks(name), "{name}");
        }
        for name in ["a.py", "a.json", "resume.json", "ipynb", "data.session"] {
            assert!(!is_of_notebooks(name), "{name}");
        }
    }

    #[test]
    fn a_notebook_that_names_notebooks_has_no_digest_of_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, none) = (FolderDigests::new(is_of_notebooks), Job::default());
        let digest = |source: &str, mounts: &Job| {
            folders_digest(&folders_of(&notebook(source), [&none, mounts])?, &folders)
        };
        let mounts = Job::default().mount(folder.path(), "/data").unwrap();
        assert_eq!(digest("%run a.ipynb", &none).unwrap(), "");
        assert_eq!(digest("%run a.ipynb", &mounts), None);
        let first = digest("1", &mounts);
        assert!(first.as_ref().is_some_and(|digest| digest.contains("/data")));
        std::fs::write(folder.path().join("x"), "1").unwrap();
        assert_ne!(digest("1", &mounts), first);
    }

    #[test]
    fn a_key_depends_on_all_cells_before_it() {
        let [one, two] = ["1", "2"].map(Key::named);
        assert_eq!(one.then(&["a", "b"]), one.then(&["a", "b"]));
        let others = [one.then(&["a", "c"]), one.then(&["ab", ""]), two.then(&["a", "b"])];
        assert!(others.iter().all(|other| *other != one.then(&["a", "b"])));
        assert_eq!(one.name().len(), 64);
    }

    fn kept(sources: usize) -> SavedState {
        let cell = r#"{"cell_type": "code", "metadata": {}, "source": "1"}"#;
        let cells = vec![cell; sources].join(",");
        let text = format!(r#"{{"nbformat": 4, "metadata": {{}}, "cells": [{cells}]}}"#);
        SavedState::of(&Notebook::read(&text).unwrap(), sources, &Traces::default())
    }

    fn put(cache: &CheckpointCache, name: &str, bytes: usize, age: u64) -> Key {
        let key = Key::named(name);
        let session = cache.place(key).unwrap();
        fs::write(&session, vec![0; bytes]).unwrap();
        assert!(cache.keep(key, &session, kept(1)).unwrap());
        set_age(&cache.record(key), age);
        key
    }

    fn set_age(path: &Path, seconds: u64) {
        let file = File::options().append(true).open(path).unwrap();
        file.set_modified(now() - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn the_states_that_were_not_used_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CheckpointCache::new(folder.path().join("states"), 2500);
        let old = put(&cache, "old", 1000, 30);
        let used = put(&cache, "used", 1000, 40);
        let new = put(&cache, "new", 1000, 10);
        assert!(cache.find(used, 1).is_some());
        cache.tidy().unwrap();
        assert_eq!([old, used, new].map(|key| cache.has(key)), [false, true, true]);
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 4);
        // One that is larger than the bound doesn't stay.
        let large = put(&cache, "large", 3000, 0);
        cache.tidy().unwrap();
        assert!(!cache.has(large));
    }

    #[test]
    fn a_record_that_does_not_fit_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CheckpointCache::new(folder.path().to_owned(), 1 << 20);
        let key = put(&cache, "a", 10, 0);
        assert!(cache.find(key, 1).is_some());
        assert!(cache.find(key, 2).is_none());
        assert!(cache.find(key, 1).is_none(), "it was removed");
        let key = put(&cache, "b", 10, 0);
        fs::write(cache.record(key), "{").unwrap();
        assert!(cache.find(key, 1).is_none());
        // Which session was its own isn't known any more, so that one waits.
        cache.tidy().unwrap();
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        let [Ok(session)] = &files[..] else { panic!("{files:?}") };
        set_age(&session.path(), LONGEST_ALONE.as_secs() + 60);
        let other = folder.path().join("mine.session");
        fs::write(&other, "").unwrap();
        set_age(&other, LONGEST_ALONE.as_secs() + 60);
        cache.tidy().unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert!(matches!(&left[..], [Ok(file)] if file.path() == other), "{left:?}");
    }

    #[test]
    fn a_record_leads_to_the_session_that_was_saved_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CheckpointCache::new(folder.path().to_owned(), 1 << 20);
        let key = Key::named("a");
        let [first, second] = [b"first", b"other"].map(|contents| {
            let session = cache.place(key).unwrap();
            fs::write(&session, contents).unwrap();
            session
        });
        assert!(cache.keep(key, &second, kept(1)).unwrap());
        assert!(cache.keep(key, &first, kept(1)).unwrap());
        assert_eq!(cache.find(key, 1).unwrap().1, first);
        assert!(second.exists(), "another command may be reading it");
        let mut outside = kept(1);
        outside.session = "../a.session".to_owned();
        outside.write(&cache.record(key), LARGEST_RECORD_BYTES).unwrap();
        assert!(cache.find(key, 1).is_none());
        assert!(!cache.has(key));
    }
}
