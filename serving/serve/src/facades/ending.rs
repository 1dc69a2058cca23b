//! How a program ended, and what it showed, in the words of notebooks.

use hatchery::error::chain;
use hatchery::{LimitKind, Outcome, Verdict};

/// The end of a program that didn't run to its end, as an exception of a notebook.
pub(super) struct Ending {
    pub(super) name: String,
    pub(super) value: String,
    /// Empty if there is none.
    pub(super) traceback: String,
}

/// Returns how a program failed; `None` if it ran to its end.
pub(super) fn failure(outcome: &Outcome) -> Option<Ending> {
    let ending = |name: &str, value: String, traceback: &str| {
        Some(Ending { name: name.to_owned(), value, traceback: traceback.to_owned() })
    };
    let interrupted = outcome.interrupted_at.as_ref().map_or("", |at| at.traceback.as_str());
    match &outcome.verdict {
        Verdict::Completed { .. } => None,
        Verdict::Raised(exception) => {
            // Notebooks have the name without its module.
            let name = exception.type_name.rsplit('.').next().unwrap_or_default();
            ending(name, exception.message.clone(), &exception.traceback)
        }
        Verdict::Exited { code, message } => {
            ending("SystemExit", message.clone().unwrap_or_else(|| code.to_string()), "")
        }
        Verdict::Limit(hit) if is_time(hit.limit) => {
            ending("TimeoutError", hit.to_string(), interrupted)
        }
        Verdict::Limit(hit) => ending("LimitError", hit.to_string(), interrupted),
        Verdict::Cancelled => ending("KeyboardInterrupt", String::new(), interrupted),
        Verdict::Tampered(tampering) => ending("SandboxError", tampering.to_string(), ""),
        Verdict::SandboxFailed(failure) => ending("SandboxError", chain(failure).to_string(), ""),
        other => ending("SandboxError", other.name().to_owned(), ""),
    }
}

/// Returns whether it is a limit on time.
pub(super) fn is_time(limit: LimitKind) -> bool {
    matches!(limit, LimitKind::Wall | LimitKind::Cpu | LimitKind::Deadline)
}

/// Returns what a program left on standard error, ending with how it failed, as `python` prints it.
pub(super) fn stderr(outcome: &Outcome) -> String {
    let mut text = outcome.stderr_text();
    let last = last_words(outcome);
    if !last.is_empty() && !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text + &last
}

/// Returns what `python` prints as it ends: the traceback, or what `sys.exit` was given.
pub(super) fn last_words(outcome: &Outcome) -> String {
    let mut words = match &outcome.verdict {
        Verdict::Completed { .. } => String::new(),
        Verdict::Raised(exception) => exception.traceback.clone(),
        Verdict::Exited { message, .. } => message.clone().unwrap_or_default(),
        _ => failure(outcome).map_or_else(String::new, |ending| ending.value),
    };
    if !words.is_empty() && !words.ends_with('\n') {
        words.push('\n');
    }
    words
}

#[cfg(test)]
mod tests {
    use hatchery::Exception;
    use hatchery::outcome::MimeBundle;

    use super::*;

    #[test]
    fn standard_error_ends_as_python_ends_it() {
        let raised = Exception::new("ValueError", "x", "Traceback\nValueError: x\n");
        let mut outcome = Outcome::not_run(Verdict::Raised(Box::new(raised)));
        assert_eq!(stderr(&outcome), "Traceback\nValueError: x\n");
        outcome.stderr = b"a".to_vec();
        assert_eq!(stderr(&outcome), "a\nTraceback\nValueError: x\n");
        outcome.verdict = Verdict::Exited { code: 1, message: Some("why".to_owned()) };
        assert_eq!(stderr(&outcome), "a\nwhy\n");
        outcome.verdict = Verdict::Exited { code: 0, message: None };
        assert_eq!(stderr(&outcome), "a");
    }

    #[test]
    fn every_end_but_the_last_line_is_a_failure() {
        let name = |verdict| failure(&Outcome::not_run(verdict)).map(|ending| ending.name);
        assert_eq!(name(Verdict::Cancelled).as_deref(), Some("KeyboardInterrupt"));
        let exited = Verdict::Exited { code: 0, message: None };
        assert_eq!(name(exited).as_deref(), Some("SystemExit"));
        let bundle = MimeBundle::default();
        let completed =
            Verdict::Completed { value: None, repr: None, bundle, data: None, missing: None };
        assert_eq!(name(completed), None);
    }
}
