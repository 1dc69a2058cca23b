//! Notebooks: parallel runs, copies with outputs, and resuming at the cell that failed.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::{hatchery, interrupt, run, text};

/// Writes a notebook with these code cells after a text cell.
pub(crate) fn write(folder: &Path, name: &str, sources: &[&str]) -> PathBuf {
    let code = (1..).zip(sources).map(|(number, source)| {
        let lines: Vec<&str> = source.split_inclusive('\n').collect();
        json!({
            "cell_type": "code", "execution_count": null, "id": format!("c{number}"),
            "metadata": {}, "outputs": [], "source": lines,
        })
    });
    let text = json!({ "cell_type": "markdown", "id": "m", "metadata": {}, "source": ["# Title"] });
    let cells: Vec<Value> = std::iter::once(text).chain(code).collect();
    let notebook = json!({
        "cells": cells, "metadata": { "kernelspec": { "language": "python", "name": "python3",
        "display_name": "Python 3" } }, "nbformat": 4, "nbformat_minor": 5,
    });
    let path = folder.join(name);
    fs::write(&path, format!("{notebook:#}\n")).unwrap();
    path
}

pub(crate) fn run_notebook(path: &Path, options: &[&str]) -> Output {
    let mut arguments = vec!["notebook", "run", path.to_str().unwrap()];
    arguments.extend(options);
    run(&arguments)
}

/// Returns the code cells of a notebook.
pub(crate) fn cells(path: &Path) -> Vec<Value> {
    let notebook: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let cells = notebook["cells"].as_array().unwrap().iter();
    cells.filter(|cell| cell["cell_type"] == "code").cloned().collect()
}

/// Checks what the schema of nbformat 4.5 requires of each code cell and each output.
pub(crate) fn check_schema(path: &Path) {
    let notebook: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!((&notebook["nbformat"], &notebook["nbformat_minor"]), (&json!(4), &json!(5)));
    for cell in cells(path) {
        let names: Vec<&String> = cell.as_object().unwrap().keys().collect();
        for name in ["cell_type", "execution_count", "id", "metadata", "outputs", "source"] {
            assert!(names.contains(&&name.to_owned()), "{cell}");
        }
        assert_eq!(names.len(), 6, "{cell}");
        for output in cell["outputs"].as_array().unwrap() {
            let required: &[&str] = match output["output_type"].as_str().unwrap() {
                "stream" => &["name", "output_type", "text"],
                "display_data" => &["data", "metadata", "output_type"],
                "execute_result" => &["data", "execution_count", "metadata", "output_type"],
                "error" => &["ename", "evalue", "output_type", "traceback"],
                other => panic!("{other}"),
            };
            let mut names: Vec<&String> = output.as_object().unwrap().keys().collect();
            names.sort();
            assert_eq!(names, required, "{output}");
        }
    }
}

pub(crate) fn stream(lines: &[&str]) -> Value {
    json!({ "name": "stdout", "output_type": "stream", "text": lines })
}

pub(crate) fn result(count: usize, lines: &[&str]) -> Value {
    json!({
        "data": { "text/plain": lines }, "execution_count": count, "metadata": {},
        "output_type": "execute_result",
    })
}

#[test]
fn notebooks_run_side_by_side_and_their_copies_have_the_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(
        folder.path(),
        "first.ipynb",
        &["x = 1\nprint('a')\nprint('b')", "import sys\nprint('e', file=sys.stderr)\nx + 1", "x;"],
    );
    let second = write(
        folder.path(),
        "second.ipynb",
        &[
            "from IPython.display import display, HTML\ndisplay(HTML('<b>'))\nprint('then')",
            "class A:\n    def _repr_json_(self): return {'k': [1]}\n    def __repr__(self): return 'A'\nA()",
            "open('x.txt', 'w').write('kept')",
        ],
    );
    let before = (fs::read(&first).unwrap(), fs::read(&second).unwrap());
    let output = run(&["notebook", "run", first.to_str().unwrap(), second.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("2 of 2 notebooks completed") && said.contains("wrote x.txt"), "{said}");
    assert_eq!((fs::read(&first).unwrap(), fs::read(&second).unwrap()), before);

    let copy = folder.path().join("first.executed.ipynb");
    check_schema(&copy);
    let outputs: Vec<Value> = cells(&copy).iter().map(|cell| cell["outputs"].clone()).collect();
    let error = json!({ "name": "stderr", "output_type": "stream", "text": ["e\n"] });
    assert_eq!(
        outputs,
        [json!([stream(&["a\n", "b\n"])]), json!([error, result(2, &["2"])]), json!([])]
    );
    let copy = folder.path().join("second.executed.ipynb");
    check_schema(&copy);
    let cells = cells(&copy);
    assert_eq!(cells[0]["outputs"][0]["data"]["text/html"], json!(["<b>"]));
    assert_eq!(cells[0]["outputs"][1], stream(&["then\n"]));
    assert_eq!(cells[1]["outputs"][0]["data"]["application/json"], json!({ "k": [1] }));
    assert_eq!(cells[2]["execution_count"], 3);
}

