//! Where interpreters run, and what the system reports of a process that has one.

use serde::Serialize;

/// The process of one interpreter, as any thread may ask about it.
pub trait WorkerProcess: std::fmt::Debug + Send + Sync {
    /// Returns whether it has ended, so that nothing can run on it any more. Cheap.
    fn has_ended(&self) -> bool;

    /// Returns the memory that no other process shares, in bytes, as the kernel counts it. `None` if
    /// the process has ended. May take milliseconds.
    fn private_bytes(&self) -> Option<u64>;
}

/// Where a pool's interpreters run, and what the system doesn't do to confine them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IsolationStatus {
    /// Where they run.
    pub workers_in: WorkersIn,
    /// The layers of the wall around worker processes that the system doesn't offer. Empty for
    /// threads, which have none.
    pub missing: Vec<MissingLayer>,
    /// The folder with a control group for each worker process, by which the kernel bounds its
    /// memory and threads. `None` without them. If builds have several, that of the default one.
    pub cgroup: Option<String>,
    /// Why worker processes have no control groups. `None` if they have, and for threads.
    pub no_cgroup: Option<String>,
}

impl IsolationStatus {
    /// Returns the status of interpreters in processes that lack these layers. `cgroup` is the
    /// folder with their control groups, or why there are none.
    pub fn of_processes(missing: Vec<MissingLayer>, cgroup: Result<String, String>) -> Self {
        let no_cgroup = cgroup.as_ref().err().cloned();
        Self { workers_in: WorkersIn::Processes, missing, cgroup: cgroup.ok(), no_cgroup }
    }
}

/// Where interpreters run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkersIn {
    /// On threads of this process.
    #[default]
    Threads,
    /// In processes of their own.
    Processes,
}

/// A layer of the wall around worker processes that the system doesn't offer.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display, Serialize)]
#[display("{layer}: {reason}")]
#[non_exhaustive]
pub struct MissingLayer {
    /// Its name.
    pub layer: String,
    /// Why it is missing.
    pub reason: String,
}

impl MissingLayer {
    /// Names a layer, and says why it is missing.
    pub fn new(layer: impl ToString, reason: impl ToString) -> Self {
        Self { layer: layer.to_string(), reason: reason.to_string() }
    }
}
