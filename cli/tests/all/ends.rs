//! How programs end: by Ctrl-C, and by each limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{hatchery, interrupt, notebooks, run, run_with_stdin, text};

/// Starts a program, and sends Ctrl-C after each of its first lines. Returns its exit code and its
/// output on both streams.
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

/// Nobody reads, so every write blocks; Ctrl-C still works.
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
            // Signals that come at once count as one, so it sends again until the last one is
            // counted.
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
fn limits_are_set_and_named() {
    for (arguments, source, code, expected) in [
        (
            ["--cpu-time", "200ms"],
            "while True: pass",
            124,
            "the cpu limit of 200 ms was reached with 2",
        ),
        (
            ["--memory", "100MiB"],
            "bytearray(1 << 28)",
            1,
            "of memory and may have 100.0 MiB; `--memory` raises it",
        ),
        (
            ["--file-bytes", "1kB"],
            "import os; os.write(os.open('f', os.O_CREAT | os.O_WRONLY), bytes(2000))",
            1,
            "wanted 2.0 KiB in files and may have 1000 B; `--file-bytes` raises it",
        ),
        (
            ["--file-count", "2"],
            "for i in range(9): open(str(i), 'w')",
            1,
            "wanted more than 2 files; `--file-count` raises it",
        ),
        (
            ["--open-files", "3"],
            "k = [open('f', 'w') for i in range(9)]",
            1,
            "wanted more than 3 open files; `--open-files` raises it",
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
            "the output was 100 B, of which 10 B were kept; `--output` raises",
        ),
        (
            ["--source", "10B"],
            "print('long')",
            124,
            "limit of 10 B was reached with 13 B; `--source` raises it",
        ),
        (["--timeout", "200ms"], "while True: pass", 124, "; `--timeout` raises it"),
        (["--result", "1KiB"], "'x' * 2000", 0, "; `--result` raises it"),
        (["--display-count", "1"], "display(1), display(2)", 0, "; `--display-count` raises it"),
        (["--display-bytes", "9B"], "display('x' * 99)", 0, "; `--display-bytes` raises it"),
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

/// Whatever programs allocate, the process stays below the sum of the module, its workers' limits
/// and some room for each.
#[test]
fn bombs_leave_the_process_bounded() {
    let bombs = [
        ("memory", "x = []\nwhile True: x.append(bytearray(1 << 20))"),
        ("memory", "x = 'a'\nwhile True: x += x"),
        ("memory", "x = {}\nwhile True: x[len(x)] = [0] * 1000"),
        (
            "memory",
            "kept = []\nwhile True:\n    try: kept.append([bytearray(999) for _ in range(1000)])\n\
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
        .map(|(limit, code)| format!("{}\n", json!({ "id": limit, "code": code, "timeout": 20 })))
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

/// Returns the peak memory of a process; 0 once it has ended.
fn peak_resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// CPython doubles the number until it is zero, which never happens, and doesn't access memory:
/// without safepoints, nothing would stop these.
#[test]
fn a_loop_that_touches_no_memory_ends_in_a_notebook_and_at_the_prompt() {
    const ENDLESS: &str = "f.__code__ = f.__code__.replace(co_stacksize=300_000_000)";
    let folder = tempfile::tempdir().unwrap();
    let begin = "kept = 7\ndef f(): pass";
    let end = format!("{ENDLESS}\nf()");
    let path = notebooks::write(folder.path(), "endless.ipynb", &[begin, &end]);
    let limits = ["--timeout", "500ms", "--grace", "50ms"];
    let output = notebooks::run_notebook(&path, &limits);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cell 2 of 2 failed") && said.contains("wall limit"), "{said}");

    let typed = format!("kept = 7\ndef f(): pass\n\n{ENDLESS}; f()\nprint(kept)\n");
    let mut arguments = vec!["repl"];
    arguments.extend(limits);
    let output = run_with_stdin(&arguments, &typed);
    let said = text(&output.stderr);
    assert!(said.contains("wall limit"), "{said}");
    assert_eq!(text(&output.stdout), "7\n", "{said}");
}
