//! What a request costs more than by a client of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use egress::EgressLimits;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;

use crate::support::{Guest, Server, connector, egress, full};

const HOST: &str = "api.example.com";
const COUNT: usize = 2000;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Prints the medians: `cargo test --release -- --nocapture latency`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latency_of_a_request() {
    for (tls, scheme) in [(false, "http"), (true, "https")] {
        let server = Server::new(tls, Arc::new(|_, _| Response::new(full("hello")))).await;
        let direct = median(directly(server.port, tls).await);
        let through = median(through_egress(server.port, tls).await);
        let added = through.saturating_sub(direct);
        println!("p50 over {scheme}: direct {direct:?}, through {through:?}, added {added:?}");
    }
}

async fn directly(port: u16, tls: bool) -> Vec<Duration> {
    let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    connected.set_nodelay(true).unwrap();
    let (mut sender, task) = match tls {
        false => {
            let (sender, connection) = handshake(TokioIo::new(connected)).await.unwrap();
            (sender, tokio::spawn(connection))
        }
        true => {
            let name = HOST.try_into().unwrap();
            let secured = connector().connect(name, connected).await.unwrap();
            let (sender, connection) = handshake(TokioIo::new(secured)).await.unwrap();
            (sender, tokio::spawn(connection))
        }
    };
    let mut times = Vec::new();
    for _ in 0..COUNT {
        let begun = Instant::now();
        let request = Request::builder().uri("/").header("Host", HOST).body(full("")).unwrap();
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        times.push(begun.elapsed());
    }
    drop(sender);
    task.await.unwrap().unwrap();
    times
}

async fn through_egress(port: u16, tls: bool) -> Vec<Duration> {
    let scheme = if tls { "https" } else { "http" };
    let rules = [format!("GET {scheme}://{HOST}:{port}/* private")];
    let limits = EgressLimits { requests: u64::MAX, ..EgressLimits::default() };
    let guest = Guest::new(&egress(&rules, Vec::new(), limits));
    let stream = guest.open(HOST, port).await.unwrap();
    if tls {
        guest.start_tls(stream, HOST).await.unwrap();
    }
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n");
    let (number, most) = (stream.to_le_bytes(), u32::MAX.to_le_bytes());
    let mut times = Vec::new();
    for _ in 0..COUNT {
        let begun = Instant::now();
        guest.write_all(stream, request.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"hello") {
            guest.call(5, &[&number, &[1]]).await.unwrap();
            read.extend(guest.call(4, &[&number, &most]).await.unwrap());
        }
        times.push(begun.elapsed());
    }
    assert_eq!(guest.finish().requests.len(), COUNT);
    times
}
