//! Recordings of verdicts: what grades a sample again, anywhere.

use hatchery::record::RecordFolder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::GradeError;
use crate::grader::Grader;
use crate::settings::Settings;
use crate::task::{Sample, Task};
use crate::verdict::{Graded, Verdict};

/// Fields of a verdict that are measured, and differ from run to run. The last does so if a limit on
/// time decided.
const MEASURED: [&str; 3] = ["cpu_ms", "tests_cpu_ms", "message"];

/// Everything that decides the verdict on a sample, but for the image and the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VerdictRecord {
    /// The task.
    pub task: Task,
    /// The sample. Its task is the only one.
    pub sample: Sample,
    /// The settings.
    pub settings: Settings,
    /// The verdict.
    pub verdict: Graded,
}

/// Keeps what repeats verdicts.
#[derive(Debug, Clone)]
pub struct VerdictRecorder {
    folder: RecordFolder,
    keeps_all: bool,
}

impl VerdictRecord {
    /// Reads what a [`VerdictRecorder`] wrote, from
    /// [`RecordingFile::sample`](hatchery::record::RecordingFile::sample).
    ///
    /// # Errors
    /// It is of another version or of something else.
    pub fn of(sample: &Map<String, Value>) -> Result<Self, GradeError> {
        let read = serde_json::from_value(Value::Object(sample.clone()));
        read.map_err(GradeError::NoVerdict)
    }

    /// Returns whether a limit on time decided the verdict, so that another machine may decide
    /// otherwise.
    pub fn is_by_clock(&self) -> bool {
        let is_time = |limit: &str| {
            ["cpu", "wall", "deadline"].contains(&limit.strip_prefix("tests_").unwrap_or(limit))
        };
        self.verdict.limit.as_deref().is_some_and(is_time)
    }

    /// Returns the fields in which another verdict differs: their names, and both values.
    pub fn differences(&self, other: &Graded) -> Vec<(String, Value, Value)> {
        let fields = |graded: &Graded| match json!(graded) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let (there, here) = (fields(&self.verdict), fields(other));
        let mut names: Vec<&String> = there.keys().chain(here.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let value =
            |of: &Map<String, Value>, name: &String| of.get(name).cloned().unwrap_or_default();
        let pairs =
            names.into_iter().map(|name| (name.clone(), value(&there, name), value(&here, name)));
        let measured = &MEASURED[..if self.is_by_clock() { 3 } else { 2 }];
        let differs = |(name, there, here): &(String, Value, Value)| {
            there != here && !measured.contains(&name.as_str())
        };
        pairs.filter(differs).collect()
    }
}

impl VerdictRecorder {
    /// Keeps them in this folder: those of all samples, or of those that didn't pass.
    pub fn new(folder: RecordFolder, keeps_all: bool) -> Self {
        Self { folder, keeps_all }
    }

    /// Keeps the verdict on a sample, if it is to be kept.
    pub(crate) async fn keep(
        &self,
        grader: &Grader,
        task: &Task,
        sample: &Sample,
        graded: &Graded,
    ) -> Result<(), GradeError> {
        if !self.keeps_all && graded.verdict == Verdict::Passed {
            return Ok(());
        }
        let record = VerdictRecord {
            task: task.clone(),
            sample: Sample { task: 0, ..sample.clone() },
            settings: grader.settings().clone(),
            verdict: graded.clone(),
        };
        let Value::Object(record) = json!(record) else { return Ok(()) };
        let name = format!("{}-{}", task.id, sample.number);
        let (pool, deterministic) = (grader.pool(), Settings::deterministic());
        Ok(self.folder.write_sample(pool, &name, deterministic, record).await?)
    }
}
