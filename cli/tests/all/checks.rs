//! `notebook run --check`, reports as pages, and time limits of single cells.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::notebooks::{cells, run_notebook, write};
use crate::{run, text};

/// Writes a notebook whose cells have these sources, tags and recorded outputs to stdout.
fn recorded(folder: &Path, sources: &[(&str, &str, &str)]) -> PathBuf {
    let cells = (1..).zip(sources).map(|(number, (source, tag, printed))| {
        let tags: Vec<&str> = tag.split_whitespace().collect();
        let stream = json!({ "output_type": "stream", "name": "stdout", "text": [printed] });
        let outputs = if printed.is_empty() { json!([]) } else { json!([stream]) };
        json!({
            "cell_type": "code", "execution_count": number, "id": format!("c{number}"),
            "metadata": { "tags": tags }, "outputs": outputs, "source": [source],
        })
    });
    let cells: Vec<Value> = cells.collect();
    let notebook = json!({ "cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5 });
    let path = folder.join("a.ipynb");
    fs::write(&path, notebook.to_string()).unwrap();
    path
}

#[test]
fn outputs_are_compared_with_the_file_as_nbval_does() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        ("print(1)", "", "1\n"),
        ("# NBVAL_IGNORE_OUTPUT\nprint(2)", "", "other\n"),
        ("print(3)", "nbval-ignore-output", "other\n"),
        ("# NBVAL_SKIP\nraise SystemExit(1)", "", "kept\n"),
        ("1 / 0", "nbval-raises-exception nbval-ignore-output", ""),
        ("print('at 0x12ab')", "", "at 0x98fe\n"),
    ];
    let path = recorded(folder.path(), &sources);
    let output = run_notebook(&path, &["--check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("cell 5 differs in stdout"), "{said}");
    assert!(said.contains("- at 0x98fe\n+ at 0x12ab"), "{said}");
    assert!(said.contains("1 of 5 cell differs from the file"), "{said}");

    let patterns = folder.path().join("patterns.cfg");
    fs::write(&patterns, "[addresses]\nregex: 0x[0-9a-f]+\nreplace: ADDRESS\n").unwrap();
    let sanitized = ["--check", "--sanitize-with", patterns.to_str().unwrap()];
    let output = run_notebook(&path, &sanitized);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("with the outputs that are in the file"), "{output:?}");
    // No copy is written, and nothing to resume from.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);

    // Only marked cells.
    let marked = [("print(1)", "", "2\n"), ("print(1)", "nbval-check-output", "1\n")];
    let path = recorded(folder.path(), &marked);
    assert_eq!(run_notebook(&path, &["--check=marked"]).status.code(), Some(0));
    assert_eq!(run_notebook(&path, &["--check"]).status.code(), Some(1));

    // Outputs of no run.
    let path = recorded(folder.path(), &[("print(1)", "", "1\n")]);
    let mut notebook: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    notebook["cells"][0]["execution_count"] = Value::Null;
    fs::write(&path, notebook.to_string()).unwrap();
    let output = run_notebook(&path, &["--check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("outputs, but no execution count"), "{output:?}");

    for (contents, expected) in
        [("regex: (\nreplace: x\n", "`(` can't be used"), ("x", "has no `regex: …`")]
    {
        fs::write(&patterns, contents).unwrap();
        let output = run_notebook(&path, &sanitized);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:?}");
    }
}

#[test]
fn what_a_run_writes_passes_the_check_of_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        "import sys\nprint('a')\nprint('e', file=sys.stderr)\nprint('b')",
        "display({'text/html': '<b>', 'text/plain': 'b'}, raw=True)\n[1, 2]",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('t');",
    ];
    let path = write(folder.path(), "a.ipynb", &sources);
    assert_eq!(run_notebook(&path, &[]).status.code(), Some(0));
    let copy = folder.path().join("a.executed.ipynb");
    let output = run_notebook(&copy, &["--check"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_report_has_all_outputs_and_obeys_none() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        "print('<script>alert(1)</script>')",
        "from IPython.display import HTML\nHTML('<script>alert(2)</script>')",
        "1 / 0",
    ];
    let [first, second] = ["a.ipynb", "b.ipynb"].map(|name| write(folder.path(), name, &sources));
    let file = folder.path().join("report.html");
    let output = run(&[
        "notebook",
        "run",
        first.to_str().unwrap(),
        second.to_str().unwrap(),
        "--html",
        file.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let page = fs::read_to_string(&file).unwrap();
    assert!(page.contains("default-src 'none'"), "{page}");
    assert!(!page.contains("<script"), "{page}");
    assert_eq!(page.matches("&lt;script&gt;alert(1)").count(), 4, "{page}");
    assert_eq!(page.matches("<iframe sandbox=\"\"").count(), 2, "{page}");
    assert_eq!(page.matches("cell 3 of 3 failed: ZeroDivisionError").count(), 2, "{page}");
}

#[test]
fn a_tag_limits_the_time_of_its_cell() {
    let folder = tempfile::tempdir().unwrap();
    let path = recorded(
        folder.path(),
        &[("import time", "", ""), ("time.sleep(60)", "timeout=100ms", "")],
    );
    let output = run_notebook(&path, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("cell 2 of 2 failed: LimitReached") && said.contains("100 ms"), "{said}");
    // It can't raise the limit of the command.
    let path = recorded(folder.path(), &[("while True: pass", "timeout=1h", "")]);
    let output = run_notebook(&path, &["--timeout", "200ms"]);
    assert!(text(&output.stderr).contains("LimitReached"), "{output:?}");
    let path = recorded(folder.path(), &[("1", "timeout=soon", "")]);
    let output = run_notebook(&path, &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("`timeout=soon` has no valid time"), "{output:?}");
}

#[test]
fn widgets_say_why_they_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.ipynb", &["import ipywidgets"]);
    let output = run_notebook(&path, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    let cells = cells(&folder.path().join("a.executed.ipynb"));
    assert_eq!(cells[0]["outputs"][0]["ename"], "ModuleNotFoundError");
    assert_eq!(said.matches("a widget needs a browser").count(), 1, "{said}");
}
