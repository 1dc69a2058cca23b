//! The status of every worker, readable at any time without blocking.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use engine::{NetworkActivity, NetworkPeer};
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use strum::{IntoStaticStr, VariantNames};
use tokio::time::Instant;

use crate::ids::{JobId, SessionId, WorkerId};
use crate::isolation::WorkerProcess;
use crate::session::SessionCell;

/// What a worker is doing.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, IntoStaticStr, VariantNames, Serialize,
)]
#[serde(tag = "activity", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerActivity {
    /// Its interpreter is being started.
    #[default]
    Starting,
    /// It waits for a job.
    Ready,
    /// It runs a job.
    Running {
        /// The job.
        job: JobId,
    },
    /// Its interpreter is being prepared for the next job, or for its end.
    Resetting,
    /// It will be replaced after a backoff.
    BackingOff,
    /// It failed too often in a row and won't be replaced.
    GivenUp,
    /// Its run continued long after it was stopped. Another worker has its place; its thread is
    /// left behind, and shown until it ends.
    Stuck,
}

impl WorkerActivity {
    /// Returns its name, as used in metrics and in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The status of a worker. The default is that of one that has just been created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The worker.
    pub worker: WorkerId,
    /// The name of the Python build that its interpreter runs.
    pub python: String,
    /// The session that its interpreter holds.
    pub session: Option<SessionId>,
    /// What it is doing.
    #[serde(flatten)]
    pub activity: WorkerActivity,
    /// How long it has been doing that.
    #[serde(rename = "since_seconds", serialize_with = "as_seconds")]
    pub since: Duration,
    /// How long ago it was created.
    #[serde(rename = "age_seconds", serialize_with = "as_seconds")]
    pub age: Duration,
    /// How many jobs it has run.
    pub jobs_served: u64,
    /// How often its owner gave it a new interpreter.
    pub renewals: u64,
    /// The private memory of its interpreter when it was last ready, and the copy of its session's
    /// state, in bytes.
    pub memory_bytes: u64,
    /// The memory of its process that no other process shares, in bytes, as the kernel counts it.
    /// At most a second old. `None` if it has no process of its own.
    pub process_private_bytes: Option<u64>,
    /// How often the sandbox failed on it, its own end included.
    pub failures: u64,
    /// The last of these failures.
    pub last_error: Option<String>,
    /// What its job is doing on the network, if it may make requests.
    pub network: Option<NetworkActivity>,
}

/// Serializes a time, or none, as a number of seconds.
///
/// # Errors
/// The serializer fails.
pub fn as_seconds<S: Serializer>(
    time: &(impl Copy + Into<Option<Duration>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let time: Option<Duration> = (*time).into();
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// The entries of all workers of a pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    entries: Arc<DashMap<WorkerId, BoardEntry>>,
}

/// The entry of one worker, by which it is updated.
pub(crate) type BoardEntry = Arc<Mutex<WorkerRecord>>;

#[derive(Debug)]
pub(crate) struct WorkerRecord {
    /// What the status shows, but for times and for what others know.
    pub(crate) status: WorkerStatus,
    /// The session of its last command. The session's cell says whether it is still here.
    pub(crate) session: Option<Arc<SessionCell>>,
    made: Instant,
    changed: Instant,
    pub(crate) process: Option<Arc<dyn WorkerProcess>>,
    /// The network of its job.
    pub(crate) network: Option<Arc<dyn NetworkPeer>>,
    /// Its thread, which was left behind, has ended.
    pub(crate) is_over: bool,
}

impl WorkerRecord {
    fn shown(&self, now: Instant) -> WorkerStatus {
        let session = self.session.as_ref().filter(|session| session.is_on(self.status.worker));
        WorkerStatus {
            session: session.map(|session| session.session()),
            since: now.saturating_duration_since(self.changed),
            age: now.saturating_duration_since(self.made),
            network: self.network.as_ref().map(|network| network.activity()),
            ..self.status.clone()
        }
    }

    pub(crate) fn set_activity(&mut self, activity: WorkerActivity) {
        self.status.activity = activity;
        self.changed = Instant::now();
    }

    /// Notes that it is waiting to be replaced. A stuck worker remains shown as stuck.
    pub(crate) fn back_off(&mut self) {
        if self.status.activity != WorkerActivity::Stuck {
            self.set_activity(WorkerActivity::BackingOff);
        }
    }

    pub(crate) fn record_failure(&mut self, error: String) {
        self.status.failures += 1;
        self.status.last_error = Some(error);
    }
}

impl Board {
    pub(crate) fn add(&self, worker: WorkerId, python: &str) -> BoardEntry {
        let now = Instant::now();
        let entry = WorkerRecord {
            status: WorkerStatus { worker, python: python.to_owned(), ..WorkerStatus::default() },
            session: None,
            made: now,
            changed: now,
            process: None,
            network: None,
            is_over: false,
        };
        let entry = Arc::new(Mutex::new(entry));
        self.entries.insert(worker, Arc::clone(&entry));
        entry
    }

    pub(crate) fn remove(&self, worker: WorkerId) {
        self.entries.remove(&worker);
    }

    /// Removes a worker that is replaced. A stuck one is shown until its thread ends.
    pub(crate) fn replaced(&self, worker: WorkerId) {
        self.entries.remove_if(&worker, |_, entry| {
            let entry = entry.lock();
            entry.status.activity != WorkerActivity::Stuck || entry.is_over
        });
    }

    pub(crate) fn clear(&self) {
        self.entries.clear();
    }

    /// Returns the status of every worker, in order of creation.
    pub(crate) fn snapshot(&self) -> Vec<WorkerStatus> {
        let now = Instant::now();
        self.entries.retain(|_, entry| !entry.lock().is_over);
        let shown = self.entries.iter().map(|entry| {
            let locked = entry.lock();
            (locked.shown(now), locked.process.clone())
        });
        let mut workers: Vec<_> = shown.collect();
        workers.sort_by_key(|(worker, _)| worker.worker);
        // Asking the kernel takes time, so no lock is held any more.
        let ask = |(mut worker, process): (WorkerStatus, Option<Arc<dyn WorkerProcess>>)| {
            worker.process_private_bytes = process.and_then(|process| process.private_bytes());
            worker
        };
        workers.into_iter().map(ask).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_serializes_its_activity() {
        let board = Board::default();
        let entry = board.add(WorkerId(2), "default");
        board.add(WorkerId(1), "default");
        entry.lock().status.python = "3.12".to_owned();
        entry.lock().status.memory_bytes = 5;
        entry.lock().set_activity(WorkerActivity::Running { job: JobId(7) });
        entry.lock().record_failure("it trapped".to_owned());
        let [first, second] = &board.snapshot()[..] else { panic!("{board:?}") };
        assert_eq!(first.activity, WorkerActivity::Starting);
        let told = serde_json::to_value(second).unwrap();
        assert_eq!((&told["worker"], &told["python"]), (&2.into(), &"3.12".into()));
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
