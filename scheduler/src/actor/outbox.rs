//! Outcomes on their way to their callers.
//!
//! To wake a caller costs the thread of a worker some 5 to 10 µs, a tenth of a short job. While the
//! short jobs of one tenant queue up, its outcomes therefore wait for each other and leave together:
//! its callers have shown that they don't wait for each outcome before they submit the next job.
//! They leave as soon as a worker is idle or nothing is queued that could run, so no worker waits for
//! what a caller would submit next. An outcome for which any of this doesn't hold leaves at once, and
//! takes the others with it.

use std::time::Duration;

use crate::combiner::{Answer, give};

/// The most outcomes that leave together, for each worker. If its jobs do nothing, it takes 0.5 ms for
/// them; more save little, and each would arrive later.
const PER_WORKER: usize = 12;
/// The most outcomes that leave together, of all workers: one thread wakes all their callers.
const MOST: usize = 32;
/// How long an outcome waits if another job ends after that.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long an outcome waits at most. Then the workers run jobs that take longer than those of their
/// tenant did.
const LONGEST: Duration = Duration::from_millis(2);

/// Outcomes that are decided on, but not sent yet. Those that are left are sent when it is dropped.
#[derive(Default)]
pub(super) struct Outbox {
    answers: Vec<Answer>,
    /// When the first of them was put here.
    since: Duration,
    is_urgent: bool,
}

impl Outbox {
    /// Takes an outcome, which may wait for others or not.
    pub(super) fn put(&mut self, answer: Answer, may_wait: bool, now: Duration) {
        if self.answers.is_empty() {
            self.since = now;
        }
        self.answers.push(answer);
        self.is_urgent |= !may_wait;
    }

    /// Takes what is to be sent now. `all_busy` is how many workers there are, if none is idle and
    /// there are jobs for the next ones; otherwise it is zero, and everything is to be sent.
    pub(super) fn take_due(&mut self, all_busy: usize, now: Duration) -> Vec<Answer> {
        let most = PER_WORKER.saturating_mul(all_busy).min(MOST);
        let may_wait = !self.is_urgent
            && self.answers.len() < most
            && now.saturating_sub(self.since) < PATIENCE;
        if may_wait { Vec::new() } else { self.take() }
    }

    /// Returns when outcomes are to be sent even if nothing happens before.
    pub(super) fn due(&self) -> Option<Duration> {
        (!self.answers.is_empty()).then(|| self.since.saturating_add(LONGEST))
    }

    /// The last outcome comes first: a caller of many jobs mostly waits for the first one, and then
    /// finds the others there without sleeping again.
    fn take(&mut self) -> Vec<Answer> {
        self.is_urgent = false;
        let mut answers = std::mem::take(&mut self.answers);
        answers.reverse();
        answers
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        give(self.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn answer() -> Answer {
        Box::new(|| ())
    }

    #[test]
    fn outcomes_wait_for_each_other_only_while_all_workers_are_busy() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.due(), None);
        outbox.put(answer(), true, NOW);
        assert_eq!(outbox.due(), Some(NOW + LONGEST));
        assert_eq!(outbox.take_due(1, NOW).len(), 0);
        assert_eq!(outbox.take_due(0, NOW).len(), 1);
        assert_eq!(outbox.due(), None);
    }

    #[test]
    fn outcomes_leave_together_when_they_are_enough_or_have_waited() {
        let mut outbox = Outbox::default();
        for _ in 1..PER_WORKER {
            outbox.put(answer(), true, NOW);
            assert_eq!(outbox.take_due(1, NOW).len(), 0);
        }
        outbox.put(answer(), true, NOW);
        assert_eq!(outbox.take_due(1, NOW).len(), PER_WORKER);
        outbox.put(answer(), true, NOW);
        outbox.put(answer(), true, NOW + PATIENCE / 2);
        assert_eq!(outbox.take_due(1, NOW + PATIENCE).len(), 2);
    }

    #[test]
    fn more_outcomes_leave_together_from_more_workers_up_to_a_limit() {
        for (workers, most) in [(1, PER_WORKER), (2, 2 * PER_WORKER), (3, MOST), (100, MOST)] {
            let mut outbox = Outbox::default();
            let puts = (1..).find(|_| {
                outbox.put(answer(), true, NOW);
                !outbox.take_due(workers, NOW).is_empty()
            });
            assert_eq!(puts, Some(most));
        }
    }

    #[test]
    fn an_urgent_outcome_takes_the_others_with_it() {
        let mut outbox = Outbox::default();
        outbox.put(answer(), true, NOW);
        outbox.put(answer(), false, NOW);
        assert_eq!(outbox.take_due(1, NOW).len(), 2);
        outbox.put(answer(), true, NOW);
        assert_eq!(outbox.take_due(1, NOW).len(), 0);
    }

    #[test]
    fn what_is_left_is_sent_at_the_end() {
        let (mut outbox, sent) = (Outbox::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let sent = Arc::clone(&sent);
            let count = move || {
                sent.fetch_add(1, Ordering::Relaxed);
            };
            outbox.put(Box::new(count), true, NOW);
        }
        drop(outbox);
        assert_eq!(sent.load(Ordering::Relaxed), 3);
    }
}
