//! The task that a worker runs.

use std::sync::Arc;
use std::time::Duration;

use engine::{Limits, Program, StopHandle, Transcript};

use crate::ids::{BuildId, JobId};
use crate::session::SessionCell;

/// One program for one interpreter.
#[derive(Debug, Clone)]
pub struct Task {
    /// The job that this is.
    pub job: JobId,
    /// What to run.
    pub program: Arc<Program>,
    /// What it may use.
    pub limits: Limits,
    /// When its outcome is due, measured from when a worker takes it. The run gets the time that is
    /// left once its state is resumed. A run that this stops has reached `LimitKind::Deadline`.
    pub due_in: Option<Duration>,
    /// Where its output appears.
    pub transcript: Arc<Transcript>,
    /// Stops it early.
    pub stop: StopHandle,
    /// The build on which it runs, if it has no session. A session has a build for life.
    pub build: BuildId,
    /// The session on whose state it runs; `None` for a fresh state of its own.
    pub session: Option<Arc<SessionCell>>,
    /// Whether it is a pool's test of itself, which no statistics count.
    pub is_self_test: bool,
    /// The span of its steps.
    pub span: tracing::Span,
}
