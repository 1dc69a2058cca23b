//! Results in a file: one line each, written as samples end, and read again to resume or to
//! compare.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::error::{GradeError, InvalidLine};
use crate::grader::Grader;
use crate::record::VerdictRecorder;
use crate::task::{Sample, Task, read};
use crate::verdict::{Graded, Verdict};

/// Reads results. Of two of one sample the later one counts, as after a resumed run in which the sample
/// had changed.
///
/// # Errors
/// The file can't be read, or a line is no result.
pub fn read_results(path: &Path) -> Result<Vec<Graded>, GradeError> {
    let parse = |_: &str, object| {
        let parsed: Result<Graded, _> = serde_json::from_value(Value::Object(object));
        parsed.map(|graded| vec![graded]).map_err(|_| InvalidLine::NoResult)
    };
    let keyed = |graded: Graded| ((graded.task_id.clone(), graded.sample), graded);
    let results: IndexMap<_, _> = read(path, parse)?.all()?.into_iter().map(keyed).collect();
    Ok(results.into_values().collect())
}

/// A file to which results are written.
#[derive(Debug)]
pub struct ResultsFile {
    file: File,
    path: PathBuf,
}

impl ResultsFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// It can't be written, or another process grades into it.
    pub fn create(path: &Path) -> Result<Self, GradeError> {
        let file = Self::open(path)?;
        file.file.set_len(0).map_err(|source| file.unwritable(source))?;
        Ok(file)
    }

    /// Opens the file to append to it, and returns what is there. A line at its end that was cut off
    /// is removed. Failures of the sandbox aren't returned: their samples are graded again.
    ///
    /// # Errors
    /// The file can't be read or written, another process grades into it, or a line before the last
    /// one is no result.
    pub fn resume(path: &Path) -> Result<(Self, Earlier), GradeError> {
        let mut file = Self::open(path)?;
        let text = std::fs::read(path).map_err(|source| file.unwritable(source))?;
        let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |place| place + 1);
        file.file.set_len(end as u64).map_err(|source| file.unwritable(source))?;
        file.file.seek(SeekFrom::End(0)).map_err(|source| file.unwritable(source))?;
        let earlier = Earlier::new(read_results(path)?);
        Ok((file, earlier))
    }

    /// Opens the file, and locks it for as long as it is open.
    fn open(path: &Path) -> Result<Self, GradeError> {
        let unwritable = |source| GradeError::Write(path.to_owned(), source);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(unwritable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file, path: path.to_owned() }),
            Err(TryLockError::WouldBlock) => Err(GradeError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(unwritable(source)),
        }
    }

    fn unwritable(&self, source: io::Error) -> GradeError {
        GradeError::Write(self.path.clone(), source)
    }

    /// Writes a result.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn put(&mut self, graded: &Graded) -> Result<(), GradeError> {
        let line = serde_json::to_string(graded).map_err(|error| self.unwritable(error.into()))?;
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|source| self.unwritable(source))
    }
}

/// Results by which samples needn't be graded: of an earlier run, and of equal samples of this one.
#[derive(Debug, Default)]
pub struct Earlier {
    by_digest: HashMap<String, Graded>,
    /// Those that are in the file.
    written: HashMap<(String, u64), String>,
}

impl Earlier {
    fn new(results: Vec<Graded>) -> Self {
        let mut earlier = Self::default();
        for graded in results {
            if graded.verdict != Verdict::Sandbox {
                let key = (graded.task_id.clone(), graded.sample);
                earlier.written.insert(key, graded.digest.clone());
                earlier.by_digest.insert(graded.digest.clone(), graded);
            }
        }
        earlier
    }

    /// Returns the result of a sample with this digest under another number, if there is one.
    pub(crate) fn find(&self, digest: &str, task_id: &str, sample: u64) -> Option<Graded> {
        let found = self.by_digest.get(digest)?;
        Some(Graded { task_id: task_id.to_owned(), sample, ..found.clone() })
    }

