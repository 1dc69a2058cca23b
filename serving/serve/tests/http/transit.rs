//! Bytes of requests and answers that are on their way: each tenant has room for so many.

use std::io::Write;
use std::net::TcpStream;

use hatchery::Hatchery;
use serde_json::json;

use crate::client::{Client, Reply};
use crate::server::{ADA, BOB, serve, start, tokens};

const MEBIBYTE: usize = 1 << 20;

/// A server with room for so many mebibytes, of which one tenant can hold half.
fn server(pool: &Hatchery, room: usize, body: usize) -> [Client; 2] {
    let mut config = tokens();
    config.bodies_bytes = room * MEBIBYTE;
    config.body_bytes = body * MEBIBYTE;
    let client = serve(pool, config).client;
    [ADA, BOB].map(|token| Client { token: Some(token), ..client.clone() })
}

/// Sends the head of a request, and what follows.
fn begun(client: &Client, path: &str, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = client.connect();
    let (address, token) = (client.address, client.token.unwrap());
    let head = format!("host: {address}\r\nauthorization: Bearer {token}\r\n{head}");
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    stream.write_all(body).unwrap();
    stream
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
