//! Sessions from the first to the last.

use serde_json::{Value, json};

use crate::server::{CLEO, open, with};

#[test]
fn a_session_from_the_first_to_the_last() {
    // Nobody else opens sessions for her.
    let cleo = with(CLEO);
    let post = |path: &str, body: Value| {
        let reply = cleo.post(path, &body);
        (reply.status, reply.json())
    };
    assert_eq!(post("/v1/sessions", json!({ "name": "a b" })), (201, json!({ "name": "a b" })));
    let (status, problem) = post("/v1/sessions", json!({ "name": "a b" }));
    assert_eq!((status, &problem["error"]["reason"]), (409, &json!("session_exists")));

    cleo.run("/v1/run?session=a+b", "x = 1; open('f.bin', 'wb').write(b'\\xff\\x00')");
    assert_eq!(cleo.run("/v1/sessions/a%20b/run", "x += 1; x")["value"], 2);
    let files = cleo.get("/v1/sessions/a%20b/files").json();
    assert_eq!(files, json!({ "files": [{ "path": "f.bin", "bytes": 2 }] }));
    let file = cleo.get("/v1/sessions/a%20b/files/f.bin");
    assert_eq!(file.header("content-type"), Some("application/octet-stream"));
    assert_eq!(file.bytes(), [0xff, 0]);
    assert_eq!(cleo.get("/v1/sessions/a%20b/files/g").reason(), "no_file");

    let (status, _) = post("/v1/sessions/a%20b/checkpoint", json!({ "name": "two" }));
    assert_eq!(status, 201);
    assert_eq!(post("/v1/sessions/a%20b/fork", json!({ "to": "c" })).0, 201);
    assert_eq!(post("/v1/sessions/a%20b/fork", json!({ "to": "c" })).0, 409);
    assert_eq!(cleo.run("/v1/sessions/c/run", "x = 10; x")["value"], 10);
    assert_eq!(cleo.run("/v1/sessions/a%20b/run", "x = 5; x")["value"], 5);
    assert_eq!(post("/v1/sessions/a%20b/restore", json!({ "name": "two" })).0, 200);
    assert_eq!(cleo.run("/v1/sessions/a%20b/run", "x")["value"], 2);
    assert_eq!(post("/v1/sessions/a%20b/restore", json!({ "name": "three" })).0, 404);

    let names = cleo.get("/v1/sessions").json();
    assert_eq!(names, json!({ "sessions": [{ "name": "a b" }, { "name": "c" }] }));
    assert_eq!(post("/v1/sessions/c/reset", json!({})).0, 200);
    assert_eq!(cleo.run("/v1/sessions/c/run", "x")["error"]["type"], "NameError");
    for name in ["a%20b", "c"] {
        assert_eq!(cleo.delete(&format!("/v1/sessions/{name}")).status, 200);
        assert_eq!(cleo.delete(&format!("/v1/sessions/{name}")).status, 404);
    }
    assert_eq!(cleo.post("/v1/run?session=c", &json!({ "code": "1" })).reason(), "no_session");
}

#[test]
fn what_copies_the_state_is_refused_while_a_job_runs() {
    let client = open();
    assert_eq!(client.post("/v1/sessions", &json!({ "name": "busy" })).status, 201);
    let body = json!({ "code": "print(1)\nwhile True: pass" }).to_string();
    let events = [("accept", "text/event-stream")];
    let reply = client.send("POST", "/v1/sessions/busy/run", &events, body.as_bytes());
    let mut events = reply.events();
    assert!(events.any(|(name, _, _)| name == "output"));
    for (path, body) in [
        ("fork", json!({ "to": "other" })),
        ("checkpoint", json!({ "name": "c" })),
        ("reset", json!({})),
    ] {
        let reply = client.post(&format!("/v1/sessions/busy/{path}"), &body);
        assert_eq!((reply.status, reply.reason().as_str()), (409, "session_busy"), "{path}");
    }
    assert_eq!(client.get("/v1/sessions/busy/files").status, 409);
    drop(events);
    assert_eq!(client.delete("/v1/sessions/busy").status, 200);
}

#[test]
fn a_state_with_threads_is_not_copied_and_the_answer_says_what_to_do() {
    let client = open();
    assert_eq!(client.post("/v1/sessions", &json!({ "name": "threads" })).status, 201);
    let begin = "import threading\ngo = threading.Event()\n\
                 thread = threading.Thread(target=go.wait)\nthread.start()";
    client.run("/v1/sessions/threads/run", begin);
    for (path, body) in [("fork", json!({ "to": "other" })), ("checkpoint", json!({ "name": "c" }))]
    {
        let reply = client.post(&format!("/v1/sessions/threads/{path}"), &body);
        let (status, problem) = (reply.status, &reply.json()["error"]);
        assert_eq!((status, &problem["reason"]), (503, &json!("not_captured")), "{path}");
        let message = problem["message"].as_str().unwrap();
        assert!(message.contains("living threads") && message.contains("`join` them"), "{message}");
    }
    client.run("/v1/sessions/threads/run", "go.set(); thread.join()");
    assert_eq!(client.post("/v1/sessions/threads/fork", &json!({ "to": "other" })).status, 201);
    for name in ["threads", "other"] {
        assert_eq!(client.delete(&format!("/v1/sessions/{name}")).status, 200);
    }
}

