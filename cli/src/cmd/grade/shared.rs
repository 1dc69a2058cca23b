//! Grading for clients of `hatchery serve`, by the engine of `hatchery grade`. A separate pool starts
//! with the first sample.

use std::sync::Arc;
use std::time::Duration;

use grade::{GradeError, Grader, Sample, Settings, Task, TaskOptions};
use hatchery::error::chain;
use hatchery::wire::{Problem, ProblemKind};
use hatchery::{Builder, Hatchery, Interface};
use serde_json::{Value, json};
use serve::{Grade, Grading};
use tokio::sync::OnceCell;

use super::PRELOAD;
use crate::args::{KnownImports, ServeArguments};
use crate::progress;

/// Grades samples with the Python build and the packages of `hatchery serve`, as many at once as that
/// has workers.
struct LazyGrader {
    builder: Builder,
    at_once: usize,
    grader: OnceCell<Grader>,
}

/// Prepares a pool. Reads the setup file.
pub(in crate::cmd) fn grading(arguments: &ServeArguments) -> anyhow::Result<Grading> {
    let builder = Hatchery::builder().preload(PRELOAD.split(' ')).progress(progress::sink());
    let image = &arguments.programs.image;
    let builder = image.apply_to_all_knowing(builder, KnownImports::Later)?;
    let builder = builder.interface(Interface::Grade);
    let at_once = arguments.size.workers.most();
    let grader = Arc::new(LazyGrader { builder, at_once, grader: OnceCell::new() });
    Ok(Arc::new(move |grade| {
        let grader = Arc::clone(&grader);
        Box::pin(async move { grader.grade(grade).await })
    }))
}

impl LazyGrader {
    async fn grade(&self, grade: Grade) -> Result<Value, Problem> {
        let settings = settings(&grade)?;
        let unusable =
            |what: &str, why: grade::InvalidLine| usage(format!("the {what} can't be used: {why}"));
        let task = Task::parse(&grade.task, TaskOptions::default())
            .map_err(|error| unusable("task", error))?;
        let sample =
            Sample::parse(&grade.sample, &task).map_err(|error| unusable("sample", error))?;
        let start = || async {
            let settings = Settings { at_once: self.at_once, ..Settings::default() };
            Grader::start(self.builder.clone(), settings).await
        };
        let grader = self.grader.get_or_try_init(start).await.map_err(problem)?;
        let graded = grader.with_settings(settings).grade(&task, &sample).await.map_err(problem)?;
        Ok(json!(graded))
    }
}

fn settings(grade: &Grade) -> Result<Settings, Problem> {
    let default = Settings::default();
    Ok(Settings {
        cpu_time: time("cpu_time", grade.cpu_time)?.unwrap_or(default.cpu_time),
        wall_time: time("timeout", grade.timeout)?,
        memory_bytes: grade.memory.unwrap_or(default.memory_bytes),
        value_bytes: grade.value_bytes.unwrap_or(default.value_bytes),
        allow_shared: grade.allow_shared,
        ..default
    })
}

fn time(name: &str, seconds: Option<f64>) -> Result<Option<Duration>, Problem> {
    let Some(seconds) = seconds else { return Ok(None) };
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.map(Some).ok_or_else(|| usage(format!("`{name}` must be a number of seconds above 0")))
}

fn usage(text: String) -> Problem {
    Problem::new(ProblemKind::Usage, text)
}

fn problem(error: GradeError) -> Problem {
    match error {
        GradeError::Pool(error) => error.problem(),
        other => Problem::new(ProblemKind::Sandbox, chain(&other).to_string()),
    }
}
