//! What does a job cost beyond the library, if it comes from another process? Compares jobs `x = 1`
//! through the library, over a Unix socket in frames, and over a kept connection of HTTP. They come
//! one at a time and interleaved, and then many at a time over the socket.
//!
//! Doesn't measure: a second process. Client and server share this one and its runtime, as two
//! processes share two cores.

use std::time::{Duration, Instant};

use hatchery::{Hatchery, Job};
use serde_json::{Value, json};
use serve::http::HttpConfig;
use serve::{Caller, Service};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// Jobs of each kind that are timed, one at a time, after a quarter as many that aren't.
const JOBS: usize = 4_000;
/// Jobs whose throughput is measured.
const MANY: usize = 20_000;
/// Jobs that are sent and have no outcome yet, for the throughput.
const AT_ONCE: usize = 256;

#[tokio::main]
async fn main() {
    let pool = Hatchery::builder().workers(2).start().await.expect("the build is available");
    let service = Service::new(pool.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are ports");
    let address = listener.local_addr().expect("it is bound");
    let web = serve::http::serve(
        [listener],
        HttpConfig::default(),
        std::future::ready((service.clone(), axum::Router::new())),
        std::future::pending::<()>(),
    );
    tokio::spawn(web);
    let stream = TcpStream::connect(address).await.expect("it listens");
    stream.set_nodelay(true).expect("it is a TCP connection");
    let mut web = BufReader::new(stream);
    let (client, server) = UnixStream::pair().expect("there are descriptors");
    let (reader, writer) = server.into_split();
    tokio::spawn(async move {
        serve::frames::serve(service, Caller::owner(), reader, writer).await.expect("it is valid");
    });
    let (reader, mut writer) = client.into_split();
    let mut reader = BufReader::new(reader);
    send(&mut writer, &json!({ "type": "hello", "version": 1 })).await;
    assert_eq!(receive(&mut reader).await["type"], "hello");

    let (mut library, mut frames, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..JOBS * 5 / 4 {
        let began = clock();
        let outcome = pool.run(Job::code("x = 1")).await.expect("the job is admitted");
        let of_library = began.elapsed();
        assert!(outcome.is_success());
        let began = clock();
        send(&mut writer, &run(round)).await;
        let outcome = receive(&mut reader).await;
        let of_frames = began.elapsed();
        assert_eq!(outcome["result"]["success"], true, "{outcome}");
        let began = clock();
        let outcome = ask(&mut web, r#"{"code":"x = 1"}"#).await;
        let of_request = began.elapsed();
        assert_eq!(outcome["success"], true, "{outcome}");
        if round >= JOBS / 4 {
            library.push(of_library);
            frames.push(of_frames);
            requests.push(of_request);
        }
    }
    report("library", library);
    report("Unix socket, frames", frames);
    report("HTTP, kept alive", requests);

    let began = clock();
    let sending = tokio::spawn(async move {
        let mut writer = writer;
        for id in 0..AT_ONCE {
            send(&mut writer, &run(id)).await;
        }
        writer
    });
    let mut writer = sending.await.expect("it sends");
    for ended in 0..MANY {
        assert_eq!(receive(&mut reader).await["result"]["success"], true);
        if ended + AT_ONCE < MANY {
            send(&mut writer, &run(ended + AT_ONCE)).await;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{:>8.0} jobs a second over one Unix socket, {AT_ONCE} at a time",
        MANY as f64 / seconds
    );
    pool.abort().await;
}

fn run(id: usize) -> Value {
    json!({ "type": "run", "id": id, "job": { "code": "x = 1" } })
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), message: &Value) {
    let header = message.to_string();
    let length = u32::try_from(header.len()).expect("it is short").to_le_bytes();
    writer.write_all(&[&length, header.as_bytes()].concat()).await.expect("the server reads");
}

async fn receive(reader: &mut (impl AsyncRead + Unpin)) -> Value {
    let length = reader.read_u32_le().await.expect("the server answers");
    let mut header = vec![0; length as usize];
    reader.read_exact(&mut header).await.expect("the server answers");
    serde_json::from_slice(&header).expect("it is a message")
}

/// Sends a job over HTTP, and returns its result.
async fn ask(stream: &mut BufReader<TcpStream>, job: &str) -> Value {
    let head = "POST /v1/run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{job}", job.len());
    stream.get_mut().write_all(request.as_bytes()).await.expect("the server reads");
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("the server answers");
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().expect("it is a number");
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.expect("the server answers");
    serde_json::from_slice(&body).expect("it is a result")
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |per_mille: usize| times[times.len() * per_mille / 1000];
    println!("{name:<20} p50 {:?}, p95 {:?}, p99 {:?}", at(500), at(950), at(990));
}

fn clock() -> Instant {
    Instant::now()
}