#[test]
fn a_failed_notebook_resumes_at_the_failed_cell() {
    let folder = tempfile::tempdir().unwrap();
    let sources = |third: &'static str| {
        [
            "runs = 1\nprint('one')",
            "runs += 1\nimport random\nrandom.seed(7)",
            third,
            "runs += 1",
            "(runs, random.random())",
        ]
    };
    let path = write(folder.path(), "a.ipynb", &sources("runs += 100\n1/0"));
    let out = folder.path().join("out");
    let options = ["--output-dir", out.to_str().unwrap(), "--resume"];
    let output = run_notebook(&path, &options);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("cell 3 of 5 failed: ZeroDivisionError: division by zero"), "{said}");
    assert!(said.contains("running from its start, since nothing is saved"), "{said}");
    let copy = out.join("a.ipynb");
    check_schema(&copy);
    let failed = cells(&copy);
    assert_eq!(failed[2]["outputs"][0]["ename"], "ZeroDivisionError");
    let traceback = failed[2]["outputs"][0]["traceback"].to_string();
    assert!(traceback.contains("In[3]") && traceback.contains("line 2"), "{traceback}");
    assert_eq!((&failed[3]["execution_count"], &failed[3]["outputs"]), (&Value::Null, &json!([])));
    assert!(out.join("a.resume.session").exists());

    // The first cells don't run again: one of them would make another count.
    let path = write(folder.path(), "a.ipynb", &sources("runs += 10"));
    let output = run_notebook(&path, &options);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("resuming at cell 3 of 5"), "{output:?}");
    check_schema(&copy);
    let whole = cells(&copy);
    assert_eq!(whole[0]["outputs"], json!([stream(&["one\n"])]));
    // The random numbers continue as well.
    assert_eq!(whole[4]["outputs"][0]["data"]["text/plain"], json!(["(13, 0.32383276483316237)"]));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn a_notebook_whose_earlier_cells_changed_runs_from_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.ipynb", &["x = 1", "x", "1/0"]);
    assert_eq!(run_notebook(&path, &[]).status.code(), Some(1));
    write(folder.path(), "a.ipynb", &["x = 2", "x", "3"]);
    let output = run_notebook(&path, &["--resume"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stderr).contains("from its start, since cell 1 has changed"),
        "{output:?}"
    );
    let copy = folder.path().join("a.executed.ipynb");
    assert_eq!(cells(&copy)[1]["outputs"], json!([result(2, &["2"])]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn an_interrupted_notebook_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let sources = ["x = 41", "import time\nx = 0\ntime.sleep(3600)", "x + 1"];
    let path = write(folder.path(), "a.ipynb", &sources);
    let waiting = write(folder.path(), "b.ipynb", &["1"]);
    let mut child = hatchery()
        .args(["notebook", "run", "--workers", "1", "--timeout", "1h", "-v"])
        .args([&path, &waiting])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("cell 2 of 3") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    interrupt(child.id());
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    for expected in ["interrupted at cell 2 of 3", "not started", "2 interrupted"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let copy = folder.path().join("a.executed.ipynb");
    check_schema(&copy);
    assert_eq!(cells(&copy)[1]["outputs"][0]["ename"], "KeyboardInterrupt");

    // With the state from before that cell, which has changed since.
    write(folder.path(), "a.ipynb", &[sources[0], "x", sources[2]]);
    let output = run_notebook(&path, &["--resume"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("resuming at cell 2 of 3"), "{output:?}");
    assert_eq!(cells(&copy)[2]["outputs"], json!([result(3, &["42"])]));
}

#[test]
fn a_cell_that_loses_its_session_leaves_the_previous_state() {
    let folder = tempfile::tempdir().unwrap();
    let endless =
        "x = 0\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass";
    let path = write(folder.path(), "a.ipynb", &["x = 7", endless, "x"]);
    let limits = ["--timeout", "300ms", "--grace", "100ms"];
    let output = run_notebook(&path, &limits);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("cell 2 of 3 failed: LimitReached"), "{output:?}");
    let path = write(folder.path(), "a.ipynb", &["x = 7", "x + 1", "x"]);
    let output = run_notebook(&path, &["--resume"]);
    assert!(text(&output.stderr).contains("resuming at cell 2"), "{output:?}");
    let copy = folder.path().join("a.executed.ipynb");
    assert_eq!(cells(&copy)[2]["outputs"], json!([result(3, &["7"])]));
}

#[test]
fn errors_can_be_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path =
        write(folder.path(), "a.ipynb", &["open('f', 'w').write('x')\n1/0", "open('f').read()"]);
    let output = run_notebook(&path, &["--allow-errors"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("completed, 1 cell raised an error that was allowed, outputs in"),
        "{said}"
    );
    let copy = folder.path().join("a.executed.ipynb");
    check_schema(&copy);
    assert_eq!(cells(&copy)[0]["outputs"][0]["evalue"], "division by zero");
    assert_eq!(cells(&copy)[1]["outputs"], json!([result(2, &["'x'"])]));
}

#[test]
fn a_pipe_gets_one_line_for_each_notebook_and_only_problems_if_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let [good, bad] = [("good.ipynb", "1 + 1"), ("bad.ipynb", "1 / 0")]
        .map(|(name, source)| write(folder.path(), name, &["x = 1", source]));
    let said = |options: &[&str]| {
        let mut arguments = vec!["notebook", "run", good.to_str().unwrap(), bad.to_str().unwrap()];
        arguments.extend(options);
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        // Not the lines of the first start.
        let said = text(&output.stderr);
        let lines =
            said.lines().filter(|line| line.contains("ipynb") || line.contains("notebooks"));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let lines = said(&[]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    for expected in [
        "good.ipynb: completed, outputs in",
        "bad.ipynb: cell 2 of 2 failed: ZeroDivisionError",
        "hatchery: 1 of 2 notebooks completed, 1 failed",
    ] {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:?}");
    }
    let lines = said(&["-q"]);
    assert!(lines.len() == 1 && lines[0].contains("bad.ipynb: cell 2 of 2 failed"), "{lines:?}");
    let lines = said(&["--verbose"]);
    assert_eq!(lines.iter().filter(|line| line.contains(".ipynb: cell ")).count(), 5, "{lines:?}");
}

/// Returns the output of a running process up to this word.
fn said_up_to(word: &str, stderr: &mut impl BufRead) -> String {
    let mut said = String::new();
    while !said.contains(word) {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    said
}

/// Puts a folder where a running notebook writes its copy after each cell.
fn put_folder(path: &Path) {
    while fs::create_dir(path).is_err() {
        // It has been written; if it is about to be, the folder is in its way.
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn every_failed_write_is_reported_and_the_first_decides_the_exit() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.ipynb", &["x = 1", "import time\ntime.sleep(3600)", "x"]);
    let mut child = hatchery()
        .args(["notebook", "run", "--timeout", "1h", "-v"])
        .arg(&path)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = said_up_to("cell 2 of 3", &mut stderr);
    // Folders take the places of these files.
    for name in ["a.executed.ipynb", "a.executed.resume.json"] {
        put_folder(&folder.path().join(name));
    }
    interrupt(child.id());
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(125), "{said}");
    let told = [
        "a.executed.ipynb`: ",
        "the session is not saved in",
        "interrupted at cell 2 of 3; its outputs are not written, it can't be resumed",
    ];
    let places = told.map(|told| said.find(told).unwrap_or_else(|| panic!("{told}: {said}")));
    assert!(places.is_sorted(), "{said}");
    assert!(said.contains("can't remove") && said.contains("a.executed.resume.json"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_copy_that_could_not_be_written_is_written_by_resuming() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    let waits = "import os, time\nwhile not os.path.exists('/shared/go'): time.sleep(0.02)\nx + 1";
    let path = write(folder.path(), "a.ipynb", &["x = 41\nprint('once')", waits]);
    let options = ["--mount", shared.to_str().unwrap(), "--resume"];
    let mut child = hatchery()
        .args(["notebook", "run", "-v"])
        .arg(&path)
        .args(options)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = said_up_to("cell 2 of 2", &mut stderr);
    let copy = folder.path().join("a.executed.ipynb");
    put_folder(&copy);
    fs::write(shared.join("go"), "").unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(125), "{said}");
    let expected =
        "all cells ran; its outputs are not written, --resume continues at its last cell";
    assert!(said.contains("can't write") && said.contains(expected), "{said}");

    fs::remove_dir(&copy).unwrap();
    let output = run_notebook(&path, &options);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("resuming at cell 2 of 2"), "{output:?}");
    let outputs: Vec<Value> = cells(&copy).iter().map(|cell| cell["outputs"].clone()).collect();
    assert_eq!(outputs, [json!([stream(&["once\n"])]), json!([result(2, &["42"])])]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_session_that_can_not_start_is_reported_for_each_notebook() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("numbers.csv");
    fs::write(&data, "1,2,3,4,5,6").unwrap();
    let [first, second] =
        ["a.ipynb", "b.ipynb"].map(|name| write(folder.path(), name, &["print('ran')"]));
    let output = hatchery()
        .args(["notebook", "run", "--workers", "1", "--file-bytes", "10B", "--input"])
        .args([&data, &first, &second])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = text(&output.stderr);
    assert_eq!(said.matches("the session can't start").count(), 2, "{said}");
    assert!(said.contains("0 of 2 notebooks completed, 2 failed"), "{said}");
}

#[test]
fn cells_are_given_inputs_and_folders_and_give_files() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("numbers.csv");
    fs::write(&data, "1,2").unwrap();
    let sources = [
        "text = open('numbers.csv').read()",
        "import os\nos.makedirs('d')\nopen('d/made.txt', 'w').write(text)",
        "assert 'sales.csv' in os.listdir('/data')\n1/int(text[0] == '9')",
    ];
    let path = write(folder.path(), "a.ipynb", &sources);
    let out = folder.path().join("out");
    let mut options = vec!["--input", data.to_str().unwrap(), "--mount", "examples/data"];
    options.extend(["--output-dir", out.to_str().unwrap(), "--resume"]);
    let output = run_notebook(&path, &options);
    assert!(text(&output.stderr).contains("cell 3 of 3 failed: ZeroDivisionError"), "{output:?}");
    assert_eq!(fs::read(out.join("a/d/made.txt")).unwrap(), b"1,2");
    // A resumed session mounts the folder again; a changed input prevents resuming.
    let output = run_notebook(&path, &options);
    assert!(text(&output.stderr).contains("resuming at cell 3 of 3"), "{output:?}");
    assert!(text(&output.stderr).contains("failed: ZeroDivisionError"), "{output:?}");
    fs::write(&data, "9,2").unwrap();
    let output = run_notebook(&path, &options);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("since an input has changed"), "{output:?}");
    assert_eq!(fs::read(out.join("a/d/made.txt")).unwrap(), b"9,2");
}

#[test]
fn invalid_notebooks_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("text.ipynb"), "no JSON").unwrap();
    fs::write(path("old.ipynb"), r#"{"nbformat": 3, "worksheets": []}"#).unwrap();
    let julia =
        r#"{"nbformat": 4, "metadata": {"kernelspec": {"language": "julia"}}, "cells": []}"#;
    fs::write(path("julia.ipynb"), julia).unwrap();
    let good = write(folder.path(), "good.ipynb", &["1"]);
    for (name, expected) in [
        ("text.ipynb", "not a notebook"),
        ("old.ipynb", "nbconvert"),
        ("julia.ipynb", "only Python"),
        ("missing.ipynb", "No such file"),
    ] {
        // Nothing runs if one of them can't.
        let output =
            run(&["notebook", "run", good.to_str().unwrap(), path(name).to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected) && said.contains(name), "{said}");
    }
    let output = run_notebook(&good, &["--output-dir", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("would overwrite"), "{output:?}");
    let good = good.to_str().unwrap();
    let output = run(&["notebook", "run", good, good]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("rename one of them"), "{output:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn a_notebook_reads_its_folder_if_that_is_granted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("a.csv"), "x\n1\n").unwrap();
    fs::write(folder.path().join("helper.py"), "two = 2").unwrap();
    let sources = ["import helper", "print(open('data/a.csv').read(), helper.two)", "1/0"];
    let path = write(folder.path(), "n.ipynb", &sources);
    let output = run_notebook(&path, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let copy = folder.path().join("n.executed.ipynb");
    assert!(cells(&copy)[0]["outputs"][0]["ename"] == "ModuleNotFoundError");
    let output = run_notebook(&path, &["--beside"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(cells(&copy)[1]["outputs"], json!([stream(&["x\n", "1\n", " 2\n"])]));
    // A resumed notebook finds it too.
    let sources = [sources[0], sources[1], "print(len(open('data/a.csv').read()))"];
    let path = write(folder.path(), "n.ipynb", &sources);
    let output = run_notebook(&path, &["--beside", "--resume"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(cells(&copy)[2]["outputs"], json!([stream(&["4\n"])]));
}

#[test]
fn links_that_a_notebook_leaves_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let sources = ["import os; open('f', 'w').write('x'); os.symlink('f', 'l')", "1"];
    let path = write(folder.path(), "n.ipynb", &sources);
    // The second time, the cells' state is there already.
    for _ in 0..2 {
        let output = run_notebook(&path, &["--output-dir", out.to_str().unwrap()]);
        let said = text(&output.stderr);
        assert!(said.contains("1 symbolic link is not kept, only files are"), "{output:?}");
    }
}
