//! Why a cell did not complete, and what limits cut from its outputs.

use hatchery::error::chain;
use hatchery::{LimitHit, LimitKind, Outcome, Verdict};

/// The longest message in one line, in characters.
const MOST_CHARACTERS: usize = 200;

/// Why a cell did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name of an exception's class, without its module.
    pub name: String,
    /// The exception's message, or what a limit or the sandbox says.
    pub message: String,
    /// The traceback as CPython writes it, or the name and message without one.
    pub traceback: String,
}

impl Problem {
    /// Returns why a cell did not complete; `None` if it did.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        let place = outcome.interrupted_at.as_ref().map_or("", |at| at.traceback.as_str());
        let problem = match &outcome.verdict {
            Verdict::Completed { .. } => return None,
            Verdict::Raised(exception) => Self {
                name: exception.type_name.rsplit('.').next().unwrap_or_default().to_owned(),
                message: exception.message.clone(),
                traceback: exception.traceback.clone(),
            },
            Verdict::Exited { code, message } => {
                let message = message.clone().unwrap_or_else(|| code.to_string());
                Self::new("SystemExit", message)
            }
            Verdict::Limit(hit) => {
                let problem = Self::new("LimitReached", hit.to_string());
                Self { traceback: format!("{place}{}", problem.traceback), ..problem }
            }
            Verdict::Cancelled => {
                let problem = Self::new("KeyboardInterrupt", String::new());
                Self { traceback: place.to_owned(), ..problem }
            }
            Verdict::Tampered(tampering) => Self::new("Tampered", tampering.to_string()),
            Verdict::SandboxFailed(failure) => {
                Self::new("SandboxFailed", chain(failure).to_string())
            }
            verdict => Self::new(verdict.name(), String::new()),
        };
        Some(problem)
    }

    /// Creates a problem without a traceback of the program.
    pub fn new(name: &str, message: String) -> Self {
        let traceback = match message.as_str() {
            "" => name.to_owned(),
            _ => format!("{name}: {message}"),
        };
        Self { name: name.to_owned(), message, traceback }
    }
}

impl std::fmt::Display for Problem {
    /// Formats one line of at most 200 characters. It contains whatever the program wrote, also
    /// sequences that a terminal would obey.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.message.lines().next().unwrap_or_default();
        let separator = if line.is_empty() { "" } else { ": " };
        let text = format!("{}{separator}{line}", self.name);
        let shown: String = text.chars().take(MOST_CHARACTERS).collect();
        formatter.write_str(&shown)
    }
}

/// Describes what limits cut without ending the cell, one line each.
pub fn remarks(outcome: &Outcome) -> Vec<String> {
    // Output is described below, and commands don't print raw data of a result.
    let is_told = |hit: &&LimitHit| !matches!(hit.limit, LimitKind::Output | LimitKind::ResultData);
    let hits = outcome.limits_met.iter().filter(is_told);
    let mut remarks: Vec<String> = hits.map(LimitHit::refusal).collect();
    if outcome.output_truncated {
        let kept = outcome.stdout.len() + outcome.stderr.len();
        let amount = |bytes| LimitKind::Output.amount(bytes);
        let hit = outcome.limits_met.iter().find(|hit| hit.limit == LimitKind::Output);
        let raises = hit.and_then(LimitHit::raised_by);
        let advice =
            raises.map_or_else(String::new, |raises| format!("; {raises} raises the limit"));
        remarks.push(format!(
            "the output was {}, of which {} were kept{advice}",
            amount(outcome.usage.output_bytes),
            amount(kept as u64)
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use hatchery::Exception;

    #[test]
    fn problems_are_named_as_notebooks_name_them() {
        let exception = Exception::new("numpy.linalg.LinAlgError", "Singular\nmatrix", "Trace\n");
        let outcome = Outcome::not_run(Verdict::Raised(Box::new(exception)));
        let problem = Problem::of(&outcome).unwrap();
        assert_eq!(problem.to_string(), "LinAlgError: Singular");
        assert_eq!(
            (problem.message.as_str(), problem.traceback.as_str()),
            ("Singular\nmatrix", "Trace\n")
        );
        let long = Problem::new("E", "x".repeat(300));
        assert_eq!(long.to_string(), format!("E: {}", "x".repeat(197)));
        let left = Outcome::not_run(Verdict::Exited { code: 3, message: None });
        assert_eq!(Problem::of(&left).unwrap().to_string(), "SystemExit: 3");
        let cancelled = Problem::of(&Outcome::not_run(Verdict::Cancelled)).unwrap();
        assert_eq!(cancelled.to_string(), "KeyboardInterrupt");
        assert!(remarks(&left).is_empty());
    }
}
