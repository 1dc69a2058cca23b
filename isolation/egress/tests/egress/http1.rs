//! HTTP/1.1 as programs use it goes through unchanged.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use egress::{Egress, EgressLimits};
use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::sync::Notify;

use crate::support::{Guest, Payload, Server, Streaming, egress, full};

const HOST: &str = "api.example.com";
const MIB: usize = 1 << 20;

fn allow(server: &Server, scheme: &str, limits: EgressLimits) -> Arc<Egress> {
    egress(&[format!("* {scheme}://{HOST}:{}/* private", server.port)], Vec::new(), limits)
}

/// A body of this many chunks, which makes each when it is asked for.
fn chunks(count: usize, chunk: Bytes) -> Payload {
    let frames = (0..count).map(move |_| Ok(Frame::data(chunk.clone())));
    BodyExt::boxed(StreamBody::new(stream::iter(frames)))
}

#[tokio::test]
async fn requests_share_a_connection() {
    for (tls, scheme) in [(false, "http"), (true, "https")] {
        let handler = |head: &http::request::Parts, body: &Bytes| {
            let text = format!("{} {} {}", head.method, head.uri, String::from_utf8_lossy(body));
            Response::builder().header("X-Case", "Kept").body(full(text)).unwrap()
        };
        let server = Server::new(tls, Arc::new(handler)).await;
        let guest = Guest::new(&allow(&server, scheme, EgressLimits::default()));
        let mut client = guest.client(HOST, server.port, tls).await.unwrap();
        for (method, body) in
            [("GET", ""), ("POST", "x"), ("PUT", "yy"), ("DELETE", ""), ("PATCH", "z")]
        {
            let expected = format!("{method} /a?b=c {body}");
            assert_eq!(client.fetch(method, "/a?b=c", body).await, (200, expected));
        }
        let response = client.send("HEAD", "/a", &[], full("")).await.unwrap();
        assert_eq!(response.headers()["content-length"], "8");
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
        assert_eq!(*server.connections.lock(), 1);
        // A stream after it takes over its connection.
        guest.close(client.stream).await;
        let mut next = guest.client(HOST, server.port, tls).await.unwrap();
        assert_eq!(next.fetch("GET", "/", "").await.0, 200);
        assert_eq!(*server.connections.lock(), 1);
        let log = guest.finish().requests;
        assert_eq!(log.len(), 7);
        assert!(log.iter().all(|one| one.is_whole && one.label() == "success"), "{log:?}");
        assert!(log.iter().all(|one| one.bytes_up > 20 && one.bytes_down > 20), "{log:?}");
    }
}

