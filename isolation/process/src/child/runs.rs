//! The run that goes on in a worker process: its calls, and how it is told to end.
//!
//! A run's command and what is said to it come over two rings, so a word may overtake the command. The
//! numbers of runs only grow, which tells such a word from one that came too late.

use std::collections::HashMap;

use engine::{Reply, Room, StopHandle, StopReason};

use crate::message::{StopKind, StopRequest};

/// What a worker knows of runs.
#[derive(Default)]
pub(crate) struct Runs {
    /// The one that goes on.
    now: Option<Run>,
    /// The number of the last one that began.
    last: u64,
    /// How runs are to end that haven't begun.
    early: Vec<StopRequest>,
}

/// The run that goes on.
pub(crate) struct Run {
    number: u64,
    stop: StopHandle,
    pub(crate) calls: HashMap<u64, (Reply, Room)>,
    /// The room of calls that have ended for the program, while the host works on them.
    pub(crate) left: HashMap<u64, Room>,
    pub(crate) last_call: u64,
}

impl StopRequest {
    /// Ends the run that has this handle.
    pub(crate) fn of(self, stop: &StopHandle) {
        match self.kind {
            StopKind::Interrupt => stop.interrupt(self.reason),
            StopKind::Kill => stop.stop(self.reason),
        }
    }
}

impl Runs {
    /// Whether a run whose command was taken doesn't begin, since its outcome isn't wanted any more.
    pub(crate) fn is_cancelled(&self, number: u64) -> bool {
        let is_kill =
            |end: &StopRequest| end.reason == StopReason::Cancelled && end.kind == StopKind::Kill;
        self.early.iter().any(|end| end.run == number && is_kill(end))
    }

    /// Notes that a run begins. Returns how it is to end, if that was said before.
    #[must_use]
    pub(crate) fn begin(&mut self, number: u64, stop: StopHandle) -> Option<StopRequest> {
        let (calls, left) = (HashMap::new(), HashMap::new());
        self.now = Some(Run { number, stop, calls, left, last_call: 0 });
        self.last = number;
        let early = self.early.iter().find(|end| end.run == number).copied();
        self.early.retain(|end| end.run > number);
        early
    }

    /// Notes how a run is to end, if it hasn't begun. Returns its handle, if it goes on.
    #[must_use]
    pub(crate) fn end(&mut self, end: StopRequest) -> Option<StopHandle> {
        if end.run > self.last {
            match self.early.iter_mut().find(|early| early.run == end.run) {
                Some(early) => early.kind = early.kind.max(end.kind),
                None => self.early.push(end),
            }
        }
        self.of(end.run).map(|run| run.stop.clone())
    }

    /// Notes that the run has ended, and returns it: dropping it ends its calls.
    pub(crate) fn finish(&mut self) -> Option<Run> {
        self.now.take()
    }

    /// Returns the run that goes on.
    pub(crate) fn now(&mut self) -> Option<&mut Run> {
        self.now.as_mut()
    }

    /// Returns the run of this number, if it goes on.
    pub(crate) fn of(&mut self, number: u64) -> Option<&mut Run> {
        self.now().filter(|run| run.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: StopRequest =
        StopRequest { run: 2, reason: StopReason::Cancelled, kind: StopKind::Kill };

    #[test]
    fn a_run_that_nobody_wants_does_not_begin() {
        let mut runs = Runs::default();
        let end = |run, kind| StopRequest { run, kind, ..STOP };
        assert!(
            runs.end(end(1, StopKind::Interrupt)).is_none()
                && runs.end(end(2, StopKind::Kill)).is_none()
        );
        // It can answer an interrupt.
        assert!(!runs.is_cancelled(1) && runs.is_cancelled(2) && !runs.is_cancelled(3));
    }

    #[test]
    fn a_word_that_overtakes_its_run_ends_it_when_it_begins() {
        let interrupt = StopRequest { kind: StopKind::Interrupt, ..STOP };
        let mut runs = Runs::default();
        assert!(runs.begin(1, StopHandle::default()).is_none());
        assert!(
            runs.end(interrupt).is_none()
                && runs.end(STOP).is_none()
                && runs.end(interrupt).is_none()
        );
        assert!(runs.of(1).is_some() && runs.of(2).is_none());
        runs.finish();
        let early = runs.begin(2, StopHandle::default()).expect("it was said before");
        assert!(early.run == 2 && early.kind == StopKind::Kill);
        // Those that come in time reach the run, and those that come late nothing.
        assert!(runs.end(interrupt).is_some());
        runs.finish();
        assert!(runs.end(STOP).is_none() && runs.begin(3, StopHandle::default()).is_none());
    }
}
