//! Programs that read standard input and write standard output: each case in a fresh interpreter, and
//! the output is compared here or by a checker in another one.

use std::time::Duration;

use hatchery::{Hatchery, Interface, Job, LimitKind, Limits, Outcome, Verdict as End};
use serde_json::json;

use super::guarded::TESTS_CPU;
use super::trial::{Trial, cpu_ms};
use crate::checker;
use crate::error::GradeError;
use crate::guest;
use crate::task::{Case, Checker};
use crate::verdict::{Failure, Verdict};

/// Failures that are kept.
const MOST_FAILURES: usize = 20;

/// The file of a program, which its `__file__` names.
const FILE: &str = "main.py";

/// Runs a program on all cases. Its CPU time is for all of them together.
pub(crate) async fn run(
    pool: &Hatchery,
    code: &str,
    cases: &[Case],
    checker: &Checker,
    limits: Limits,
) -> Result<Trial, GradeError> {
    let mut trial = Trial::new(Verdict::Passed, String::new());
    trial.total = cases.len() as u64;
    let mut left = limits.cpu_time.unwrap_or(Duration::MAX);
    for (place, case) in cases.iter().enumerate() {
        let limits = Limits { cpu_time: Some(left), ..limits.clone() };
        // A judge runs a file, too.
        let job = Job::code(code)
            .named(FILE)
            .input(FILE, code)
            .expect("the path is plain")
            .stdin(case.stdin.as_bytes());
        let job = job.limits(limits.clone()).idempotent(false);
        let outcome = pool.run(job).await?;
        trial.cpu_ms += cpu_ms(&outcome);
        left = left.saturating_sub(outcome.usage.cpu);
        let problem = match outcome.is_success() && !outcome.output_truncated {
            true => wrong(pool, checker, case, &outcome, limits, &mut trial).await?,
            false => {
                let ended = ended(&outcome, &limits);
                if matches!(ended.verdict, Verdict::Limit | Verdict::Sandbox) {
                    let spent = (trial.cpu_ms, trial.tests_cpu_ms);
                    let ended = ended.with_counts_of(&trial);
                    return Ok(Trial { cpu_ms: spent.0, tests_cpu_ms: spent.1, ..ended });
                }
                Some(ended.message)
            }
        };
        match problem {
            None => trial.passed += 1,
            Some(message) => {
                trial.verdict = Verdict::Failed;
                let test = format!("case {}", place + 1);
                if trial.failures.is_empty() {
                    trial.message = format!("{test}: {message}");
                }
                if trial.failures.len() < MOST_FAILURES {
                    trial.failures.push(Failure { test, message });
                }
            }
        }
    }
    Ok(trial)
}

fn ended(outcome: &Outcome, limits: &Limits) -> Trial {
    if outcome.is_success() {
        let kind = LimitKind::Output;
        let (name, allowed) = (kind.name(), kind.amount(limits.output_bytes as u64));
        let raised_by = kind.raised_by(Interface::Grade).unwrap_or_default();
        let message =
            format!("it wrote more than the {name} limit of {allowed}; {raised_by} raises it");
        return Trial { limit: Some(name.to_owned()), ..Trial::new(Verdict::Limit, message) };
    }
    Trial::ended(outcome).blaming(outcome)
}

/// Returns what is wrong with the output for a case, if anything is.
async fn wrong(
    pool: &Hatchery,
    checker: &Checker,
    case: &Case,
    outcome: &Outcome,
    limits: Limits,
    trial: &mut Trial,
) -> Result<Option<String>, GradeError> {
    let output = outcome.stdout_text();
    let Checker::Program(source) = checker else {
        return Ok(checker::wrong(checker, &output, &case.stdout));
    };
    let job = Job::code(guest::CHECKER)
        .named("checker")
        .variable("hatchery_checker", source.as_str())
        .variable("hatchery_cases", json!([[case.stdin, output, case.stdout]]))
        .limits(Limits { cpu_time: Some(TESTS_CPU), ..limits });
    let checked = pool.run(job).await?;
    trial.tests_cpu_ms += cpu_ms(&checked);
    let accepted = match &checked.verdict {
        End::Completed { value: Some(value), .. } => *value == json!([true]),
        _ => return Ok(Some(format!("the checker failed: {}", Trial::ended(&checked).message))),
    };
    Ok((!accepted).then(|| "the checker refuses its output".to_owned()))
}
