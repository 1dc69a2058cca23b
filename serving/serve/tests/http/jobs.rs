//! Jobs, their events, and answers that are kept.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Reply;
use crate::server::{ADA, BOB, CLEO, DORA, OPERATOR, POOL, end_of, job_of, open, with};

#[test]
fn a_job_is_answered_with_its_result() {
    for client in [open(), with(ADA), with(OPERATOR)] {
        let reply = client.post("/v1/run", &json!({ "code": "print('hi'); 6 * 7", "id": "mine" }));
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert!(reply.header("hatchery-job").unwrap().parse::<u64>().is_ok());
        assert!(reply.header("content-length").is_some());
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "default-src 'self'"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(reply.header(name), Some(value));
        }
        let result = reply.json();
        assert_eq!((&result["value"], &result["stdout"]), (&json!(42), &json!("hi\n")));
    }
}

#[test]
fn an_error_of_the_program_is_a_result() {
    let result = open().run("/v1/run", "1 / 0");
    assert_eq!((&result["status"], &result["success"]), (&json!("raised"), &json!(false)));
    assert_eq!(result["error"]["type"], "ZeroDivisionError");
}

#[test]
fn advice_names_the_fields_of_a_job() {
    for (code, advice) in [
        ("open('a.csv')", "If `a.csv` is your file, the field `files` gives it a copy."),
        ("input()", "the field `stdin` gives it some"),
        ("import nowhere", "The server adds packages with its options"),
    ] {
        let result = with(ADA).run("/v1/run", code);
        let traceback = result["error"]["traceback"].as_str().unwrap();
        assert!(traceback.contains(advice) && !traceback.contains("--input"), "{traceback}");
    }
    let endless = json!({ "code": "while True: pass", "timeout": 0.2 });
    let message = with(ADA).post("/v1/run", &endless).json()["error"]["message"].clone();
    let raised = "`timeout`, up to the server's `--timeout`, raises it";
    assert!(message.as_str().unwrap().contains(raised), "{message}");
}

#[test]
fn contents_of_files_come_if_they_are_asked_for() {
    let job = json!({ "code": "open('a.txt', 'w').write(open('b.txt').read())",
                      "files": { "b.txt": "text" } });
    let files = |path: &str| with(ADA).post(path, &job).json()["files"][0].clone();
    assert_eq!(files("/v1/run?files=true")["data"], "dGV4dA==");
    assert_eq!(files("/v1/run")["data"], Value::Null);
}

