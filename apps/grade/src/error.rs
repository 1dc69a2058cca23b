//! What can go wrong before samples are graded. What a sample does is never an error: its verdict
//! says it.

use std::io;
use std::path::PathBuf;

/// Tasks, samples or results that can't be read or written, or a pool that refuses work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GradeError {
    /// A file can't be read.
    #[error("can't read `{0}`")]
    Read(PathBuf, #[source] io::Error),
    /// A file can't be written.
    #[error("can't write `{0}`")]
    Write(PathBuf, #[source] io::Error),
    /// The grader's own Python modules can't be written to a temporary folder.
    #[error(
        "can't write the grader's modules to the folder for temporary files; set TMPDIR to another one"
    )]
    Modules(#[source] io::Error),
    /// Another process grades into this file.
    #[error("another `hatchery grade` writes to `{0}`; give `--out` another file")]
    InUse(PathBuf),
    /// A file has no lines.
    #[error("`{0}` is empty; give a file of JSON lines")]
    Empty(PathBuf),
    /// Nothing is there that could be graded.
    #[error("the tasks have no solutions: give SAMPLES, a file with programs")]
    NoSamples,
    /// A file has another format.
    #[error("`{0}` {1}")]
    Format(PathBuf, &'static str),
    /// A line of a file isn't JSON.
    #[error("{0} of `{1}` isn't JSON")]
    NotJson(String, PathBuf, #[source] serde_json::Error),
    /// A line of a file, or an item of its list, is no task, sample or result.
    #[error("{0} of `{1}` can't be used")]
    Line(String, PathBuf, #[source] InvalidLine),
    /// The pool refuses a job.
    #[error("the pool refused a job")]
    Pool(#[from] hatchery::Error),
    /// A recording has no verdict of this version.
    #[error("the recording has no verdict that this version of Hatchery can repeat")]
    NoVerdict(#[source] serde_json::Error),
    /// A task of the program that grades has panicked.
    #[error("grading failed: {0}")]
    Task(String),
    /// The system gives no random bytes.
    #[error("the operating system provides no random bytes: {0}")]
    Random(String),
}

/// Why a line is no task, sample or result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLine {
    /// It is another value of JSON.
    #[error("it isn't a JSON object")]
    NoObject,
    /// It has the fields of no form of tasks.
    #[error(
        "its fields match no known form of tasks (human-eval: `prompt`, `entry_point`, `test`; \
         MBPP: \
         `test_list`; EvalPlus: `base_input`; BigCodeBench: `complete_prompt`, `test`; ClassEval: \
         `solution_code`, `test`; DS-1000: `code_context`; ODEX: `test_start`, `test`; APPS and TACO: \
         `input_output`; LiveCodeBench: `public_test_cases`; CodeContests: `public_tests`; CRUXEval: \
         `code`, `input`, `output`; plain: `tests`)"
    )]
    NoTask,
    /// A field is missing or has another type.
    #[error("`{0}` is missing or isn't {1}")]
    Field(&'static str, &'static str),
    /// It isn't a line of results.
    #[error("it isn't a result of `hatchery grade`")]
    NoResult,
    /// It has no program.
    #[error(
        "it has no program: it needs a text as `completion`, `solution`, `program` or `code`, or texts as \
         `code_list`"
    )]
    NoProgram,
    /// Its task isn't among the tasks.
    #[error("there is no task `{0}`")]
    UnknownTask(String),
    /// Two tasks have the same id.
    #[error("there are two tasks `{0}`")]
    TwoTasks(String),
    /// The checker isn't one of those that exist.
    #[error(
        "`checker` must be `exact`, `lines`, `apps`, `tokens`, `{{\"floats\": TOLERANCE}}` or \
         `{{\"program\": SOURCE}}`"
    )]
    Checker,
}
