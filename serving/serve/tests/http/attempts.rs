//! Attempts to get around the server, by name: each is refused, and the server serves on.

use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::server::{ADA, BOB, POOL, serve, tokens};

use self::sending::{Attempt, Attempts, ENDED, drips, filled, heard, only, sent, statuses, waits};

mod sending;

/// The largest body of the server under attack.
const MOST_BODY_BYTES: usize = 1 << 20;

fn with_tokens(attempts: &mut Attempts) {
    let get = "GET /v1/status";
    attempts
        .stranger("no token", &[401], get, "")
        .stranger("an empty token", &[401], get, "authorization:\r\n")
        .stranger("a scheme alone", &[401], get, "authorization: Bearer \r\n")
        .stranger("a wrong token", &[401], get, "authorization: Bearer x\r\n")
        .stranger("a tenant's name", &[401], get, "authorization: Bearer bob\r\n")
        .stranger(
            "a token's start",
            &[401],
            get,
            &format!("authorization: Bearer {}\r\n", &BOB[..23]),
        )
        .stranger("a token and more", &[401], get, &format!("authorization: Bearer {BOB}0\r\n"))
        .stranger(
            "a token in capitals",
            &[401],
            get,
            &format!("authorization: Bearer {}\r\n", BOB.to_uppercase()),
        )
        .stranger(
            "a token of another scheme",
            &[401],
            get,
            &format!("authorization: Basic {BOB}\r\n"),
        )
        .stranger("a password", &[401], get, "authorization: Basic Ym9iOnNlY3JldA==\r\n")
        .stranger(
            "a tab before the token",
            &[401],
            get,
            &format!("authorization: Bearer\t{BOB}\r\n"),
        )
        .stranger("no scheme", &[401], get, &format!("authorization: {BOB}\r\n"))
        .stranger(
            "the right token, then another",
            &[401],
            get,
            "TOKEN\r\nauthorization: Bearer x\r\n",
        )
        .stranger("the right token twice", &[401], get, "TOKEN\r\nTOKEN\r\n")
        .stranger("two tokens in one header", &[401], get, &format!("TOKEN, Bearer {ADA}\r\n"))
        .stranger("a token in a cookie", &[401], get, &format!("cookie: token={BOB}\r\n"))
        .stranger("a token in another header", &[401], get, &format!("x-auth-token: {BOB}\r\n"))
        .stranger("a token in the query", &[401], &format!("{get}?token={BOB}"), "")
        .stranger("a NUL in the token", &[400, ENDED], get, "authorization: Bearer a\0b\r\n")
        .stranger("no token for what isn't there", &[401], "GET /v1/none", "")
        .stranger("no token and another method", &[401], "TRACE /v1/status", "")
        .stranger(
            "no token for a large body",
            &[401],
            "POST /v1/run",
            "content-length: 99999999\r\n",
        )
        .stranger("an upgrade to HTTP/2", &[401], get, "connection: upgrade\r\nupgrade: h2c\r\n");
}

fn with_hosts_and_origins(attempts: &mut Attempts) {
    for (name, host) in [
        ("another host", "evil.example"),
        ("another host that begins as this one", "127.0.0.1.evil.example"),
        ("a host that begins as localhost", "localhost.evil.example"),
        ("a host as one number", "2130706433"),
        ("a user before the host", "user@127.0.0.1"),
        ("an empty host", ""),
    ] {
        let request = format!("GET /v1/status HTTP/1.1\r\nhost: {host}\r\nTOKEN\r\n\r\n");
        attempts.raw(name, &[421], request);
    }
    attempts
        .raw("no host", &[400], "GET /v1/status HTTP/1.1\r\nTOKEN\r\n\r\n")
        .raw("HTTP/1.0 without a host", &[400], "GET /v1/status HTTP/1.0\r\nTOKEN\r\n\r\n")
        .tenant("two hosts", &[400], "GET /v1/status", "host: evil.example\r\n")
        .tenant(
            "another host in the request's line",
            &[421],
            "GET http://evil.example/v1/status",
            "",
        )
        .tenant("a tunnel", &[400, 405, 421], "CONNECT evil.example:80", "")
        .tenant("a page of another site", &[403], "POST /v1/run", "origin: http://evil.example\r\n")
        .tenant("a page without an origin", &[403], "POST /v1/run", "origin: null\r\n")
        .tenant("a page on another port", &[403], "POST /v1/run", "origin: http://127.0.0.1:1\r\n")
        .tenant(
            "two origins",
            &[400],
            "POST /v1/run",
            "origin: http://HOST\r\norigin: http://x\r\n",
        )
        .tenant(
            "a page that asks first",
            &[403],
            "OPTIONS /v1/run",
            "origin: http://evil.example\r\naccess-control-request-method: POST\r\n",
        );
}

