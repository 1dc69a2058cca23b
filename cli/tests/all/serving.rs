//! `hatchery serve` in frames: over standard streams and a Unix socket.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{hatchery, text};

pub(crate) use client::Client;

mod client;

/// A server over standard streams.
pub(crate) fn over_stdio() -> (Child, Client<ChildStdout, ChildStdin>) {
    over_stdio_with(&[])
}

/// The same with further options.
pub(crate) fn over_stdio_with(options: &[&str]) -> (Child, Client<ChildStdout, ChildStdin>) {
    let mut child = hatchery()
        .args(["serve", "--stdio", "--workers", "2", "--quiet"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (reader, writer) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    (child, Client::greeted(reader, writer))
}

/// A server on a Unix socket, which ends with the test.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(|command| command.stderr(Stdio::piped()))
    }

    /// The same with further arguments.
    pub(crate) fn start_with(configure: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.sock");
        let child = configure(&mut Self::at(&path)).spawn().unwrap();
        Self { child, path, _folder: folder }
    }

    fn at(path: &Path) -> Command {
        let mut command = hatchery();
        command.args(["serve", "--workers", "2", "--drain-time", "5s", "--unix"]).arg(path);
        command
    }

    pub(crate) fn connect(&self) -> Client<UnixStream, UnixStream> {
        let stream = self.stream();
        Client::greeted(stream.try_clone().unwrap(), stream)
    }

    /// Connects as soon as the server listens.
    fn stream(&self) -> UnixStream {
        let since = Instant::now();
        loop {
            match UnixStream::connect(&self.path) {
                Ok(stream) => return stream,
                Err(error) => assert!(since.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_job_has_events_and_an_outcome() {
    let (mut child, mut client) = over_stdio();
    // One write each, since a line of `print` may come in parts.
    let code = "import sys; sys.stdout.write('ä\\n'); sys.stderr.write('e\\n'); \
                open('f', 'w').write('x'); 7";
    let run = json!({
        "type": "run", "id": 1, "events": true, "contents": true, "job": { "code": code },
    });
    client.send(run, &[]);
    let mut shown = Vec::new();
    let (outcome, attachments) = loop {
        let (message, attachments) = client.receive();
        assert_eq!(message["id"], 1);
        if message["type"] != "event" {
            break (message, attachments);
        }
        assert_eq!(message["sequence"], shown.len());
        let event = &message["event"];
        let detail = event.get("stream").or(event.get("change")).cloned().unwrap_or_default();
        shown.push((event["kind"].clone(), detail, attachments.concat()));
    };
    let event = |kind: &str, detail: Value, bytes: &str| (json!(kind), detail, bytes.into());
    let expected: [(Value, Value, Vec<u8>); 4] = [
        event("started", Value::Null, ""),
        event("output", json!("stdout"), "ä\n"),
        event("output", json!("stderr"), "e\n"),
        event("file_changed", json!("created"), ""),
    ];
    assert_eq!(shown, expected);
    assert_eq!((&outcome["type"], &outcome["result"]["value"]), (&json!("outcome"), &json!(7)));
    assert_eq!((&outcome["files"], attachments.concat()), (&json!({ "f": 0 }), b"x".to_vec()));
    drop(client);
    assert!(child.wait().unwrap().success());
}

#[test]
fn arrays_and_files_travel_as_bytes() {
    let (_child, mut client) = over_stdio();
    let array: Vec<u8> = [1.0_f64, 2.5].into_iter().flat_map(f64::to_le_bytes).collect();
    let run = json!({
        "type": "run", "id": 1, "files": { "raw.bin": 1 },
        "data": { "a": { "kind": "array", "dtype": "<f8", "shape": [2], "attachment": 0 } },
        "job": { "code": "assert open('raw.bin', 'rb').read() == b'\\xff\\0'\na * 2" },
    });
    client.send(run, &[&array, b"\xff\0"]);
    let (outcome, attachments) = client.receive();
    let data = json!({ "kind": "array", "dtype": "<f8", "shape": [2], "attachment": 0 });
    assert_eq!(outcome["data"], data, "{outcome}");
    let doubled: Vec<u8> = [2.0_f64, 5.0].into_iter().flat_map(f64::to_le_bytes).collect();
    assert_eq!(attachments, [doubled]);
    let code = "import pandas; pandas.DataFrame({'x': [1, 2], 's': ['a', None]})";
    let run = json!({ "type": "run", "id": 2, "job": { "code": code } });
    client.send(run, &[]);
    let (outcome, attachments) = client.receive();
    let data = outcome["data"].clone();
    assert_eq!((&data["kind"], data["columns"].as_array().unwrap().len()), (&json!("frame"), 2));
    // The frame goes back as it came.
    let run = json!({
        "type": "run", "id": 3, "data": { "df": data },
        "job": { "code": "[int(df.x.sum()), df.s[0], bool(df.s.isna()[1])]" },
    });
    client.send(run, &attachments.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(client.receive().0["result"]["value"], json!([3, "a", true]));
}

#[test]
fn programs_call_functions_of_the_client() {
    let (_child, mut client) = over_stdio();
    let run = |id: u64, code: &str| {
        let function =
            json!({ "name": "price", "doc": "A price.", "parameters": [{ "name": "item" }] });
        json!({ "type": "run", "id": id, "functions": [function], "job": { "code": code } })
    };
    let call = "from hatchery import host\nhost.price(item='chair')";
    let asked = client.ask(run(1, call));
    let expected = json!({
        "type": "call", "id": 1, "call": asked["call"], "name": "price",
        "arguments": { "item": "chair" },
    });
    assert_eq!(asked, expected);
    let answer = json!({ "type": "answer", "call": asked["call"], "value": 87.5 });
    assert_eq!(client.ask(answer)["result"]["value"], 87.5);
    let asked = client.ask(run(2, call));
    let error = json!({ "type": "KeyError", "message": "chair" });
    let answer = json!({ "type": "answer", "call": asked["call"], "error": error });
    assert_eq!(client.ask(answer)["result"]["error"]["type"], "KeyError");
    // The program is interrupted while it waits, so nobody waits for the answer.
    let asked = client.ask(run(3, call));
    client.send(json!({ "type": "cancel", "id": 3 }), &[]);
    let mut kinds = [client.receive().0, client.receive().0];
    kinds.sort_by_key(|message| message["type"].to_string());
    assert_eq!(kinds[0], json!({ "type": "call_dropped", "call": asked["call"] }));
    assert_eq!(kinds[1]["result"]["status"], "cancelled");
    client.send(json!({ "type": "answer", "call": asked["call"], "value": 1 }), &[]);
    let run = json!({ "type": "run", "id": 4, "job": { "code": call } });
    assert_eq!(client.ask(run)["result"]["error"]["type"], "AttributeError");
}

#[test]
fn a_session_has_the_cells_of_a_notebook_and_messages_the_words_of_the_client() {
    let server = Server::start();
    let mut client = server.connect();
    client.session("a", json!("open"));
    assert_eq!(client.session("a", json!("begin_notebook"))["type"], "done");
    let mut cell = |source: &str| {
        let call = json!({ "function": "hatchery_notebook:run_cell", "args": [source, 0] });
        let run = json!({ "type": "run", "id": 1, "session": "a", "job": { "call": call } });
        client.ask(run)["result"].clone()
    };
    let shown = cell("    %matplotlib inline\n    6 * 7")["displays"][0].clone();
    assert_eq!(shown["text/plain"], "42");
    assert_eq!(cell("Out")["displays"][0]["text/plain"], "{1: 42}");
    let traceback = |result: Value| result["error"]["traceback"].as_str().unwrap().to_owned();
    assert!(traceback(cell("open('a.csv')")).contains("the field `files` gives it a copy"));
    let again = json!({ "type": "hello", "version": 1, "client": "python" });
    assert_eq!(client.ask(again)["type"], "hello");
    let of_python = traceback(client.result(None, "open('a.csv')"));
    assert!(of_python.contains("`files={\"a.csv\": …}` gives it a copy"), "{of_python}");
}

#[test]
fn sessions_are_forked_restored_saved_and_revived() {
    let (_child, mut client) = over_stdio();
    let done = |answer: Value| assert_eq!(answer["type"], "done", "{answer}");
    done(client.session("a", json!("open")));
    assert_eq!(client.value(Some("a"), "x = 1; open('f', 'w').write('text'); x"), 1);
    done(client.session("a", json!({ "checkpoint": { "checkpoint": "before" } })));
    done(client.session("a", json!({ "fork": { "to": "b" } })));
    assert_eq!(client.value(Some("b"), "x += 10; x"), 11);
    assert_eq!(client.value(Some("a"), "x += 1; x"), 2);
    done(client.session("a", json!({ "restore": { "checkpoint": "before" } })));
    assert_eq!(client.value(Some("a"), "x"), 1);
    let save = json!({ "type": "session", "id": 1, "session": "b", "action": "save" });
    client.send(save, &[]);
    let (saved, state) = client.receive();
    assert_eq!(saved["value"], state[0].len());
    let revive = json!({ "type": "session", "id": 1, "session": "c", "action": "revive" });
    client.send(revive, &[&state[0]]);
    done(client.receive().0);
    assert_eq!(client.value(Some("c"), "x"), 11);
    let workspace = json!({ "type": "session", "id": 1, "session": "c", "action": "workspace" });
    client.send(workspace, &[]);
    let (files, contents) = client.receive();
    assert_eq!((&files["value"], contents), (&json!({ "f": 0 }), vec![b"text".to_vec()]));
    assert_eq!(client.ask(json!({ "type": "sessions", "id": 2 }))["value"], json!(["a", "b", "c"]));
    done(client.session("c", json!("reset")));
    assert_eq!(client.value(Some("c"), "'x' in globals()"), false);
    done(client.session("b", json!("close")));
    for (name, action, expected) in [
        ("b", json!("save"), "no session `b`"),
        ("a", json!("open"), "there is a session `a`"),
        ("a", json!({ "fork": { "to": "c" } }), "there is a session `c`"),
        ("a", json!({ "restore": { "checkpoint": "other" } }), "no checkpoint `other`"),
        ("d", json!("revive"), "no attachment 0"),
        ("", json!("open"), "1 to 200 bytes"),
        ("a", json!("destroy"), "destroy"),
    ] {
        let answer = client.session(name, action);
        let message = answer["problem"]["message"].as_str().unwrap_or_default();
        assert!(answer["type"] == "refused" && message.contains(expected), "{answer}");
    }
}

#[test]
fn a_turn_can_be_interrupted_and_stopped() {
    let (_child, mut client) = over_stdio();
    client.session("a", json!("open"));
    client.value(Some("a"), "x = 1");
    for (command, kept) in [("interrupt", 2), ("stop", 1)] {
        let code = "x = 2\nprint('begun')\nwhile True: pass";
        let run = json!({
            "type": "run", "id": 1, "session": "a", "events": true, "job": { "code": code },
        });
        client.send(run, &[]);
        client.await_begun();
        client.send(json!({ "type": command, "id": 1 }), &[]);
        let outcome = client.receive().0;
        assert_eq!(outcome["result"]["success"], false, "{outcome}");
        assert_eq!(client.value(Some("a"), "x"), kept, "{command}");
        client.value(Some("a"), "x = 1");
    }
    // A job that has ended takes no harm.
    client.send(json!({ "type": "interrupt", "id": 1 }), &[]);
    assert_eq!(client.value(Some("a"), "x"), 1);
}

#[test]
fn invalid_messages_are_refused_and_the_next_one_is_served() {
    let (_child, mut client) = over_stdio();
    for (message, expected) in [
        (json!({ "type": "run", "id": 1, "job": { "cod": "1" } }), "no field `cod`"),
        (json!({ "type": "run", "id": 1, "job": { "file": "/etc/passwd" } }), "`file`"),
        (json!({ "type": "run", "id": 1, "jobs": {} }), "jobs"),
        (json!({ "type": "run", "id": 1, "job": {}, "session": "none" }), "give the program"),
        (
            json!({ "type": "run", "id": 1, "job": { "code": "" }, "session": "none" }),
            "no session `none`",
        ),
        (
            json!({ "type": "run", "id": 1, "job": { "code": "" }, "files": { "a": 0 } }),
            "no attachment 0",
        ),
        (
            json!({ "type": "run", "id": 1, "job": { "code": "" },
                "functions": [{ "name": "not a name" }] }),
            "not a name",
        ),
        (json!({ "type": "fly" }), "fly"),
        (json!({ "type": "hello", "version": 2 }), "version 1"),
        (json!({ "type": "drain", "id": 1, "seconds": -1 }), "`seconds`"),
        (json!({}), "type"),
    ] {
        let refusal = client.refusal(message.clone());
        assert!(refusal.contains(expected), "{message}: {refusal}");
    }
    let run = json!({ "type": "run", "id": 1, "job": { "code": "while True: pass" } });
    client.send(run.clone(), &[]);
    assert!(client.refusal(run).contains("the same id"));
    client.send(json!({ "type": "stop", "id": 1 }), &[]);
    assert_eq!(client.receive().0["result"]["status"], "cancelled");
    assert_eq!(client.value(None, "1 + 1"), 2);
}

#[test]
fn samples_are_graded_as_the_command_grades_them() {
    let (mut child, mut client) = over_stdio();
    let task = json!({ "task_id": "t", "tests": ["assert f(1) == 2", "assert f(2) == 4"] });
    let mut grade = |code: &str, others: Value| {
        let mut message =
            json!({ "type": "grade", "id": "g", "task": task, "sample": { "solution": code } });
        message.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
        client.ask(message)
    };
    let equal = "class Equal:\n    def __eq__(self, other): return True\ndef f(x): return Equal()";
    for (code, verdict, passed) in [
        ("def f(x): return x * 2", "passed", 2),
        ("def f(x): return x + 1", "failed", 1),
        ("import os\ndef f(x): os._exit(0)", "failed", 0),
        ("def f(x):\n while True: pass", "limit", 0),
        (equal, "undecided", 0),
    ] {
        let answer = grade(code, json!({ "cpu_time": 0.5, "timeout": 600 }));
        assert_eq!((&answer["type"], &answer["id"]), (&json!("done"), &json!("g")), "{answer}");
        let told = (&answer["value"]["verdict"], &answer["value"]["tests_passed"]);
        assert_eq!(told, (&json!(verdict), &json!(passed)), "{answer}");
    }
    for (others, problem) in [
        (
            json!({ "task": { "task_id": "t" } }),
            "the task can't be used: its fields match no known form",
        ),
        (json!({ "sample": {} }), "the sample can't be used: it has no program"),
        (json!({ "cpu_time": -1 }), "`cpu_time` must be a number of seconds above 0"),
    ] {
        let answer = grade("", others);
        assert_eq!(answer["problem"]["kind"], "usage", "{answer}");
        assert!(answer["problem"]["message"].as_str().unwrap().contains(problem), "{answer}");
    }
    drop(client);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_end_of_its_input_ends_the_server_and_its_jobs() {
    let (mut child, mut client) = over_stdio();
    let run = json!({ "type": "run", "id": 1, "job": { "code": "while True: pass" } });
    client.send(run, &[]);
    drop(client);
    let since = Instant::now();
    assert!(child.wait().unwrap().success());
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[test]
fn a_signal_drains_what_came_over_standard_input_too() {
    let (mut child, mut client) = over_stdio();
    let code = "import time; print('begun'); time.sleep(0.3); 'done'";
    let run = json!({ "type": "run", "id": 1, "events": true, "job": { "code": code } });
    client.send(run, &[]);
    client.await_begun();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(client.receive().0["result"]["value"], "done");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn processes_share_a_pool_and_its_sessions() {
    let server = Server::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    let mode = server.path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    first.session("shared", json!("open"));
    first.value(Some("shared"), "x = 1");
    assert_eq!(second.value(Some("shared"), "x += 1; x"), 2);
    // A client that goes away takes its jobs along and leaves its sessions.
    let run = json!({
        "type": "run", "id": 1, "events": true, "job": { "code": "while True: pass" },
    });
    first.send(run, &[]);
    assert_eq!(first.receive().0["event"]["kind"], "started");
    assert_eq!(second.ask(json!({ "type": "status", "id": 1 }))["value"]["running"], 1);
    drop(first);
    let since = Instant::now();
    while second.ask(json!({ "type": "status", "id": 1 }))["value"]["running"] != 0 {
        assert!(since.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(server.connect().value(Some("shared"), "x"), 2);
}

#[test]
fn what_is_no_frame_ends_its_connection_and_no_other() {
    let server = Server::start();
    let mut other = server.connect();
    for bytes in [
        &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        &[0xff; 64],
        b"\x02\0\0\0[]",
        b"\x05\0\0\0{\"a\":",
        b"\x02\0\0\0{}",
        b"\x13\0\0\0{\"attachments\":[-1]}",
        b"\x01",
        b"",
    ] {
        let mut stream = server.stream();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        let is_told = bytes.is_empty() || text(&said).contains("refused");
        assert!(is_told, "{bytes:?}: {}", text(&said));
    }
    assert_eq!(other.value(None, "1 + 1"), 2);
}

#[test]
fn clients_that_do_not_read_hold_up_nobody() {
    let server = Server::start();
    let mut deaf = server.connect();
    let printing = json!({ "code": "print('x' * (1 << 20))" });
    for id in 0..64 {
        deaf.send(json!({ "type": "run", "id": id, "events": true, "job": printing }), &[]);
    }
    let idle: Vec<UnixStream> = (0..200).map(|_| server.stream()).collect();
    let mut client = server.connect();
    for _ in 0..20 {
        assert_eq!(client.value(None, "1 + 1"), 2);
    }
    drop((idle, deaf));
    assert_eq!(client.value(None, "1 + 1"), 2);
}

#[test]
fn a_signal_drains_the_pool_and_removes_the_socket() {
    let mut server = Server::start();
    let mut client = server.connect();
    let code = "import time; print('begun'); time.sleep(0.3); 'done'";
    let run = json!({ "type": "run", "id": 1, "events": true, "job": { "code": code } });
    client.send(run, &[]);
    client.await_begun();
    server.signal("-TERM");
    // What runs may end; what comes later is refused.
    let outcome = client.receive().0;
    assert_eq!(outcome["result"]["value"], "done", "{outcome}");
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(143), "{status}");
    assert!(!server.path.exists());
    assert!(client.next().is_none());
}

#[test]
fn a_client_drains_the_pool() {
    let mut server = Server::start();
    let mut client = server.connect();
    client.value(None, "1");
    assert_eq!(client.ask(json!({ "type": "drain", "id": 1, "seconds": 1 }))["type"], "done");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_socket_is_replaced_only_if_nobody_listens() {
    let mut server = Server::start();
    server.connect();
    let refused = Server::at(&server.path).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("another process listens"), "{refused:?}");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(server.path.exists(), "nobody removed it");
    server.child = Server::at(&server.path).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(server.connect().value(None, "1 + 1"), 2);
    let folder = tempfile::tempdir().unwrap();
    let occupied = folder.path().join("file");
    std::fs::write(&occupied, "mine").unwrap();
    let refused = Server::at(&occupied).output().unwrap();
    assert!(text(&refused.stderr).contains("not a socket"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&occupied).unwrap(), "mine");
    let nowhere = Server::at(&folder.path().join("no/pool.sock")).output().unwrap();
    assert!(text(&nowhere.stderr).contains("a folder that you can write to"), "{nowhere:?}");
}
