//! Programs that read standard input and write standard output. Each case runs in a fresh
//! interpreter; its output is compared here or by a checker in another one.

use std::time::Duration;

use hatchery::{Hatchery, Interface, Job, LimitKind, Limits, Outcome, Verdict as End};
use serde_json::json;

use super::guarded::TESTS_CPU;
use super::trial::{answer, cpu_ms};
use crate::error::GradeError;
use crate::settings::limits_of_tests;
use crate::task::{Case, Checker};
use crate::verdict::{Failure, Graded, Verdict};
use crate::{checker, guest};

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
) -> Result<Graded, GradeError> {
    let code = &*guest::with_wide_maxsize(code);
    let mut graded = Graded::new(Verdict::Passed, String::new());
    graded.tests_total = cases.len() as u64;
    let mut left = limits.cpu_time.unwrap_or(Duration::MAX);
    for (place, case) in cases.iter().enumerate() {
        let rest = Limits { cpu_time: Some(left), ..limits.clone() };
        let outcome = pool.run(job(code, code, case, &rest)).await?;
        graded.cpu_ms += cpu_ms(&outcome);
        left = left.saturating_sub(outcome.usage.cpu);
        // These data sets don't look at exit codes.
        let may_exit = matches!(checker, Checker::Lines | Checker::Apps)
            && matches!(outcome.verdict, End::Exited { code, .. } if code < Outcome::ABORTED);
        let has_ended = outcome.is_success() || may_exit;
        let problem = match has_ended && !outcome.output_truncated {
            true => match wrong(pool, checker, case, &outcome, &mut graded).await? {
                Ok(problem) => problem,
                Err(ended) => return Ok(ended.with_counts_of(&graded)),
            },
            false => {
                let ended = ended(&outcome, &rest);
                if matches!(ended.verdict, Verdict::Limit | Verdict::Sandbox) {
                    let spent = (graded.cpu_ms, graded.tests_cpu_ms);
                    let ended = ended.with_counts_of(&graded);
                    return Ok(Graded { cpu_ms: spent.0, tests_cpu_ms: spent.1, ..ended });
                }
                Some(ended.message)
            }
        };
        if problem.is_some()
            && graded.failures.is_empty()
            && let Some(ended) = limit_met(pool, code, case, &limits).await?
        {
            return Ok(ended.with_counts_of(&graded));
        }
        match problem {
            None => graded.tests_passed += 1,
            Some(message) => {
                graded.verdict = Verdict::Failed;
                let test = format!("case {}", place + 1);
                if graded.failures.is_empty() {
                    graded.message = format!("{test}: {message}");
                }
                if graded.failures.len() < MOST_FAILURES {
                    graded.failures.push(Failure { test, message });
                }
            }
        }
    }
    Ok(graded)
}

fn ended(outcome: &Outcome, limits: &Limits) -> Graded {
    if outcome.is_success() {
        let kind = LimitKind::Output;
        let (name, allowed) = (kind.name(), kind.amount(limits.output_bytes as u64));
        let raised_by = kind.raised_by(Interface::Grade).unwrap_or_default();
        let message =
            format!("it wrote more than the {name} limit of {allowed}; {raised_by} raises it");
        return Graded { limit: Some(name.to_owned()), ..Graded::new(Verdict::Limit, message) };
    }
    Graded::ended(outcome).blaming("", outcome)
}

/// Returns the job that runs `source` as the program does for a case. A judge runs a file, too.
fn job(source: &str, code: &str, case: &Case, limits: &Limits) -> Job {
    Job::code(source)
        .named(FILE)
        .input(FILE, code)
        .expect("the path is plain")
        .stdin(case.stdin.as_bytes())
        .limits(limits.clone())
        .idempotent(false)
}

/// Runs a program that failed a case again, watched. Returns the first limit of the sandbox that it
/// meets, even if it catches that. Or returns the sandbox's own failure.
async fn limit_met(
    pool: &Hatchery,
    code: &str,
    case: &Case,
    limits: &Limits,
) -> Result<Option<Graded>, GradeError> {
    let job = job(guest::DOUBT, code, case, limits).variable("hatchery_code", code);
    let watched = pool.run(job).await?;
    Ok(match &watched.verdict {
        End::SandboxFailed(_) => Some(Graded::ended(&watched)),
        _ => answer(&watched).map(Graded::of_sandbox),
    })
}

/// Compares the output for a case, in an interpreter with limits of its own if a program does it.
/// Returns what is wrong with it, if anything is. An error is the result of a checker that met a limit.
async fn wrong(
    pool: &Hatchery,
    checker: &Checker,
    case: &Case,
    outcome: &Outcome,
    graded: &mut Graded,
) -> Result<Result<Option<String>, Graded>, GradeError> {
    let output = outcome.stdout_text();
    let Checker::Program(source) = checker else {
        return Ok(Ok(checker::wrong(checker, &output, &case.stdout)));
    };
    let job = Job::code(guest::CHECKER)
        .named("checker")
        .variable("hatchery_checker", source.as_str())
        .variable("hatchery_cases", json!([[case.stdin, output, case.stdout]]))
        .limits(limits_of_tests(TESTS_CPU));
    let checked = pool.run(job).await?;
    graded.tests_cpu_ms += cpu_ms(&checked);
    let ended = || Graded::ended(&checked);
    Ok(match &checked.verdict {
        End::Completed { value: Some(value), .. } if *value == json!([true]) => Ok(None),
        End::Completed { .. } => Ok(Some("the checker refuses its output".to_owned())),
        End::Limit(hit) => Err(Graded::of_tests(hit)),
        End::SandboxFailed(_) => Err(ended()),
        _ => Ok(Some(format!("the checker failed: {}", ended().message))),
    })
}
