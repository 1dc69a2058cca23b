//! A sample: one answer to a task.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{GradeError, InvalidLine};
use crate::lines::{self, Lines};
use crate::task::{Suite, Task, forms};

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
/// `code` is a program; a `completion` follows the prompt of its task. A line that can't be used, or is
/// no sample of one of the tasks, costs no other.
///
/// # Errors
/// The file can't be read, or has no sample.
pub fn read_samples(path: &Path, tasks: &[Task]) -> Result<Lines<Sample>, GradeError> {
    let places: HashMap<&str, usize> =
        tasks.iter().enumerate().map(|(place, task)| (task.id.as_str(), place)).collect();
    let mut counts = vec![0; tasks.len()];
    let parse = |_, object: Map<String, Value>| {
        let id = forms::id(&object).ok_or(InvalidLine::Field("task_id", "a text or a number"))?;
        let Some(&place) = places.get(id.as_str()) else {
            return Err(InvalidLine::UnknownTask(id));
        };
        let task = &tasks[place];
        let code = forms::program(&object, &task.prompt).ok_or(InvalidLine::NoProgram)?;
        counts[place] += 1;
        Ok(Sample::new(task, place, counts[place] - 1, &code))
    };
    lines::read(path, parse)?.any(path)
}

/// Returns the samples that stand in the file of the tasks themselves: the program of each, or else its
/// own solution, to see whether a set of tasks is right.
///
/// # Errors
/// No task has either.
pub fn own_samples(tasks: &[Task]) -> Result<Vec<Sample>, GradeError> {
    let code = |task: &Task| task.sample.clone().or_else(|| task.solution.clone());
    let with_code = |(place, task)| Some(Sample::new(task, place, 0, &code(task)?));
    let samples: Vec<Sample> = tasks.iter().enumerate().filter_map(with_code).collect();
    let is_usable = |sample: &Sample| !matches!(tasks[sample.task].suite, Suite::Unusable(_));
    match samples.iter().any(is_usable) {
        true => Ok(samples),
        false => Err(GradeError::NoSamples),
    }
}

impl Sample {
    /// Reads the only sample of the only task, in the form of a line.
    ///
    /// # Errors
    /// It has no program.
    pub fn parse(object: &Map<String, Value>, task: &Task) -> Result<Self, InvalidLine> {
        let code = forms::program(object, &task.prompt).ok_or(InvalidLine::NoProgram)?;
        Ok(Self::new(task, 0, 0, &code))
    }

    fn new(of: &Task, task: usize, number: u64, code: &str) -> Self {
        // A byte-order mark is no part of a program.
        let code = code.strip_prefix('\u{feff}').unwrap_or(code);
        Self { task, number, code: format!("{}{code}", of.prelude) }
    }
}