#[test]
fn a_lost_session_is_opened_again_under_its_name() {
    let client = open();
    let open = || client.post("/v1/sessions", &json!({ "name": "lost" })).status;
    assert_eq!(open(), 201);
    client.run("/v1/sessions/lost/run", "x = 1");
    let checkpoint = json!({ "name": "one" });
    assert_eq!(client.post("/v1/sessions/lost/checkpoint", &checkpoint).status, 201);
    // No copy is made of a state with threads.
    let begin = "import threading\nthreading.Thread(target=threading.Event().wait).start()";
    client.run("/v1/sessions/lost/run", begin);
    client.run("/v1/sessions/lost/run", "import os; os._exit(1)");
    let reply = client.post("/v1/sessions/lost/run", &json!({ "code": "x" }));
    assert_eq!((reply.status, reply.reason().as_str()), (410, "session_gone"));
    assert_eq!((open(), open()), (201, 409));
    assert_eq!(client.run("/v1/sessions/lost/run", "'x' in globals()")["value"], false);
    assert_eq!(client.post("/v1/sessions/lost/restore", &checkpoint).status, 200);
    assert_eq!(client.run("/v1/sessions/lost/run", "x")["value"], 1);
    assert_eq!(client.delete("/v1/sessions/lost").status, 200);
}

#[test]
fn names_are_checked() {
    let long = "x".repeat(201);
    for name in ["", "a\nb", &long] {
        assert_eq!(open().post("/v1/sessions", &json!({ "name": name })).status, 400, "{name}");
    }
    for body in [json!({ "nam": "a" }), json!({}), json!([]), json!({ "name": 1 })] {
        assert_eq!(open().post("/v1/sessions", &body).status, 400, "{body}");
    }
}

#[test]
fn many_forks_are_opened_at_once() {
    let client = open();
    assert_eq!(client.post("/v1/sessions", &json!({ "name": "forked" })).status, 201);
    client.run("/v1/sessions/forked/run", "x = 1");
    let reply = client.post("/v1/sessions/forked/forks", &json!({ "count": 3 }));
    assert_eq!(reply.status, 201);
    let names = json!([{ "name": "forked~1" }, { "name": "forked~2" }, { "name": "forked~3" }]);
    assert_eq!(reply.json(), json!({ "sessions": names }));
    for number in 1..=3 {
        let path = format!("/v1/sessions/forked~{number}/run");
        assert_eq!(client.run(&path, &format!("x += {number}; x"))["value"], 1 + number);
    }
    let status = client.get("/v1/status").json();
    let rows = status["sessions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"].as_str().unwrap().ends_with("forked~2")).unwrap();
    assert_eq!((&row["fork"]["depth"], &row["fork"]["turn"]), (&json!(1), &json!(1)), "{row}");
    for (count, status) in [(json!(0), 400), (json!(-1), 400), (json!("2"), 400)] {
        let reply = client.post("/v1/sessions/forked/forks", &json!({ "count": count }));
        assert_eq!(reply.status, status, "{count}");
    }
    let reply = client.post("/v1/sessions/forked/forks", &json!({ "count": 1_000_000_000 }));
    assert_eq!((reply.status, reply.reason().as_str()), (429, "sessions"));
    assert_eq!(client.post("/v1/sessions/none/forks", &json!({ "count": 1 })).status, 404);
    for name in ["forked", "forked~1", "forked~2", "forked~3"] {
        assert_eq!(client.delete(&format!("/v1/sessions/{name}")).status, 200, "{name}");
    }
}

#[test]
fn candidates_stream_their_ends_and_survivors_stay() {
    let client = open();
    assert_eq!(client.post("/v1/sessions", &json!({ "name": "explored" })).status, 201);
    client.run("/v1/sessions/explored/run", "x = 1");
    let candidates: Vec<Value> =
        (0..6).map(|n| json!({ "code": format!("x = x / ({n} % 2); x") })).collect();
    let body = json!({ "candidates": candidates, "keep": { "first": 2 } });
    let reply = client.post("/v1/sessions/explored/explore", &body);
    assert_eq!(reply.status, 200);
    let lines: Vec<Value> =
        reply.lines().map(|line| serde_json::from_str(&line).unwrap()).collect();
    let mut seen: Vec<u64> = lines.iter().map(|line| line["candidate"].as_u64().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    let survivors: Vec<&str> = lines.iter().filter_map(|line| line["survivor"].as_str()).collect();
    assert_eq!(survivors.len(), 2, "{lines:?}");
    for line in &lines {
        let is_odd = line["candidate"].as_u64().unwrap() % 2 == 1;
        assert_eq!(line["result"]["success"], is_odd, "{line}");
    }
    for name in survivors {
        let path = name.replace('/', "%2F");
        assert_eq!(client.run(&format!("/v1/sessions/{path}/run"), "x")["value"], 1.0);
        assert_eq!(client.delete(&format!("/v1/sessions/{path}")).status, 200);
    }
    for (body, text) in [
        (json!({ "candidates": [{ "cod": "1" }] }), "cod"),
        (json!({ "candidates": [], "keep": "some" }), "some"),
        (
            json!({ "candidates": [{ "code": "1" }, { "code": "1", "files": { "../f": "" } }] }),
            "candidate 1",
        ),
    ] {
        let reply = client.post("/v1/sessions/explored/explore", &body);
        assert_eq!(reply.status, 400);
        let reply = reply.json().to_string();
        assert!(reply.contains(text), "{reply}");
    }
    assert_eq!(client.delete("/v1/sessions/explored").status, 200);
}
