//! How lines end, and how many ended how.

use std::time::Duration;

use hatchery::{Outcome, Verdict};
use serde_json::{Map, Value, json};
use strum::{IntoStaticStr, VariantArray};

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// The program succeeded, and what it made is kept.
    Succeeded,
    /// The program failed, or its files or displays couldn't be written.
    Failed,
    /// A limit ended the program.
    Limited,
    /// The program was cancelled, as a straggler is.
    Cancelled,
    /// The sandbox failed.
    SandboxFailed,
    /// The pool refused the job.
    Refused,
    /// The line is no valid job.
    Malformed,
}

impl Ending {
    /// Every ending, in the order in which they are reported.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Returns its name in statuses and reports, such as `sandbox_failed`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns how a job with this outcome ended.
    pub fn of(outcome: &Outcome) -> Self {
        match &outcome.verdict {
            _ if outcome.is_success() => Self::Succeeded,
            Verdict::Limit(_) => Self::Limited,
            Verdict::Cancelled => Self::Cancelled,
            Verdict::SandboxFailed(_) => Self::SandboxFailed,
            _ => Self::Failed,
        }
    }

    /// Returns how a job with this result ended, as JSON of [`Outcome::to_tool_json`] or of a job that
    /// wasn't run.
    pub fn of_result(result: &Map<String, Value>) -> Self {
        match result.get("status").and_then(Value::as_str) {
            _ if result.get("success") == Some(&Value::Bool(true)) => Self::Succeeded,
            None => Self::Refused,
            Some("limit") => Self::Limited,
            Some("cancelled") => Self::Cancelled,
            Some("sandbox_failed") => Self::SandboxFailed,
            Some(_) => Self::Failed,
        }
    }
}

/// Counts of lines by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// By their `Ending`.
    ended: [usize; Ending::ALL.len()],
    earlier: usize,
}

impl Tally {
    /// Returns how many lines ended in this way.
    pub fn of(&self, ending: Ending) -> usize {
        self.ended[ending as usize]
    }

    /// Returns how many jobs succeeded.
    pub fn succeeded(&self) -> usize {
        self.of(Ending::Succeeded)
    }

    /// Returns how many lines were no valid jobs.
    pub fn malformed(&self) -> usize {
        self.of(Ending::Malformed)
    }

    /// Returns how many jobs did not succeed.
    pub fn unsuccessful(&self) -> usize {
        self.done() - self.malformed() - self.succeeded()
    }

    /// Returns how many of the lines ended in an earlier run.
    pub fn earlier(&self) -> usize {
        self.earlier
    }

    /// Returns how many lines have their result.
    pub fn done(&self) -> usize {
        self.ended.iter().sum()
    }

    /// Counts a line that ended in this way.
    pub fn count(&mut self, ending: Ending) {
        self.ended[ending as usize] += 1;
    }

    /// Counts a line that ended in this way in an earlier run.
    pub fn count_earlier(&mut self, ending: Ending) {
        self.earlier += 1;
        self.count(ending);
    }
}

/// A step of a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A line has its result, which is written or, in an ordered batch, waits for earlier ones.
    Done {
        /// The line's id.
        id: &'a Value,
        /// How its job ended.
        ending: Ending,
        /// Whether the result is one of an earlier run.
        is_earlier: bool,
        /// The lines so far by how they ended, this one included.
        tally: &'a Tally,
    },
    /// Files or displays of a line couldn't be written where they are kept. Its result says so too.
    NotKept {
        /// The line's id.
        id: &'a Value,
        /// What couldn't be written, and why.
        problem: &'a str,
    },
    /// All lines have been read. This many of them have a result or will get one.
    AllRead(u64),
}

