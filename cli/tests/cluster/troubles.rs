//! What a server can do to its clients: each is an error at once, or a reported wait.

use std::process::Command;
use std::time::{Duration, Instant};

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
    worker.says("lost the NATS server; waiting until it is back");
    submit.says("lost the NATS server; waiting until it is back");
    server.restart();
    worker.says("the NATS server is back");
    let (status, said) = submit.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("the NATS server is back"), "{said}");
    assert_eq!(files.results("out")[0]["value"], "done");
}

/// How long the server is away: longer than a claim lasts, and a minute for the record.
fn outage() -> Duration {
    let seconds = std::env::var("HATCHERY_CLUSTER_OUTAGE").ok();
    Duration::from_secs(seconds.map_or(6, |text| text.parse().unwrap()))
}

#[test]
fn a_server_that_is_away_for_long_costs_time_alone() {
    let Some(mut server) = Server::start() else { return };
    let line = |id| json!({ "id": id, "code": format!("import time; time.sleep(0.05); {id}") });
    let lines: Vec<String> = (0..100).map(|id| line(id).to_string()).collect();
    let files = Files::new(&lines);
    let mut workers = ["one", "two"].map(|name| Running::ready_worker(&server, name, &[]));
    let mut submit = Running::submit(&server, &files.jobs(), &files.out("out"), &[]);
    crate::library::claimed(&server, 4);
    server.kill();
    let begin = Instant::now();
    submit.says("lost the NATS server; waiting until it is back");
    workers[0].says("lost the NATS server; waiting until it is back");
    std::thread::sleep(outage().saturating_sub(begin.elapsed()));
    server.restart();
    let (status, said) = submit.end();
    assert!(status.success() && said.contains("the NATS server is back"), "{said}");
    let results = files.results("out");
    let mut values: Vec<_> = results.iter().map(|result| result["value"].as_u64()).collect();
    values.sort_unstable();
    assert_eq!(values, (0..100).map(Some).collect::<Vec<_>>());
    for mut worker in workers {
        assert!(worker.runs());
    }
}

#[test]
fn credentials_that_are_withdrawn_are_told_and_waited_for() {
    let token = "authorization { token: \"first\" }";
    let Some(mut server) = Server::start_version(NEWEST, token) else { return };
    let files = Files::new(&lines(1));
    let path = files.out("token");
    std::fs::write(&path, "first").unwrap();
    let path = path.to_str().unwrap();
    let mut worker = Running::ready_worker(&server, "one", &["--nats-token-file", path]);
    server.restart_with("first", "second");
    worker.says("now refuses these credentials");
    server.restart_with("second", "first");
    worker.says("the NATS server is back");
    let more = ["--nats-token-file", path];
    let (status, said) = Running::submit(&server, &files.jobs(), &files.out("out"), &more).end();
    assert!(status.success(), "{said}");
}

/// Makes the clock of a process that has it loaded jump by a day while the file of `JUMP` exists.
const JUMP: &str = "#define _GNU_SOURCE\n\
    #include <dlfcn.h>\n\
    #include <stdlib.h>\n\
    #include <time.h>\n\
    #include <unistd.h>\n\
    int clock_gettime(clockid_t clock, struct timespec *time) {\n\
        int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, \"clock_gettime\");\n\
        int failed = real(clock, time);\n\
        if (clock == CLOCK_REALTIME && access(getenv(\"JUMP\"), F_OK) == 0)\n\
            time->tv_sec += 86400;\n\
        return failed;\n\
    }\n";

#[test]
fn a_workers_clock_that_jumps_changes_nothing() {
    let Some(server) = Server::start() else { return };
    let line = |id| json!({ "id": id, "code": "import time; time.sleep(0.1)", "deadline": 100 });
    let lines: Vec<String> = (0..20).map(|id| line(id).to_string()).collect();
    let files = Files::new(&lines);
    let [source, shim, jump] = ["jump.c", "jump.so", "jump"].map(|name| files.out(name));
    std::fs::write(&source, JUMP).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "there is no C compiler");
    let environment = [("LD_PRELOAD", shim.as_path()), ("JUMP", jump.as_path())];
    let mut worker = Running::worker_in(&server, &environment);
    worker.says("taking jobs");
    let submit = Running::submit(&server, &files.jobs(), &files.out("out"), &[]);
    crate::library::claimed(&server, 1);
    std::fs::write(&jump, "").unwrap();
    let (status, said) = submit.end();
    assert!(status.success(), "{said}");
    // And back.
    std::fs::remove_file(&jump).unwrap();
    let (status, said) = Running::submit(&server, &files.jobs(), &files.out("again"), &[]).end();
    assert!(status.success(), "{said}");
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
    server.restart_with("1MB", "2GB");
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
    assert!(said.contains("an address of a NATS server"), "{said}");
    // Nobody is there; the wait is reported.
    let mut missing = Running::submit_to(&url, &files.jobs(), &files.out("out"), &[]);
    missing.says("lost the NATS server; waiting");
}
