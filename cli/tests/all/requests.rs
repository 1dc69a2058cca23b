//! HTTP requests of programs, as the command line's options allow them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};
use test_support::processes::family;

use crate::{hatchery, run, run_with_stdin, text};

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

/// Returns how often a process has a text in its memory and environment, as far as others can read
/// them.
fn occurrences(process: u32, text: &str) -> usize {
    let folder = format!("/proc/{process}");
    let count = |bytes: &[u8]| memchr::memmem::find_iter(bytes, text).count();
    let mut found = std::fs::read(format!("{folder}/environ")).map_or(0, |bytes| count(&bytes));
    let Ok(memory) = std::fs::File::open(format!("{folder}/mem")) else { return found };
    let maps = std::fs::read_to_string(format!("{folder}/maps")).unwrap();
    let mut bytes = vec![0; 16 << 20];
    for line in maps.lines().filter(|line| line.contains(" r")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        for at in (address(from)..address(to)).step_by(bytes.len()) {
            // Pages that were never touched can't all be read.
            found += memory.read_at(&mut bytes, at).map_or(0, |read| count(&bytes[..read]));
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

#[test]
fn worker_processes_have_nothing_of_a_secret() {
    let port = echo();
    let value = "sk-kept-by-the-parent-0123";
    let code = format!(
        "import os, urllib.request as r
q = r.Request('http://127.0.0.1:{port}/', headers={{'X-Key': os.environ['KEY']}})
r.urlopen(q).read().decode()"
    );
    let mut batch = hatchery()
        .args(["batch", "-", "--workers", "1", "--isolation", "process"])
        .args(["--allow-http", &format!("GET http://127.0.0.1:{port}/*")])
        .args(["--secret", &format!("KEY=env:OWN_KEY@http://127.0.0.1:{port}")])
        .env("OWN_KEY", value)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(batch.stdout.take().unwrap()).lines();
    writeln!(batch.stdin.as_mut().unwrap(), "{}", json!({ "code": code })).unwrap();
    let result: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert!(result["value"].as_str().unwrap().contains("hatchery-secret-KEY-"), "{result}");
    let processes = below(batch.id());
    assert!(processes.len() >= 2, "a helper and its worker: {processes:?}");
    for process in processes {
        assert_eq!(occurrences(process, value), 0, "process {process}");
    }
    drop(batch.stdin.take());
    assert!(batch.wait().unwrap().success());
}
