//! Limits and time-outs.

use std::sync::Arc;
use std::time::Duration;

use egress::{EgressFile, EgressLimits, JobOptions, Rule};
use http::Response;
use http_body_util::BodyExt;

use crate::support::{Guest, Refusal, Server, egress, full};

const HOST: &str = "api.example.com";

/// Sends a request under limits, and returns how the stream ended.
async fn end(
    limits: EgressLimits,
    network_bytes: u64,
    request: &str,
    server: &Server,
) -> Result<(), Refusal> {
    let rules = [format!("* http://{HOST}:{}/* private", server.port)];
    let mut options = JobOptions::default();
    options.network_bytes = network_bytes;
    let guest = Guest::with(&egress(&rules, Vec::new(), limits), options);
    let stream = guest.open(HOST, server.port).await?;
    let request = request.replace("{h}", &format!("{HOST}:{}", server.port));
    drop(guest.write_all(stream, request.as_bytes()).await);
    guest.end_writing(stream).await;
    let (_, end) = guest.read_all(stream).await;
    let log = guest.finish().requests;
    let is_limit = |label: &str| ["limit", "timed-out"].contains(&label);
    assert_eq!(end.is_err(), log.iter().any(|one| is_limit(one.label())), "{log:?}");
    end
}

#[tokio::test]
async fn amounts_are_limited() {
    let server =
        Server::new(false, Arc::new(|_, _| Response::new(full(vec![b'x'; 100_000])))).await;
    let get = "GET / HTTP/1.1\r\nHost: {h}\r\n\r\n";
    let post = format!(
        "POST / HTTP/1.1\r\nHost: {{h}}\r\nContent-Length: 50000\r\n\r\n{}",
        "y".repeat(50_000)
    );
    let all = EgressLimits::default();
    let free = u64::MAX;
    let limited = [
        (EgressLimits { response_bytes: 99_999, ..all.clone() }, free, get, "response_bytes"),
        (EgressLimits { request_bytes: 49_999, ..all.clone() }, free, &post, "request_bytes"),
        (all.clone(), 90_000, get, "network_bytes"),
        (all.clone(), 150_000, &post, "network_bytes"),
        (EgressLimits { streams: 0, ..all.clone() }, free, get, "streams"),
    ];
    for (limits, bytes, request, name) in limited {
        assert_eq!(end(all.clone(), free, request, &server).await, Ok(()));
        let (code, text) = end(limits, bytes, request, &server).await.unwrap_err();
        assert!(code == 11 && text.contains(name), "{name}: {code} {text}");
    }
    let two = format!("{get}{get}");
    let limits = EgressLimits { requests: 2, ..all.clone() };
    assert_eq!(end(limits, free, &two, &server).await, Ok(()));
    let rules = [format!("* http://{HOST}:{}/* private", server.port)];
    let guest = Guest::new(&egress(&rules, Vec::new(), EgressLimits { requests: 1, ..all }));
    let mut client = guest.client(HOST, server.port, false).await.unwrap();
    assert_eq!(client.fetch("GET", "/", "").await.0, 200);
    assert!(client.send("GET", "/", &[], full("")).await.is_err());
    // Refused connections count, and don't fill the log.
    for _ in 0..3 {
        assert_eq!(guest.open("evil.org", 80).await.unwrap_err().0, 11);
    }
    assert_eq!(guest.finish().requests.len(), 1);
}

#[tokio::test]
async fn heads_are_limited() {
    let server = Server::new(false, Arc::new(|_, _| Response::new(full("x")))).await;
    let guest = |limits| {
        Guest::new(&egress(
            &[format!("* http://{HOST}:{}/* private", server.port)],
            Vec::new(),
            limits,
        ))
    };
    for head in [
        format!("X: {}\r\n", "y".repeat(70_000)),
        "X: y\r\n".repeat(200),
        "Y: z\r\n".repeat(20_000),
    ] {
        let guest = guest(EgressLimits::default());
        let stream = guest.open(HOST, server.port).await.unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}:{}\r\n{head}\r\n", server.port);
        drop(guest.write_all(stream, request.as_bytes()).await);
        guest.end_writing(stream).await;
        let (read, end) = guest.read_all(stream).await;
        assert!(read.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&read));
        assert_eq!(end.unwrap_err().0, 14);
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000));
    let guest = guest(EgressLimits { head_bytes: 1 << 20, ..EgressLimits::default() });
    let stream = guest.open(HOST, server.port).await.unwrap();
    drop(guest.write_all(stream, long.as_bytes()).await);
    let (read, _) = guest.read_all(stream).await;
    assert!(read.starts_with(b"HTTP/1.1 414 "), "{}", String::from_utf8_lossy(&read));
    assert!(server.take_seen().is_empty());
}