#[tokio::test]
async fn bodies_pass_in_all_their_forms() {
    let gzip = Bytes::from_static(b"\x1f\x8b\x08\0 not looked at");
    let compressed = gzip.clone();
    let handler = move |request: Request<Incoming>| -> futures_util::future::BoxFuture<'static, Response<Payload>> {
        let compressed = compressed.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap();
            let trailer = body.trailers().and_then(|it| it.get("x-sum").cloned());
            match head.uri.path() {
                "/gzip" => {
                    assert_eq!(head.headers["accept-encoding"], "gzip");
                    let response = Response::builder().header("Content-Encoding", "gzip");
                    response.body(full(compressed)).unwrap()
                }
                "/empty" => Response::builder().status(204).body(full("")).unwrap(),
                "/moved" => {
                    let response = Response::builder().status(302).header("Location", "/gzip");
                    response.header("Set-Cookie", "a=b").body(full("")).unwrap()
                }
                "/teapot" => Response::builder().status(418).body(full("short")).unwrap(),
                _ => {
                    let text = format!("{:?} {}", trailer, body.to_bytes().len());
                    let mut trailers = HeaderMap::new();
                    trailers.insert("x-end", "1".parse().unwrap());
                    let frames = [Frame::data(Bytes::from(text)), Frame::trailers(trailers)];
                    let frames = frames.into_iter().map(Ok::<_, io::Error>);
                    let response = Response::builder().header("Trailer", "x-end");
                    response.body(BodyExt::boxed(StreamBody::new(stream::iter(frames)))).unwrap()
                }
            }
        })
    };
    let server = Server::streaming(false, Arc::new(handler)).await;
    let guest = Guest::new(&allow(&server, "http", EgressLimits::default()));
    let mut client = guest.client(HOST, server.port, false).await.unwrap();
    let response =
        client.send("GET", "/gzip", &[("Accept-Encoding", "gzip")], full("")).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), gzip);
    assert_eq!(client.fetch("GET", "/empty", "").await, (204, String::new()));
    // Nobody follows but the program.
    let response = client.send("GET", "/moved", &[], full("")).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (302, &"/gzip".parse().unwrap())
    );
    assert_eq!(response.headers()["set-cookie"], "a=b");
    assert_eq!(client.fetch("GET", "/teapot", "").await, (418, "short".to_owned()));
    // In chunks, with trailers both ways.
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    let frames = [
        Frame::data(Bytes::from_static(b"a")),
        Frame::data(Bytes::from_static(b"bc")),
        Frame::trailers(trailers),
    ];
    let body = BodyExt::boxed(StreamBody::new(stream::iter(frames.into_iter().map(Ok))));
    let headers = [("TE", "trailers"), ("Trailer", "x-sum")];
    let response = client.send("POST", "/", &headers, body).await.unwrap();
    assert!(!response.headers().contains_key("content-length"));
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-end"], "1");
    assert_eq!(body.to_bytes(), "Some(\"7\") 3");
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn a_hundred_megabytes_pass_in_flat_memory() {
    let handler = |request: Request<Incoming>| -> futures_util::future::BoxFuture<'static, Response<Payload>> {
        Box::pin(async move {
            let mut body = request.into_body();
            let mut length = 0;
            while let Some(frame) = body.frame().await {
                length += frame.unwrap().data_ref().map_or(0, Bytes::len);
            }
            match length {
                0 => Response::new(chunks(1600, Bytes::from(vec![b'x'; MIB / 16]))),
                length => Response::new(full(length.to_string())),
            }
        })
    };
    for (tls, scheme) in [(false, "http"), (true, "https")] {
        let server = Server::streaming(tls, Arc::new(handler)).await;
        let limits = EgressLimits { request_bytes: 1 << 30, ..EgressLimits::default() };
        let guest = Guest::new(&allow(&server, scheme, limits));
        let mut client = guest.client(HOST, server.port, tls).await.unwrap();
        let before = resident();
        let up = chunks(1600, Bytes::from(vec![b'y'; MIB / 16]));
        let response = client.send("POST", "/", &[], up).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, (100 * MIB).to_string());
        let mut down = client.send("GET", "/", &[], full("")).await.unwrap().into_body();
        let (mut length, mut most) = (0, 0);
        while let Some(frame) = down.frame().await {
            length += frame.unwrap().data_ref().map_or(0, Bytes::len);
            most = most.max(resident());
        }
        assert_eq!(length, 100 * MIB);
        assert!(most.saturating_sub(before) < 80 * MIB, "{} MiB", (most - before) / MIB);
    }
}

#[tokio::test]
async fn a_program_that_reads_slowly_slows_the_server_down() {
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let handler =
        move |_: Request<Incoming>| -> futures_util::future::BoxFuture<'static, Response<Payload>> {
            let count = Arc::clone(&count);
            let frames = (0..1600).map(move |_| {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok(Frame::data(Bytes::from_static(&[b'x'; MIB / 16])))
            });
            Box::pin(async { Response::new(BodyExt::boxed(StreamBody::new(stream::iter(frames)))) })
        };
    let server = Server::streaming(false, Arc::new(handler)).await;
    let guest = Guest::new(&allow(&server, "http", EgressLimits::default()));
    let stream = guest.open(HOST, server.port).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}:{}\r\n\r\n", server.port);
    guest.write_all(stream, request.as_bytes()).await.unwrap();
    guest.call(5, &[&stream.to_le_bytes(), &[1]]).await.unwrap();
    // It goes on until all buffers are full; those of the kernel hold a few MiB.
    let mut before = usize::MAX;
    while before != made.load(std::sync::atomic::Ordering::Relaxed) {
        before = made.load(std::sync::atomic::Ordering::Relaxed);
        let _ =
            tokio::time::timeout(Duration::from_millis(200), std::future::pending::<()>()).await;
    }
    assert!(before < 400, "{before} chunks of 64 KiB");
}

