//! `hatchery serve --http`: its start and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::hatchery;

#[test]
fn a_signal_leaves_no_request_over_http_without_its_answer() {
    let mut child = hatchery()
        .args(["serve", "--http", "127.0.0.1:0", "--workers", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "it serves");
        if let Some((_, address)) = line.trim().split_once("http://") {
            break address.to_owned();
        }
    };
    let ask = |method: &str, path: &str, body: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let answer = |mut stream: TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    while !answer(ask("GET", "/healthz", "")).contains("ok") {}
    let job = json!({ "code": "import time; time.sleep(0.5); 'done'" }).to_string();
    let running = ask("POST", "/v1/run", &job);
    while !answer(ask("GET", "/v1/status", "")).contains("\"running\":1") {}
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let answered = answer(running);
    assert!(answered.contains("\"value\":\"done\""), "{answered}");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
