//! Requests that must be refused, after which the server serves on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hatchery::Hatchery;
use serde_json::json;
use serve::Service;
use serve::http::{HttpConfig, HttpError};

use crate::client::{Client, PATIENCE, Reply};
use crate::server::{ADA, POOL, open, serve, tokens, wait, with, without_token};

const BEARER: &str = "authorization: Bearer secret-of-ada-0123456789\r\n";

/// Sends bytes as they are, and returns the status of the answer; 0 if the connection just ends.
fn status(client: &Client, bytes: &[u8]) -> u16 {
    let mut stream = client.connect();
    // A server that refuses early doesn't read the rest.
    let _ = stream.write_all(bytes);
    // A client that says at once that there is no more gives up the answer to a whole request.
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let _ = stream.peek(&mut [0]);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.shutdown(std::net::Shutdown::Write);
    Reply::read(stream).map_or(0, |reply| reply.status)
}

fn serves_on() {
    assert_eq!(with(ADA).run("/v1/run", "6 * 7")["value"], 42);
}

#[test]
fn without_the_right_token_nothing_is_shown() {
    let paths = [
        ("GET", "/v1/status"),
        ("POST", "/v1/run"),
        ("POST", "/v1/batches"),
        ("GET", "/v1/sessions"),
        ("GET", "/v1/jobs/1/explain"),
        ("GET", "/openapi.json"),
        ("GET", "/nothing/there"),
        ("PATCH", "/v1/run"),
    ];
    for (method, path) in paths {
        let reply = without_token().send(method, path, &[], b"{\"code\": \"1\"}");
        assert_eq!(reply.status, 401, "{path}");
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.reason(), "token");
    }
    for value in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer secret",
        "Bearer secret-of-ada-012345678",
        "Bearer secret-of-ada-01234567890",
        "Bearer  secret-of-ada-0123456789",
        "Bearer SECRET-OF-ADA-0123456789",
        "Basic secret-of-ada-0123456789",
        "secret-of-ada-0123456789",
        "Bearer secret-of-ada-0123456789, Bearer secret-of-bob-0123456789",
        "Bearer ada",
    ] {
        let headers = [("authorization", value)];
        let reply = without_token().send("GET", "/v1/status", &headers, b"");
        assert_eq!(reply.status, 401, "{value}");
        // A token that is nearly right isn't repeated to anybody.
        let text = String::from_utf8(reply.bytes()).unwrap();
        assert!(!text.contains("secret"), "{text}");
    }
    // Neither of two counts.
    assert_eq!(
        with(ADA).send("GET", "/v1/status", &[("authorization", "Bearer x")], b"").status,
        401
    );
    let in_query = format!("/v1/status?token={ADA}");
    assert_eq!(without_token().get(&in_query).status, 401);
    serves_on();
}

#[test]
fn other_hosts_and_pages_of_others_are_refused() {
    for client in [open(), with(ADA)] {
        let port = client.address.port();
        for host in [
            "evil.example".to_owned(),
            format!("evil.example:{port}"),
            format!("127.0.0.1.evil.example:{port}"),
            "10.0.0.1".to_owned(),
            "[::1]x".to_owned(),
            "user@127.0.0.1".to_owned(),
        ] {
            let reply = client.send("GET", "/v1/status", &[("host", &host)], b"");
            assert_eq!(reply.status, 421, "{host}");
        }
        for origin in [
            "http://evil.example".to_owned(),
            "null".to_owned(),
            format!("http://localhost.evil.example:{port}"),
            // Another port is another page.
            "http://127.0.0.1:1".to_owned(),
            format!("http://localhost:{port}"),
        ] {
            for method in ["GET", "POST", "OPTIONS"] {
                let headers = [("origin", origin.as_str())];
                let reply = client.send(method, "/v1/sessions", &headers, b"{\"name\": \"x\"}");
                assert_eq!(reply.status, 403, "{method} {origin}");
                assert_eq!(reply.header("access-control-allow-origin"), None);
            }
        }
        let own = format!("http://127.0.0.1:{port}");
        assert_eq!(client.send("GET", "/v1/sessions", &[("origin", &own)], b"").status, 200);
        let host = format!("localhost:{port}");
        assert_eq!(client.send("GET", "/v1/sessions", &[("host", &host)], b"").status, 200);
    }
    let two = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nhost: evil\r\n\r\n", open().address);
    assert_eq!(status(&open(), two.as_bytes()), 400);
    assert_eq!(status(&open(), b"GET /healthz HTTP/1.1\r\n\r\n"), 400);
    let absolute =
        format!("GET http://evil/v1/status HTTP/1.1\r\nhost: {}\r\n\r\n", open().address);
    assert_eq!(status(&open(), absolute.as_bytes()), 421);
    serves_on();
}

