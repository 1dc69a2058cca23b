//! What a worker is given, and the names of things.

use std::sync::Arc;
use std::time::Duration;

use engine::{Limits, Program, StopHandle, Transcript};
use serde::Serialize;

use crate::session::SessionCell;

/// One job, for as long as the process lives. Later jobs have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// One session, for as long as the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct SessionId(pub u64);

impl std::fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "session-{}", self.0)
    }
}

/// One worker, for as long as the process lives; a replacement has a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct WorkerId(pub u64);

impl std::fmt::Display for WorkerId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "worker-{}", self.0)
    }
}

/// One program for one interpreter.
#[derive(Debug, Clone)]
pub struct Task {
    /// The job that this is.
    pub job: JobId,
    /// What to run.
    pub program: Arc<Program>,
    /// What it may use.
    pub limits: Limits,
    /// When its outcome is due, from when a worker has it: the run gets what is left of that when
    /// its state has been brought, and a run that this ends has reached `LimitKind::Deadline`.
    pub due_in: Option<Duration>,
    /// Where its output appears.
    pub transcript: Arc<Transcript>,
    /// Ends it early.
    pub stop: StopHandle,
    /// The session whose state it runs on; without one, it runs on a state of its own.
    pub session: Option<Arc<SessionCell>>,
    /// What its steps are traced in.
    pub span: tracing::Span,
}
