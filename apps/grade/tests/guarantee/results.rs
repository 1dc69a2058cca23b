//! Results in files: what is known isn't graded again, and two files are compared.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use grade::{
    Comparison, Earlier, Graded, Grader, Report, ResultsFile, TaskOptions, grade_all, read_results,
    read_samples, read_tasks,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{grader, settings, write_lines};

fn tasks() -> Vec<Value> {
    let task = |number: u32| {
        let tests = format!("assert f({number}) == {}", number + 1);
        json!({ "task_id": format!("t/{number}"), "tests": tests, "entry_point": "f" })
    };
    (0..4).map(task).collect()
}

fn sample(task: u32, program: &str) -> Value {
    json!({ "task_id": format!("t/{task}"), "solution": program })
}

/// Grades samples into a file; returns the results, and how many were graded now.
async fn into_file(
    grader: &Arc<Grader>,
    folder: &Path,
    samples: &[Value],
    is_resumed: bool,
) -> (Vec<Graded>, usize) {
    let [tasks_file, samples_file, out] = ["tasks", "samples", "out"].map(|name| folder.join(name));
    write_lines(&tasks_file, &tasks());
    write_lines(&samples_file, samples);
    let tasks = read_tasks(&tasks_file, TaskOptions::default()).unwrap().read;
    let samples = read_samples(&samples_file, &tasks).unwrap().read;
    let (file, earlier) = match is_resumed {
        true => ResultsFile::resume(&out).unwrap(),
        false => (ResultsFile::create(&out).unwrap(), Earlier::default()),
    };
    let mut fresh = 0;
    let tell = |_: &Graded, is_new: bool| fresh += usize::from(is_new);
    let results = grade_all(grader.clone(), tasks.into(), samples, Some(file), earlier, None, tell)
        .await
        .unwrap();
    (results, fresh)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_where_another_ended_and_grades_what_changed() {
    let (right, wrong) = ("def f(x): return x + 1", "def f(x): return x");
    let grader = grader(settings()).await;
    let folder = TempDir::new().unwrap();
    let first = [sample(0, right), sample(1, right), sample(2, wrong), sample(2, wrong)];
    let (results, fresh) = into_file(&grader, folder.path(), &first, false).await;
    // Equal samples of a task are graded once.
    assert_eq!((results.len(), fresh), (4, 3));
    assert_eq!(results.iter().filter(|graded| graded.passed()).count(), 2);

    // Nobody else writes meanwhile.
    let held = ResultsFile::resume(&folder.path().join("out")).unwrap();
    let refused = ResultsFile::create(&folder.path().join("out")).unwrap_err();
    assert!(refused.to_string().contains("another `hatchery grade` writes to"), "{refused}");
    drop(held);

    // A line that was cut off.
    let out = folder.path().join("out");
    let mut file = std::fs::OpenOptions::new().append(true).open(&out).unwrap();
    file.write_all(b"{\"task_id\": \"t/3\", \"sam").unwrap();
    drop(file);
    let second =
        [sample(0, right), sample(1, wrong), sample(2, wrong), sample(2, right), sample(3, right)];
    let (results, fresh) = into_file(&grader, folder.path(), &second, true).await;
    assert_eq!((results.len(), fresh), (5, 3));
    let passed: Vec<bool> = results.iter().map(Graded::passed).collect();
    assert_eq!(passed, [true, false, false, true, true]);
    // Nothing is written twice; of two results of one sample the later one counts.
    let (again, fresh) = into_file(&grader, folder.path(), &second, true).await;
    assert_eq!((again, fresh), (results.clone(), 0));
    let kept = read_results(&out).unwrap();
    assert_eq!(kept.len(), 5);
    let report = Report::new(&kept, &[1, 2]);
    assert_eq!((report.tasks, report.samples, report.pass_at.len()), (4, 5, 1));
    assert_eq!(report.pass_at[&1].value, (1.0 + 0.0 + 0.5 + 1.0) / 4.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_files_are_compared_by_task() {
    let (right, wrong) = ("def f(x): return x + 1", "def f(x): return 'x<b>'");
    let grader = grader(settings()).await;
    let mut files = Vec::new();
    for programs in [[right, wrong, wrong, right], [right, right, wrong, wrong]] {
        let folder = TempDir::new().unwrap();
        let numbered = (0_u32..).zip(programs);
        let samples: Vec<Value> = numbered.map(|(task, program)| sample(task, program)).collect();
        into_file(&grader, folder.path(), &samples[..], false).await;
        files.push(read_results(&folder.path().join("out")).unwrap());
    }
    files[1].retain(|graded| graded.task_id != "t/2");
    let comparison = Comparison::new(("a", &files[0]), ("b", &files[1]));
    assert_eq!((comparison.tasks, comparison.unpaired), (3, 1));
    let difference = comparison.difference.unwrap();
    assert_eq!(difference.value, 0.0);
    assert!(difference.low < 0.0 && difference.high > 0.0, "{difference:?}");
    let changed = comparison.changed.clone().map(|tasks| tasks[0].task_id.clone());
    assert_eq!(changed, ["t/1", "t/3"]);
    let text = comparison.text();
    assert!(text.starts_with("a  pass@1  50.0 % [15.0, 85.0]\nb  pass@1  66.7 %"), "{text}");
    assert!(text.contains("1 task better\n  t/1  0 % -> 100 %"), "{text}");

    let report = Report::new(&files[0], &[1]);
    let page = report.html("a & b", &files[0]);
    assert!(page.contains("<title>a &amp; b</title>") && page.contains("50.0 % [15.0, 85.0]"));
    assert!(page.contains("class=\"failed\"") && !page.contains("<b>"), "{page}");
    assert!(!page.contains("http") && !page.contains("<script"), "{page}");
}

#[test]
fn what_is_undecided_counts_neither_for_nor_against() {
    let graded = |task: &str, sample: u64, verdict: &str| -> Graded {
        let line = json!({
            "task_id": task, "sample": sample, "verdict": verdict, "tests_passed": 1, "tests_total": 2,
            "guarded": true, "cpu_ms": 1.0, "tests_cpu_ms": 1.0, "digest": "",
        });
        serde_json::from_value(line).unwrap()
    };
    let first = [
        graded("a", 0, "passed"),
        graded("a", 1, "undecided"),
        graded("b", 0, "failed"),
        graded("b", 1, "undecided"),
        graded("c", 0, "undecided"),
        graded("c", 1, "undecided"),
    ];
    let report = Report::new(&first, &[1, 2]);
    assert_eq!((report.pass_at[&1].value, report.credit.unwrap().value), (0.5, 0.75));
    // No task has two decided samples.
    assert!(!report.pass_at.contains_key(&2));
    assert!(report.text().contains("4 samples undecided"), "{}", report.text());
    assert!(report.html("t", &first).contains("class=\"undecided\""));
    assert_eq!(first.iter().filter(|graded| graded.credit().is_none()).count(), 4);
    let second = [graded("a", 0, "undecided"), graded("b", 0, "passed"), graded("c", 0, "passed")];
    let comparison = Comparison::new(("a", &first), ("b", &second));
    assert_eq!((comparison.tasks, comparison.unpaired), (1, 2));
}