#[tokio::test]
async fn times_are_limited() {
    let server = Server::streaming(
        false,
        Arc::new(|request| {
            Box::pin(async move {
                if request.uri().path() == "/slow-head" {
                    std::future::pending::<()>().await;
                }
                drop(request.into_body().collect().await);
                let first =
                    futures_util::stream::once(async { Ok(hyper::body::Frame::data("x".into())) });
                let never = futures_util::stream::pending();
                let body =
                    http_body_util::StreamBody::new(futures_util::StreamExt::chain(first, never));
                Response::new(BodyExt::boxed(body))
            })
        }),
    )
    .await;
    let short = Duration::from_millis(50);
    let all = EgressLimits::default();
    let slow = [
        (
            EgressLimits { idle_time: short, ..all.clone() },
            "GET /slow-head HTTP/1.1\r\nHost: {h}\r\n\r\n",
        ),
        (
            EgressLimits { idle_time: short, ..all.clone() },
            "GET /slow-body HTTP/1.1\r\nHost: {h}\r\n\r\n",
        ),
        (
            EgressLimits { request_time: short, ..all.clone() },
            "GET /slow-head HTTP/1.1\r\nHost: {h}\r\n\r\n",
        ),
        (
            EgressLimits { request_time: short, ..all.clone() },
            "GET /slow-body HTTP/1.1\r\nHost: {h}\r\n\r\n",
        ),
    ];
    for (limits, request) in slow {
        let (code, text) = end(limits, u64::MAX, request, &server).await.unwrap_err();
        assert!(code == 6 && text.contains("took longer than 50ms"), "{code} {text}");
    }
    // A body that the program doesn't finish.
    let rules = [format!("* http://{HOST}:{}/* private", server.port)];
    let guest = Guest::new(&egress(&rules, Vec::new(), EgressLimits { idle_time: short, ..all }));
    let stream = guest.open(HOST, server.port).await.unwrap();
    let request =
        format!("POST / HTTP/1.1\r\nHost: {HOST}:{}\r\nContent-Length: 9\r\n\r\nx", server.port);
    guest.write_all(stream, request.as_bytes()).await.unwrap();
    assert_eq!(guest.read_all(stream).await.1.unwrap_err().0, 6);
}

#[tokio::test]
async fn requests_beyond_those_at_once_wait() {
    let server = Server::new(false, Arc::new(|_, _| Response::new(full("x")))).await;
    let rules = [format!("* http://{HOST}:{}/* private", server.port)];
    let limits = EgressLimits { concurrent_requests: 1, ..EgressLimits::default() };
    let guest = Guest::new(&egress(&rules, Vec::new(), limits));
    let requests = (0..20).map(|_| async {
        guest.client(HOST, server.port, false).await.unwrap().fetch("GET", "/", "").await.0
    });
    assert_eq!(futures_util::future::join_all(requests).await, [200; 20]);
}

#[tokio::test]
async fn a_job_has_a_part_of_its_pool() {
    let server = Server::new(false, Arc::new(|_, _| Response::new(full("x")))).await;
    let port = server.port;
    let pool = egress(
        &[format!("GET http://{HOST}:{port}/* private")],
        Vec::new(),
        EgressLimits::default(),
    );
    let rules: [Rule; 2] = [
        format!("* http://{HOST}:{port}/v1/* private").parse().unwrap(),
        "GET http://other.example.com/*".parse().unwrap(),
    ];
    let guest = Guest::new(&Arc::new(pool.restricted(rules.to_vec())));
    let (code, text) = guest.open("other.example.com", 80).await.unwrap_err();
    assert!(code == 2 && text.contains("the job must all allow it"), "{text}");
    for (method, path, is_allowed) in
        [("GET", "/v1/x", true), ("POST", "/v1/x", false), ("GET", "/x", false)]
    {
        let mut client = guest.client(HOST, port, false).await.unwrap();
        assert_eq!(
            client.send(method, path, &[], full("")).await.is_ok(),
            is_allowed,
            "{method} {path}"
        );
    }
    let guest = Guest::new(&Arc::new(pool.restricted(Vec::new())));
    assert_eq!(guest.open(HOST, port).await.unwrap_err().0, 2);
}