#[tokio::test]
async fn a_hundred_requests_run_at_once() {
    let (arrived, count) =
        (Arc::new(Notify::new()), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let handler: Arc<Streaming> = {
        let (arrived, count) = (Arc::clone(&arrived), Arc::clone(&count));
        Arc::new(move |_| {
            let (arrived, count) = (Arc::clone(&arrived), Arc::clone(&count));
            Box::pin(async move {
                let all = arrived.notified();
                tokio::pin!(all);
                all.as_mut().enable();
                match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                    99 => arrived.notify_waiters(),
                    _ => all.await,
                }
                Response::new(full("all"))
            })
        })
    };
    let server = Server::streaming(true, handler).await;
    let guest = Guest::new(&allow(&server, "https", EgressLimits::default()));
    let requests = (0..100).map(|_| async {
        let mut client = guest.client(HOST, server.port, true).await.unwrap();
        client.fetch("GET", "/", "").await
    });
    let answers = futures_util::future::join_all(requests).await;
    assert!(answers.iter().all(|answer| *answer == (200, "all".to_owned())));
}

#[tokio::test]
async fn what_is_closed_is_closed_at_once() {
    let handler =
        |_: Request<Incoming>| -> futures_util::future::BoxFuture<'static, Response<Payload>> {
            Box::pin(std::future::pending())
        };
    let server = Server::streaming(false, Arc::new(handler)).await;
    let guest = Guest::new(&allow(&server, "http", EgressLimits::default()));
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}:{}\r\n\r\n", server.port);
    let gone = async |count: usize| {
        while *server.connections.lock() > count {
            tokio::task::yield_now().await;
        }
    };
    for by_finish in [false, true] {
        let mut streams = Vec::new();
        for _ in 0..3 {
            let stream = guest.open(HOST, server.port).await.unwrap();
            guest.write_all(stream, request.as_bytes()).await.unwrap();
            streams.push(stream);
        }
        while *server.connections.lock() < 3 {
            tokio::task::yield_now().await;
        }
        match by_finish {
            false => futures_util::future::join_all(streams.into_iter().map(|it| guest.close(it)))
                .await
                .clear(),
            true => {
                let outcome = guest.finish();
                assert!(outcome.requests.iter().all(|log| log.label() == "aborted"), "{outcome:?}");
                assert_eq!(guest.open(HOST, server.port).await.unwrap_err().0, 11);
                assert_eq!(guest.write_all(streams[0], b"x").await.unwrap_err().0, 9);
            }
        }
        tokio::time::timeout(Duration::from_secs(20), gone(0)).await.unwrap();
    }
}

#[tokio::test]
async fn a_thousand_jobs_leave_no_connection() {
    let server = Server::new(false, Arc::new(|_, _| Response::new(full(vec![b'x'; MIB])))).await;
    let egress = allow(&server, "http", EgressLimits::default());
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}:{}\r\n\r\n", server.port);
    for number in 0..1000 {
        let guest = Guest::new(&egress);
        let stream = guest.open(HOST, server.port).await.unwrap();
        guest.write_all(stream, request.as_bytes()).await.unwrap();
        // They end before, during and after their responses.
        if number % 3 > 0 {
            guest.call(5, &[&stream.to_le_bytes(), &[1]]).await.unwrap();
        }
        if number % 3 == 2 {
            guest.end_writing(stream).await;
            assert!(guest.read_all(stream).await.0.len() > MIB);
        }
        if number % 2 == 0 {
            let log = guest.finish().requests;
            assert!(number % 3 == 0 || log.len() == 1, "{log:?}");
        }
    }
    let gone = async {
        while *server.connections.lock() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
}

