//! Bytes of requests and answers that are on their way: each tenant has room for so many.

use std::io::Write;
use std::net::TcpStream;

use hatchery::{Hatchery, Limits};
use serde_json::{Value, json};
use serve::{Service, facades};

use crate::client::{Client, Reply};
use crate::server::{ADA, BOB, serve_with, start, tokens};

const MEBIBYTE: usize = 1 << 20;

/// A server with room for so many mebibytes, of which one tenant can hold half.
fn server(pool: &Hatchery, room: usize, body: usize) -> [Client; 2] {
    let mut config = tokens();
    config.bodies_bytes = room * MEBIBYTE;
    config.body_bytes = body * MEBIBYTE;
    let service = Service::new(pool.clone());
    let routes = facades::router(&service);
    let client = serve_with(service, config, routes).client;
    [ADA, BOB].map(|token| Client { token: Some(token), ..client.clone() })
}

/// Sends the head of a request, and what follows.
fn begun(client: &Client, path: &str, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = client.connect();
    let (address, token) = (client.address, client.token.unwrap());
    let head = format!(
        "host: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n{head}"
    );
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    stream.write_all(body).unwrap();
    stream
}

/// Returns the status of the next answer on a connection, such as 100 for a body that is asked for.
fn status(stream: &TcpStream) -> u16 {
    Reply::read(stream.try_clone().unwrap()).expect("an answer").status
}

#[test]
fn announced_bodies_are_counted_before_they_are_received() {
    let pool = start(|builder| builder);
    let length = MEBIBYTE - 1_000;
    let head = format!("content-length: {length}\r\nexpect: 100-continue");
    for path in ["/v1/run", "/execute"] {
        let [ada, bob] = server(&pool, 4, 1);
        // One tenant can hold two of them. The server asks for a body once it has counted it.
        let [mut first, second] = [(); 2].map(|()| begun(&ada, path, &head, b""));
        assert_eq!([&first, &second].map(status), [100, 100]);
        let refused = Reply::read(begun(&ada, path, &head, b"")).unwrap();
        assert_eq!((refused.status, refused.reason()), (429, "bodies".to_owned()));
        assert_eq!(status(&begun(&bob, path, &head, b"")), 100);
        // What was received and answered counts no longer.
        let mut job = json!({ "code": "6 * 7" }).to_string().into_bytes();
        job.resize(length, b' ');
        first.write_all(&job).unwrap();
        assert_eq!(status(&first), 200);
        drop(first);
        let again = std::iter::repeat_with(|| status(&begun(&ada, path, &head, b"")));
        assert!(again.take(1_000).any(|status| status == 100));
    }
}

#[test]
fn lines_of_cells_that_nobody_reads_are_counted() {
    const LINES: usize = 24;
    let limits = Limits { output_bytes: 64 * MEBIBYTE, ..Limits::default() };
    let [ada, bob] = server(&start(|builder| builder.limits(limits)), 4, 1);
    let cell = |code: &str| json!({ "code": code }).to_string();
    // More than the system keeps for a connection.
    let shown = format!("for _ in range({LINES}): display('x' * {})", MEBIBYTE / 2);
    let execute = |client: &Client, code: &str| {
        let body = cell(code);
        let head = format!("content-length: {}", body.len());
        Reply::read(begun(client, "/execute", &head, body.as_bytes())).unwrap()
    };
    let lines = |reply: Reply| -> Vec<Value> {
        assert_eq!(reply.status, 200);
        reply.lines().map(|line| serde_json::from_str(&line).unwrap()).collect()
    };
    let unread = execute(&ada, &shown);
    // The next cell of the context runs once that one has ended.
    drop(execute(&ada, "1"));
    let [_, value] = &lines(execute(&bob, "6 * 7"))[..] else { panic!("a number and a value") };
    assert_eq!(value["text"], "42");
    let told = lines(unread);
    let results = told.iter().filter(|line| line["type"] == "result").count();
    assert!(results < LINES, "{results}");
    let last = told.last().unwrap();
    assert_eq!((&last["type"], &last["name"]), (&json!("error"), &json!("ResourceExhausted")));
    // What was read counts no longer.
    let again = std::iter::repeat_with(|| lines(execute(&ada, "6 * 7")));
    assert!(again.take(1_000).any(|lines| lines.last().unwrap()["text"] == "42"));
}

#[test]
fn parts_of_lines_are_counted() {
    let [ada, bob] = server(&start(|builder| builder), 4, 1);
    let part = vec![b' '; MEBIBYTE - 100];
    let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), &part, b"\r\n"].concat();
    let begun = || begun(&ada, "/v1/batches", "transfer-encoding: chunked", &chunk);
    let batches: Vec<TcpStream> = (0..24).map(|_| begun()).collect();
    assert_eq!(bob.run("/v1/run", "1")["value"], 1);
    // Those without room are told so, and the others go on.
    let mut counts = [0, 0];
    for mut batch in batches {
        // Fails if the server has ended the connection.
        let _ = batch.write_all(b"f\r\n{\"code\": \"1\"} \n\r\n0\r\n\r\n");
        let Some(reply) = Reply::read(batch) else { continue };
        if reply.status == 429 {
            counts[1] += 1;
            continue;
        }
        let line = reply.lines().next().unwrap();
        match line.contains("\"reason\":\"bodies\"") {
            true => counts[1] += 1,
            false => {
                assert!(line.contains("\"value\":1"), "{line}");
                counts[0] += 1;
            }
        }
    }
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
}

#[test]
fn answers_that_nobody_reads_are_counted() {
    let [ada, bob] = server(&start(|builder| builder), 64, 1);
    // More than the system keeps for a connection.
    let job = json!({ "code": "open('f', 'wb').write(bytes(15 << 20))" }).to_string();
    let head = format!("content-length: {}", job.len());
    let path = "/v1/run?files=true";
    let unread = Reply::read(begun(&ada, path, &head, job.as_bytes())).unwrap();
    assert_eq!(unread.status, 200);
    for path in [path, "/v1/batches?files=true"] {
        let reply = ada.send("POST", path, &[], job.as_bytes());
        let text = String::from_utf8(reply.bytes()).unwrap();
        assert!(text.contains("\"reason\":\"bodies\""), "{}", &text[..text.len().min(500)]);
    }
    let streamed = ada.send("POST", path, &[("accept", "text/event-stream")], job.as_bytes());
    let (name, _, outcome) = streamed.events().last().unwrap();
    assert_eq!((name.as_str(), &outcome["error"]["reason"]), ("outcome", &json!("bodies")));
    assert_eq!(bob.run(path, "open('f', 'wb').write(bytes(1 << 20))")["value"], 1 << 20);
    assert_eq!(unread.json()["files"][0]["bytes"], 15 << 20);
    assert_eq!(ada.send("POST", path, &[], job.as_bytes()).json()["value"], 15 << 20);
}

#[test]
fn the_lines_of_one_batch_wait_for_each_other() {
    let [ada, _] = server(&start(|builder| builder), 4, 1);
    let line = json!({ "code": "len(input())", "stdin": "x".repeat(MEBIBYTE / 2) }).to_string();
    let reply = ada.send("POST", "/v1/batches", &[], [line.as_str(); 20].join("\n").as_bytes());
    let results: Vec<String> = reply.lines().collect();
    assert_eq!(results.len(), 20);
    assert!(results.iter().all(|line| line.contains("\"value\":524288")), "{results:?}");
}