fn with_bodies(attempts: &mut Attempts) {
    let run = "POST /v1/run";
    let mut chunks = b"POST /v1/run HTTP/1.1\r\nhost: HOST\r\nTOKEN\r\n".to_vec();
    chunks.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    for _ in 0..MOST_BODY_BYTES >> 15 {
        chunks.extend_from_slice(b"10000\r\n");
        chunks.extend_from_slice(&[b'x'; 1 << 16]);
        chunks.extend_from_slice(b"\r\n");
    }
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    attempts
        .job("a body that is too long", &[413], vec![b' '; MOST_BODY_BYTES + 1])
        .tenant("a length that is too long", &[413], run, "content-length: 99999999999\r\n")
        .raw("chunks that are too long", &[413], chunks)
        .cut("a body that ends early", &[400, ENDED], run, "content-length: 9\r\n\r\n{")
        .cut("chunks that end early", &[400, ENDED], run, &format!("{chunked}9\r\n{{"))
        .tenant("a negative length", &[400], run, "content-length: -1\r\n")
        .tenant("a signed length", &[400], run, "content-length: +2\r\n\r\n{}")
        .tenant(
            "a length that no number holds",
            &[400],
            run,
            "content-length: 99999999999999999999\r\n",
        )
        .tenant("two lengths", &[400], run, "content-length: 2\r\ncontent-length: 3\r\n\r\n{}")
        .tenant("two lengths in one header", &[400], run, "content-length: 2, 3\r\n\r\n{}")
        .tenant("a chunk's length that is none", &[400, ENDED], run, &format!("{chunked}zz\r\n"))
        .tenant(
            "a chunk's length that no number holds",
            &[400, ENDED],
            run,
            &format!("{chunked}ffffffffffffffffff\r\n"),
        )
        .tenant(
            "a long extension",
            &[400, ENDED],
            run,
            &format!("{chunked}1;{}", "x".repeat(1 << 20)),
        )
        .tenant("another encoding", &[400], run, "transfer-encoding: gzip\r\n")
        .tenant("an encoding after the chunks", &[400], run, "transfer-encoding: chunked, gzip\r\n")
        .tenant("an encoding that is none", &[400], run, "transfer-encoding: xchunked\r\n")
        .tenant(
            "a body that waits to be asked for",
            &[413],
            run,
            "expect: 100-continue\r\ncontent-length: 99999999999\r\n",
        );
}

