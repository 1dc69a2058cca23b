//! Parameters of notebooks: values, files, sets, and listing them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::notebooks::{cells, check_schema, run_notebook};
use crate::{run, text};

/// Writes a notebook with these code cells and their tags.
fn write(folder: &Path, name: &str, sources: &[(&str, &str)]) -> PathBuf {
    let cells = (1..).zip(sources).map(|(number, (source, tag))| {
        let tags: Vec<&str> = tag.split_whitespace().collect();
        let metadata = if tags.is_empty() { json!({}) } else { json!({ "tags": tags }) };
        json!({
            "cell_type": "code", "execution_count": null, "id": format!("c{number}"),
            "metadata": metadata, "outputs": [], "source": [source],
        })
    });
    let cells: Vec<Value> = cells.collect();
    let notebook = json!({ "cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5 });
    let path = folder.join(name);
    fs::write(&path, format!("{notebook:#}\n")).unwrap();
    path
}

fn source(cell: &Value) -> String {
    cell["source"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

/// Values, as papermill 2.7 reads and injects them: its own copy has the same cell.
#[test]
fn values_are_read_and_injected_as_papermill_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "a.ipynb",
        &[
            ("import math", ""),
            ("alpha = 0.1\nname = 'x'", "parameters"),
            ("print(alpha, name)", ""),
        ],
    );
    let file = folder.path().join("p.yaml");
    fs::write(&file, "day: 2024-01-02\nalpha: 3\nnested: {b: [1, null], a: yes}\n").unwrap();
    let options = [
        "-p",
        "alpha",
        "-0.5",
        "-p",
        "count",
        "1_000",
        "-p",
        "flag",
        "True",
        "-p",
        "nothing",
        "None",
        "-p",
        "big",
        "1e16",
        "-r",
        "name",
        "7",
        "-y",
        "{alpha: 4, text: \"q\\\"\\n\"}",
        "-f",
        file.to_str().unwrap(),
    ];
    let output = run_notebook(&path, &options);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stderr)
            .contains("doesn't define big, count, day, flag, nested, nothing, text"),
        "{output:?}"
    );
    let copy = folder.path().join("a.executed.ipynb");
    check_schema(&copy);
    let found = cells(&copy);
    let expected = "# Parameters\nday = \"2024-01-02\"\nalpha = -0.5\n\
                    nested = {\"b\": [1, None], \"a\": True}\ntext = \"q\\\"\\n\"\ncount = 1000\n\
                    flag = True\nnothing = None\nbig = 1e+16\nname = \"7\"\n";
    assert_eq!(source(&found[2]), expected);
    assert_eq!(found[2]["metadata"], json!({ "tags": ["injected-parameters"] }));
    assert_eq!(found[3]["outputs"][0]["text"], json!(["-0.5 7\n"]));
    let written: Value = serde_json::from_slice(&fs::read(&copy).unwrap()).unwrap();
    let values = &written["metadata"]["papermill"]["parameters"];
    assert_eq!(values["nested"], json!({ "b": [1, null], "a": true }));
    assert_eq!((&values["alpha"], &values["nothing"]), (&json!(-0.5), &Value::Null));

    // In the copy, they replace the injected ones.
    let output = run_notebook(&copy, &["-p", "alpha", "2", "-p", "name", "y"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let again = cells(&folder.path().join("a.executed.executed.ipynb"));
    assert_eq!(again.len(), found.len());
    assert_eq!(again[3]["outputs"][0]["text"], json!(["2 y\n"]));
}

#[test]
fn parameters_that_can_not_be_used_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.ipynb", &[("1", "")]);
    for (options, expected) in [
        (&["-p", "a b", "1"][..], "`a b` isn't a name in Python"),
        (&["-y", "[1"], "`-y` isn't valid YAML"),
        (&["-y", "[1]"], "`-y` must be a mapping"),
        (&["-f", "missing.yaml"], "can't read the parameters in `missing.yaml`"),
        (&["-y", "a: !!binary aGk="], "the type bytes"),
    ] {
        let output = run_notebook(&path, options);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn each_notebook_runs_with_each_set() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["a.ipynb", "b.ipynb"].map(|name| {
        write(folder.path(), name, &[("x = 1\ny = 0", "parameters"), ("print(x * 10 + y)", "")])
    });
    let out = folder.path().join("out");
    for (name, contents, sets) in [
        ("s.csv", "@name,x,y\nnorth,2,\nsouth,3,4\n", [("north", "21\n"), ("south", "34\n")]),
        ("s.jsonl", "{\"x\": 2}\n\n{\"x\": 3, \"y\": 4}\n", [("1", "21\n"), ("2", "34\n")]),
        ("s.json", r#"[{"@name": "one"}, {"x": 5}]"#, [("one", "11\n"), ("2", "51\n")]),
        ("s.yaml", "low: {x: 0}\nhigh: {x: 9}\n", [("low", "1\n"), ("high", "91\n")]),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, contents).unwrap();
        let output = run(&[
            "notebook",
            "run",
            first.to_str().unwrap(),
            second.to_str().unwrap(),
            "-p",
            "y",
            "1",
            "--sets",
            file.to_str().unwrap(),
            "--output-dir",
            out.to_str().unwrap(),
        ]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("4 of 4 notebooks completed"), "{said}");
        for (set, printed) in sets {
            for notebook in ["a", "b"] {
                let copy = out.join(format!("{notebook}.{set}.ipynb"));
                assert_eq!(cells(&copy)[2]["outputs"][0]["text"], json!([printed]), "{name} {set}");
            }
        }
    }
    for (name, contents, expected) in [
        ("same.csv", "@name,x\na,1\nA,2\n", "two sets of parameters have the name"),
        ("path.json", r#"{"../x": {"x": 1}}"#, "can't name a set of parameters"),
        ("none.json", "[]", "has no sets"),
        ("short.csv", "x,y\n1\n", "more or fewer fields"),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, contents).unwrap();
        let output = run_notebook(&first, &["--sets", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:?}");
    }
}

#[test]
fn parameters_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let source = "# Settings\nalpha: float = 0.1  # the share\n\
                  names = [\n    'a',\n    'b',\n]\ncount = 3  # type: int\n";
    let path = write(folder.path(), "a.ipynb", &[("1", ""), (source, "parameters")]);
    let output = run(&["notebook", "parameters", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = "alpha: float (default 0.1)        the share\n\
                    names: unknown type (default ['a','b',])\ncount: int (default 3)\n";
    assert_eq!(text(&output.stdout), expected);
    let output = run(&["notebook", "parameters", path.to_str().unwrap(), "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = json!({ "name": "alpha", "type": "float", "default": "0.1", "help": "the share" });
    assert_eq!((&listed[0], listed.as_array().unwrap().len()), (&first, 3));
    let plain = write(folder.path(), "b.ipynb", &[("1", "")]);
    let output = run(&["notebook", "parameters", plain.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("no cell is tagged `parameters`"), "{output:?}");
}
