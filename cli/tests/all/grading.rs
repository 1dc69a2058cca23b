//! `hatchery grade`: what it prints, writes and exits with. What passes is tested in `apps/grade/tests`.

use serde_json::{Value, json};

use crate::{run, text};

const RIGHT: &str = "def f(x): return x + 1";

/// Writes lines to a file in the folder, and returns its path.
fn write(folder: &tempfile::TempDir, name: &str, lines: &[Value]) -> String {
    let path = folder.path().join(name);
    let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, lines.concat()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn grading_exits_with_what_became_of_the_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let task = json!({ "task_id": "t", "tests": "assert f(1) == 2" });
    let tasks = write(&folder, "tasks", &[task]);
    let [right, wrong] =
        [RIGHT, "def f(x): return x"].map(|program| json!({ "task_id": "t", "solution": program }));
    let passing = write(&folder, "right", std::slice::from_ref(&right));
    let mixed = write(&folder, "mixed", &[right, wrong]);
    let (first, second) = (path("first"), path("second"));

    let output = run(&["grade", &tasks, &passing, "--out", &first, "--at-once", "1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).starts_with("1 task, 1 sample\n1 passed\npass@1  100.0 %"));

    let (report, page) = (path("report"), path("page"));
    let output = run(&[
        "grade", &tasks, &mixed, "--out", &second, "-k", "1,2", "--json", &report, "--html", &page,
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(report["pass_at"]["1"]["value"], 0.5);
    assert_eq!(report["pass_at"]["2"]["value"], 1.0);
    assert_eq!(report["verdicts"], json!({ "passed": 1, "failed": 1 }));
    assert!(std::fs::read_to_string(page).unwrap().starts_with("<!DOCTYPE html>"));

    let output = run(&["grade", &tasks, &mixed, "--out", &second, "--resume"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("2 results known already"), "{output:?}");

    let output = run(&["grade", "--compare", &first, &second]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("difference  -50.0 points"), "{output:?}");
}

#[test]
fn a_bad_line_costs_that_line_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let good = json!({ "task_id": "t", "tests": "assert f(1) == 2", "solution": RIGHT });
    let bad = json!({ "task_id": "u", "input_output": { "fn_name": "f", "inputs": [1], "outputs": [1] } });
    let tasks = write(&folder, "tasks", &[bad, good]);
    let output = run(&["--quiet", "grade", &tasks, "--workers", "2"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        text(&output.stdout).starts_with("2 tasks, 2 samples\n1 passed, 1 task_error\n"),
        "{output:?}"
    );
    let told = text(&output.stderr);
    assert!(
        told.contains("line 1 of") && told.contains("`inputs` is missing or isn't"),
        "{output:?}"
    );
    assert!(told.contains("1 line was left out"), "{output:?}");
}

#[test]
fn a_program_beside_its_tests_is_a_sample() {
    let folder = tempfile::tempdir().unwrap();
    let task = json!({ "tests": ["assert f(1) == 2"], "program": RIGHT });
    let tasks = write(&folder, "tasks", &[task]);
    let output = run(&["grade", &tasks]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Or else the task's own solution, but never in place of a sample.
    let task = json!({
        "task_id": "t", "prompt": "def f(x):\n", "canonical_solution": "    return x + 1\n",
        "entry_point": "f", "test": "def check(candidate):\n    assert candidate(1) == 2\n",
    });
    let tasks = write(&folder, "tasks", std::slice::from_ref(&task));
    let output = run(&["grade", &tasks]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = run(&["grade", &tasks, &write(&folder, "samples", &[task])]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn lines_that_are_no_tasks_and_no_samples_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = write(&folder, "tasks", &[json!({ "task_id": "t", "tests": "assert f(1)" })]);
    for (lines, message) in [
        (json!({ "task_id": "u", "solution": "" }), "line 1 of"),
        (json!({ "task_id": "u", "solution": "" }), "there is no task `u`"),
        (json!({ "task_id": "t" }), "it has no program"),
        (json!({ "solution": RIGHT }), "`task_id` is missing"),
    ] {
        let samples = write(&folder, "samples", &[lines]);
        let output = run(&["grade", &tasks, &samples]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(message), "{message}: {output:?}");
    }
    for (task, message) in [
        (json!({ "task_id": "t" }), "its fields match no known form of tasks"),
        (json!({ "tests": [], "task_id": "t" }), "`tests` is missing or isn't"),
        (json!({ "tests": [{ "stdin": "", "stdout": "" }], "checker": "no" }), "`checker` must be"),
        (json!([1]), "isn't a JSON object"),
    ] {
        let task = write(&folder, "task", &[task]);
        let output = run(&["grade", &task]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(message), "{message}: {output:?}");
    }
    let empty = write(&folder, "empty", &[]);
    for (arguments, message) in [
        (vec![&empty], "is empty; give a file of JSON lines"),
        (vec![&tasks, &empty], "is empty"),
        (vec![&tasks], "the tasks have no solutions: give SAMPLES"),
    ] {
        let output = run(&[
            &["grade"],
            arguments.iter().map(|name| name.as_str()).collect::<Vec<_>>().as_slice(),
        ]
        .concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(message), "{message}: {output:?}");
    }
    let missing = run(&["grade", "no-such-file"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(text(&missing.stderr).contains("can't read `no-such-file`"), "{missing:?}");
}
