//! The state machine of a worker's life. Pure.

use engine::{Cause, OVERDUE_AFTER};

use crate::ids::JobId;

/// The phase of a worker's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its interpreter is being started.
    Starting,
    /// It has offered a permit.
    Ready,
    /// Its thread runs this job.
    Running(JobId),
    /// Its thread is preparing for the next command.
    Resetting,
    /// Its thread was asked to end.
    Leaving,
    /// Its thread has ended.
    Ended,
}

/// An input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The thread waits for an command.
    Idle,
    /// Its permit was used for this job.
    Assigned(JobId),
    /// Its permit was used to suspend its session or to get another interpreter.
    Cleared,
    /// Its permit was used to end it.
    Dismissed,
    /// The thread's job has ended.
    Finished,
    /// The thread has ended.
    Ended,
}

/// What to do after a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum PhaseAction {
    /// Offer the owner a permit.
    Offer,
    /// Send the command to the thread.
    Send,
    /// Nothing.
    Note,
    /// Drop the input: it can't be served, and the worker's end will settle it.
    Ignore,
}

impl Phase {
    /// Returns the phase after `input`, and what to do.
    pub(crate) fn next(self, input: Input) -> (Self, PhaseAction) {
        match (self, input) {
            (Self::Starting | Self::Resetting, Input::Idle) => (Self::Ready, PhaseAction::Offer),
            (Self::Ready, Input::Assigned(job)) => (Self::Running(job), PhaseAction::Send),
            (Self::Ready, Input::Cleared) => (Self::Resetting, PhaseAction::Send),
            (Self::Ready, Input::Dismissed) => (Self::Leaving, PhaseAction::Send),
            (Self::Running(_), Input::Finished) => (Self::Resetting, PhaseAction::Note),
            (_, Input::Ended) => (Self::Ended, PhaseAction::Note),
            // A permit that was used after the thread ended, whose `Gone` is on its way. Nothing else
            // is possible: a permit is for one command, and a thread finishes it before the next.
            _ => (self, PhaseAction::Ignore),
        }
    }
}

/// Why a worker ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoneReason {
    /// The pool was closed.
    #[error("it was stopped")]
    Stopped,
    /// It was dismissed: it wasn't needed, or was retired.
    #[error("it was dismissed")]
    Dismissed,
    /// No interpreter could be started.
    #[error("its interpreter can't start")]
    StartFailed(#[source] Cause),
    /// Its thread or its actor died.
    #[error("it died")]
    Died(#[source] Cause),
    /// Its run continued for [`OVERDUE_AFTER`] after it was stopped. Its
    /// thread is left behind, and its events are ignored from then on.
    #[error(
        "its run continued for {} s after its stop, and its thread was left behind",
        OVERDUE_AFTER.as_secs()
    )]
    Stuck,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair() {
        use Phase::{Ended, Leaving, Ready, Resetting, Running, Starting};
        let job = JobId(1);
        let running = Running(job);
        let phases = [Starting, Ready, running, Resetting, Leaving, Ended];
        let (note, ignore, send) = (PhaseAction::Note, PhaseAction::Ignore, PhaseAction::Send);
        // One row for each input, one column for each phase.
        let same = |step| phases.map(|phase| (phase, step));
        let mut idle = same(ignore);
        idle[0] = (Ready, PhaseAction::Offer);
        idle[3] = (Ready, PhaseAction::Offer);
        let when_ready = |now| {
            let mut row = same(ignore);
            row[1] = (now, send);
            row
        };
        let mut finished = same(ignore);
        finished[2] = (Resetting, note);
        let table = [
            (Input::Idle, idle),
            (Input::Assigned(job), when_ready(running)),
            (Input::Cleared, when_ready(Resetting)),
            (Input::Dismissed, when_ready(Leaving)),
            (Input::Finished, finished),
            (Input::Ended, [(Ended, note); 6]),
        ];
        for (input, row) in table {
            for (phase, expected) in phases.into_iter().zip(row) {
                assert_eq!(phase.next(input), expected, "{phase:?} {input:?}");
            }
        }
    }
}