/// A snapshot of a batch's progress, of what its [`Event`](crate::Event)s tell.
///
/// ```
/// use std::time::Duration;
///
/// use batch::{Ending, Pace, Tally};
///
/// let mut tally = Tally::default();
/// (0..5).for_each(|_| tally.count(Ending::Succeeded));
/// let elapsed = Duration::from_secs(2);
/// let pace = Pace { tally, total: Some(25), elapsed, is_over: false };
/// assert_eq!(pace.rate(), Some(2.5));
/// assert_eq!(pace.left(), Some(Duration::from_secs(8)));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The lines by how they ended.
    pub tally: Tally,
    /// How many lines get a result; `None` while that isn't known.
    pub total: Option<u64>,
    /// Since the batch began.
    pub elapsed: Duration,
    /// Whether the batch has ended.
    pub is_over: bool,
}

impl Pace {
    /// Returns the jobs that ended in this run per second; `None` before the first.
    pub fn rate(&self) -> Option<f64> {
        let ended = self.tally.done() - self.tally.earlier();
        let seconds = self.elapsed.as_secs_f64();
        (ended > 0 && seconds > 0.0).then(|| ended as f64 / seconds)
    }

    /// Estimates the remaining time at the current rate; `None` if there is no rate or no total.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.total?.saturating_sub(self.tally.done() as u64);
        Duration::try_from_secs_f64(rest as f64 / self.rate()?).ok()
    }

    /// Returns it as JSON, as `hatchery batch --progress json` writes it. What isn't known is null.
    pub fn json(&self) -> Value {
        let mut value = json!({
            "done": self.tally.done(),
            "total": self.total,
            "earlier": self.tally.earlier(),
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "jobs_per_second": self.rate(),
            "left_seconds": self.left().map(|left| left.as_secs_f64()),
            "is_over": self.is_over,
        });
        for &ending in Ending::ALL {
            value[ending.name()] = self.tally.of(ending).into();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_their_endings() {
        let mut tally = Tally::default();
        for (place, &ending) in Ending::ALL.iter().enumerate() {
            assert_eq!(ending as usize, place);
            (0..=place).for_each(|_| tally.count(ending));
            assert_eq!(tally.of(ending), place + 1);
        }
        tally.count_earlier(Ending::Succeeded);
        assert_eq!((tally.succeeded(), tally.malformed(), tally.earlier()), (2, 7, 1));
        assert_eq!((tally.done(), tally.unsuccessful()), (29, 20));
    }

    #[test]
    fn a_result_and_its_outcome_end_alike() {
        for verdict in [Verdict::Cancelled, Verdict::Exited { code: 3, message: None }] {
            let outcome = Outcome::not_run(verdict);
            let Value::Object(result) = outcome.to_tool_json() else { panic!("{outcome:?}") };
            assert_eq!(Ending::of_result(&result), Ending::of(&outcome));
        }
        assert_eq!(Ending::of_result(&Map::new()), Ending::Refused);
    }

    fn pace_of(tally: Tally, total: u64) -> Pace {
        Pace { tally, total: Some(total), elapsed: Duration::from_secs(2), is_over: false }
    }

    #[test]
    fn nothing_is_estimated_before_a_job_ended() {
        let pace = pace_of(Tally::default(), 30);
        let value = pace.json();
        assert_eq!(
            (&value["left_seconds"], &value["jobs_per_second"]),
            (&json!(null), &json!(null))
        );
        assert_eq!((&value["total"], &value["is_over"]), (&json!(30), &json!(false)));
        assert_eq!(Pace { is_over: true, ..pace }.json()["is_over"], true);
    }

    #[test]
    fn earlier_results_do_not_count_in_the_rate() {
        let mut tally = Tally::default();
        (0..2).for_each(|_| tally.count_earlier(Ending::Succeeded));
        tally.count_earlier(Ending::Limited);
        [Ending::Refused, Ending::Malformed].into_iter().for_each(|ending| tally.count(ending));
        let value = pace_of(tally, 6).json();
        assert_eq!((&value["jobs_per_second"], &value["left_seconds"]), (&json!(1.0), &json!(1.0)));
        assert_eq!((&value["done"], &value["succeeded"]), (&json!(5), &json!(2)));
        assert_eq!((&value["malformed"], &value["earlier"]), (&json!(1), &json!(3)));
    }
}
