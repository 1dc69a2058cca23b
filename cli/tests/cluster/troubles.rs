//! What a server can do to its clients: each is an error at once, or a wait that is told.

use serde_json::json;

use crate::commands::{Files, Running};
use crate::server::{NEWEST, Server};

fn lines(count: usize) -> Vec<String> {
    (0..count).map(|id| json!({ "id": id, "code": format!("{id} * 2") }).to_string()).collect()
}

#[test]
fn a_wrong_credential_is_an_error_at_once() {
    let Some(server) = Server::start_version(NEWEST, "authorization { token: \"right\" }") else {
        return;
    };
    let files = Files::new(&lines(1));
    let token = files.out("token");
    let token = token.to_str().unwrap();
    let submit = |more: &[&str]| Running::submit(&server, &files.jobs(), &files.out("out"), more);
    let (status, said) = submit(&[]).end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("refuses a client without credentials; give it some"), "{said}");
    std::fs::write(token, "wrong\n").unwrap();
    let (status, said) = submit(&["--nats-token-file", token]).end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("refuses the token"), "{said}");
    std::fs::write(token, "right\n").unwrap();
    let _worker = Running::ready_worker(&server, "one", &["--nats-token-file", token]);
    let (status, said) = submit(&["--nats-token-file", token]).end();
    assert!(status.success(), "{said}");
    let (status, said) = submit(&["--nats-creds", "/missing"]).end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("can't read `/missing`"), "{said}");
}

#[test]
fn a_server_that_goes_away_is_told_and_waited_for() {
    let Some(mut server) = Server::start() else { return };
    let line = json!({ "id": 1, "code": "import time; time.sleep(15); 'done'" });
    let files = Files::new(&[line.to_string()]);
    let mut worker = Running::ready_worker(&server, "one", &[]);
    let mut submit = Running::submit(&server, &files.jobs(), &files.out("out"), &[]);
    crate::library::claimed(&server, 1);
    server.kill();
    worker.says("the NATS server is gone; waiting until it is back");
    submit.says("the NATS server is gone; waiting until it is back");
    server.restart();
    worker.says("the NATS server is back");
    let (status, said) = submit.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("the NATS server is back"), "{said}");
    assert_eq!(files.results("out")[0]["value"], "done");
}

#[test]
fn a_full_queue_is_told_and_waited_for() {
    let Some(server) = Server::start() else { return };
    let files = Files::new(&lines(50));
    let more = ["--server-queue", "10"];
    let mut submit = Running::submit(&server, &files.jobs(), &files.out("out"), &more);
    submit.says("the queue on the NATS server is full");
    let _worker = Running::ready_worker(&server, "one", &[]);
    let (status, said) = submit.end();
    assert!(status.success() && said.contains("has room again"), "{said}");
    assert_eq!(files.results("out").len(), 50);
}

#[test]
fn a_full_disk_is_told_and_waited_for() {
    let Some(mut server) = Server::with_disk("1MB") else { return };
    let line =
        json!({ "id": 1, "code": "len(text)", "variables": { "text": "x".repeat(400_000) } });
    let lines: Vec<String> = (0..4).map(|_| line.to_string()).collect();
    let files = Files::new(&lines);
    let mut submit = Running::submit(&server, &files.jobs(), &files.out("out"), &[]);
    submit.says("can't store a message on the NATS server");
    // Jobs have filled it, so there is no room for results either until somebody makes some.
    server.restart_with_disk("1MB", "2GB");
    let _worker = Running::ready_worker(&server, "one", &[]);
    let (status, said) = submit.end();
    assert!(status.success(), "{said}");
    assert_eq!(files.results("out").len(), 4);
}

#[test]
fn a_server_that_is_not_there_is_waited_for() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let files = Files::new(&lines(1));
    let url = format!("nats://{}", listener.local_addr().unwrap());
    drop(listener);
    let wrong = Running::submit_to("nats://:0:1", &files.jobs(), &files.out("out"), &[]);
    let (status, said) = wrong.end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("no address of a NATS server"), "{said}");
    // Nobody is there; the wait is told.
    let mut missing = Running::submit_to(&url, &files.jobs(), &files.out("out"), &[]);
    missing.says("the NATS server is gone; waiting");
}