#[test]
fn hosts_and_origins_can_be_allowed() {
    let mut config = tokens();
    config.hosts = vec!["pool.example".to_owned()];
    config.origins = vec!["https://page.example".to_owned()];
    let client = Client { token: Some(ADA), ..serve(&POOL, config).client };
    assert_eq!(client.send("GET", "/v1/sessions", &[("host", "pool.example")], b"").status, 200);
    let origin = [("origin", "https://page.example")];
    let reply = client.send("GET", "/v1/sessions", &origin, b"");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://page.example"));
    let asks = [origin[0], ("access-control-request-method", "POST")];
    let without = Client { token: None, ..client };
    let reply = without.send("OPTIONS", "/v1/run", &asks, b"");
    assert_eq!(reply.status, 204);
    assert!(reply.header("access-control-allow-headers").unwrap().contains("authorization"));
    assert_eq!(without.send("GET", "/v1/sessions", &origin, b"").status, 401);
}

#[test]
fn paths_lead_nowhere_else() {
    for (path, expected) in [
        ("/v1/sessions/..%2f..%2fetc/files", 404),
        ("/v1/sessions/%2e%2e/files", 404),
        ("/v1/sessions/../status", 404),
        ("/v1/../v1/status", 404),
        ("//v1/status", 404),
        ("/v1/status/", 404),
        ("/V1/status", 404),
        ("/v1/sessions/%ff/files", 400),
        ("/v1/sessions/%00/files", 400),
        ("/v1/sessions/guessed/files/f", 404),
        ("/v1/sessions//files", 400),
        ("/v1/jobs/-1/explain", 400),
        ("/v1/jobs/1e3/explain", 400),
        ("/v1/jobs/99999999999999999999/explain", 400),
        ("/v1/jobs/18446744073709551615/explain", 404),
        ("/v1/status?%00", 200),
    ] {
        assert_eq!(with(ADA).get(path).status, expected, "{path}");
    }
    let name = json!({ "name": "paths" });
    assert_eq!(open().post("/v1/sessions", &name).status, 201);
    for path in ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "a%00b", "a/../b"]
    {
        let reply = open().get(&format!("/v1/sessions/paths/files/{path}"));
        assert!(reply.status == 400, "{path}: {}", reply.status);
    }
    assert_eq!(open().delete("/v1/sessions/paths").status, 200);
    for (method, path) in [("GET", "/v1/run"), ("PUT", "/v1/status"), ("TRACE", "/v1/status")] {
        assert_eq!(with(ADA).send(method, path, &[], b"").status, 405, "{method}");
    }
    serves_on();
}

