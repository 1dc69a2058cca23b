//! One try at a sample: what its interpreters and its tests report, as a verdict.

use std::fmt::Display;

use hatchery::error::chain;
use hatchery::{LimitHit, LimitKind, Outcome, Verdict as End};
use serde::Deserialize;
use serde_json::Value;

use crate::verdict::{Failure, Graded, Verdict};

/// What the tests report: `load` or `gone`, or else how they ran. A plain struct, since numbers in an
/// untagged enum are misread where `serde_json` keeps their digits.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TestReport {
    total: u64,
    passed: u64,
    /// Whether the tests went on to their end.
    complete: bool,
    /// Why they say nothing about the candidate.
    problem: Option<String>,
    failures: Vec<(String, String)>,
    /// Why a failure, or a pass, may not be the candidate's.
    undecided: Option<String>,
    /// What of the sandbox the candidate or its tests have met.
    limit: Option<String>,
    /// Kinds of objects of the candidate whose attributes the tests use.
    kinds: Vec<String>,
    /// Whether the verdict can't come from what the tests have in place of the candidate's objects.
    sure: bool,
    /// Why the candidate's code can't be run.
    load: Option<String>,
    /// That the candidate's interpreter ended before the first test.
    gone: Option<String>,
}

impl Graded {
    /// Returns the result of one try, which doesn't say yet of which sample it is.
    pub(crate) fn new(verdict: Verdict, message: String) -> Self {
        Self {
            task_id: String::new(),
            sample: 0,
            verdict,
            limit: None,
            message,
            tests_passed: 0,
            tests_total: 0,
            failures: Vec::new(),
            guarded: true,
            cpu_ms: 0.0,
            tests_cpu_ms: 0.0,
            digest: String::new(),
            is_of_sandbox: false,
            is_sure: false,
            kinds: Vec::new(),
        }
    }

    /// Returns the result of a sample whose task can't be graded.
    pub(crate) fn of_task(problem: impl Display) -> Self {
        Self::new(Verdict::TaskError, format!("its task can't be graded: {problem}"))
    }

    /// Returns the result of a sample that the sandbox lacks something for.
    pub(crate) fn of_sandbox(limit: &str) -> Self {
        let message = format!("it reached a limit of the sandbox: {limit}");
        Self { is_of_sandbox: true, ..Self::new(Verdict::Undecided, message) }
    }

    /// Returns the result of a sample whose tests met a limit.
    pub(crate) fn of_tests(hit: &LimitHit) -> Self {
        Self {
            limit: Some(format!("tests_{}", hit.limit.name())),
            ..Self::new(Verdict::Limit, format!("its tests reached a limit: {hit}"))
        }
    }

    /// Returns the result of a sample whose tests ask it at least once in each millisecond of its CPU time,
    /// a quarter of which the exchange takes. A limit of time isn't the sample's then.
    pub(crate) fn of_exchange(self) -> Self {
        match self.limit.as_deref() {
            Some("cpu" | "wall" | "tests_cpu" | "tests_wall") => {
                let message = "its tests call it so often that being kept apart takes the time";
                Self {
                    verdict: Verdict::Undecided,
                    limit: None,
                    message: message.to_owned(),
                    ..self
                }
            }
            _ => self,
        }
    }

    /// Returns the result of a candidate whose interpreter ended by itself, in place of an answer.
    pub(crate) fn ended(outcome: &Outcome) -> Self {
        match &outcome.verdict {
            End::Limit(hit) => Self {
                limit: Some(hit.limit.name().to_owned()),
                ..Self::new(Verdict::Limit, hit.to_string())
            },
            End::SandboxFailed(failure) => Self::new(Verdict::Sandbox, chain(failure).to_string()),
            End::Tampered(tampering) => Self::new(Verdict::Failed, tampering.to_string()),
            End::Exited { code, .. } => {
                Self::new(Verdict::Failed, format!("it exited with the code {code}"))
            }
            End::Raised(exception) => {
                let told = format!("{}: {}", exception.type_name, exception.message);
                let told = told.trim_end_matches(": ");
                Self::new(Verdict::Failed, format!("it ended with {told}"))
            }
            other => Self::new(Verdict::Failed, format!("it stopped answering: {}", other.name())),
        }
    }

