//! `hatchery replay`, and `--record` of the commands that run programs.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hatchery::event::EventKind;
use hatchery::record::RecordFolder;
use hatchery::{Array, Hatchery, HostFunction, Job, Limits, Session, Value};
use serde_json::{Value as Json, json};
use test_support::dice::Dice;

use crate::serving::over_stdio_with;
use crate::{hatchery, run, run_with_stdin, text};

/// Returns the recordings in a folder, by name.
fn recordings(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<String> = paths.map(|path| path.to_str().unwrap().to_owned()).collect();
    paths.sort();
    paths
}

fn replay(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(&[&["replay"], arguments].concat());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_recorded_prompt_is_listed_verified_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let input =
        "import random\nx = random.random()\nprint('drawn')\n1/0\n:fork other\nx = 'other'\n";
    let output = run_with_stdin(&["repl", "--record", place], input);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let files = recordings(folder.path());
    let [other, first] = files.as_slice() else { panic!("{files:?}") };

    let (code, listed, said) = replay(&[first]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    for part in ["session `repl`", "<input-3>\n>>> print('drawn')\ndrawn\n", "ZeroDivisionError"] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    let (code, verified, _) = replay(&["--verify", first, other]);
    assert_eq!(code, Some(0), "{verified}");
    assert!(verified.contains("repl-1.recording: 5 equal, 0 taken"), "{verified}");

    let (code, found, said) = replay(&[first, "--turn", "3", "-c", "x"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(found.starts_with("0."), "{found}");
    let (_, before, _) = replay(&[first, "--turn", "2", "-c", "'x' in globals()"]);
    assert_eq!(before, "False\n");
    let prompt = run_with_stdin(&["replay", first, "--turn", "3"], "x\n");
    assert_eq!(text(&prompt.stdout), found);
    let (code, _, said) = replay(&[first, "--turn", "9"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no turn 9: it has 5"), "{said}");
}

#[test]
fn the_turn_in_which_two_recordings_part_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    for last in ["x = 1", "x = 2; print('two')"] {
        let input = format!("y = 3\n{last}\n");
        assert!(run_with_stdin(&["repl", "--record", place], &input).status.success());
    }
    let files = recordings(folder.path());
    let (code, shown, said) = replay(&["--diff", &files[0], &files[1]]);
    assert_eq!(code, Some(1), "{shown}{said}");
    assert!(said.contains("their seeds differ"), "{said}");
    assert!(shown.contains("the recordings part in turn 3"), "{shown}");
    for part in ["  stdout\n- \n+ two\n", "  variable x\n- 1\n+ 2\n", "program: code\n- x = 1\n"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("variable y"), "{shown}");
    let (code, shown, _) = replay(&["--diff", &files[0], &files[0]]);
    assert_eq!((code, shown.as_str()), (Some(0), "the recordings have the same 3 turns\n"));
}

#[test]
fn a_changed_recording_is_refused_and_a_killed_prompt_leaves_whole_turns() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let mut child = hatchery()
        .args(["repl", "--record", place])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    for number in 0..5 {
        std::io::Write::write_all(&mut stdin, format!("print({number})\n").as_bytes()).unwrap();
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let files = recordings(folder.path());
    let (code, shown, said) = replay(&["--verify", &files[0]]);
    assert_eq!(code, Some(1), "{shown}{said}");
    assert!(
        said.contains("whole turns: it has no end") || said.contains("no whole turn"),
        "{said}"
    );
    assert!(shown.contains(" equal, 0 taken from the recording, 0 differ"), "{shown}");

    let mut bytes = fs::read(&files[0]).unwrap();
    let place = bytes.len() / 2;
    bytes[place] ^= 1;
    fs::write(&files[0], bytes).unwrap();
    let (code, _, said) = replay(&[&files[0]]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is damaged"), "{said}");
}

#[test]
fn a_batch_is_recorded_job_by_job() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = folder.path().join("jobs.ndjson");
    let lines = (0..30).map(|n| {
        let code = "import random, uuid\nprint(n, random.random(), uuid.uuid4()); open('f', 'w').write('x')";
        format!("{}\n", json!({ "code": code, "variables": { "n": n } }))
    });
    fs::write(&jobs, lines.collect::<String>()).unwrap();
    let kept = folder.path().join("kept");
    let (jobs, kept) = (jobs.to_str().unwrap(), kept.to_str().unwrap());
    let output = run(&["batch", jobs, "--record", kept]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let files = recordings(Path::new(kept));
    let (code, verified, _) = replay(&["--verify", &files[0]]);
    assert_eq!(code, Some(0), "{verified}");
    assert!(
        verified.ends_with("batch-1.recording: 30 equal, 0 taken from the recording, 0 differ\n")
    );
}

#[test]
fn sessions_of_a_server_and_notebooks_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let kept = kept.to_str().unwrap();
    let (mut child, mut client) = over_stdio_with(&["--record", kept]);
    client.session("a", json!("open"));
    client.value(Some("a"), "import random; x = random.random(); x");
    client.session("a", json!({ "fork": { "to": "b" } }));
    client.value(Some("b"), "x, random.random()");
    client.session("cells", json!("open"));
    assert_eq!(client.session("cells", json!("begin_notebook"))["type"], "done");
    let call = json!({ "function": "hatchery_notebook:run_cell", "args": ["6 * 7", 0] });
    let run = json!({ "type": "run", "id": 1, "session": "cells", "job": { "call": call } });
    assert_eq!(client.ask(run)["result"]["displays"][0]["text/plain"], "42");
    drop(client);
    assert!(child.wait().unwrap().success());

    let notebook = folder.path().join("drawn.ipynb");
    let cell = |source: &str| {
        json!({ "cell_type": "code", "source": source, "metadata": {}, "outputs": [],
            "execution_count": null, "id": source.len().to_string() })
    };
    let cells = [cell("import random, time"), cell("print(random.random(), time.time())")];
    let json = json!({ "cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5 });
    fs::write(&notebook, json.to_string()).unwrap();
    let output = run_notebook(&notebook, kept);
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    let files = recordings(Path::new(kept));
    assert_eq!(files.len(), 4, "{files:?}");
    let arguments: Vec<&str> =
        ["--verify"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let (code, verified, said) = replay(&arguments);
    assert_eq!((code, verified.matches(" 0 differ").count()), (Some(0), 4), "{verified}{said}");
    assert!(!verified.contains(": 0 equal"), "{verified}");
}

fn run_notebook(notebook: &Path, kept: &str) -> std::process::Output {
    run(&["notebook", "run", notebook.to_str().unwrap(), "--record", kept])
}

#[test]
fn verdicts_are_graded_again() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: &[Json]| {
        let path = folder.path().join(name);
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let tests = "import random\nfor n in range(5):\n    assert f(n) == n + 1, random.random()";
    let tasks = write("tasks", &[json!({ "task_id": "t/1", "tests": tests })]);
    let samples =
        ["def f(x): return x + 1", "def f(x): return x", "def f(x):\n    while True: pass"]
            .map(|program| json!({ "task_id": "t/1", "solution": program }));
    let samples = write("samples", &samples);
    let kept = folder.path().join("kept");
    let kept = kept.to_str().unwrap();
    let grade = ["grade", &tasks, &samples, "--cpu-time", "1s", "--at-once", "1", "--record", kept];
    let output = run(&grade);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let files = recordings(Path::new(kept));
    assert_eq!(files.len(), 2, "{files:?}");
    let (code, verified, said) = replay(&["--verify", &files[0], &files[1]]);
    assert_eq!(code, Some(0), "{verified}{said}");
    assert!(verified.starts_with("`t/1`: failed again\n"), "{verified}");
    assert!(verified.contains("`t/1`: a limit on time decided"), "{verified}");

    // A verdict that the sample doesn't deserve.
    let recording = fs::read_to_string(&files[0]).unwrap();
    assert!(recording.contains("\"verdict\":\"failed\""), "{recording}");
    let (code, listed, _) = replay(&[&files[0]]);
    assert_eq!(code, Some(0), "{listed}");
    assert!(listed.contains("\"verdict\":\"failed\""), "{listed}");
}

/// The format is readable by others: the script stands in docs/recordings.md.
#[test]
fn the_documented_script_reads_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let output = run_with_stdin(&["repl", "--record", place], "print('read me')\n1/0\n");
    assert!(output.status.success(), "{output:?}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/recordings.md");
    let page = fs::read_to_string(page).unwrap();
    let script = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(script.lines().count() <= 25);
    let path = folder.path().join("read.py");
    fs::write(&path, script).unwrap();
    let file = recordings(folder.path()).into_iter().find(|file| file.ends_with("recording"));
    let read =
        |file: &str| std::process::Command::new("python3").arg(&path).arg(file).output().unwrap();
    let file = file.unwrap();
    let output = read(&file);
    assert!(output.status.success(), "{output:?}");
    let shown = text(&output.stdout);
    assert!(shown.contains("print('read me')") && shown.contains("read me\n"), "{shown}");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(!read(&file).status.success());
}

/// Returns a job that is chosen at random, and whether it is to be interrupted.
fn job_of(dice: &mut Dice) -> (Job, bool) {
    let n = dice.below(1000);
    let code = |source: String| (Job::code(source), false);
    match dice.below(19) {
        0 => code("import random; x = random.random(); print(x)".to_owned()),
        1 => code("import time\nprint(time.time(), time.monotonic()); time.sleep(0.3)".to_owned()),
        2 => code(format!("open('f{}.txt', 'a').write('line {n}\\n')", n % 3)),
        3 => code(format!("print(open('f{}.txt').read())", n % 3)),
        4 => code(format!("from hatchery import host\nhost.price(item='chair {n}')")),
        5 => code(format!("values = [{n}] * {n}; raise ValueError(len(values))")),
        6 => code("1/0".to_owned()),
        7 => code("import uuid; uuid.uuid1(), uuid.uuid4(), object()".to_owned()),
        8 => code(format!("import sys; print('e' * {n}, file=sys.stderr); sys.exit({})", n % 3)),
        9 => code(format!(
            "import matplotlib.pyplot as plt\nplt.figure(); plt.plot([1, {n}, 2]); plt.show()"
        )),
        10 => code(format!("import numpy as np\nnp.random.rand({}).round(3)", n % 50)),
        11 => code(format!("import pandas as pd\npd.DataFrame({{'a': range({})}})", n % 9)),
        12 => code("import os\nfor name in os.listdir(): os.remove(name)".to_owned()),
        13 => (Job::code("import os; os._exit(3)"), false),
        14 => {
            let job =
                Job::code("sum(given), text").variable("given", Array::from_slice(&[n as f64]));
            (job.variable("text", Value::from(json!({ "n": n }))), false)
        }
        15 => {
            let job = Job::code("print(input(), open('in.txt').read())").stdin("typed\n");
            (job.input("in.txt", format!("given {n}")).unwrap(), false)
        }
        16 => (Job::code("n = 0\nwhile True: n += 1").timeout(Duration::from_millis(100)), false),
        17 => {
            let spin = "print('begun', flush=True)\ntry:\n    while True: pass\n";
            (Job::code(format!("{spin}except KeyboardInterrupt: print('caught')")), true)
        }
        _ => {
            let limits = Limits { memory_bytes: 256 << 20, ..Limits::default() };
            (Job::code("bytearray(10**9)").limits(limits), false)
        }
    }
}

async fn run_turn(session: &Session, (job, is_interrupted): (Job, bool)) {
    let ticket = session.submit(job).await.unwrap();
    if is_interrupted {
        let mut events = ticket.events();
        while let Some(event) = events.next().await {
            if matches!(event.kind, EventKind::Output { .. }) {
                ticket.interrupt();
                break;
            }
        }
    }
    ticket.await;
}

#[test]
fn two_hundred_random_sessions_repeat_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let price = HostFunction::sync("price", |arguments: Json| {
            Ok::<_, hatchery::HostError>(json!([arguments, 12]))
        });
        let builder = Hatchery::builder().preload(["numpy", "pandas", "matplotlib"]).workers(2);
        let pool = builder.function(price).start().await.unwrap();
        let files = RecordFolder::open(folder.path()).unwrap();
        for number in 0..200 {
            let mut dice = Dice(number + 1);
            let session = pool.session(&format!("session {number}")).await.unwrap();
            files.record(&session).await.unwrap();
            for _ in 0..3 + dice.below(8) {
                run_turn(&session, job_of(&mut dice)).await;
            }
            session.stop_recording().await.unwrap();
            session.close();
        }
        pool.drain().await;
    });
    let files = recordings(folder.path());
    assert_eq!(files.len(), 200);
    let arguments: Vec<&str> =
        ["--verify"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let (code, verified, said) = replay(&arguments);
    assert_eq!(code, Some(0), "{verified}{said}");
    let sums: Vec<&str> = verified.lines().filter(|line| line.contains(" equal, ")).collect();
    assert_eq!(sums.len(), 200, "{verified}");
    assert!(sums.iter().all(|sum| sum.ends_with(" 0 differ")), "{verified}");
    let taken = verified.matches("is taken from the recording: ").count();
    let turns: usize = sums
        .iter()
        .map(|sum| {
            let count = sum.split(": ").nth(1).unwrap().split(' ').next().unwrap();
            count.parse::<usize>().unwrap()
        })
        .sum();
    println!("{turns} turns equal, {taken} taken from their recordings");
    assert!(turns > 900 && taken < turns / 4, "{turns}, {taken}");
}
