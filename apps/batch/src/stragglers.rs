//! Stragglers: jobs that run many times as long as the others. Each is interrupted once, as at a
//! time limit, and its result says why. It isn't retried elsewhere: the same program would take as
//! long on the same input.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use hatchery::event::EventKind;
use hatchery::{Outcome, Ticket, Verdict};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::{now, sleep};

/// The median covers this many of the latest run times: enough to be steady, few enough to keep.
const MOST_TIMES: usize = 1000;
/// Run times that a median needs.
const FEWEST_TIMES: usize = 3;
/// No job is cut before it has run this long, however short the others are: run times of short jobs
/// vary by whole factors.
const SHORTEST_CUT: Duration = Duration::from_millis(100);

/// Cuts jobs that run for more than `factor` times the median.
#[derive(Debug)]
pub(crate) struct Stragglers {
    factor: f64,
    times: Mutex<Times>,
    allowed: watch::Sender<Option<Allowed>>,
}

/// How long a job may run at present.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Allowed {
    time: Duration,
    median: Duration,
}

/// Why a job was cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cut {
    factor: f64,
    allowed: Allowed,
    ran: Duration,
}

/// What is known about the jobs of the lines read so far.
#[derive(Debug, Default)]
struct Times {
    begun: usize,
    ended: usize,
    last: VecDeque<Duration>,
}

impl Stragglers {
    pub(crate) fn new(factor: f64) -> Self {
        Self { factor, times: Mutex::default(), allowed: watch::Sender::new(None) }
    }

    /// Counts a line that was read.
    pub(crate) fn begin(&self) {
        self.change(|times| times.begun += 1);
    }

    /// Counts its job as ended, with its run time if it ran.
    pub(crate) fn end(&self, ran: Option<Duration>) {
        self.change(|times| times.end(ran));
    }

    fn change(&self, change: impl FnOnce(&mut Times)) {
        let mut times = self.times.lock().expect("nothing panics while it is held");
        change(&mut times);
        let allowed = times.allowed(self.factor);
        self.allowed.send_if_modified(|before| std::mem::replace(before, allowed) != allowed);
    }

    /// Waits for the outcome of a job, and interrupts the job if it is a straggler.
    pub(crate) async fn outcome(&self, mut ticket: Ticket) -> (Outcome, Option<Cut>) {
        let mut events = ticket.events();
        let mut allowed = self.allowed.subscribe();
        let mut has_events = true;
        let mut started: Option<Instant> = None;
        let mut cut = None;
        let outcome = loop {
            let present = *allowed.borrow_and_update();
            let due = started.zip(present).filter(|_| cut.is_none());
            tokio::select! {
                outcome = ticket.outcome() => break outcome,
                event = events.next(), if has_events => match event.map(|event| event.kind) {
                    Some(EventKind::Started) => started = Some(now()),
                    Some(EventKind::Retried) => started = None,
                    Some(_) => {}
                    None => has_events = false,
                },
                changed = allowed.changed() => changed.expect("the sender is in `self`"),
                (allowed, ran) = over(due) => {
                    ticket.interrupt();
                    cut = Some(Cut { factor: self.factor, allowed, ran });
                }
            }
        };
        settled(outcome, cut)
    }
}

/// Waits until a job has run for longer than allowed; forever if it has no limit yet.
async fn over(due: Option<(Instant, Allowed)>) -> (Allowed, Duration) {
    let Some((started, allowed)) = due else { return std::future::pending().await };
    sleep(allowed.time.saturating_sub(now() - started)).await;
    (allowed, now() - started)
}

/// Turns the outcome of a cut job into a cancelled one. A program that handles the interrupt, or
/// ends by itself at that moment, keeps its own outcome.
fn settled(mut outcome: Outcome, cut: Option<Cut>) -> (Outcome, Option<Cut>) {
    let cut = match &outcome.verdict {
        Verdict::Cancelled => cut,
        Verdict::Raised(exception) if exception.type_name == "KeyboardInterrupt" => cut,
        _ => None,
    };
    if cut.is_some()
        && let Verdict::Raised(exception) =
            std::mem::replace(&mut outcome.verdict, Verdict::Cancelled)
    {
        outcome.interrupted_at = Some(*exception);
    }
    (outcome, cut)
}

