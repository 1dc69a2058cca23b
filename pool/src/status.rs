//! Every worker's state, readable at any time without asking anybody.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::session::SessionCell;
use crate::supervisor::now;
use crate::task::{JobId, SessionId, WorkerId};

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerActivity {
    /// Its interpreter is being started.
    Starting,
    /// It waits for a job.
    Ready,
    /// It runs this job.
    Running(JobId),
    /// Its job has ended, and its interpreter is made ready for another.
    Resetting,
    /// It will be replaced after a back-off.
    BackingOff,
    /// It failed too often in a row and is not replaced.
    GivenUp,
}

/// One worker as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The worker.
    pub worker: WorkerId,
    /// The session whose state its interpreter has.
    pub session: Option<SessionId>,
    /// What it is doing.
    pub activity: WorkerActivity,
    /// For how long.
    pub since: Duration,
    /// Jobs that it has run.
    pub jobs_served: u64,
    /// Guest memory after its last job, in bytes.
    pub memory_bytes: u64,
    /// Its last failure.
    pub last_error: Option<String>,
}

/// The entries of all workers of a pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    entries: Arc<DashMap<WorkerId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// The session that it was last given something to do for. Its cell says whether it is here.
    session: Option<Arc<SessionCell>>,
    activity: WorkerActivity,
    changed: Instant,
    jobs_served: u64,
    memory_bytes: u64,
    last_error: Option<String>,
}

impl Entry {
    fn session_here(&self, worker: WorkerId) -> Option<SessionId> {
        let session = self.session.as_ref().filter(|session| session.is_on(worker))?;
        Some(session.session())
    }
}

impl Board {
    pub(crate) fn add(&self, worker: WorkerId) {
        let entry = Entry {
            session: None,
            activity: WorkerActivity::Starting,
            changed: now(),
            jobs_served: 0,
            memory_bytes: 0,
            last_error: None,
        };
        self.entries.insert(worker, entry);
    }

    pub(crate) fn remove(&self, worker: WorkerId) {
        self.entries.remove(&worker);
    }

    pub(crate) fn clear(&self) {
        self.entries.clear();
    }

    pub(crate) fn activity(&self, worker: WorkerId, activity: WorkerActivity) {
        if let Some(mut entry) = self.entries.get_mut(&worker) {
            entry.activity = activity;
            entry.changed = now();
        }
    }

    pub(crate) fn holds(&self, worker: WorkerId, session: Option<Arc<SessionCell>>) {
        if let Some(mut entry) = self.entries.get_mut(&worker) {
            entry.session = session;
        }
    }

    pub(crate) fn served(&self, worker: WorkerId, memory_bytes: u64) {
        if let Some(mut entry) = self.entries.get_mut(&worker) {
            entry.jobs_served += 1;
            entry.memory_bytes = memory_bytes;
        }
    }

    pub(crate) fn failed(&self, worker: WorkerId, error: String) {
        if let Some(mut entry) = self.entries.get_mut(&worker) {
            entry.last_error = Some(error);
        }
    }

    /// Every worker, in the order in which they were made.
    pub(crate) fn snapshot(&self) -> Vec<WorkerStatus> {
        let now = now();
        let mut workers: Vec<_> = self
            .entries
            .iter()
            .map(|entry| WorkerStatus {
                worker: *entry.key(),
                session: entry.session_here(*entry.key()),
                activity: entry.activity,
                since: now.saturating_duration_since(entry.changed),
                jobs_served: entry.jobs_served,
                memory_bytes: entry.memory_bytes,
                last_error: entry.last_error.clone(),
            })
            .collect();
        workers.sort_by_key(|worker| worker.worker);
        workers
    }
}
