//! The run that goes on in a worker process: its calls, and how it is told to end.
//!
//! A run's order and what is said to it come over two rings, so a word may overtake the order. The
//! numbers of runs only grow, which tells such a word from one that came too late.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use engine::{Reply, Room, StopHandle, StopReason};
use serde::{Deserialize, Serialize};

/// What a worker knows of runs.
#[derive(Default)]
pub(crate) struct Runs {
    /// The one that goes on.
    now: Option<Run>,
    /// The number of the last one that began.
    last: u64,
    /// How runs are to end that haven't begun.
    early: Vec<End>,
    /// The number of the last one whose order was taken.
    taken: u64,
    /// The runs whose orders were taken back, as far as these orders may still be in the ring. More may
    /// be taken back before this process has come to the first ones.
    taken_back: Vec<RangeInclusive<u64>>,
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

/// What becomes of a run whose order was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It begins.
    ToRun,
    /// Nobody wants its outcome any more, so it doesn't begin.
    Cancelled { run: u64 },
    /// Its order was taken back, so nobody waits for it.
    Back,
}

/// How a run is to end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) run: u64,
    pub(crate) reason: StopReason,
    pub(crate) is_gentle: bool,
}

impl End {
    /// Ends the run that has this handle.
    pub(crate) fn of(self, stop: &StopHandle) {
        match self.is_gentle {
            true => stop.interrupt(self.reason),
            false => stop.stop(self.reason),
        }
    }
}

impl Runs {
    /// Takes the order of a run.
    pub(crate) fn take(&mut self, number: u64) -> Taken {
        self.taken_back.retain(|runs| *runs.end() >= number);
        if self.taken_back.iter().any(|runs| runs.contains(&number)) {
            return Taken::Back;
        }
        self.taken = number;
        let is_cancelled =
            |end: &End| end.run == number && end.reason == StopReason::Cancelled && !end.is_gentle;
        match self.early.iter().any(is_cancelled) {
            true => Taken::Cancelled { run: number },
            false => Taken::ToRun,
        }
    }

    /// Returns whether the run after the last one was not taken back.
    pub(crate) fn goes_on(&self) -> bool {
        !self.taken_back.iter().any(|runs| runs.contains(&(self.taken + 1)))
    }

    /// Takes orders back, unless they were taken before. Returns the first run that won't begin.
    pub(crate) fn take_back(&mut self, runs: RangeInclusive<u64>) -> u64 {
        let from = (self.taken + 1).max(*runs.start());
        let back = from..=*runs.end();
        self.early.retain(|end| !back.contains(&end.run));
        if !back.is_empty() {
            self.taken_back.push(back);
        }
        from
    }

    /// Notes that a run begins. Returns how it is to end, if that was said before.
    #[must_use]
    pub(crate) fn begin(&mut self, number: u64, stop: StopHandle) -> Option<End> {
        let (calls, left) = (HashMap::new(), HashMap::new());
        self.now = Some(Run { number, stop, calls, left, last_call: 0 });
        self.last = number;
        let early = self.early.iter().find(|end| end.run == number).copied();
        self.early.retain(|end| end.run > number);
        early
    }

    /// Notes how a run is to end, if it hasn't begun. Returns its handle, if it goes on.
    #[must_use]
    pub(crate) fn end(&mut self, end: End) -> Option<StopHandle> {
        if end.run > self.last {
            // A stop outweighs an interrupt.
            match self.early.iter_mut().find(|early| early.run == end.run) {
                Some(early) => early.is_gentle &= end.is_gentle,
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

    const STOP: End = End { run: 2, reason: StopReason::Cancelled, is_gentle: false };

    #[test]
    fn runs_are_taken_back_unless_they_were_taken_before() {
        let mut runs = Runs::default();
        assert_eq!((runs.take(1), runs.take(2)), (Taken::ToRun, Taken::ToRun));
        assert!(runs.goes_on());
        assert_eq!(runs.take_back(2..=4), 3);
        assert!(!runs.goes_on());
        // There is nothing left to take back, and nothing comes again.
        assert_eq!(runs.take_back(2..=2), 3);
        assert_eq!(
            (runs.take(3), runs.take(4), runs.take(5)),
            (Taken::Back, Taken::Back, Taken::ToRun)
        );
        assert_eq!(runs.take_back(6..=u64::MAX), 6);
        assert_eq!(runs.take(7), Taken::Back);
    }

    #[test]
    fn runs_stay_taken_back_when_others_are_before_the_worker_comes_to_them() {
        let mut runs = Runs::default();
        assert_eq!((runs.take(1), runs.take_back(2..=3)), (Taken::ToRun, 2));
        assert_eq!(runs.take_back(5..=6), 5);
        let taken = [2, 3, 4, 5, 6, 7].map(|run| runs.take(run));
        use Taken::{Back, ToRun};
        assert_eq!(taken, [Back, Back, ToRun, Back, Back, ToRun]);
    }

    #[test]
    fn a_run_that_nobody_wants_does_not_begin() {
        let mut runs = Runs::default();
        let end = |run, is_gentle| End { run, is_gentle, ..STOP };
        assert!(runs.end(end(1, true)).is_none() && runs.end(end(2, false)).is_none());
        assert!(runs.end(end(3, false)).is_none());
        // It can answer an interrupt.
        assert_eq!((runs.take(1), runs.take(2)), (Taken::ToRun, Taken::Cancelled { run: 2 }));
        // Whoever takes a run back gives it to another worker, or nobody wants it.
        assert_eq!((runs.take_back(3..=3), runs.take(3)), (3, Taken::Back));
    }

    #[test]
    fn a_word_that_overtakes_its_run_ends_it_when_it_begins() {
        let gentle = End { is_gentle: true, ..STOP };
        let mut runs = Runs::default();
        assert!(runs.begin(1, StopHandle::default()).is_none());
        assert!(
            runs.end(gentle).is_none() && runs.end(STOP).is_none() && runs.end(gentle).is_none()
        );
        assert!(runs.of(1).is_some() && runs.of(2).is_none());
        runs.finish();
        let early = runs.begin(2, StopHandle::default()).expect("it was said before");
        assert!(early.run == 2 && !early.is_gentle);
        // Those that come in time reach the run, and those that come late nothing.
        assert!(runs.end(gentle).is_some());
        runs.finish();
        assert!(runs.end(STOP).is_none() && runs.begin(3, StopHandle::default()).is_none());
    }
}
