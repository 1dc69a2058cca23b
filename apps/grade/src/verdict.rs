//! The verdict on a sample.

use std::io::Write;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::settings::Settings;
use crate::task::Task;

/// How a sample ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// All tests passed.
    Passed,
    /// Some tests didn't.
    Failed,
    /// Its tests can't be decided with the candidate kept apart; the message says why. It counts neither
    /// for nor against.
    Undecided,
    /// Its code can't be run, so it wasn't tested.
    Error,
    /// Its task can't be graded, whatever the sample is. It counts neither for nor against.
    TaskError,
    /// It reached a limit.
    Limit,
    /// The sandbox failed, each time that it was tried; nothing is known of the sample.
    Sandbox,
}

impl Verdict {
    /// Returns its name in results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The test: `assert 3`, `test 1`, `input 12`, `case 2`, or the name of a function or method.
    pub test: String,
    /// What was wrong.
    pub message: String,
}

/// The result of one sample: a line of the results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Graded {
    /// The task.
    pub task_id: String,
    /// The number of the sample among those of its task, from 0.
    pub sample: u64,
    /// How it ended.
    pub verdict: Verdict,
    /// Which limit it reached: a name such as `cpu`, or `tests_cpu` if the tests reached it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// What happened, if it didn't pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Tests that passed.
    pub tests_passed: u64,
    /// Tests in all; 0 if they couldn't be counted.
    pub tests_total: u64,
    /// The first tests that failed, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Whether the tests ran where the candidate can't reach them.
    pub guarded: bool,
    /// The candidate's CPU time, in milliseconds.
    pub cpu_ms: f64,
    /// The CPU time of its tests, in milliseconds; 0 if they ran beside it.
    pub tests_cpu_ms: f64,
    /// A digest of the task, the code and what else decides the verdict.
    pub digest: String,
    /// Whether a limit of the sandbox leaves it undecided, which every interpreter of the sandbox has.
    #[serde(skip)]
    pub(crate) is_of_sandbox: bool,
    /// Whether the verdict needs no second look beside the tests.
    #[serde(skip)]
    pub(crate) is_sure: bool,
    /// Kinds of objects of the candidate whose attributes the tests used.
    #[serde(skip)]
    pub(crate) kinds: Vec<String>,
}

impl Graded {
    /// Returns whether all tests passed.
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }

    /// Returns the part of the tests that passed, from 0 to 1; `None` if that is undecided.
    pub fn credit(&self) -> Option<f64> {
        match (self.verdict, self.tests_total) {
            (Verdict::Undecided | Verdict::TaskError, _) => None,
            (Verdict::Passed, _) => Some(1.0),
            (_, 0) => Some(0.0),
            (_, total) => Some(self.tests_passed as f64 / total as f64),
        }
    }
}

/// Changes whenever samples are graded otherwise.
const VERSION: &str = "hatchery-grade 3";

/// Digits of a digest.
const DIGITS: usize = 32;

/// Returns the digest of a sample, with its task, the settings, and the key of the image.
pub(crate) fn of(task: &Task, code: &str, settings: &Settings, image: &str) -> String {
    // How many are graded at once decides nothing.
    let settings = Settings { at_once: 0, ..settings.clone() };
    let mut hasher = blake3::Hasher::new();
    // The derived form of a task has all its fields. Writing to a hasher can't fail.
    let _ = write!(hasher, "{VERSION}\n{image}\n{task:?}\n{settings:?}\n{code}");
    hasher.finalize().to_hex()[..DIGITS].to_owned()
}
