//! Tests apart from their candidate: a judge in one interpreter, the candidate in another, and
//! plain data between them.

use std::time::Duration;

use hatchery::{Hatchery, Job, Limits, Outcome, Verdict as End};
use serde_json::json;
use tokio::time::timeout;

use super::Link;
use super::trial::{TestReport, answer, cpu_ms};
use crate::error::GradeError;
use crate::guest;
use crate::task::{Suite, Task};
use crate::verdict::Graded;

/// How long a candidate may go on after its tests have ended, before it is stopped.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// CPU time for the tests themselves, and for the task's own solution among them, beyond the
/// candidate's.
pub(super) const TESTS_CPU: Duration = Duration::from_secs(20);

/// Runs the tests of a task with a program.
pub(crate) async fn run(
    pool: &Hatchery,
    task: &Task,
    code: &str,
    kinds: Option<&[String]>,
    limits: Limits,
) -> Result<Graded, GradeError> {
    let link = Link::new();
    let cpu_time = limits.cpu_time;
    let mut tests = limits.clone();
    tests.cpu_time = limits.cpu_time.map(|time| time + TESTS_CPU);
    tests.wall_time += limits.wall_time + TESTS_CPU;
    let candidate = Job::code(guest::CANDIDATE)
        .named("candidate")
        .variable("hatchery_code", &*guest::with_wide_maxsize(code))
        .function(link.candidates_function())
        .limits(limits)
        .idempotent(false);
    let judge = Job::code(guest::JUDGE)
        .named("judge")
        .variable("hatchery_task", message(task, code, kinds))
        .function(link.judges_function())
        .limits(tests)
        .idempotent(false);
    let (mut candidate, judge) = (pool.submit(candidate).await?, pool.submit(judge).await?);
    let mut judge = std::pin::pin!(judge.into_future());
    // The candidate's end, if it came before the judge's.
    let mut early = None;
    let judged = loop {
        tokio::select! {
            biased;
            judged = &mut judge => break judged,
            outcome = candidate.outcome(), if early.is_none() => {
                link.candidate_ended();
                early = Some(outcome);
            }
        }
    };
    link.judge_ended();
    let is_busy = cpu_time.is_some_and(|time| u128::from(link.asked()) > time.as_millis());
    let tests_cpu_ms = cpu_ms(&judged);
    let graded = match early {
        Some(outcome) => ended_early(&outcome, &judged),
        None => {
            let outcome = match timeout(LAST_STEPS, candidate.outcome()).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    candidate.stop();
                    candidate.outcome().await
                }
            };
            let graded = of_judge(&judged).blaming("", &outcome).blaming("tests_", &judged);
            Graded { cpu_ms: cpu_ms(&outcome), ..graded }
        }
    };
    Ok(Graded { tests_cpu_ms, ..if is_busy { graded.of_exchange() } else { graded } })
}

/// Returns the result of a candidate that ended before its tests did. Whatever they say, it hasn't
/// passed.
fn ended_early(outcome: &Outcome, judged: &Outcome) -> Graded {
    let graded = Graded { cpu_ms: cpu_ms(outcome), ..Graded::ended(outcome).blaming("", outcome) };
    if matches!(judged.verdict, End::SandboxFailed(_)) {
        return of_judge(judged);
    }
    match report(judged) {
        Some(report) => graded.with_counts_of(&Graded::reported(report)),
        None => graded,
    }
}

fn of_judge(judged: &Outcome) -> Graded {
    match &judged.verdict {
        End::Completed { .. } => match report(judged) {
            Some(report) => Graded::reported(report),
            None => Graded::of_task("the tests gave no report"),
        },
        End::Limit(hit) => Graded::of_tests(hit),
        End::SandboxFailed(_) => Graded::ended(judged),
        _ => Graded::of_task(format!("its tests ended early: {}", Graded::ended(judged).message)),
    }
}

/// Looks at the tests of a task, without a candidate; returns why they can't be run, if they can't.
pub(super) async fn problem(
    pool: &Hatchery,
    task: &Task,
    limits: Limits,
) -> Result<Option<String>, GradeError> {
    let check = Job::code(guest::CHECK)
        .named("check")
        .variable("hatchery_task", message(task, "", None))
        .limits(limits);
    // What else may go wrong does so again when the tests run.
    Ok(answer(&pool.run(check).await?).map(str::to_owned))
}

fn report(judged: &Outcome) -> Option<TestReport> {
    serde_json::from_str(answer(judged)?).ok()
}

/// Returns what the judge learns of a task, as text.
pub(super) fn message(task: &Task, code: &str, kinds: Option<&[String]>) -> String {
    let no_tests = Vec::new();
    let (tests, setup, check, calls) = match &task.suite {
        Suite::Code { tests, setup, check } => (tests, setup.as_str(), check.as_deref(), None),
        Suite::Calls { inputs, outputs, tolerance } => {
            let calls = json!({
                "inputs": inputs, "outputs": outputs, "atol": tolerance, "rules": "evalplus", "id": task.id,
            });
            (&no_tests, "", None, Some(calls))
        }
        Suite::Pairs { inputs, outputs, is_apps } => {
            let rules = if *is_apps { "apps" } else { "livecodebench" };
            let calls = json!({ "inputs": inputs, "outputs": outputs, "rules": rules });
            (&no_tests, "", None, Some(calls))
        }
        Suite::Stdio { .. } | Suite::Unusable(_) => (&no_tests, "", None, None),
    };
    let tests: Vec<_> = tests.iter().map(|test| guest::with_wide_maxsize(test)).collect();
    json!({
        "tests": tests,
        "setup": guest::with_wide_maxsize(setup),
        "check": check,
        "calls": calls,
        "entry_point": task.entry_point,
        "helpers": guest::with_wide_maxsize(&task.helpers),
        "kinds": kinds,
        "has_solution": task.solution.is_some(),
        "completes": !task.prompt.is_empty()
            && code.strip_prefix(&task.prelude).unwrap_or(code).starts_with(&task.prompt),
    })
    .to_string()
}
