//! Runs jobs whose callers don't retry well themselves: it retries overload and sandbox failures.

use std::time::Duration;

use hatchery::error::chain;
use hatchery::event::{EventKind, Events};
use hatchery::wire::{Problem, ProblemKind};
use hatchery::{Job, LimitKind, Outcome, Ticket, Verdict};
use tokio::time::timeout;

use crate::caller::Caller;
use crate::service::{Service, pause};

/// How often a job is run whose runs the sandbox fails. The pool tries again itself before that.
const MOST_RUNS: u32 = 3;

/// Refusals that more time may change.
const PASSING: [&str; 8] = [
    "queue_full",
    "queue_bytes",
    "tenant_queue_full",
    "tenant_queue_bytes",
    "deadline",
    "memory",
    "no_worker",
    "sessions",
];

/// A job that has ended.
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    events: Events,
}

impl Ran {
    /// Returns both streams together, as they were written.
    pub(super) async fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while let Some(event) = self.events.next().await {
            match event.kind {
                EventKind::Output { bytes, .. } => output.extend(bytes),
                EventKind::Retried => output.clear(),
                _ => {}
            }
        }
        output
    }
}

/// Runs a job in a fresh interpreter. The outcome is the program's: neither the load nor a failure of
/// the sandbox decided it.
///
/// # Errors
/// It was refused or failed for as long as `patience`, or invalid.
pub(super) async fn run(
    service: &Service,
    caller: &Caller,
    job: &Job,
    patience: Duration,
) -> Result<Ran, Problem> {
    let run = || async {
        let mut ticket = service.submit_patiently(caller, job, None, is_passing).await?;
        let outcome = ticket.outcome().await;
        match fault(&outcome) {
            Some(problem) => Err(problem),
            None => Ok(Ran { outcome, events: ticket.events() }),
        }
    };
    retried(patience, is_ours, run).await
}

/// Runs something up to three times, while it fails in a way that may pass.
///
/// # Errors
/// It failed otherwise, three times, or for as long as `patience`.
#[expect(clippy::disallowed_methods, reason = "the load that it waits out is measured in time")]
pub(super) async fn retried<T, F: Future<Output = Result<T, Problem>>>(
    patience: Duration,
    may_pass: impl Fn(&Problem) -> bool,
    run: impl Fn() -> F,
) -> Result<T, Problem> {
    let tries = async {
        for _ in 1..MOST_RUNS {
            match run().await {
                Err(problem) if may_pass(&problem) => tokio::time::sleep(pause(&problem)).await,
                ended => return ended,
            }
        }
        run().await
    };
    timeout(patience, tries).await.unwrap_or_else(|_| Err(late(patience)))
}

/// Submits a job, again and again while the pool refuses it for its load.
///
/// # Errors
/// It was refused for as long as `patience`, or for another reason.
pub(super) async fn submit(
    service: &Service,
    caller: &Caller,
    job: &Job,
    session: Option<&str>,
    patience: Duration,
) -> Result<Ticket, Problem> {
    let tries = service.submit_patiently(caller, job, session, is_passing);
    timeout(patience, tries).await.unwrap_or_else(|_| Err(late(patience)))
}

/// Returns whether a refusal may pass.
pub(super) fn is_passing(problem: &Problem) -> bool {
    let reason = problem.reason.as_deref();
    problem.kind == ProblemKind::Refused && reason.is_some_and(|reason| PASSING.contains(&reason))
}

/// Returns whether the job isn't to blame, so that it may succeed here or elsewhere later.
pub(super) fn is_ours(problem: &Problem) -> bool {
    matches!(problem.kind, ProblemKind::Refused | ProblemKind::Sandbox | ProblemKind::Cancelled)
}

/// Returns whether a session isn't there any more.
pub(super) fn is_gone(problem: &Problem) -> bool {
    matches!(problem.reason.as_deref(), Some("session_gone" | "no_session"))
}

/// Returns why an outcome says nothing about the program, if it doesn't.
pub(super) fn fault(outcome: &Outcome) -> Option<Problem> {
    let is_short_of_memory = |limit| limit == LimitKind::PoolMemory;
    match &outcome.verdict {
        Verdict::SandboxFailed(failure) => {
            // Files that don't fit are the job's own.
            let kind = match failure {
                hatchery::SandboxFailure::Workspace { .. } => ProblemKind::Usage,
                _ => ProblemKind::Sandbox,
            };
            Some(Problem::new(kind, chain(failure).to_string()))
        }
        Verdict::Cancelled => {
            Some(Problem::new(ProblemKind::Cancelled, "the job was cancelled by the server"))
        }
        Verdict::Limit(hit) if is_short_of_memory(hit.limit) => Some(short_of_memory()),
        _ if !outcome.passed()
            && outcome.limits_met.iter().any(|hit| is_short_of_memory(hit.limit)) =>
        {
            Some(short_of_memory())
        }
        _ => None,
    }
}

fn short_of_memory() -> Problem {
    let message = "the pool had less memory left than the job's limit, and the program needed more";
    Problem::new(ProblemKind::Refused, message).with_reason("memory")
}

fn late(patience: Duration) -> Problem {
    let message =
        format!("the job didn't end within {} s, time in the queue included", patience.as_secs());
    Problem::new(ProblemKind::Refused, message).with_reason("deadline")
}

/// Returns how a program failed, as an exception of a notebook; `None` if it ran to its end.
pub(super) fn failure(outcome: &Outcome) -> Option<notebook::Problem> {
    let problem = notebook::Problem::of(outcome)?;
    let name = match &outcome.verdict {
        Verdict::Limit(hit) if is_time(hit.limit) => "TimeoutError",
        Verdict::Limit(_) => "LimitError",
        Verdict::Tampered(_) | Verdict::SandboxFailed(_) => "SandboxError",
        _ => return Some(problem),
    };
    let place = outcome.interrupted_at.as_ref();
    let traceback = place.map(|at| at.traceback.clone()).unwrap_or_default();
    Some(notebook::Problem { name: name.to_owned(), traceback, ..problem })
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
        _ => failure(outcome).map_or_else(String::new, |ending| ending.message),
    };
    if !words.is_empty() && !words.ends_with('\n') {
        words.push('\n');
    }
    words
}

#[cfg(test)]
mod tests {
    use hatchery::outcome::MimeBundle;
    use hatchery::{Exception, SandboxFailure};

    use super::*;

    #[test]
    fn only_what_more_time_may_change_is_tried_again() {
        let refused = |reason: &str| Problem::new(ProblemKind::Refused, "").with_reason(reason);
        for reason in PASSING {
            assert!(is_passing(&refused(reason)), "{reason}");
        }
        for reason in ["shutting_down", "session_gone", "session_busy", "other_process"] {
            assert!(!is_passing(&refused(reason)), "{reason}");
        }
        let invalid = Problem::new(ProblemKind::Usage, "").with_reason("queue_full");
        assert!(!is_passing(&invalid) && !is_ours(&invalid));
    }

    #[test]
    fn faults_of_the_sandbox_are_not_outcomes_of_the_program() {
        let kind = |verdict| fault(&Outcome::not_run(verdict)).map(|problem| problem.kind);
        let failed = SandboxFailure::HostPanic("x".to_owned());
        assert_eq!(kind(Verdict::SandboxFailed(failed)), Some(ProblemKind::Sandbox));
        assert_eq!(kind(Verdict::Cancelled), Some(ProblemKind::Cancelled));
        assert_eq!(kind(Verdict::Exited { code: 134, message: None }), None);
    }

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
