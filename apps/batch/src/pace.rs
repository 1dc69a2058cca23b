//! How far a batch is, how fast, and for how long it goes on. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use crate::tally::{Ending, Tally};

/// A snapshot of a batch's progress, of what its [`Event`](crate::Event)s tell.
///
/// ```
/// use std::time::Duration;
///
/// use batch::{Ending, Pace, Tally};
///
/// let mut tally = Tally::default();
/// (0..5).for_each(|_| tally.count(Ending::Succeeded));
/// let pace = Pace::new(tally, Some(25), Duration::from_secs(2));
/// assert_eq!(pace.rate(), Some(2.5));
/// assert_eq!(pace.left(), Some(Duration::from_secs(8)));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
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
    /// Creates the snapshot of a batch that runs.
    pub fn new(tally: Tally, total: Option<u64>, elapsed: Duration) -> Self {
        Self { tally, total, elapsed, is_over: false }
    }

    /// Says that the batch has ended.
    #[must_use]
    pub fn over(self) -> Self {
        Self { is_over: true, ..self }
    }

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
        for ending in Ending::ALL {
            value[ending.name()] = self.tally.of(ending).into();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_estimated_before_a_job_ended() {
        let pace = Pace::new(Tally::default(), Some(30), Duration::from_secs(2));
        let value = pace.json();
        assert_eq!(
            (&value["left_seconds"], &value["jobs_per_second"]),
            (&json!(null), &json!(null))
        );
        assert_eq!((&value["total"], &value["is_over"]), (&json!(30), &json!(false)));
        assert_eq!(pace.over().json()["is_over"], true);
    }

    #[test]
    fn earlier_results_do_not_count_in_the_rate() {
        let mut tally = Tally::default();
        (0..2).for_each(|_| tally.count_earlier(Ending::Succeeded));
        tally.count_earlier(Ending::Limited);
        [Ending::Refused, Ending::Malformed].into_iter().for_each(|ending| tally.count(ending));
        let value = Pace::new(tally, Some(6), Duration::from_secs(2)).json();
        assert_eq!((&value["jobs_per_second"], &value["left_seconds"]), (&json!(1.0), &json!(1.0)));
        assert_eq!((&value["done"], &value["succeeded"]), (&json!(5), &json!(2)));
        assert_eq!((&value["malformed"], &value["earlier"]), (&json!(1), &json!(3)));
    }
}