    /// Returns whether the file has the result of this very sample.
    pub(crate) fn is_written(&self, graded: &Graded) -> bool {
        self.written.get(&(graded.task_id.clone(), graded.sample)) == Some(&graded.digest)
    }

    pub(crate) fn add(&mut self, graded: &Graded) {
        if graded.verdict != Verdict::Sandbox {
            self.by_digest.insert(graded.digest.clone(), graded.clone());
        }
    }
}

/// Grades samples concurrently, by the grader's settings, and returns the results in the order of
/// the samples. `out` gets each result as it comes, but not those that it has, and `recorder` those
/// that are graded now. `tell` is called with each, and whether it was graded now.
///
/// # Errors
/// The pool refuses a job, or the results can't be written. What was written stays.
pub async fn grade_all(
    grader: Arc<Grader>,
    tasks: Arc<[Task]>,
    samples: Vec<Sample>,
    mut out: Option<ResultsFile>,
    mut earlier: Earlier,
    recorder: Option<VerdictRecorder>,
    mut tell: impl FnMut(&Graded, bool),
) -> Result<Vec<Graded>, GradeError> {
    let mut results: Vec<Option<Graded>> = vec![None; samples.len()];
    // Samples that are equal to one that is being graded wait for it.
    let mut first_of = HashMap::new();
    let mut waiting = Vec::new();
    let mut running = JoinSet::new();
    let most = grader.settings().at_once;
    let mut next = samples.into_iter().enumerate();
    loop {
        while running.len() < most {
            let Some((place, sample)) = next.next() else { break };
            let task_id = &tasks[sample.task].id;
            let digest = grader.digest(&tasks[sample.task], &sample.code);
            if let Some(graded) = earlier.find(&digest, task_id, sample.number) {
                put(&mut out, &earlier, &graded)?;
                tell(&graded, false);
                results[place] = Some(graded);
                continue;
            }
            if first_of.contains_key(&digest) {
                waiting.push((place, sample, digest));
                continue;
            }
            first_of.insert(digest, place);
            let (grader, tasks) = (grader.clone(), tasks.clone());
            let recorder = recorder.clone();
            running.spawn(async move {
                let task = &tasks[sample.task];
                let graded = grader.grade(task, &sample).await;
                (place, kept(recorder.as_ref(), &grader, task, &sample, graded).await)
            });
        }
        let Some(joined) = running.join_next().await else { break };
        let (place, graded) = joined.map_err(|error| GradeError::Task(error.to_string()))?;
        let graded = graded?;
        put(&mut out, &earlier, &graded)?;
        earlier.add(&graded);
        tell(&graded, true);
        results[place] = Some(graded);
    }
    for (place, sample, digest) in waiting {
        let task_id = &tasks[sample.task].id;
        let first = first_of.get(&digest).and_then(|&first| results[first].clone());
        if let Some(first) = first {
            let graded = Graded { task_id: task_id.clone(), sample: sample.number, ..first };
            let task = &tasks[sample.task];
            let graded = kept(recorder.as_ref(), &grader, task, &sample, Ok(graded)).await?;
            put(&mut out, &earlier, &graded)?;
            tell(&graded, false);
            results[place] = Some(graded);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

/// Keeps a verdict, if verdicts are kept, and returns it.
async fn kept(
    recorder: Option<&VerdictRecorder>,
    grader: &Grader,
    task: &Task,
    sample: &Sample,
    graded: Result<Graded, GradeError>,
) -> Result<Graded, GradeError> {
    if let (Some(recorder), Ok(graded)) = (recorder, &graded) {
        recorder.keep(grader, task, sample, graded).await?;
    }
    graded
}

fn put(
    out: &mut Option<ResultsFile>,
    earlier: &Earlier,
    graded: &Graded,
) -> Result<(), GradeError> {
    match out {
        Some(out) if !earlier.is_written(graded) => out.put(graded),
        _ => Ok(()),
    }
}
