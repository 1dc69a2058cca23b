//! Notebooks that begin like others: which cells run, and what the copies have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::notebooks::{cells, check_schema, write};
use crate::{hatchery, text};

/// Runs notebooks with a folder for states, and returns what happened in each cell that ran, with
/// the command's result.
fn run_with(states: &Path, paths: &[&PathBuf], options: &[&str]) -> (Vec<Value>, Output) {
    let output = hatchery()
        .args(["notebook", "run", "--progress", "json"])
        .args(paths)
        .args(options)
        .env("HATCHERY_NOTEBOOK_STATES", states)
        .output()
        .unwrap();
    let lines = text(&output.stdout);
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), output)
}

/// Returns the numbers of the cells that ran.
fn ran(events: &[Value]) -> Vec<u64> {
    let started = events.iter().filter(|event| event["event"] == "cell_started");
    started.filter_map(|event| event["cell"].as_u64()).collect()
}

fn all_outputs(copy: &Path) -> Vec<Value> {
    cells(copy).iter().map(|cell| json!([cell["execution_count"], cell["outputs"]])).collect()
}

const SOURCES: [&str; 8] = [
    "import random\nrandom.seed(3)\nruns = [1]",
    "handle = display('first', display_id='shown')\nrandom.random()",
    "open('made.txt', 'w').write('made')",
    "runs.append(2)\nprint(runs)",
    "import asyncio\ntask = asyncio.create_task(asyncio.sleep(0, 'slept'))",
    "runs.append(6)\nhandle.update('updated')",
    "print(await task, open('made.txt').read(), random.random())",
    "runs, _2",
];

#[test]
fn only_the_cells_from_the_changed_one_on_run() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let path = write(folder.path(), "a.ipynb", &SOURCES);
    let [out, full] = ["out", "full"].map(|name| folder.path().join(name));
    let options = ["--output-dir", out.to_str().unwrap()];
    let (events, output) = run_with(&states, &[&path], &options);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(ran(&events), [1, 2, 3, 4, 5, 6, 7, 8]);

    let mut changed = SOURCES;
    changed[5] = "runs.append(60)\nhandle.update('changed')";
    let path = write(folder.path(), "a.ipynb", &changed);
    fs::remove_dir_all(&out).unwrap();
    let (events, output) = run_with(&states, &[&path], &options);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(ran(&events), [6, 7, 8]);
    let said = text(&output.stderr);
    assert!(said.contains("cells 1 to 5 of 8 taken over from an earlier run"), "{said}");
    let copy = out.join("a.ipynb");
    check_schema(&copy);

    // The outputs, the updates and the files are those of a full run.
    let options = ["--output-dir", full.to_str().unwrap(), "--fresh"];
    let (events, output) = run_with(&states, &[&path], &options);
    assert_eq!(ran(&events).len(), 8, "{output:?}");
    assert_eq!(all_outputs(&copy), all_outputs(&full.join("a.ipynb")));
    assert!(all_outputs(&copy)[1].to_string().contains("changed"));
    for folder in [&out, &full] {
        assert_eq!(fs::read(folder.join("a/made.txt")).unwrap(), b"made");
    }

    // Nothing runs if nothing changed, and then only what was appended.
    fs::remove_dir_all(&out).unwrap();
    let options = ["--output-dir", out.to_str().unwrap()];
    let (events, output) = run_with(&states, &[&path], &options);
    assert_eq!(ran(&events), [0; 0], "{output:?}");
    assert!(text(&output.stderr).contains("all 8 cells taken over"), "{output:?}");
    assert_eq!(all_outputs(&copy), all_outputs(&full.join("a.ipynb")));
    assert_eq!(fs::read(out.join("a/made.txt")).unwrap(), b"made");
    let longer: Vec<&str> = changed.into_iter().chain(["runs[-1]"]).collect();
    let path = write(folder.path(), "a.ipynb", &longer);
    let (events, _) = run_with(&states, &[&path], &options);
    assert_eq!(ran(&events), [9]);
    assert_eq!(cells(&copy)[8]["outputs"][0]["data"]["text/plain"], json!(["60"]));
}

#[test]
fn what_a_state_depends_on_makes_cells_run() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let path = write(folder.path(), "a.ipynb", &["x = 1", "print(x)"]);
    let data = folder.path().join("data.csv");
    fs::write(&data, "1").unwrap();
    let input = ["--input", data.to_str().unwrap()];
    let mount = ["--mount", folder.path().to_str().unwrap()];
    for (options, expected) in [
        (&[][..], 2),
        (&[], 0),
        (&input, 2),
        (&input, 0),
        (&["-p", "y", "1"], 3),
        (&["-p", "y", "1"], 0),
        (&["--timeout", "29s"], 2),
        (&["--allow-errors"], 2),
        (&["--keep-states", "0"], 2),
        (&mount, 2),
        (&mount, 2),
        (&["--beside"], 2),
        (&["--beside"], 2),
    ] {
        let (events, output) = run_with(&states, &[&path], options);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(ran(&events).len(), expected, "{options:?}");
    }
    fs::write(&data, "2").unwrap();
    let (events, _) = run_with(&states, &[&path], &input);
    assert_eq!(ran(&events).len(), 2);
}

