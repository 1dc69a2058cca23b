//! Tests away from their candidate: a judge in one interpreter, the candidate in another, and plain
//! data between them.

use std::time::Duration;

use hatchery::{Hatchery, Job, Limits, Outcome, Verdict as End};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::trial::{Report, Trial, cpu_ms};
use crate::error::GradeError;
use crate::guest;
use crate::link::Link;
use crate::task::{Suite, Task};
use crate::verdict::Verdict;

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
    in_place: bool,
    limits: Limits,
) -> Result<Trial, GradeError> {
    let link = Link::new();
    let mut tests = limits.clone();
    tests.cpu_time = limits.cpu_time.map(|time| time + TESTS_CPU);
    tests.wall_time += limits.wall_time + TESTS_CPU;
    let candidate = Job::code(guest::CANDIDATE)
        .named("candidate")
        .variable("hatchery_code", code)
        .function(link.next())
        .limits(limits)
        .idempotent(false);
    let judge = Job::code(guest::JUDGE)
        .named("judge")
        .variable("hatchery_task", message(task, in_place))
        .function(link.ask())
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
    let tests_cpu_ms = cpu_ms(&judged);
    let trial = match early {
        Some(outcome) => ended_early(&outcome, &judged),
        None => {
            let outcome = match timeout(LAST_STEPS, candidate.outcome()).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    candidate.stop();
                    candidate.outcome().await
                }
            };
            Trial { cpu_ms: cpu_ms(&outcome), ..of_judge(&judged).blaming(&outcome) }
        }
    };
    Ok(Trial { tests_cpu_ms, ..trial })
}

/// Returns the trial of a candidate that ended before its tests did. Whatever they say, it hasn't
/// passed.
fn ended_early(outcome: &Outcome, judged: &Outcome) -> Trial {
    let trial = Trial { cpu_ms: cpu_ms(outcome), ..Trial::ended(outcome).blaming(outcome) };
    if matches!(judged.verdict, End::SandboxFailed(_)) {
        return of_judge(judged);
    }
    match report(judged) {
        Some(report) => trial.with_counts_of(&Trial::reported(report)),
        None => trial,
    }
}

fn of_judge(judged: &Outcome) -> Trial {
    match &judged.verdict {
        End::Completed { .. } => match report(judged) {
            Some(report) => Trial::reported(report),
            None => Trial::error("the tests gave no report".to_owned()),
        },
        End::Limit(hit) => Trial {
            limit: Some(format!("tests_{}", hit.limit.name())),
            ..Trial::new(Verdict::Limit, format!("its tests took too much: {hit}"))
        },
        End::SandboxFailed(_) => Trial::ended(judged),
        _ => Trial::error(format!("its tests ended early: {}", Trial::ended(judged).message)),
    }
}

fn report(judged: &Outcome) -> Option<Report> {
    let End::Completed { value: Some(Value::String(text)), .. } = &judged.verdict else {
        return None;
    };
    serde_json::from_str(text).ok()
}

/// Returns what the judge is told of a task, as text.
pub(super) fn message(task: &Task, in_place: bool) -> String {
    let no_tests = Vec::new();
    let (tests, setup, check, calls) = match &task.suite {
        Suite::Code { tests, setup, check } => (tests, setup.as_str(), check.as_deref(), None),
        Suite::Calls { inputs, tolerance } => {
            (&no_tests, "", None, Some(json!({ "inputs": inputs, "atol": tolerance })))
        }
        Suite::Stdio { .. } => (&no_tests, "", None, None),
    };
    json!({
        "tests": tests,
        "setup": setup,
        "check": check,
        "calls": calls,
        "entry_point": task.entry_point,
        "helpers": task.helpers,
        "has_solution": task.solution.is_some(),
        "in_place": in_place,
    })
    .to_string()
}
