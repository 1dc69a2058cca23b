//! How lines end, and how many ended how.

use hatchery::{Outcome, Verdict};
use serde_json::{Map, Value};

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub const ALL: [Self; 7] = [
        Self::Succeeded,
        Self::Failed,
        Self::Limited,
        Self::Cancelled,
        Self::SandboxFailed,
        Self::Refused,
        Self::Malformed,
    ];

    /// Returns its name in statuses and reports, such as `sandbox_failed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Limited => "limited",
            Self::Cancelled => "cancelled",
            Self::SandboxFailed => "sandbox_failed",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_their_endings() {
        let mut tally = Tally::default();
        for (place, ending) in Ending::ALL.into_iter().enumerate() {
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
}
