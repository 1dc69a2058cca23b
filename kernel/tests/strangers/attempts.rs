//! What strangers try, and that it costs nobody but them.

use std::io::Write;
use std::net::TcpStream;

use hatchery::{Hatchery, Job, Limits};
use serde_json::{Value, json};

use crate::client::{
    Bound, HEARTBEAT, IOPUB, KEY, SHELL, assert_closed, frames, greeting, header, message, request,
};

/// The longest message is 16 MiB, and four of them are received at once; the rest is for what
/// allocators keep, and for the other tests of this process.
const MOST_BYTES: usize = 160 << 20;

/// The connections of a socket.
const MOST_CONNECTIONS: usize = 100;

/// Bytes that the process has in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_lengths_cost_only_their_connection() {
    let bound = Bound::new().await;
    for length in [1 << 63, u64::MAX, 1 << 40, 17 << 20] {
        for socket in 0..5 {
            let kind = if socket == IOPUB { "SUB" } else { "DEALER" };
            let mut stream = bound.greet(socket, kind).unwrap();
            stream.write_all(&header(0, length)).unwrap();
            assert_closed(stream);
            // A command, and a frame that follows others.
            let mut stream = bound.greet(socket, kind).unwrap();
            stream.write_all(&header(4, length)).unwrap();
            assert_closed(stream);
            let mut stream = bound.greet(socket, kind).unwrap();
            stream.write_all(&[header(1, 1), vec![b'a'], header(0, length)].concat()).unwrap();
            assert_closed(stream);
        }
    }
    bound.assert_alive();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greetings_that_never_end_are_cut() {
    let bound = Bound::new().await;
    for first in [0xff, 0x00, b'G'] {
        let mut stream = bound.connect(SHELL);
        // It may be closed at any time.
        while stream.write_all(&[first; 1 << 12]).is_ok() {}
        assert_closed(stream);
    }
    // The same after a right greeting, and with commands without end in place of `READY`.
    let mut stream = bound.connect(SHELL);
    stream.write_all(&greeting()).unwrap();
    while stream.write_all(&[4, 6, 5, b'R', b'E', b'A', b'D', b'X'].repeat(100)).is_ok() {}
    assert_closed(stream);
    bound.assert_alive();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_connections_keep_nobody_out() {
    let bound = Bound::new().await;
    // As many as this process may have at once, and then others in their place.
    let mut open: Vec<TcpStream> = Vec::new();
    for number in 0..3000 {
        let mut stream = bound.connect(HEARTBEAT);
        if number % 2 == 0 {
            stream.write_all(&greeting()[..number % 64]).unwrap();
        }
        open.push(stream);
        if open.len() > 200 {
            open.remove(0);
        }
    }
    bound.assert_alive();
    drop(open);
    // With a right greeting, too, only so many are let in, and they make room when they go.
    let ping = frames(&[b"", b"ping"]);
    let mut greeted = Vec::new();
    for _ in 0..MOST_CONNECTIONS + 50 {
        let Ok(mut stream) = bound.greet(HEARTBEAT, "REQ") else { continue };
        if stream.write_all(&ping).is_ok() && message(&mut stream).is_ok() {
            greeted.push(stream);
        }
    }
    assert!(
        (MOST_CONNECTIONS - 5..=MOST_CONNECTIONS).contains(&greeted.len()),
        "{}",
        greeted.len()
    );
    drop(greeted);
    bound.assert_alive();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_no_key_costs_no_memory_beyond_a_bound() {
    let bound = Bound::new().await;
    let before = resident();
    // Messages of 15 MiB that never end, over as many connections as are let in.
    let body = vec![7; 1 << 20];
    let mut stalled = Vec::new();
    for _ in 0..40 {
        let mut stream = bound.greet(SHELL, "DEALER").unwrap();
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write_all(&header(1, 15 << 20));
        // As much as the kernel takes.
        for _ in 0..14 {
            if stream.write_all(&body).is_err() {
                break;
            }
        }
        stalled.push(stream);
    }
    // Small messages need no turn, and wrong signatures end a connection.
    let content = json!({ "code": "x".repeat(1 << 10) });
    for _ in 0..20 {
        let mut stream = bound.greet(SHELL, "DEALER").unwrap();
        stream.write_all(&request("execute_request", &content, b"another key")).unwrap();
        assert_closed(stream);
    }
    // Frames without end are no message.
    let mut stream = bound.greet(SHELL, "DEALER").unwrap();
    while stream.write_all(&[1, 1, b'a'].repeat(1000)).is_ok() {}
    assert_closed(stream);
    let grown = resident().saturating_sub(before);
    assert!(grown < MOST_BYTES, "{} MiB more", grown >> 20);
    bound.assert_alive();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_front_end_is_served_beside_them() {
    let bound = Bound::new().await;
    let mut strangers: Vec<TcpStream> = Vec::new();
    for _ in 0..30 {
        let mut stream = bound.greet(SHELL, "DEALER").unwrap();
        stream.write_all(&header(1, 10 << 20)).unwrap();
        strangers.push(stream);
        // They subscribe, and never read what they asked for.
        let mut stream = bound.greet(IOPUB, "SUB").unwrap();
        stream.write_all(&frames(&[b"\x01"])).unwrap();
        strangers.push(stream);
    }
    let mut outputs = bound.greet(IOPUB, "SUB").unwrap();
    outputs.write_all(&frames(&[b"\x01"])).unwrap();
    assert_eq!(message(&mut outputs).unwrap()[0], b"");
    let mut shell = bound.greet(SHELL, "DEALER").unwrap();
    let content = json!({ "code": "print(6 * 7)" });
    shell.write_all(&request("execute_request", &content, KEY)).unwrap();
    let pool = Hatchery::builder().workers(1).start().await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let ended = async move {
        let _ = stopped.await;
    };
    let serving = pool.clone();
    let kernel = bound.kernel;
    let served = tokio::spawn(async move {
        kernel.serve(serving, Limits::default(), Job::default(), ended).await
    });
    let asked = tokio::task::spawn_blocking(move || {
        let reply = message(&mut shell).unwrap();
        let mut printed = String::new();
        while printed != "42\n" {
            let published = message(&mut outputs).unwrap();
            let content: Value = serde_json::from_slice(published.last().unwrap()).unwrap();
            printed += content["text"].as_str().unwrap_or_default();
        }
        serde_json::from_slice::<Value>(reply.last().unwrap()).unwrap()
    });
    let reply = asked.await.unwrap();
    assert_eq!(reply["status"], "ok", "{reply}");
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
    drop(strangers);
    pool.drain().await;
}
