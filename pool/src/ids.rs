//! The ids of jobs, sessions, workers and builds.

use derive_more::Display;
use serde::Serialize;

/// The id of a job, unique in the process. Later jobs have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Display, Serialize)]
#[display("job-{_0}")]
#[serde(transparent)]
pub struct JobId(pub u64);

/// The id of a session, unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Display, Serialize)]
#[display("session-{_0}")]
#[serde(transparent)]
pub struct SessionId(pub u64);

/// A Python build of a pool. 0 is the default one, which every pool has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(pub u16);

/// The id of a worker, unique in the process; a replacement has a new id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Display, Serialize)]
#[display("worker-{_0}")]
#[serde(transparent)]
pub struct WorkerId(pub u64);
