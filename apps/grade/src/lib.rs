//! Grades samples of generated code against the tests of their tasks, in sandboxes.
//!
//! Tasks and samples have the forms of human-eval, MBPP, EvalPlus, BigCodeBench, ClassEval, DS-1000, ODEX,
//! APPS, LiveCodeBench, CodeContests and CRUXEval, or plain ones.
//!
//! A candidate and its tests run in two interpreters. The tests' one never runs code of the
//! candidate. A proxy sends arguments to the candidate and builds its results from plain data of
//! Python's types. So whatever a candidate patches or forges in its interpreter, it can only
//! answer, and the tests judge the answers.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use grade::{Earlier, Grader, Report, Settings, grade_all, read_samples, read_tasks};
//! use hatchery::Hatchery;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let tasks = read_tasks(Path::new("HumanEval.jsonl.gz"), Default::default())?.read;
//! let samples = read_samples(Path::new("samples.jsonl"), &tasks)?.read;
//! let grader = Arc::new(Grader::start(Hatchery::builder(), Settings::default()).await?);
//! let results =
//!     grade_all(grader, tasks.into(), samples, None, Earlier::default(), None, |_, _| {}).await?;
//! println!("{}", Report::new(&results, &[1, 10]).text());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub use error::{GradeError, InvalidLine};
pub use grader::Grader;
pub use record::{VerdictRecord, VerdictRecorder};
pub use report::{Change, Comparison, Estimate, Method, Report, TaskReport};
pub use results::{Earlier, ResultsFile, grade_all, read_results};
pub use settings::Settings;
pub use task::{
    AnswerForm, Case, Checker, Lines, Sample, Suite, Task, TaskOptions, own_samples, read_samples,
    read_tasks,
};
pub use verdict::{Failure, Graded, Verdict};

mod checker;
mod error;
mod grader;
mod guest;
mod record;
mod report;
mod results;
mod settings;
mod task;
mod verdict;
