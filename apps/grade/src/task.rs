//! A task: what a candidate is asked for, and how its answer is tested.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{GradeError, InvalidLine};
use crate::lines::{self, Lines};

mod cases;
pub(crate) mod forms;

/// A task with its tests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// The id by which samples name it.
    pub id: String,
    /// What stands before a sample's `completion`; empty if a completion is a program.
    pub prompt: String,
    /// What stands before each program: imports that its data set makes for it.
    pub prelude: String,
    /// The function that is asked for, if the task names it.
    pub entry_point: Option<String>,
    /// A program that solves it, if the task has one.
    pub solution: Option<String>,
    /// The sample that stands in the task's own line.
    pub sample: Option<String>,
    /// Code that the tests may use: the solution, or else the prompt.
    pub helpers: String,
    /// Its tests.
    pub suite: Suite,
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
    /// Arguments for which the answer must return what the solution returns, by EvalPlus's rules.
    Calls {
        /// Lists of arguments.
        inputs: Vec<Value>,
        /// What must be returned, if there is no solution. Then both are tagged values.
        outputs: Option<Vec<Value>>,
        /// By how much floats may differ; 0 means `1e-6` where floats must be returned.
        tolerance: f64,
    },
    /// Arguments with what must be returned for them, by a function or by a method of `Solution`.
    Pairs {
        /// Lists of arguments.
        inputs: Vec<Value>,
        /// What must be returned.
        outputs: Vec<Value>,
        /// Whether outputs may stand in a list, and objects with numbers as keys are dictionaries with
        /// such keys, as in APPS.
        is_apps: bool,
    },
    /// Programs that read standard input and write standard output.
    Stdio {
        /// What is read and what should be written.
        cases: Vec<Case>,
        /// How the output is compared.
        checker: Checker,
    },
    /// None: the task's line can't be used, for this reason.
    Unusable(String),
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
    /// The lines must be the same, but for white space around them, or have the same numbers.
    Lines,
    /// The words must be the same, whatever white space is between them.
    Tokens,
    /// The words must be the same, or numbers that differ by at most this, absolutely or relatively.
    Floats(f64),
    /// A program with a function `check(stdin, stdout, expected)`, which returns whether it is right.
    Program(String),
}

impl Task {
    /// Reads a task, of any form.
    ///
    /// # Errors
    /// It has no id, or can't be used.
    pub fn parse(object: &Map<String, Value>, options: TaskOptions) -> Result<Self, InvalidLine> {
        let id = forms::id(object).ok_or(InvalidLine::Field("task_id", "a text or a number"))?;
        forms::task(object, id, options)
    }
}

/// Reads tasks, of any form, from a file of JSON lines, which may be compressed by gzip.
///
/// A line that can't be used costs no other; if it has an id, it also is a task, whose samples can't be
/// graded.
///
/// # Errors
/// The file can't be read, or has no task.
pub fn read_tasks(path: &Path, options: TaskOptions) -> Result<Lines<Task>, GradeError> {
    let mut seen = HashSet::new();
    let mut unusable = Vec::new();
    let parse = |line: usize, object: Map<String, Value>| {
        let id = forms::id(&object).unwrap_or_else(|| format!("line {line}"));
        if !seen.insert(id.clone()) {
            return Err(InvalidLine::TwoTasks(id));
        }
        forms::task(&object, id.clone(), options)
            .inspect_err(|problem| unusable.push(forms::unusable(id, problem)))
    };
    let mut lines = lines::read(path, parse)?.any(path)?;
    lines.read.append(&mut unusable);
    Ok(lines)
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
