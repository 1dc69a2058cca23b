//! Every worker's state, readable at any time without asking anybody.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use crate::clock::now;
use crate::ids::{JobId, SessionId, WorkerId};
use crate::session::SessionCell;

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "activity", rename_all = "snake_case")]
pub enum WorkerActivity {
    /// Its interpreter is being started.
    Starting,
    /// It waits for a job.
    Ready,
    /// It runs this job.
    Running(#[serde(serialize_with = "with_job")] JobId),
    /// Its interpreter is made ready for another job, or for its end.
    Resetting,
    /// It will be replaced after a back-off.
    BackingOff,
    /// It failed too often in a row and is not replaced.
    GivenUp,
    /// Its run went on long after it was stopped. Another worker has its place; its thread is left
    /// behind, and is shown until it ends.
    Stuck,
}

/// One worker as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    /// The worker.
    pub worker: WorkerId,
    /// The session whose state its interpreter has.
    pub session: Option<SessionId>,
    /// What it is doing.
    #[serde(flatten)]
    pub activity: WorkerActivity,
    /// For how long.
    #[serde(rename = "since_seconds", serialize_with = "as_seconds")]
    pub since: Duration,
    /// Since it was made.
    #[serde(rename = "age_seconds", serialize_with = "as_seconds")]
    pub age: Duration,
    /// Jobs that it has run.
    pub jobs_served: u64,
    /// How often it was given a new interpreter because its owner wanted that.
    pub renewals: u64,
    /// Memory that its interpreter had of its own when it was last ready, and the copy of its
    /// session's state, in bytes.
    pub memory_bytes: u64,
    /// How often the sandbox failed on it, its own end included.
    pub failures: u64,
    /// The last of them.
    pub last_error: Option<String>,
}

/// A tag has room beside fields only.
fn with_job<S: Serializer>(job: &JobId, serializer: S) -> Result<S::Ok, S::Error> {
    let mut activity = serializer.serialize_struct("Running", 1)?;
    activity.serialize_field("job", job)?;
    activity.end()
}

fn as_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// The entries of all workers of a pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    entries: Arc<DashMap<WorkerId, BoardEntry>>,
}

/// The entry of one worker, by which it is changed.
#[derive(Debug, Clone)]
pub(crate) struct BoardEntry {
    entry: Arc<Mutex<Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// The session that it was last given something to do for. Its cell says whether it is here.
    session: Option<Arc<SessionCell>>,
    activity: WorkerActivity,
    made: Instant,
    changed: Instant,
    jobs_served: u64,
    renewals: u64,
    memory_bytes: u64,
    failures: u64,
    last_error: Option<String>,
    /// Nothing is left of it.
    is_over: bool,
}

impl Entry {
    fn shown(&self, worker: WorkerId, now: Instant) -> WorkerStatus {
        let session = self.session.as_ref().filter(|session| session.is_on(worker));
        WorkerStatus {
            worker,
            session: session.map(|session| session.session()),
            activity: self.activity,
            since: now.saturating_duration_since(self.changed),
            age: now.saturating_duration_since(self.made),
            jobs_served: self.jobs_served,
            renewals: self.renewals,
            memory_bytes: self.memory_bytes,
            failures: self.failures,
            last_error: self.last_error.clone(),
        }
    }
}

impl BoardEntry {
    pub(crate) fn activity(&self, activity: WorkerActivity) {
        let mut entry = self.entry.lock();
        entry.activity = activity;
        entry.changed = now();
    }

    /// It is to be replaced. One that is stuck says so for as long as it is.
    pub(crate) fn backs_off(&self) {
        if self.entry.lock().activity != WorkerActivity::Stuck {
            self.activity(WorkerActivity::BackingOff);
        }
    }

    /// The thread that was left behind has ended.
    pub(crate) fn over(&self) {
        self.entry.lock().is_over = true;
    }

    /// What it is given is for this session, or for none.
    pub(crate) fn holds(&self, session: Option<Arc<SessionCell>>) {
        self.entry.lock().session = session;
    }

    pub(crate) fn served(&self) {
        self.entry.lock().jobs_served += 1;
    }

    pub(crate) fn renewed(&self) {
        self.entry.lock().renewals += 1;
    }

    pub(crate) fn has_memory(&self, bytes: u64) {
        self.entry.lock().memory_bytes = bytes;
    }

    pub(crate) fn failed(&self, error: String) {
        let mut entry = self.entry.lock();
        entry.failures += 1;
        entry.last_error = Some(error);
    }
}

impl Board {
    pub(crate) fn add(&self, worker: WorkerId) -> BoardEntry {
        let now = now();
        let entry = Entry {
            session: None,
            activity: WorkerActivity::Starting,
            made: now,
            changed: now,
            jobs_served: 0,
            renewals: 0,
            memory_bytes: 0,
            failures: 0,
            last_error: None,
            is_over: false,
        };
        let entry = BoardEntry { entry: Arc::new(Mutex::new(entry)) };
        self.entries.insert(worker, entry.clone());
        entry
    }

    pub(crate) fn remove(&self, worker: WorkerId) {
        self.entries.remove(&worker);
    }

    /// Another worker takes its place. One that is stuck is shown until its thread ends.
    pub(crate) fn replaced(&self, worker: WorkerId) {
        self.entries.remove_if(&worker, |_, entry| {
            let entry = entry.entry.lock();
            entry.activity != WorkerActivity::Stuck || entry.is_over
        });
    }

    pub(crate) fn clear(&self) {
        self.entries.clear();
    }

    /// Every worker, in the order in which they were made.
    pub(crate) fn snapshot(&self) -> Vec<WorkerStatus> {
        let now = now();
        self.entries.retain(|_, entry| !entry.entry.lock().is_over);
        let shown = self.entries.iter().map(|entry| entry.entry.lock().shown(*entry.key(), now));
        let mut workers: Vec<_> = shown.collect();
        workers.sort_by_key(|worker| worker.worker);
        workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_told_with_what_it_does() {
        let board = Board::default();
        let entry = board.add(WorkerId(2));
        board.add(WorkerId(1));
        entry.activity(WorkerActivity::Running(JobId(7)));
        entry.has_memory(5);
        entry.failed("it trapped".to_owned());
        let [first, second] = &board.snapshot()[..] else { panic!("{board:?}") };
        assert_eq!(first.activity, WorkerActivity::Starting);
        let told = serde_json::to_value(second).unwrap();
        assert_eq!(told["worker"], 2);
        assert_eq!(told["activity"], "running");
        assert_eq!(told["job"], 7);
        assert_eq!(told["memory_bytes"], 5);
        assert_eq!((&told["failures"], &told["last_error"]), (&1.into(), &"it trapped".into()));
        assert!(told["since_seconds"].is_f64() && told["age_seconds"].is_f64(), "{told}");
        board.remove(WorkerId(1));
        board.clear();
        assert_eq!(board.snapshot(), []);
    }
}
