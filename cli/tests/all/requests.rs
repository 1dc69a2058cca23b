//! HTTP requests of programs, as the command line's options allow them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};
use test_support::processes::family;

use crate::{hatchery, json_of, run, run_with_stdin, serving, text, web};

/// A server that answers each request with the request's own head.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> =
                lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            let body = head.join("\n");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            // A client that has gone needs no answer.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

#[test]
fn options_and_a_file_allow_requests() {
    let port = echo();
    let code = format!(
        "import os, urllib.request as r
q = r.Request('http://127.0.0.1:{port}/a', headers={{'X-Key': os.environ['KEY']}})
r.urlopen(q).read().decode()"
    );
    let (rule, secret) = (
        format!("GET http://127.0.0.1:{port}/*"),
        format!("KEY=env:OWN_KEY@http://127.0.0.1:{port}"),
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("egress.toml");
    let toml = format!("allow = [{rule:?}]\nsecrets = [{secret:?}]\n[limits]\nrequests = 1\n");
    std::fs::write(&file, toml).unwrap();
    let file = file.to_str().unwrap();
    for options in [&["--allow-http", &rule, "--secret", &secret][..], &["--egress", file]] {
        let mut command = hatchery();
        command
            .args(["run", "-c", &code, "--json"])
            .args(options)
            .env("OWN_KEY", "value-of-the-key");
        let output = command.output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let head = result["value"].as_str().unwrap_or_else(|| panic!("{result}"));
        // The server got the secret, and the program sees the placeholder in the echo.
        assert!(head.contains("X-Key: hatchery-secret-KEY-"), "{head}");
        assert!(!text(&output.stdout).contains("value-of-the-key"));
        assert_eq!(result["requests"][0]["url"], format!("http://127.0.0.1:{port}/a"));
    }
}

#[test]
fn options_that_cannot_be_used_say_why() {
    for (options, says) in [
        (&["--allow-http", "example.com"][..], "write methods and a URL"),
        (&["--secret", "KEY=env:NOT_SET_HERE@https://example.com"], "set the environment variable"),
        (&["--secret", "KEY=value"], "NAME=env:VARIABLE@https://host"),
        (&["--secret", "KEY=env:HATCHERY_KEY@https://example.com"], "rename `HATCHERY_KEY`"),
        (&["--egress", "no-such.toml"], "no-such.toml"),
        (&["--http-root", "Cargo.toml"], "give them in PEM"),
    ] {
        let output = run(&[&["run", "-c", "1"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(says), "{output:?}");
    }
}

#[test]
fn a_line_of_a_batch_asks_for_less() {
    let port = echo();
    let code = format!(
        "import urllib.request as r\ntry: x = r.urlopen('http://127.0.0.1:{port}/a').status
except OSError as e: x = str(e)\nx"
    );
    let rules = [format!("GET http://127.0.0.1:{port}/b")];
    let lines = [
        json!({ "code": code }),
        json!({ "code": code, "egress": rules }),
        json!({ "code": code, "egress": [] }),
        json!({ "code": code, "egress": ["nothing"] }),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let rule = format!("* http://127.0.0.1:{port}/*");
    let output = run_with_stdin(&["batch", "-", "--ordered", "--allow-http", &rule], &lines);
    let results: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results[0]["value"], 200, "{results:?}");
    for (result, says) in results[1..3].iter().zip(["no rule allows", "no network"]) {
        assert!(result["value"].as_str().unwrap().contains(says), "{result}");
    }
    assert!(results[3]["error"]["message"].as_str().unwrap().contains("write methods and a URL"));
}

/// How many files and threads a process has.
fn held(process: u32) -> [usize; 2] {
    ["fd", "task"].map(|name| {
        let entries = std::fs::read_dir(format!("/proc/{process}/{name}")).unwrap();
        entries.count()
    })
}

#[test]
fn ten_thousand_jobs_outlive_the_server_of_their_requests() {
    const JOBS: usize = 10_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It answers half of the requests, and is gone with those that it hasn't read.
    let serving = thread::spawn(move || {
        for stream in listener.incoming().take(JOBS / 2) {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map(Result::unwrap).take_while(|line| !line.is_empty()).for_each(drop);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let mut batch = hatchery()
        .args(["batch", "-", "--workers", "2", "--preload", "http.client", "--quiet"])
        .args(["--allow-http", &format!("GET http://127.0.0.1:{port}/*")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let code = format!(
        "import http.client
c = http.client.HTTPConnection('127.0.0.1', {port})
try:
    c.request('GET', '/')
    told = c.getresponse().read().decode()
except (OSError, http.client.HTTPException):
    told = 'gone'
told"
    );
    let line = format!("{}\n", json!({ "code": code }));
    let mut stdin = batch.stdin.take().unwrap();
    let mut lines = BufReader::new(batch.stdout.take().unwrap()).lines();
    let mut told = || {
        let result: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(result["requests"].as_array().map(Vec::len), Some(1), "{result}");
        result["value"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
    };
    // What the first jobs leave is there for all.
    stdin.write_all(line.repeat(100).as_bytes()).unwrap();
    assert!((0..100).all(|_| told() == "ok"));
    let before = held(batch.id());
    let writing = thread::spawn(move || {
        stdin.write_all(line.repeat(JOBS - 100).as_bytes()).unwrap();
        stdin
    });
    let (mut ok, mut gone) = (100, 0);
    for _ in 100..JOBS {
        match &*told() {
            "ok" => ok += 1,
            "gone" => gone += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((ok, gone), (JOBS / 2, JOBS / 2));
    let stdin = writing.join().unwrap();
    let after = held(batch.id());
    // The few threads that do blocking work come and go.
    assert!(after[0] <= before[0] && after[1] < before[1] + 10, "{before:?}, {after:?}");
    drop(stdin);
    assert!(batch.wait().unwrap().success());
    serving.join().unwrap();
}

/// What is read of a process's memory at once, and the size of its pages, in bytes.
const BLOCK: usize = 16 << 20;
const PAGE: usize = 4096;

/// Returns how often a process has a text in its memory and environment, as far as others can read
/// them.
fn occurrences(process: u32, text: &str) -> usize {
    let folder = format!("/proc/{process}");
    let count = |bytes: &[u8]| memchr::memmem::find_iter(bytes, text).count();
    let mut found = std::fs::read(format!("{folder}/environ")).map_or(0, |bytes| count(&bytes));
    let Ok(memory) = std::fs::File::open(format!("{folder}/mem")) else { return found };
    let pages = std::fs::File::open(format!("{folder}/pagemap")).unwrap();
    let maps = std::fs::read_to_string(format!("{folder}/maps")).unwrap();
    let (mut bytes, mut entries) = (vec![0; BLOCK], vec![0; BLOCK / PAGE * 8]);
    for line in maps.lines().filter(|line| line.contains(" r")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        let to = address(to);
        for at in (address(from)..to).step_by(BLOCK) {
            let size = BLOCK.min(to - at);
            let entries = &mut entries[..size / PAGE * 8];
            // Reading a page that was never touched would give the process another one.
            let Ok(()) = pages.read_exact_at(entries, (at / PAGE * 8) as u64) else { continue };
            let is_there = |page: &[u8]| page[7] & 0b1100_0000 != 0;
            let pages: Vec<bool> = entries.chunks(8).map(is_there).collect();
            let mut start = at;
            for run in pages.chunk_by(|one, other| one == other) {
                let length = run.len() * PAGE;
                if run[0] {
                    let bytes = &mut bytes[..length];
                    found +=
                        memory.read_at(bytes, start as u64).map_or(0, |read| count(&bytes[..read]));
                }
                start += length;
            }
        }
    }
    found
}

/// Returns all processes below one.
fn below(process: u32) -> Vec<u32> {
    let (workers, keeper) = family(process);
    let own: Vec<u32> = workers.into_iter().chain(keeper).collect();
    own.iter().copied().chain(own.iter().flat_map(|child| below(*child))).collect()
}

/// The whole answer to a request of a tenant or an operator.
fn post(address: &str, token: &str, path: &str, body: &Value) -> String {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/call\r\nMcp-Name: run_python\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn tenants_have_rules_of_their_own_through_each_door() {
    let port = echo();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("egress.toml");
    let toml = format!(
        "allow = ['GET http://127.0.0.1:{port}/*']\n[tenants]\n\
         ada = ['GET http://127.0.0.1:{port}/a']\nbob = []\n"
    );
    std::fs::write(&file, toml).unwrap();
    let server = web::Server::with_tokens(&["--egress", file.to_str().unwrap()]);
    let code = format!(
        "import urllib.request as r
def get(path):
    try: return r.urlopen('http://127.0.0.1:{port}/' + path).status
    except OSError: return 'no'
print('<%s|%s>' % (get('a'), get('b')))"
    );
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = json!({ "name": "run_python", "arguments": { "code": code }, "_meta": meta });
    let all = [format!("GET http://127.0.0.1:{port}/*")];
    let doors = [
        ("/v1/run", json!({ "code": code })),
        ("/v1/run", json!({ "code": code, "egress": all })),
        ("/v1/sessions/s/run", json!({ "code": code })),
        ("/v1/batches", json!({ "code": code })),
        ("/mcp", json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call })),
        ("/execute", json!({ "code": code })),
        ("/run_code", json!({ "code": code, "language": "python" })),
        ("/run_jupyter", json!({ "cells": [code], "kernel": "python3" })),
        (
            "/api/v2/execute",
            json!({ "language": "python", "version": "*", "files": [{ "content": code }] }),
        ),
    ];
    let tenants = [(web::ADA, "<200|no>"), (web::BOB, "<no|no>"), (web::OPERATOR, "<200|200>")];
    for (token, expected) in tenants {
        post(server.address(), token, "/v1/sessions", &json!({ "name": "s" }));
        for (path, body) in &doors {
            let answer = post(server.address(), token, path, body);
            assert!(answer.contains(expected), "{path}: {expected}: {answer}");
        }
    }
    // The owner says whose job it is.
    let of_ada = json!({ "code": code, "tenant": "ada" });
    let answer = post(server.address(), web::OPERATOR, "/v1/run", &of_ada);
    assert!(answer.contains("<200|no>"), "{answer}");
    let own = serving::Server::start_with(|command| command.arg("--egress").arg(&file));
    let answer = own.connect().ask(json!({ "type": "run", "id": 1, "job": of_ada }));
    assert_eq!(answer["result"]["stdout"], "<200|no>\n", "{answer}");
}

#[test]
fn what_a_job_waits_for_is_shown() {
    // Connections are accepted, and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/slow?n=1", silent.local_addr().unwrap());
    let server = web::Server::start(&[
        "--isolation",
        "process",
        "--allow-http",
        &format!("GET http://{}/*", silent.local_addr().unwrap()),
    ]);
    let waits = json!({ "code": format!("import urllib.request as r; r.urlopen({url:?})") });
    let address = server.address().to_owned();
    let waiting = thread::spawn(move || post(&address, "", "/v1/run", &waits));
    let job = server.running();
    let request = loop {
        let explained = server.get(&format!("/v1/jobs/{job}/explain")).1;
        let request = explained["network"]["under_way"].clone();
        if request["method"] == "GET" {
            break request;
        }
    };
    assert_eq!((&request["url"], request["seconds"].is_f64()), (&json!(url), true));
    let (_, status) = server.get("/v1/status");
    let workers = status["workers"].as_array().unwrap();
    let network = &workers.iter().find(|worker| worker["job"] == job).unwrap()["network"];
    assert_eq!((&network["requests"], &network["under_way"]["url"]), (&json!(1), &json!(url)));
    let top = run(&["top", server.address(), "--once"]);
    assert!(text(&top.stdout).contains(": GET http://"), "{top:?}");
    let (interrupted, _) = server.post(&format!("/v1/jobs/{job}/interrupt"), &json!({}));
    assert_eq!(interrupted, 202);
    assert!(waiting.join().unwrap().contains("KeyboardInterrupt"));
}

#[test]
fn nothing_of_a_secret_is_kept_or_shown() {
    let port = echo();
    let value = "sk-kept-by-the-parent-0123";
    let folder = tempfile::tempdir().unwrap();
    let [setup, log] = ["setup.py", "log.txt"].map(|name| folder.path().join(name));
    // Unlike any other, so that the image is new.
    let source = format!("import os, urllib.request as r\nfound = os.environ.get('KEY'), {port}");
    std::fs::write(&setup, source).unwrap();
    let (rule, secret) = (
        format!("GET http://127.0.0.1:{port}/*"),
        format!("KEY=env:OWN_KEY@http://127.0.0.1:{port} query"),
    );
    let options = ["--allow-http", &rule, "--secret", &secret, "--setup", setup.to_str().unwrap()];
    let mut building = hatchery();
    building.args(["image", "build", "--json"]).args(options).env("OWN_KEY", value);
    let built = json_of(&building.output().unwrap());
    let image = std::fs::read(built["path"].as_str().unwrap_or_else(|| panic!("{built}"))).unwrap();
    let server = serving::Server::start_with(|command| {
        let log = std::fs::File::create(&log).unwrap();
        let isolated = ["--isolation", "process"];
        command
            .args(options)
            .args(isolated)
            .env("OWN_KEY", value)
            .env("RUST_LOG", "trace")
            .stderr(log)
    });
    let mut watcher = server.connect();
    watcher.send(json!({ "type": "decisions", "id": "d" }), &[]);
    let mut client = server.connect();
    let mut seen = Vec::new();
    let mut ask = |message: Value, attachments: &[&[u8]]| {
        client.send(message, attachments);
        loop {
            let (message, attachments) = client.receive();
            seen.extend(message.to_string().bytes().chain(attachments.concat()));
            assert_ne!(message["type"], "refused", "{message}");
            if message["type"] != "event" {
                break (message, attachments);
            }
        }
    };
    let session = |name: &str, action: Value| json!({ "type": "session", "id": "s", "session": name, "action": action });
    let code = format!(
        "import os; key = os.environ['KEY']
u = 'http://127.0.0.1:{port}/?k=' + key
q = r.Request(u, headers={{'X-Key': key}}); echo = r.urlopen(q).read().decode()
open('echo.txt', 'w').write(echo); print(echo); [key, echo, found]"
    );
    let job = |session: &str| {
        let job = json!({ "code": code });
        json!({ "type": "run", "id": "r", "session": session, "events": true, "contents": true, "job": job })
    };
    ask(session("s", json!("open")), &[]);
    let (outcome, _) = ask(job("s"), &[]);
    assert_eq!(outcome["result"]["success"], true, "{outcome}");
    assert!(outcome["result"]["stdout"].as_str().unwrap().contains("X-Key: hatchery-secret-KEY-"));
    ask(session("s", json!({ "fork": { "to": "t" } })), &[]);
    ask(job("t"), &[]);
    let (_, saved) = ask(session("t", json!("save")), &[]);
    assert!(!saved[0].is_empty());
    ask(session("u", json!("revive")), &[&saved[0]]);
    let (outcome, _) = ask(job("u"), &[]);
    assert_eq!(outcome["result"]["success"], true, "{outcome}");
    let (_, files) = ask(session("u", json!("workspace")), &[]);
    assert!(text(&files[0]).contains("hatchery-secret-KEY-"));
    ask(json!({ "type": "status", "id": "p" }), &[]);
    // The session that was saved, forked and revived is in the worker's memory.
    let processes = below(server.child.id());
    assert!(processes.len() >= 2, "a helper and its worker: {processes:?}");
    for process in processes {
        assert_eq!(occurrences(process, value), 0, "process {process}");
    }
    server.signal("-TERM");
    while let Some((message, _)) = watcher.next() {
        seen.extend(message.to_string().bytes());
    }
    let log = std::fs::read(&log).unwrap();
    assert!(text(&log).contains("TRACE"), "the log is the most verbose");
    for (place, bytes) in [("image", image), ("answers", seen), ("log", log)] {
        assert_eq!(memchr::memmem::find(&bytes, value.as_bytes()), None, "{place}");
    }
    // The search finds what is there.
    assert!(occurrences(std::process::id(), value) > 0);
}