/// Serves each connection with this answer to its first request, and closes it.
async fn answering(answer: &'static [u8]) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut connected, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(connected.read_u8().await.unwrap());
            }
            connected.write_all(answer).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_closes_kept_connections_is_connected_to_again() {
    let port = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let rules = [format!("GET http://{HOST}:{port}/* private")];
    let guest = Guest::new(&egress(&rules, Vec::new(), EgressLimits::default()));
    let mut client = guest.client(HOST, port, false).await.unwrap();
    for _ in 0..20 {
        assert_eq!(client.fetch("GET", "/x", "").await, (200, "ok".to_owned()));
    }
}

#[tokio::test]
async fn a_stream_ends_where_the_server_says_so() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nConnection: Keep-Alive, Close\r\nContent-Length: 2\r\n\r\nok"[..],
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let port = answering(answer).await;
        let rules = [format!("GET http://{HOST}:{port}/* private")];
        let guest = Guest::new(&egress(&rules, Vec::new(), EgressLimits::default()));
        let stream = guest.open(HOST, port).await.unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n");
        guest.write_all(stream, request.as_bytes()).await.unwrap();
        let (read, end) = guest.read_all(stream).await;
        let read = String::from_utf8(read).unwrap();
        assert!(read.contains("ok") && read.to_lowercase().contains("connection: close"), "{read}");
        assert_eq!(end, Ok(()));
    }
}

#[tokio::test]
async fn broken_responses_are_failures() {
    let answers: [(&'static [u8], u8); 7] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", 0),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", 0),
        (b"no HTTP\r\n\r\n", 7),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 14),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 7),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 14),
        (b"", 0),
    ];
    for (answer, code) in answers {
        let port = answering(answer).await;
        let guest = Guest::new(&egress(
            &[format!("GET http://{HOST}:{port}/* private")],
            Vec::new(),
            EgressLimits::default(),
        ));
        let stream = guest.open(HOST, port).await.unwrap();
        let mut request = Vec::new();
        write!(request, "GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n").unwrap();
        guest.write_all(stream, &request).await.unwrap();
        let (_, end) = guest.read_all(stream).await;
        // An end that comes too early is just that for the program.
        let found = end.map_or_else(|(code, _)| code, |()| 0);
        assert_eq!(found, code, "{}", String::from_utf8_lossy(answer));
        assert!(guest.finish().requests[0].failure.is_some());
    }
}

#[tokio::test]
async fn failures_to_connect_have_their_codes() {
    let closed =
        tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let rules = [
        format!("GET http://{HOST}:{closed}/* private"),
        "GET https://nowhere.example.com/*".to_owned(),
    ];
    let resolver = crate::support::TableResolver::default().with("nowhere.example.com", &[&[]]);
    let guest = Guest::new(&crate::support::egress_with(
        &rules,
        Vec::new(),
        EgressLimits::default(),
        resolver,
    ));
    assert_eq!(guest.open(HOST, closed).await.unwrap_err().0, 4);
    assert_eq!(guest.open("nowhere.example.com", 443).await.unwrap_err().0, 3);
    // Nothing is written, so nothing comes.
    let open = Server::new(false, Arc::new(|_, _| Response::new(full("x")))).await;
    let own = Guest::new(&allow(&open, "http", EgressLimits::default()));
    let stream = own.open(HOST, open.port).await.unwrap();
    own.end_writing(stream).await;
    assert_eq!(own.read_all(stream).await, (Vec::new(), Ok(())));
    assert_eq!(own.write_all(stream, b"x").await.unwrap_err().0, 8);
    for frame in [
        &[][..],
        &[1],
        &[1, 0, 0, 0, 0, 1],
        &[9, 0, 0, 0, 0],
        &[5, 1, 0, 0, 0, 1],
        &[2, 1, 0, 0, 0, 0xff],
    ] {
        let egress::Served::Done(answer) = guest.0.serve(frame) else { panic!("it waits") };
        assert!(answer[0] == 1 && [9, 10].contains(&answer[1]), "{frame:?} {answer:?}");
    }
    let log = guest.finish().requests;
    let labels: Vec<&str> = log.iter().map(|one| one.label()).collect();
    assert_eq!(labels, ["refused", "unknown-name"]);
}
