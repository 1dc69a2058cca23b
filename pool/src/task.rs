//! What a worker is given to run.

use std::sync::Arc;
use std::time::Duration;

use engine::{Limits, Program, StopHandle, Transcript};

use crate::ids::JobId;
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
