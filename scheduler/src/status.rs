//! What the scheduler shows of itself.

use std::time::Duration;

use engine::{Outcome, Verdict};
use pool::{SessionId, SessionPlace, WorkerStatus};

/// The scheduler as it was after its last decision, with every worker as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerStatus {
    /// Whether jobs are taken.
    pub phase: Phase,
    /// Jobs that wait. Copying a session's state counts as one if it has to wait for a worker.
    pub queue_depth: usize,
    /// Bytes of source and input files that wait.
    pub queued_bytes: usize,
    /// How long the oldest of them has waited.
    pub oldest_wait: Option<Duration>,
    /// Jobs that run.
    pub running: usize,
    /// Open sessions, by id.
    pub sessions: Vec<SessionStatus>,
    /// Every worker, in the order in which they were made.
    pub workers: Vec<WorkerStatus>,
    /// What became of the jobs so far.
    pub totals: Totals,
}

/// Whether the scheduler takes jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    /// It does.
    #[default]
    Open,
    /// It doesn't, and finishes what it has.
    Draining,
    /// It has finished.
    Drained,
}

/// One open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// The session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// Jobs that wait for it.
    pub queue_depth: usize,
    /// Where its state is.
    pub place: SessionPlace,
}

/// What became of jobs since the start. Their sum is the number of jobs ever submitted, less those
/// that wait or run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// The program ran to its end, or left with code 0.
    pub succeeded: u64,
    /// The program raised, or left with another code.
    pub failed: u64,
    /// A limit ended the program.
    pub limited: u64,
    /// The caller ended it.
    pub cancelled: u64,
    /// The sandbox failed.
    pub sandbox_failed: u64,
    /// It was not taken.
    pub refused: u64,
}

impl Totals {
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        let counter = match &outcome.verdict {
            _ if outcome.is_success() => &mut self.succeeded,
            Verdict::Limit(_) => &mut self.limited,
            Verdict::Cancelled => &mut self.cancelled,
            Verdict::SandboxFailed(_) => &mut self.sandbox_failed,
            _ => &mut self.failed,
        };
        *counter += 1;
    }
}
