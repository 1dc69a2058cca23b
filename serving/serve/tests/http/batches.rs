//! Lines in, lines out.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use crate::client::Reply;
use crate::server::{ADA, POOL, end_of, with};

#[test]
fn each_line_has_its_result_and_a_bad_one_harms_no_other() {
    let mut lines: Vec<String> = (0..200)
        .map(|index| json!({ "id": index, "code": format!("{index} * 2") }).to_string())
        .collect();
    lines[7] = "{\"id\": 7, \"code\": ".to_owned();
    lines[8] = json!({ "id": 8, "cod": "1" }).to_string();
    lines[9] = json!({ "code": "1 / 0" }).to_string();
    lines.insert(10, String::new());
    let reply = with(ADA).send("POST", "/v1/batches", &[], lines.join("\n").as_bytes());
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")));
    let results: Vec<Value> =
        reply.lines().map(|line| serde_json::from_str(&line).unwrap()).collect();
    assert_eq!(results.len(), 200);
    let results: BTreeMap<u64, &Value> =
        results.iter().map(|result| (result["id"].as_u64().unwrap(), result)).collect();
    for (id, result) in &results {
        match id {
            // Both have 8: the line that isn't JSON has no id, so its number stands for it.
            8 => assert_eq!(result["error"]["kind"], "usage"),
            10 => assert!(result["value"] == 20 || result["status"] == "raised"),
            _ => assert_eq!(result["value"], id * 2, "{result}"),
        }
    }
}

#[test]
fn results_come_before_the_last_line_is_sent() {
    let mut stream = started();
    let mut lines = None;
    for index in 0..3 {
        let line = json!({ "id": index, "code": "input()", "stdin": "x" }).to_string() + "\n";
        write!(stream, "{:x}\r\n{line}\r\n", line.len()).unwrap();
        let lines =
            lines.get_or_insert_with(|| Reply::read(stream.try_clone().unwrap()).unwrap().lines());
        let result: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!((&result["id"], &result["repr"]), (&json!(index), &json!("'x'")));
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(lines.unwrap().next(), None);
}

#[test]
fn a_client_that_goes_away_cancels_what_runs_of_its_batch() {
    let mut decisions = POOL.decisions();
    let mut stream = started_by(crate::server::EVE);
    let line = json!({ "code": "while True: pass" }).to_string() + "\n";
    write!(stream, "{:x}\r\n{line}\r\n", line.len()).unwrap();
    let job = crate::server::job_of(&mut decisions, "eve");
    drop(stream);
    assert_eq!(end_of(decisions, job), "cancelled");
}

fn started() -> std::net::TcpStream {
    started_by(ADA)
}

/// Begins a batch whose lines are yet to be sent.
fn started_by(token: &str) -> std::net::TcpStream {
    let client = with(ADA);
    let mut stream = client.connect();
    let head = format!(
        "POST /v1/batches HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\
         transfer-encoding: chunked\r\n\r\n",
        client.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn a_line_that_is_too_long_ends_the_batch_with_its_reason() {
    let mut config = crate::server::tokens();
    config.body_bytes = 1000;
    let server = crate::server::serve(&POOL, config);
    let client = crate::client::Client { token: Some(ADA), ..server.client };
    let lines = format!("{{\"code\": \"1\"}}\n{}", "x".repeat(5000));
    let reply = client.send("POST", "/v1/batches", &[], lines.as_bytes());
    let reasons: Vec<Value> = BufReader::new(reply.bytes().as_slice())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .map(|result| result["error"]["reason"].clone())
        .collect();
    assert_eq!(reasons.len(), 2);
    assert!(reasons.contains(&json!("too_large")), "{reasons:?}");
}