    /// Returns the result that the tests report.
    pub(crate) fn reported(report: TestReport) -> Self {
        let TestReport { total, passed, complete, failures, undecided, kinds, sure, .. } = report;
        if let Some(load) = report.load {
            return Self::new(Verdict::Error, format!("its code can't be run: {load}"));
        }
        if let Some(gone) = report.gone {
            return Self::new(Verdict::Failed, gone);
        }
        if let (Some(problem), None) = (report.problem, &undecided) {
            return Self::of_task(problem);
        }
        if total == 0 && undecided.is_none() {
            return Self::of_task("it has no tests");
        }
        let is_of_sandbox = undecided.is_some() && report.limit.is_some();
        let verdict = match undecided {
            Some(_) => Verdict::Undecided,
            None if complete && passed == total => Verdict::Passed,
            None => Verdict::Failed,
        };
        let failures: Vec<Failure> =
            failures.into_iter().map(|(test, message)| Failure { test, message }).collect();
        let failure = || failures.first().map(|first| format!("{}: {}", first.test, first.message));
        let graded = Self::new(verdict, undecided.or_else(failure).unwrap_or_default());
        let counted = Self { tests_passed: passed, tests_total: total, failures, ..graded };
        Self { is_of_sandbox, is_sure: sure, kinds, ..counted }
    }

    /// Returns the result with the counts of the tests, which ended early.
    pub(crate) fn with_counts_of(self, other: &Self) -> Self {
        let (tests_passed, tests_total) = (other.tests_passed, other.tests_total);
        Self { tests_passed, tests_total, failures: other.failures.clone(), ..self }
    }

    /// Returns the result as that of a limit, if the program failed because it was refused something.
    /// `whose` is `tests_` for the outcome of the tests, else empty.
    pub(crate) fn blaming(mut self, whose: &str, outcome: &Outcome) -> Self {
        let hit = outcome.limits_met.iter().find(|hit| is_refusal(hit.limit));
        if let (Some(hit), Verdict::Failed | Verdict::Undecided | Verdict::Error) =
            (hit, self.verdict)
        {
            self.verdict = Verdict::Limit;
            self.limit = Some(format!("{whose}{}", hit.limit.name()));
            self.message = refused(hit);
        }
        self
    }

    /// Returns what happened, in a line.
    pub(crate) fn told(&self) -> String {
        match self.message.is_empty() {
            true => self.verdict.name().to_owned(),
            false => self.message.clone(),
        }
    }
}

/// Returns the text that the grader's own code in an interpreter returned.
pub(crate) fn answer(outcome: &Outcome) -> Option<&str> {
    match &outcome.verdict {
        End::Completed { value: Some(Value::String(text)), .. } => Some(text),
        _ => None,
    }
}

/// Returns whether a program that meets this limit is refused what it asks for, and may fail for that
/// alone.
fn is_refusal(kind: LimitKind) -> bool {
    !matches!(
        kind,
        LimitKind::Output
            | LimitKind::DisplayBytes
            | LimitKind::DisplayCount
            | LimitKind::Result
            | LimitKind::ResultData
    )
}

/// Returns what was refused, and the option that raises the limit.
fn refused(hit: &LimitHit) -> String {
    match hit.limit {
        LimitKind::FunctionArguments | LimitKind::FunctionResults => {
            let [used, allowed] = [hit.used, hit.allowed].map(|bytes| hit.limit.amount(bytes));
            format!(
                "a value of {used} can't pass between the sample and its tests: the limit is \
                 {allowed}; `--value-bytes` (`Settings::value_bytes`) raises it"
            )
        }
        _ => hit.refusal(),
    }
}

/// Returns CPU time in milliseconds, to the microsecond.
pub(crate) fn cpu_ms(outcome: &Outcome) -> f64 {
    outcome.usage.cpu.as_micros() as f64 / 1e3
}