#[test]
fn bodies_that_are_no_jobs_are_refused() {
    let deep = "[".repeat(100_000);
    let deep_value = format!(r#"{{"code": "1", "variables": {{"a": {deep}"#);
    let wide = format!(r#"{{"code": "1", {}"a": 1}}"#, "\"a\": 1, ".repeat(100_000));
    for body in [
        deep.as_bytes(),
        deep_value.as_bytes(),
        wide.as_bytes(),
        b"",
        b"null",
        b"\xff\xfe",
        b"{\"code\": \"\xff\"}",
        b"{\"code\": \"\\ud800\"}",
        b"{\"code\": \"1\"} trailing",
        b"{\"code\": 1e999}",
        b"{\"code\": \"1\", \"timeout\": 1e308}",
        b"{\"code\": \"1\", \"timeout\": -1}",
        b"{\"code\": \"1\", \"files\": {\"a\": {\"base64\": \"!\"}}}",
        b"code=1",
    ] {
        let reply = with(ADA).send("POST", "/v1/run", &[], body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(reply.status, 400, "{shown}");
        // The message doesn't repeat a body of any length.
        assert!(reply.bytes().len() < 2000, "{shown}");
    }
    for (encoding, expected) in [("identity", 200), ("gzip", 415), ("gzip, br", 415)] {
        let headers = [("content-encoding", encoding)];
        let reply = with(ADA).send("POST", "/v1/run", &headers, br#"{"code": "1"}"#);
        assert_eq!(reply.status, expected, "{encoding}");
    }
    serves_on();
}

#[test]
fn bodies_are_bounded_and_complete() {
    let mut config = tokens();
    config.body_bytes = 1 << 20;
    // Longer than `status` waits.
    config.idle_time = Duration::from_secs(5);
    let client = Client { token: Some(ADA), ..serve(&POOL, config).client };
    let large = vec![b'x'; 2 << 20];
    let reply = client.send("POST", "/v1/run", &[], &large);
    assert_eq!((reply.status, reply.reason().as_str()), (413, "too_large"));
    let head =
        |rest: &str| format!("POST /v1/run HTTP/1.1\r\nhost: {}\r\n{BEARER}{rest}", client.address);
    // Refused by what is announced, before anything is received.
    assert_eq!(status(&client, head("content-length: 99999999999\r\n\r\n").as_bytes()), 413);
    let mut chunked = head("transfer-encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..32 {
        chunked.extend_from_slice(b"10000\r\n");
        chunked.extend_from_slice(&large[..1 << 16]);
        chunked.extend_from_slice(b"\r\n");
    }
    assert_eq!(status(&client, &chunked), 413);
    for (rest, expected) in [
        ("content-length: 100\r\n\r\n{\"code\": \"1\"}", [400, 0]),
        ("transfer-encoding: chunked\r\n\r\nzz\r\n", [400, 0]),
        ("transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n", [400, 0]),
        ("content-length: 5\r\ncontent-length: 6\r\n\r\n{}", [400, 400]),
        ("content-length: -1\r\n\r\n{}", [400, 400]),
        ("content-length: 2\r\ntransfer-encoding: gzip\r\n\r\n{}", [400, 400]),
    ] {
        let status = status(&client, head(rest).as_bytes());
        assert!(expected.contains(&status), "{rest}: {status}");
    }
    // One that stops in the middle.
    let mut stream = client.connect();
    stream.write_all(head("content-length: 100\r\n\r\n{").as_bytes()).unwrap();
    assert_eq!(Reply::read(stream).unwrap().status, 408);
    assert_eq!(client.run("/v1/run", "6 * 7")["value"], 42);
}

#[test]
fn a_client_that_sends_all_before_it_reads_sees_why_it_is_refused() {
    let mut config = tokens();
    config.body_bytes = 1 << 20;
    let server = serve(&POOL, config);
    // More than the system keeps of what nobody has received.
    let large = vec![b'x'; 48 << 20];
    for (token, path, expected) in [
        (Some(ADA), "/v1/run", 413),
        (Some(ADA), "/v1/sessions", 413),
        (Some(ADA), "/v1/nothing", 404),
        (Some(ADA), "/v1/status", 405),
        (Some("not-a-token-of-this-server"), "/v1/run", 401),
        (None, "/v1/run", 401),
    ] {
        let reply = Client { token, ..server.client.clone() }.send("POST", path, &[], &large);
        assert_eq!(reply.status, expected, "{path}");
    }
    let client = Client { token: Some(ADA), ..server.client.clone() };
    // The connection serves on.
    let line = |method: &str, length: usize| {
        let host = client.address;
        format!("{method} HTTP/1.1\r\nhost: {host}\r\n{BEARER}content-length: {length}\r\n\r\n")
    };
    let mut stream = client.connect();
    stream.write_all(line("POST /v1/run", 2_000_000).as_bytes()).unwrap();
    stream.write_all(&large[..2_000_000]).unwrap();
    stream.write_all(line("GET /v1/status", 0).as_bytes()).unwrap();
    let refused = Reply::read(stream).unwrap();
    assert_eq!(refused.status, 413);
    assert_eq!(refused.next().unwrap().status, 200);
}

#[test]
fn headers_are_bounded_and_valid() {
    let get = format!("GET /v1/status HTTP/1.1\r\nhost: {}\r\n{BEARER}", with(ADA).address);
    let long = format!("{get}x: {}\r\n\r\n", "x".repeat(200_000));
    let many = format!("{get}{}\r\n", "x: 1\r\n".repeat(1000));
    let line = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(200_000));
    for (bytes, expected) in [
        (long.as_str(), [431, 0]),
        (many.as_str(), [431, 0]),
        (line.as_str(), [414, 431]),
        ("GET /v1/status HTTP/9.9\r\n\r\n", [400, 0]),
        ("NONSENSE\r\n\r\n", [400, 0]),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}", [400, 0]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400, 0]),
        ("GET /v1/status HTTP/1.1\r\nhost : x\r\n\r\n", [400, 0]),
        ("GET /v1/status HTTP/1.1\r\nhost: x\r\n a: folded\r\n\r\n", [400, 421]),
        ("CONNECT evil.example:80 HTTP/1.1\r\nhost: evil.example\r\n\r\n", [400, 421]),
    ] {
        let status = status(&with(ADA), bytes.as_bytes());
        let shown: String = bytes.chars().take(60).collect();
        assert!(expected.contains(&status), "{shown:?}: {status}");
    }
    serves_on();
}

#[test]
fn idle_connections_give_way_and_slow_ones_end() {
    let mut config = tokens();
    config.connections = 8;
    config.header_time = Duration::from_secs(1);
    config.idle_time = Duration::from_secs(2);
    let client = Client { token: Some(ADA), ..serve(&POOL, config).client };
    let slow = |text: &str| {
        let mut stream = client.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    // Silent ones, ones within their headers, and ones within their bodies.
    let head = format!("POST /v1/run HTTP/1.1\r\nhost: {}\r\n{BEARER}", client.address);
    let body = format!("{head}content-length: 100\r\n\r\n{{");
    let mut idle: Vec<TcpStream> = Vec::new();
    for index in 0..60 {
        idle.push(slow(["", &head, &body][index % 3]));
        if index % 10 == 9 {
            assert_eq!(client.run("/v1/run", "6 * 7")["value"], 42, "{index}");
        }
    }
    // All of them have ended, or end by themselves.
    for mut stream in idle {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut kept =
        slow(&format!("GET /v1/sessions HTTP/1.1\r\nhost: {}\r\n{BEARER}\r\n", client.address));
    let mut said = Vec::new();
    // It ends after the answer, and after the time that it may be idle.
    kept.read_to_end(&mut said).unwrap();
    assert!(said.starts_with(b"HTTP/1.1 200"));
    assert_eq!(client.run("/v1/run", "6 * 7")["value"], 42);
}

#[test]
fn a_job_is_not_cut_off_for_being_quiet() {
    let mut config = tokens();
    config.header_time = Duration::from_millis(300);
    config.idle_time = Duration::from_millis(300);
    let client = Client { token: Some(ADA), ..serve(&POOL, config).client };
    assert_eq!(client.run("/v1/run", "import time; time.sleep(1.5); 7")["value"], 7);
}

#[test]
fn an_address_that_others_reach_needs_tokens() {
    let serve = |pool: Hatchery, config: HttpConfig| {
        wait(async {
            let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
            let started = std::future::ready((Service::new(pool), axum::Router::new()));
            serve::http::serve([listener], config, started, async {}).await
        })
    };
    let refused = serve(POOL.clone(), HttpConfig::default()).unwrap_err();
    assert!(matches!(refused, HttpError::NoTokens(..)));
    assert!(refused.to_string().contains("give `--token-file`"), "{refused}");
    assert!(serve(POOL.clone(), tokens()).is_ok());
}
