//! A task: what a candidate is asked for, and how its answer is tested.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use crate::error::{GradeError, InvalidLine};
use crate::lines;

pub(crate) mod forms;

/// A task with its tests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// The id by which samples name it.
    pub id: String,
    /// What stands before a sample's `completion`; empty if a completion is a program.
    pub prompt: String,
    /// The function that is asked for, if the task names it.
    pub entry_point: Option<String>,
    /// A program that solves it, if the task has one.
    pub solution: Option<String>,
    /// Code that the tests may use: the solution, or else the prompt.
    pub helpers: String,
    /// Its tests.
    pub suite: Suite,
    /// Whether functions may change their arguments, and tests look at that. A task with a solution
    /// finds out by itself.
    pub in_place: bool,
}

/// How answers are tested.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Suite {
    /// Test code, which runs in an interpreter of its own.
    Code {
        /// One module, or many statements that are a test each.
        tests: Vec<String>,
        /// Code that runs before.
        setup: String,
        /// The function of the tests that is given the candidate's.
        check: Option<String>,
    },
    /// Arguments for which the answer must return what the solution returns.
    Calls {
        /// Lists of arguments.
        inputs: Vec<Value>,
        /// By how much floats may differ; 0 means `1e-6` where the solution returns floats.
        tolerance: f64,
    },
    /// Programs that read standard input and write standard output.
    Stdio {
        /// What is read and what should be written.
        cases: Vec<Case>,
        /// How the output is compared.
        checker: Checker,
    },
}

/// One run of a program with standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Case {
    /// What the program reads.
    pub stdin: String,
    /// What it should write.
    pub stdout: String,
}

/// How the output of a program is compared.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Checker {
    /// It must be the same, but for white space at the end.
    Exact,
    /// The words must be the same, whatever white space is between them.
    Tokens,
    /// The words must be the same, or numbers that differ by at most this, absolutely or relatively.
    Floats(f64),
    /// A program with a function `check(stdin, stdout, expected)`, which returns whether it is right.
    Program(String),
}

/// Reads tasks, of any form, from a file of JSON lines, which may be compressed by gzip.
///
/// # Errors
/// The file can't be read, a line is no task, or two have the same id.
pub fn read_tasks(path: &Path, options: TaskOptions) -> Result<Vec<Task>, GradeError> {
    let mut seen = HashSet::new();
    let mut tasks = Vec::new();
    for (line, object) in lines::read(path)? {
        let invalid = |problem| GradeError::Line { path: path.to_owned(), line, problem };
        let task = forms::task(&object, line, options).map_err(invalid)?;
        if !seen.insert(task.id.clone()) {
            return Err(invalid(InvalidLine::TwoTasks(task.id)));
        }
        tasks.push(task);
    }
    Ok(tasks)
}

/// What of a task is used.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct TaskOptions {
    /// Whether MBPP's `challenge_test_list` is run, too.
    pub challenge: bool,
}

impl TaskOptions {
    /// Sets whether MBPP's `challenge_test_list` is run, too. Default: no.
    pub fn challenge(mut self, is_wanted: bool) -> Self {
        self.challenge = is_wanted;
        self
    }
}