#[tokio::test]
async fn what_is_under_way_is_told() {
    let handler =
        |_| -> futures_util::future::BoxFuture<'static, _> { Box::pin(std::future::pending()) };
    let server = Server::streaming(false, Arc::new(handler)).await;
    let rules = [format!("* http://{HOST}:{}/* private", server.port)];
    let guest = Guest::new(&egress(&rules, Vec::new(), EgressLimits::default()));
    assert_eq!(guest.0.activity(), engine::NetworkActivity::default());
    let mut streams = Vec::new();
    for path in ["/first", "/second"] {
        let stream = guest.open(HOST, server.port).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}:{}\r\n\r\n", server.port);
        guest.write_all(stream, request.as_bytes()).await.unwrap();
        streams.push((stream, format!("http://{HOST}:{}{path}", server.port)));
        while guest.0.activity().requests < streams.len() {
            tokio::task::yield_now().await;
        }
    }
    // The oldest, as long as it isn't closed.
    for (stream, url) in streams {
        let request = guest.0.activity().under_way.unwrap();
        assert_eq!((&*request.method, request.url), ("GET", url.clone()));
        guest.close(stream).await;
        while guest.0.activity().under_way.is_some_and(|request| request.url == url) {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((guest.0.activity().requests, guest.0.activity().under_way), (2, None));
}

#[test]
fn files_say_what_is_wrong_with_them() {
    let file: EgressFile = toml::from_str(
        "allow = ['GET https://api.example.com/*']\nsecrets = ['KEY=env:NOT_SET@https://api.example.com']\n\
         [limits]\nrequests = 3",
    )
    .unwrap();
    assert_eq!(file.limits.requests, 3);
    let tenants = "allow = ['GET https://a.example.com/*']\n[tenants]\nada = []\n'*' = ['GET https://*.b.example.com/*']";
    let egress = Arc::new(toml::from_str::<EgressFile>(tenants).unwrap().load().unwrap());
    assert!(!Arc::ptr_eq(egress.of_tenant("ada"), egress.of_tenant("bob")));
    assert!(Arc::ptr_eq(egress.of_tenant("bob"), egress.of_tenant("cleo")));
    assert!(
        file.load().unwrap_err().to_string().contains("set the environment variable `NOT_SET`")
    );
    for (text, expected) in [
        ("allow = ['https://api.example.com/*']", "write methods and a URL"),
        ("allow = ['GET https://api.example.com']", "https://api.example.com/*"),
        ("allow = ['GET api.example.com/*']", "https://"),
        ("allow = ['get https://api.example.com/*']", "upper-case"),
        ("allow = ['CONNECT https://api.example.com/*']", "never"),
        ("allow = ['GET https://*/*']", "first label"),
        ("allow = ['GET https://*.com/*']", "too wide"),
        ("allow = ['GET https://a.*.com/*']", "first label"),
        ("allow = ['GET https://*.1.2.3.4/*']", "too wide"),
        ("allow = ['GET https://u:p@example.com/*']", "use a secret"),
        ("allow = ['GET https://example.com/*?a=b']", "end the URL"),
        ("allow = ['GET https://example.com/a/../*']", "what they lead to"),
        ("allow = ['GET https://example.com:x/*']", "valid host"),
        ("allow = ['GET https://xn--a.com/*']", "valid host"),
        ("allow = ['GET https://example.com/* public']", "only `private`"),
        ("secrets = ['KEY']", "NAME=env:VARIABLE@https://host"),
        ("secrets = ['KEY=VARIABLE@https://example.com']", "NAME=env:VARIABLE@https://host"),
        ("secrets = ['1=env:X@https://example.com']", "without a digit first"),
        ("secrets = ['KEY=env:X@https://example.com/v1']", "leave `/v1` out"),
        ("secrets = ['KEY=env:X@https://example.com path']", "`query` and `body`"),
        ("rules = []", "unknown field"),
        ("[tenants]\nada = ['GET https://*/*']", "first label"),
        ("[limits]\nrequest = 3", "unknown field"),
        ("[limits]\nidle_time = -1", "negative"),
    ] {
        let error = toml::from_str::<EgressFile>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
