//! A sample: one answer to a task.

use std::collections::HashMap;
use std::path::Path;

use crate::error::{GradeError, InvalidLine};
use crate::lines;
use crate::task::Task;
use crate::task::forms::{first_text, id};

/// One answer to a task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sample {
    /// The task that it answers, by its place among the tasks.
    pub task: usize,
    /// Its number among the samples of its task, from 0.
    pub number: u64,
    /// The program.
    pub code: String,
}

/// Reads samples from a file of JSON lines, which may be compressed by gzip. A `solution`, `program` or
/// `code` is a program; a `completion` follows the prompt of its task.
///
/// # Errors
/// The file can't be read, or a line is no sample of one of the tasks.
pub fn read_samples(path: &Path, tasks: &[Task]) -> Result<Vec<Sample>, GradeError> {
    read(path, tasks, |_| None)
}

/// Reads the samples that stand in the file of the tasks themselves: the program of each, or else its
/// own solution, to see whether a set of tasks is right.
///
/// # Errors
/// As [`read_samples`], and also if a task has neither.
pub fn read_own_samples(path: &Path, tasks: &[Task]) -> Result<Vec<Sample>, GradeError> {
    read(path, tasks, |task| task.solution.clone())
}

/// Reads samples. `default` gives the code of a line that has none.
fn read(
    path: &Path,
    tasks: &[Task],
    default: impl Fn(&Task) -> Option<String>,
) -> Result<Vec<Sample>, GradeError> {
    let places: HashMap<&str, usize> =
        tasks.iter().enumerate().map(|(place, task)| (task.id.as_str(), place)).collect();
    let mut counts = vec![0; tasks.len()];
    let mut samples = Vec::new();
    for (line, object) in lines::read(path)? {
        let invalid = |problem| GradeError::Line { path: path.to_owned(), line, problem };
        let id = id(&object).unwrap_or_else(|| format!("line {line}"));
        let Some(&task) = places.get(id.as_str()) else {
            return Err(invalid(InvalidLine::UnknownTask(id)));
        };
        let completion = first_text(&object, &["completion"]);
        let code = match first_text(&object, &["program", "solution", "code"]) {
            Some(program) if completion.is_none() => program.to_owned(),
            _ => match completion {
                Some(completion) => format!("{}{completion}", tasks[task].prompt),
                None => default(&tasks[task])
                    .ok_or_else(|| invalid(InvalidLine::Field("completion", "a text")))?,
            },
        };
        samples.push(Sample { task, number: counts[task], code });
        counts[task] += 1;
    }
    Ok(samples)
}