#[test]
fn invalid_jobs_are_refused_with_what_is_wrong() {
    for (job, expected) in [
        (json!({ "cod": "1" }), "there is no field `cod`"),
        (json!({}), "give the program as `code`"),
        (json!({ "file": "/etc/passwd" }), "`file` can't be used here"),
        (json!({ "code": "1", "tenant": "bob" }), "`tenant` can't be used here"),
        (json!({ "code": "1", "files": { "../a": "" } }), "../a"),
    ] {
        let reply = with(ADA).post("/v1/run", &job);
        assert_eq!(reply.status, 400);
        let problem = reply.json();
        assert_eq!(problem["error"]["kind"], "usage");
        let message = problem["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(with(ADA).send("POST", "/v1/run?sesion=a", &[], b"{}").status, 400);
}

#[test]
fn tenants_only_lower_limits() {
    let job = json!({ "code": "import time; time.sleep(60)", "timeout": 0.2 });
    assert_eq!(with(ADA).post("/v1/run", &job).json()["timed_out"], true);
    // An administrator could start the pool as well.
    let job = json!({ "code": "len(bytearray(300 << 20))", "limits": { "memory": 1 << 30 } });
    let status = |token| with(token).post("/v1/run", &job).json()["success"].clone();
    assert_eq!(status(OPERATOR), true);
}

#[test]
fn events_come_in_their_order_and_the_outcome_last() {
    let code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\ndisplay(1)\nprint('c')\n\
                open('f', 'w').write('x')\n7";
    let reply = streamed(ADA, code);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let job: u64 = reply.header("hatchery-job").unwrap().parse().unwrap();
    let mut events: Vec<(String, Option<u64>, Value)> = Vec::new();
    let mut ids = Vec::new();
    for (name, id, data) in reply.events() {
        ids.extend(id);
        // A line may come in parts.
        match events.last_mut() {
            Some((last, _, before)) if *last == name && before["stream"] == data["stream"] => {
                let text = [&before["text"], &data["text"]].map(|text| text.as_str().unwrap());
                before["text"] = text.concat().into();
            }
            _ => events.push((name, id, data)),
        }
    }
    let names: Vec<&str> = events.iter().map(|(name, _, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["admitted", "started", "output", "output", "display", "output", "file", "outcome"]
    );
    assert_eq!(events[0].2, json!({ "job": job }));
    assert_eq!(events[2].2, json!({ "stream": "stdout", "text": "a\n" }));
    assert_eq!(events[3].2, json!({ "stream": "stderr", "text": "b\n" }));
    assert_eq!(events[4].2["bundle"]["text/plain"], "1");
    assert_eq!(events[6].2, json!({ "path": "f", "kind": "created" }));
    assert_eq!((&events[7].2["value"], &events[7].2["stdout"]), (&json!(7), &json!("a\nc\n")));
    assert!(ids.len() >= 6 && ids.is_sorted(), "{ids:?}");
}

#[test]
fn output_comes_while_the_program_runs_and_it_can_be_interrupted() {
    // One write each, since a line of `print` may come in parts.
    let code = "import sys\ntry:\n    sys.stdout.write('begun\\n')\n    while True: pass\n\
                except KeyboardInterrupt:\n    sys.stdout.write('stopped\\n')";
    let reply = streamed(ADA, code);
    let job: u64 = reply.header("hatchery-job").unwrap().parse().unwrap();
    let mut events = reply.events().filter(|(name, _, _)| name == "output" || name == "outcome");
    assert_eq!(events.next().unwrap().2["text"], "begun\n");
    let explained = with(ADA).get(&format!("/v1/jobs/{job}/explain")).json();
    assert_eq!((&explained["state"], &explained["tenant"]), (&json!("running"), &json!("ada")));
    // Others can neither see nor end it.
    for (method, what) in [("GET", "explain"), ("POST", "interrupt"), ("POST", "cancel")] {
        let reply = with(BOB).send(method, &format!("/v1/jobs/{job}/{what}"), &[], b"");
        assert_eq!((reply.status, reply.reason().as_str()), (404, "no_job"), "{what}");
    }
    let path = format!("/v1/jobs/{job}/interrupt");
    assert_eq!(with(ADA).post(&path, &json!({})).status, 202);
    assert_eq!(events.next().unwrap().2["text"], "stopped\n");
    assert_eq!(events.next().unwrap().2["success"], true);
    assert_eq!(with(ADA).post(&path, &json!({})).status, 404);
}

#[test]
fn a_job_is_cancelled_by_its_id() {
    let reply = streamed(OPERATOR, "while True: pass");
    let job = reply.header("hatchery-job").unwrap().to_owned();
    assert_eq!(with(OPERATOR).post(&format!("/v1/jobs/{job}/cancel"), &json!({})).status, 202);
    let (name, _, outcome) = reply.events().last().unwrap();
    assert_eq!((name.as_str(), &outcome["status"]), ("outcome", &json!("cancelled")));
}

#[test]
fn a_client_that_goes_away_cancels_its_job() {
    let decisions = POOL.decisions();
    let reply = streamed(ADA, "while True: pass");
    let job = reply.header("hatchery-job").unwrap().parse().unwrap();
    drop(reply);
    assert_eq!(end_of(decisions, job), "cancelled");

    // Without a stream, the id is only known to the scheduler.
    let mut decisions = POOL.decisions();
    let connection = sent(DORA, "", "while True: pass");
    let job = job_of(&mut decisions, "dora");
    drop(connection);
    assert_eq!(end_of(decisions, job), "cancelled");
}

#[test]
fn the_same_key_returns_the_first_result() {
    let code = json!({ "code": "import random; random.random()" }).to_string();
    let send = |token, key: &str, path: &str, body: &str| {
        with(token).send("POST", path, &[("idempotency-key", key)], body.as_bytes())
    };
    let first = send(ADA, "one", "/v1/run", &code);
    assert_eq!(first.header("idempotency-replayed"), None);
    let job = first.header("hatchery-job").unwrap().to_owned();
    let first = first.json();
    let again = send(ADA, "one", "/v1/run", &code);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.header("hatchery-job").unwrap(), job);
    assert_eq!(again.json(), first);
    for (path, body) in [("/v1/run", r#"{"code": "1"}"#), ("/v1/run?files=true", code.as_str())] {
        let other = send(ADA, "one", path, body);
        assert_eq!((other.status, other.reason().as_str()), (422, "idempotency_key"));
    }
    // Another tenant's keys are others.
    assert_ne!(send(BOB, "one", "/v1/run", &code).json(), first);
    // What was refused can be sent again.
    assert_eq!(send(ADA, "two", "/v1/run?session=none", &code).status, 404);
    assert_eq!(send(ADA, "two", "/v1/run", &code).status, 200);
    let long = "x".repeat(256);
    for key in ["", &long] {
        assert_eq!(send(ADA, key, "/v1/run", &code).status, 400, "{key}");
    }
    let headers = [("idempotency-key", "three"), ("accept", "text/event-stream")];
    assert_eq!(with(ADA).send("POST", "/v1/run", &headers, code.as_bytes()).status, 400);
}

#[test]
fn a_key_waits_for_the_job_that_runs_under_it() {
    let mut decisions = POOL.decisions();
    let code = "try:\n    while True: pass\nexcept KeyboardInterrupt:\n    pass\n7";
    let first = sent(CLEO, "idempotency-key: waiting\r\n", code);
    let job = job_of(&mut decisions, "cleo");
    // It runs on if its client goes away.
    drop(first);
    let mut second = sent(CLEO, "idempotency-key: waiting\r\n", code);
    second.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(second.read(&mut [0]).is_err(), "it waits");
    let explain = || with(CLEO).get(&format!("/v1/jobs/{job}/explain")).json();
    while explain()["state"] != "running" {
        std::thread::yield_now();
    }
    assert_eq!(with(CLEO).post(&format!("/v1/jobs/{job}/interrupt"), &json!({})).status, 202);
    second.set_read_timeout(None).unwrap();
    let second = Reply::read(second).unwrap();
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(second.header("hatchery-job"), Some(job.to_string().as_str()));
}

/// Sends a job, and doesn't wait for the answer.
fn sent(token: &str, headers: &str, code: &str) -> TcpStream {
    let client = with(ADA);
    let address = client.address;
    let body = json!({ "code": code }).to_string();
    let mut stream = client.connect();
    let head = format!(
        "POST /v1/run HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n{headers}\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    stream
}

fn streamed(token: &'static str, code: &str) -> Reply {
    let body = json!({ "code": code }).to_string();
    with(token).send("POST", "/v1/run", &[("accept", "text/event-stream")], body.as_bytes())
}