fn with_heads(attempts: &mut Attempts) {
    let get = "GET /v1/status";
    attempts
        .tenant("a long header", &[431, ENDED], get, &format!("x: {}\r\n", "x".repeat(200_000)))
        .tenant("a thousand headers", &[431, ENDED], get, &"x: 1\r\n".repeat(1000))
        .tenant("a long path", &[414, 431], &format!("GET /{}", "x".repeat(200_000)), "")
        .tenant("a carriage return in a header", &[400, ENDED], get, "x: a\rb: c\r\n")
        .tenant("a NUL in a header", &[400, ENDED], get, "x: \0\r\n")
        .tenant("a blank before the colon", &[400, ENDED], get, "x : 1\r\n")
        .tenant("a header without a name", &[400, ENDED], get, ": 1\r\n")
        .tenant("a header without a colon", &[400, ENDED], get, "nonsense\r\n")
        .tenant("a folded header", &[400, ENDED], get, "x: 1\r\n  2\r\n")
        .tenant("a blank in the path", &[400, ENDED], "GET /v1/status x", "")
        .raw("no version", &[400, ENDED], "GET /v1/status\r\n\r\n")
        .raw("another version", &[400, 505, ENDED], "GET /v1/status HTTP/9.9\r\nhost: HOST\r\n\r\n")
        .raw("HTTP/2", &[400, ENDED], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .raw("no method", &[400, ENDED], " /v1/status HTTP/1.1\r\nhost: HOST\r\n\r\n")
        .raw("TLS", &[400, ENDED], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec())
        .raw("nothing", &[ENDED], "")
        .raw("NULs", &[400, ENDED], vec![0; 4096])
        .tenant("a method in small letters", &[405], "get /v1/status", "")
        .tenant("a method of nobody", &[405], "HATCH /v1/status", "")
        .tenant("a method that another path takes", &[405], "DELETE /v1/run", "")
        .tenant(
            "a web socket",
            &[404],
            "GET /v1/socket",
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
        );
}

fn with_paths(attempts: &mut Attempts) {
    for (name, path, expected) in [
        ("up in the path", "/v1/sessions/../status", 404),
        ("up in the path, encoded", "/v1/%2e%2e/v1/status", 404),
        ("two slashes", "//v1/status", 404),
        ("a slash at the end", "/v1/status/", 404),
        ("capitals", "/V1/STATUS", 404),
        ("a parameter of the path", "/v1/status;x=1", 404),
        ("a session's name that leads up", "/v1/sessions/..%2f..%2fetc/files", 404),
        ("a session's name that isn't UTF-8", "/v1/sessions/%ff/files", 400),
        ("a session's name with a NUL", "/v1/sessions/%00/files", 400),
        ("a session's name with a line end", "/v1/sessions/a%0d%0ab/files", 400),
        ("a session without a name", "/v1/sessions//files", 400),
        ("a file up from the session's", "/v1/sessions/own/files/../../etc/passwd", 400),
        ("a file up, encoded", "/v1/sessions/own/files/..%2f..%2fetc%2fpasswd", 400),
        ("a file at the root", "/v1/sessions/own/files/%2fetc%2fpasswd", 400),
        ("a file's name with a NUL", "/v1/sessions/own/files/a%00b", 400),
        ("a file that isn't there", "/v1/sessions/own/files/etc/passwd", 404),
        ("a job's number that is none", "/v1/jobs/-1/explain", 400),
        ("a job's number that no number holds", "/v1/jobs/99999999999999999999/explain", 400),
    ] {
        attempts.tenant(name, &[expected], &format!("GET {path}"), "");
    }
    attempts.tenant("a backslash", &[400, 404], "GET /v1\\status", "");
}

fn with_json(attempts: &mut Attempts) {
    let wide: String = (0..50_000).map(|key| format!("\"k{key}\": 1, ")).collect();
    attempts
        .job("lists in lists", &[400], "[".repeat(100_000))
        .job("lists in a variable", &[400], nested("[", 100_000))
        .job("objects in a variable", &[400], nested("{\"a\": ", 100_000))
        .job("fields without end", &[400], format!("{{{wide}\"code\": \"1\"}}"))
        .job("a field twice", &[400], "{\"code\": \"1\", \"code\": \"2\"}")
        .job("a number beyond all", &[400], "{\"code\": \"1\", \"timeout\": 1e999}")
        .job("a negative time", &[400], "{\"code\": \"1\", \"timeout\": -1}")
        .job(
            "a number of many digits",
            &[400],
            format!("{{\"code\": \"1\", \"timeout\": {}}}", "9".repeat(500_000)),
        )
        .job("a text without end", &[400], format!("{{\"code\": \"{}", "x".repeat(500_000)))
        .job("half of a pair", &[400], "{\"code\": \"\\ud800\"}")
        .job("bytes that aren't UTF-8", &[400], b"{\"code\": \"\xff\"}".to_vec())
        .job("another encoding of text", &[400], b"\xff\xfe{\0}\0".to_vec())
        .job("two jobs", &[400], "{\"code\": \"1\"}{\"code\": \"2\"}")
        .job("nothing of a job", &[400], "")
        .job("a form", &[400], "code=1")
        .job("a field of nobody", &[400], "{\"code\": \"1\", \"__proto__\": {}}")
        .job("a file of the server", &[400], "{\"file\": \"/etc/passwd\"}")
        .job(
            "a file's path that leads up",
            &[400],
            "{\"code\": \"1\", \"files\": {\"../x\": \"\"}}",
        )
        .job("another tenant", &[400], "{\"code\": \"1\", \"tenant\": \"ada\"}")
        .job(
            "more memory than allowed",
            &[400],
            "{\"code\": \"1\", \"limits\": {\"memory\": 9999999999999}}",
        )
        .job("compressed nothing", &[400], b"\x1f\x8b\x08\0\0\0\0\0".to_vec());
}

fn nested(open: &str, times: usize) -> String {
    format!("{{\"code\": \"1\", \"variables\": {{\"a\": {}", open.repeat(times))
}

/// What belongs to the tenant ada, whom bob knows.
fn with_guesses(attempts: &mut Attempts) {
    for (name, method, path) in [
        ("the files of another tenant", "GET", "/v1/sessions/private/files"),
        ("a file of another tenant", "GET", "/v1/sessions/private/files/secret"),
        ("the end of another's session", "DELETE", "/v1/sessions/private"),
        ("a job in another's session", "POST", "/v1/sessions/private/run"),
        ("a fork of another's session", "POST", "/v1/sessions/private/fork"),
        ("a reset of another's session", "POST", "/v1/sessions/private/reset"),
        ("a checkpoint of another's session", "POST", "/v1/sessions/private/checkpoint"),
        ("another's session by its name in the pool", "GET", "/v1/sessions/ada%2fprivate/files"),
        (
            "another's session by its name and a step up",
            "GET",
            "/v1/sessions/..%2fada%2fprivate/files",
        ),
        ("another's job", "GET", "/v1/jobs/1/explain"),
        ("the interrupt of another's job", "POST", "/v1/jobs/1/interrupt"),
        ("the end of another's job", "POST", "/v1/jobs/1/cancel"),
    ] {
        attempts.add(name, &[404], move |client| {
            let body: &[u8] = match path.rsplit('/').next() {
                Some("run") => br#"{"code": "open('secret').read()"}"#,
                Some("fork") => br#"{"to": "mine"}"#,
                Some("checkpoint") => br#"{"name": "mine"}"#,
                _ => b"",
            };
            client.send(method, path, &[], body).status
        });
    }
    attempts
        .tenant("the end of the pool", &[403], "POST /v1/drain", "content-length: 0\r\n")
        .tenant("the decisions about everybody", &[403], "GET /v1/decisions", "");
}

/// The beginning of a job's head.
const HEAD: &str = "POST /v1/run HTTP/1.1\r\nhost: HOST\r\nTOKEN\r\n";

/// Attempts that need more than one message.
fn with_patience(attempts: &mut Attempts) {
    attempts
        .add("a head that doesn't end", &[408, ENDED], |client| waits(client, HEAD))
        .add("a client that says nothing", &[408, ENDED], |client| waits(client, ""))
        .add("a body that doesn't come", &[408], |client| {
            waits(client, &format!("{HEAD}content-length: 9\r\n\r\n{{"))
        })
        .add("a chunk that doesn't come", &[408], |client| {
            waits(client, &format!("{HEAD}transfer-encoding: chunked\r\n\r\n9\r\n{{"))
        })
        .add("a head that comes byte by byte", &[408, ENDED], |client| {
            drips(client, &format!("{HEAD}x: {}", "x".repeat(4096)))
        })
        .add("an answer that nobody reads", &[ENDED], never_reads)
        .add("a second request in a body", &[400], |client| {
            let inner = "DELETE /v1/sessions/own HTTP/1.1\r\nhost: HOST\r\nTOKEN\r\n\r\n";
            let inner = filled(client, inner.as_bytes());
            let length = inner.len();
            let outer = format!("{HEAD}content-length: {length}\r\n\r\n");
            let said = heard(sent(client, &[filled(client, outer.as_bytes()), inner].concat()));
            only(&said)
        })
        .add("a length and chunks", &[400], |client| {
            // A server that counts by the length takes the rest as the next request.
            let inner = "DELETE /v1/sessions/own HTTP/1.1\r\nhost: HOST\r\nTOKEN\r\n\r\n";
            let inner = filled(client, inner.as_bytes());
            let both = "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n";
            let outer = format!("{HEAD}{both}{:x}\r\n", inner.len());
            let outer = filled(client, outer.as_bytes());
            only(&heard(sent(client, &[outer, inner, b"\r\n0\r\n\r\n".to_vec()].concat())))
        })
        .add("chunks, named twice", &[400], |client| {
            let both = "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n";
            only(&heard(sent(client, &filled(client, format!("{HEAD}{both}0\r\n\r\n").as_bytes()))))
        })
        .add("a thousand requests at once, none with a token", &[401], |client| {
            let one = "GET /v1/status HTTP/1.1\r\nhost: HOST\r\n";
            let all = format!("{}{one}connection: close\r\n\r\n", format!("{one}\r\n").repeat(999));
            let statuses = statuses(&heard(sent(client, &filled(client, all.as_bytes()))));
            assert_eq!(statuses.len(), 1000);
            assert!(statuses.iter().all(|status| *status == 401));
            401
        })
        .add("a thousand connections that end at once", &[ENDED], |client| {
            (0..1000).for_each(|_| drop(client.connect()));
            ENDED
        });
}

/// Asks for far more than a socket holds, and reads nothing until the server has given up.
fn never_reads(client: &Client) -> u16 {
    let mut stream = client.connect();
    let code = format!("print('x' * (1 << 20)) # {}", "x".repeat(500_000));
    let body = json!({ "code": code }).to_string();
    let request = format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len());
    let request = filled(client, request.as_bytes());
    let mut sent = 0;
    // Its answers wait for the client, and so does the client for them in the end.
    while sent < 200 && stream.write_all(&request).is_ok() {
        sent += 1;
    }
    assert!(sent < 200, "the server reads without end");
    ENDED
}