impl Times {
    fn end(&mut self, ran: Option<Duration>) {
        self.ended += 1;
        if self.last.len() == MOST_TIMES && ran.is_some() {
            self.last.pop_front();
        }
        self.last.extend(ran);
    }

    /// Returns how long a job may run: `None` before most jobs have ended.
    fn allowed(&self, factor: f64) -> Option<Allowed> {
        if self.ended * 2 <= self.begun || self.last.len() < FEWEST_TIMES {
            return None;
        }
        let mut times: Vec<Duration> = self.last.iter().copied().collect();
        let middle = times.len() / 2;
        let median = *times.select_nth_unstable(middle).1;
        Some(Allowed { time: median.mul_f64(factor).max(SHORTEST_CUT), median })
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { factor, allowed, ran } = self;
        let [allowed, median, ran] =
            [allowed.time, allowed.median, *ran].map(|time| time.as_millis());
        write!(
            formatter,
            "cut as a straggler after {ran} ms: --cut-stragglers {factor} allows {allowed} ms, as \
             the median of the ended jobs was {median} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hatchery::Exception;

    const SECOND: Duration = Duration::from_secs(1);

    fn times(begun: usize, ended: &[u32]) -> Times {
        let mut times = Times { begun, ..Times::default() };
        ended.iter().for_each(|seconds| times.end(Some(*seconds * SECOND)));
        times
    }

    fn allowed(begun: usize, ended: &[u32]) -> Option<u64> {
        times(begun, ended).allowed(3.0).map(|allowed| allowed.time.as_secs())
    }

    #[test]
    fn nothing_is_cut_before_most_jobs_have_ended() {
        assert_eq!(allowed(6, &[1, 1, 1]), None);
        assert_eq!(allowed(5, &[1, 1, 1]), Some(3));
        assert_eq!(allowed(2, &[1, 1]), None, "two are no measure");
    }

    #[test]
    fn the_median_counts_and_not_the_extremes() {
        assert_eq!(allowed(5, &[2, 1000, 1, 2, 0]), Some(6));
        let mut many = times(0, &[9; 5]);
        (0..MOST_TIMES).for_each(|_| many.end(Some(SECOND)));
        assert_eq!(many.last.len(), MOST_TIMES);
        assert_eq!(many.allowed(2.0).unwrap().time, 2 * SECOND);
    }

    #[test]
    fn jobs_that_never_ran_have_no_time() {
        let mut some = times(6, &[4, 4, 4]);
        some.end(None);
        assert_eq!(some.allowed(2.0).unwrap().time, 8 * SECOND);
    }

    #[test]
    fn short_jobs_are_not_cut_by_their_jitter() {
        let mut short = times(4, &[]);
        (0..4).for_each(|_| short.end(Some(Duration::from_millis(1))));
        assert_eq!(short.allowed(3.0).unwrap().time, SHORTEST_CUT);
    }

    #[test]
    fn a_program_that_handles_the_interrupt_has_its_own_end() {
        let allowed = Allowed { time: 3 * SECOND, median: SECOND };
        let cut = Some(Cut { factor: 3.0, allowed, ran: 4 * SECOND });
        let of = |verdict| settled(Outcome::not_run(verdict), cut);
        assert_eq!(of(Verdict::Exited { code: 3, message: None }).1, None);
        assert_eq!(of(Verdict::Raised(Exception::default().into())).1, None);
        assert_eq!(of(Verdict::Cancelled).1, cut);
        let exception = Exception::new("KeyboardInterrupt", "", "");
        let (outcome, told) = of(Verdict::Raised(exception.clone().into()));
        assert_eq!((outcome.verdict, told), (Verdict::Cancelled, cut));
        assert_eq!(outcome.interrupted_at, Some(exception));
    }

    #[test]
    fn a_cut_says_why() {
        let allowed = Allowed { time: 5 * SECOND / 2, median: SECOND };
        let cut = Cut { factor: 2.5, allowed, ran: 3 * SECOND };
        let text = cut.to_string();
        assert!(text.contains("after 3000 ms") && text.contains("--cut-stragglers 2.5"), "{text}");
    }
}