#[test]
fn a_failed_cell_and_a_fresh_one_always_run() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let path = write(folder.path(), "a.ipynb", &["x = 1", "1 / 0", "x"]);
    for expected in [&[1, 2][..], &[2], &[2]] {
        let (events, output) = run_with(&states, &[&path], &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(ran(&events), expected);
    }
    let path = write(folder.path(), "b.ipynb", &["x = 1", "y = 2", "x + y"]);
    let mut notebook: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    notebook["cells"][2]["metadata"]["tags"] = json!(["fresh"]);
    fs::write(&path, notebook.to_string()).unwrap();
    for expected in [&[2, 3][..], &[2, 3]] {
        let (events, output) = run_with(&states, &[&path], &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(ran(&events), expected);
    }
}

#[test]
fn damaged_states_are_as_if_they_were_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let path = write(folder.path(), "a.ipynb", &["x = 1", "print(x)", "x + 1"]);
    run_with(&states, &[&path], &[]);
    let changed = write(folder.path(), "a.ipynb", &["x = 1", "print(x)", "x + 2"]);
    for (ending, damage) in [("session", "damaged"), ("json", "{")] {
        let files: Vec<PathBuf> =
            fs::read_dir(&states).unwrap().map(|it| it.unwrap().path()).collect();
        assert!(!files.is_empty());
        for file in files.iter().filter(|file| file.extension().unwrap() == ending) {
            fs::write(file, damage).unwrap();
        }
        let (events, output) = run_with(&states, &[&changed], &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(ran(&events).len(), 3);
        let copy = folder.path().join("a.executed.ipynb");
        assert_eq!(cells(&copy)[2]["outputs"][0]["data"]["text/plain"], json!(["3"]));
    }
    // Records that claim a file which their sessions don't have.
    let changed = write(folder.path(), "a.ipynb", &["x = 1", "print(x)", "x + 3"]);
    let records = fs::read_dir(&states).unwrap().map(|it| it.unwrap().path());
    for record in records.filter(|file| file.extension().is_some_and(|it| it == "json")) {
        // Those that no run has asked for since are still damaged.
        let kept = serde_json::from_slice::<Value>(&fs::read(&record).unwrap());
        let Ok(mut kept) = kept else { continue };
        kept["files"] = json!([["gone.txt", "created"]]);
        fs::write(&record, kept.to_string()).unwrap();
    }
    let (events, output) = run_with(&states, &[&changed], &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(ran(&events), [1, 2, 3]);
}

#[test]
fn a_cell_that_a_limit_ended_runs_again_with_all_that_follow() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let path = write(folder.path(), "a.ipynb", &["x = 1", "while True: pass", "x"]);
    for expected in [&[1, 2, 3][..], &[2, 3]] {
        let options = ["--allow-errors", "--timeout", "1s"];
        let (events, output) = run_with(&states, &[&path], &options);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(ran(&events), expected);
    }
}

/// A cell that several notebooks begin with runs once, also without states on disk.
#[test]
fn notebooks_of_one_command_run_common_cells_once() {
    let folder = tempfile::tempdir().unwrap();
    let sources = ["import os\ntoken = os.urandom(8).hex()", "print(token)"];
    let paths: Vec<PathBuf> = (0..6)
        .map(|number| {
            let own = format!("own = {number}\nprint(own, token)");
            let all: Vec<&str> = sources.into_iter().chain([own.as_str(), "print(own)"]).collect();
            write(folder.path(), &format!("{number}.ipynb"), &all)
        })
        .collect();
    let paths: Vec<&PathBuf> = paths.iter().collect();
    let (events, output) = run_with(Path::new(""), &paths, &["--workers", "3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("6 of 6 notebooks completed; 10 cells were taken over"));
    let count = |number: u64| ran(&events).iter().filter(|cell| **cell == number).count();
    assert_eq!([1, 2, 3, 4].map(count), [1, 1, 6, 6]);
    let copies =
        (0..6).map(|number| cells(&folder.path().join(format!("{number}.executed.ipynb"))));
    let printed: Vec<Vec<Value>> = copies
        .map(|cells| cells.iter().map(|cell| cell["outputs"][0]["text"].clone()).collect())
        .collect();
    let token = printed[0][1][0].as_str().unwrap().to_owned();
    for (number, printed) in printed.iter().enumerate() {
        assert_eq!(printed[1], json!([token]));
        assert_eq!(printed[2], json!([format!("{number} {token}")]));
        assert_eq!(printed[3], json!([format!("{number}\n")]));
    }
}