#[test]
fn every_attempt_is_refused_and_the_server_serves_on() {
    let mut config = tokens();
    config.body_bytes = MOST_BODY_BYTES;
    config.header_time = Duration::from_secs(1);
    config.idle_time = Duration::from_secs(1);
    let server = serve(&POOL, config).client;
    let of = |token| Client { token: Some(token), ..server.clone() };
    let (ada, bob) = (of(ADA), of(BOB));
    assert_eq!(ada.post("/v1/sessions", &json!({ "name": "private" })).status, 201);
    assert_eq!(bob.post("/v1/sessions", &json!({ "name": "own" })).status, 201);
    ada.run("/v1/sessions/private/run", "open('secret', 'w').write('of ada'); kept = 1");

    let mut attempts = Attempts::default();
    with_tokens(&mut attempts);
    with_hosts_and_origins(&mut attempts);
    with_bodies(&mut attempts);
    with_heads(&mut attempts);
    with_paths(&mut attempts);
    with_json(&mut attempts);
    with_guesses(&mut attempts);
    with_patience(&mut attempts);
    let names: HashSet<&str> = attempts.0.iter().map(|attempt| attempt.name.as_str()).collect();
    assert_eq!(names.len(), attempts.0.len(), "each has a name of its own");
    assert!(names.len() >= 60, "{}", names.len());

    let mut wrong = Vec::new();
    for Attempt { name, send, expected } in &attempts.0 {
        let status = send(&bob);
        if !expected.contains(&status) {
            wrong.push(format!("{name}: {status}, not {expected:?}"));
        }
        assert_eq!(bob.run("/v1/run", "6 * 7")["value"], 42, "after {name}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Nobody has touched the sessions.
    assert_eq!(ada.run("/v1/sessions/private/run", "kept")["value"], 1);
    assert_eq!(bob.get("/v1/sessions").json(), json!({ "sessions": [{ "name": "own" }] }));
    println!("{} attempts, all refused", names.len());
}
