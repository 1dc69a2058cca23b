//! `hatchery submit` writes what `hatchery batch` would, whichever server is in between.

use std::fs;

use serde_json::json;

use crate::commands::{Files, Running, without_times};
use crate::server::{NEWEST, OLDEST, Server, Version};

/// Lines of each kind.
fn lines() -> Vec<String> {
    let script = concat!(env!("CARGO_TARGET_TMPDIR"), "/script.py");
    fs::write(script, "print('from a file')\n7").unwrap();
    let large = "x".repeat(700_000);
    [
        json!({ "id": "value", "code": "6 * 7" }),
        json!({ "id": "output", "code": "print('a'); import sys; print('b', file=sys.stderr)" }),
        json!({ "id": "error", "code": "1 / 0" }),
        json!({ "id": "limit", "code": "while True: pass", "timeout": 0.5 }),
        json!({ "id": "exit", "code": "import sys; sys.exit(3)" }),
        json!({ "id": "inputs", "code": "open('f').read() + str(n)", "variables": { "n": 1 },
            "files": { "f": "text" }, "tenant": "a b", "priority": "high" }),
        json!({ "id": "files", "code": "open('made', 'w').write('x' * 10)", "priority": "low" }),
        json!({ "id": "call", "call": { "function": "math:sqrt", "args": [16] } }),
        json!({ "id": "large in", "code": "len(text)", "variables": { "text": large } }),
        json!({ "id": "large out", "code": "print('y' * 700_000)" }),
        json!({ "id": "twice", "code": "1" }),
        json!({ "id": "twice", "code": "1" }),
        json!({ "id": "wrong", "cod": "1" }),
        json!({ "id": "script", "file": script }),
        json!({ "id": "no such script", "file": format!("{script}.missing") }),
        json!({ "id": "unknown build", "code": "1", "python": "2.7" }),
        json!({ "id": "displays", "code": "display(1)" }),
    ]
    .iter()
    .map(ToString::to_string)
    .collect()
}

fn same_as_a_batch(version: Version) {
    let Some(server) = Server::start_version(version, "") else { return };
    let files = Files::new(&lines());
    let _worker = Running::ready_worker(&server, "one", &[]);
    let submit =
        Running::submit(&server, &files.jobs(), &files.out("remote"), &["--file-contents"]);
    let (status, said) = submit.end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("2 lines invalid"), "{said}");
    let local = without_times(&files.locally(&["--file-contents"]));
    let remote = without_times(&files.results("remote"));
    assert_eq!(remote.len(), local.len());
    for (remote, local) in remote.iter().zip(&local) {
        assert_eq!(remote, local);
    }
    assert!(!files.out("remote.submission").exists());
}

#[test]
fn results_are_those_of_a_local_batch() {
    same_as_a_batch(NEWEST);
}

#[test]
fn results_are_those_of_a_local_batch_with_the_oldest_server() {
    same_as_a_batch(OLDEST);
}

#[test]
fn the_example_starts_a_cluster() {
    let Some(server) = Server::start() else { return };
    let files = Files::new(&lines()[..1]);
    let tools = tempfile::tempdir().unwrap();
    for (name, program) in [
        ("hatchery", std::path::Path::new(env!("CARGO_BIN_EXE_hatchery"))),
        ("nats-server", server.program()),
    ] {
        std::os::unix::fs::symlink(program, tools.path().join(name)).unwrap();
    }
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let output = std::process::Command::new("bash")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/cluster.sh"))
        .args(["sh", "-c", "hatchery submit --nats \"$NATS_URL\" \"$0\" --out \"$1\""])
        .arg(files.jobs())
        .arg(files.out("out"))
        .env("PATH", path)
        .env("PORT", crate::server::free_port().to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(files.results("out")[0]["value"], 42);
}

#[test]
fn a_killed_submitter_resumes_without_running_jobs_again() {
    let Some(server) = Server::start() else { return };
    let line = |id: usize| json!({ "id": id, "code": format!("import time\nprint(time.time_ns())\n{id}") });
    let lines: Vec<String> = (0..40).map(|id| line(id).to_string()).collect();
    let files = Files::new(&lines);
    // Everything is in the queue, and nobody takes it.
    let mut submit =
        Running::submit(&server, &files.jobs(), &files.out("out"), &["--progress", "json"]);
    submit.says("\"done\":0");
    submit.kill();
    assert!(files.out("out.submission").exists());
    let _worker = Running::ready_worker(&server, "one", &[]);
    let again = Running::submit(&server, &files.jobs(), &files.out("out"), &["--resume"]);
    let (status, said) = again.end();
    assert!(status.success(), "{said}");
    let results = files.results("out");
    let before = fs::read(files.out("out")).unwrap();
    assert_eq!(results.len(), lines.len());
    // Once more: all lines have their results, so none is run again.
    let again = Running::submit(&server, &files.jobs(), &files.out("out"), &["--resume"]);
    let (status, said) = again.end();
    assert!(status.success() && said.contains("40 of these from an earlier run"), "{said}");
    assert_eq!(fs::read(files.out("out")).unwrap(), before);
}

#[test]
fn a_worker_that_ends_gives_back_what_it_runs() {
    let Some(server) = Server::start() else { return };
    // The one with the file ends at once; the other one never.
    let line =
        json!({ "id": 1, "code": "print(1, flush=True)\nimport time\ntime.sleep(8)\n'done'" });
    let files = Files::new(&[line.to_string()]);
    let mut first = Running::ready_worker(&server, "first", &["--drain-time", "1s"]);
    let submit = Running::submit(&server, &files.jobs(), &files.out("out"), &["--file-contents"]);
    // It has claimed the job when the queue has no other.
    crate::library::claimed(&server, 1);
    first.terminate();
    first.says("1 given back");
    let _second = Running::ready_worker(&server, "second", &[]);
    let (status, said) = submit.end();
    assert!(status.success(), "{said}");
    assert_eq!(files.results("out")[0]["value"], "done");
}

#[test]
fn a_line_that_cannot_be_sent_has_a_result_and_others_run() {
    let Some(server) = Server::start() else { return };
    let files = Files::new(&[
        json!({ "id": 1, "code": "1", "tenant": "é".repeat(64) }).to_string(),
        json!({ "id": 2, "code": "6 * 7" }).to_string(),
    ]);
    let _worker = Running::ready_worker(&server, "one", &[]);
    let (_, said) = Running::submit(&server, &files.jobs(), &files.out("out"), &[]).end();
    let results = files.results("out");
    assert_eq!(results.len(), 2, "{said}");
    assert_eq!(results[0]["error"]["kind"], "usage", "{results:?}");
    assert!(results[0]["error"]["message"].as_str().unwrap().contains("tenant"), "{results:?}");
    assert_eq!(results[1]["value"], 42, "{results:?}");
}
