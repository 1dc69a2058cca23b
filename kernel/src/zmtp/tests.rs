//! Sockets and their peers, over Unix sockets. Strangers over TCP are in `kernel/tests/strangers`.

use std::path::Path;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;

/// A socket's listener, its terms, and what ends it.
struct Place {
    folder: TempDir,
    tasks: JoinSet<()>,
    ending: watch::Sender<bool>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, tasks: JoinSet::new(), ending: watch::Sender::new(false) }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("socket")
    }

    async fn listener(&self) -> (Listener, Terms) {
        let listener = Listener::bind(&Address::Ipc(self.path())).await.unwrap();
        let terms =
            Terms { most_bytes: 1 << 20, large: Large::default(), ending: self.ending.subscribe() };
        (listener, terms)
    }
}

/// Connects as a socket of this type with this identity.
async fn connect(path: &Path, kind: &str, identity: &str) -> UnixStream {
    let mut stream = UnixStream::connect(path).await.unwrap();
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    let mut ready = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", kind), ("Identity", identity)] {
        ready.push(u8::try_from(name.len()).unwrap());
        ready.extend(name.as_bytes());
        ready.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        ready.extend(value.as_bytes());
    }
    stream.write_all(&greeting).await.unwrap();
    stream.write_all(&[4, u8::try_from(ready.len()).unwrap()]).await.unwrap();
    stream.write_all(&ready).await.unwrap();
    let mut answer = [0; 66];
    stream.read_exact(&mut answer).await.unwrap();
    let mut body = vec![0; usize::from(answer[65])];
    stream.read_exact(&mut body).await.unwrap();
    assert!(body.starts_with(b"\x05READY"));
    stream
}

/// Returns all that arrives until the connection ends.
async fn rest(mut stream: UnixStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // What was sent before a reset has arrived.
    let _ = stream.read_to_end(&mut rest).await;
    rest
}

#[tokio::test]
async fn replies_go_to_whoever_asked_and_a_new_connection_takes_an_identity_over() {
    let mut place = Place::new();
    let (listener, terms) = place.listener().await;
    let (sender, mut received) = mpsc::channel(8);
    let router = Router::start(listener, terms, &mut place.tasks, Some, sender);
    let mut first = connect(&place.path(), "DEALER", "ab").await;
    let mut other = connect(&place.path(), "REQ", "").await;
    first.write_all(&[0, 1, b'1']).await.unwrap();
    assert_eq!(received.recv().await.unwrap(), ["ab", "1"]);
    other.write_all(&[1, 0, 0, 1, b'2']).await.unwrap();
    let mut frames = received.recv().await.unwrap();
    assert_eq!((frames[0].len(), frames[0][0], &frames[2][..]), (9, 0, &b"2"[..]));
    frames[2] = Bytes::from_static(b"reply");
    assert!(router.send(frames).await);
    let mut reply = [0; 9];
    other.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"\x01\0\0\x05reply");

    let mut second = connect(&place.path(), "DEALER", "ab").await;
    second.write_all(&[0, 1, b'3']).await.unwrap();
    assert_eq!(received.recv().await.unwrap(), ["ab", "3"]);
    assert_eq!(rest(first).await, b"");
    let frames = |text: &'static str| vec![Bytes::from("ab"), Bytes::from(text)];
    assert!(router.send(frames("for the second")).await);
    assert!(!router.send(vec![Bytes::from("nobody"), Bytes::new()]).await);

    // What is queued is still sent at the end.
    place.ending.send_replace(true);
    while place.tasks.join_next().await.is_some() {}
    assert_eq!(rest(second).await, b"\0\x0efor the second");
    assert!(!place.path().exists());
    assert!(!router.send(frames("too late")).await);
}

#[tokio::test]
async fn subscribers_are_welcomed_and_get_their_topics() {
    let mut place = Place::new();
    let (listener, terms) = place.listener().await;
    let welcome = |topic: &Bytes| vec![topic.clone(), Bytes::from_static(b"welcome")];
    let mut publisher = Publisher::start(listener, terms, &mut place.tasks, welcome);
    let mut all = connect(&place.path(), "SUB", "").await;
    let mut some = connect(&place.path(), "SUB", "").await;
    // A ping is answered, and other commands are passed over.
    some.write_all(b"\x04\x08\x04PING\0\x01x\x04\x02\x01A").await.unwrap();
    all.write_all(&[0, 1, 1]).await.unwrap();
    publisher.subscribed().await;
    let mut welcomed = [0; 11];
    all.read_exact(&mut welcomed).await.unwrap();
    assert_eq!(&welcomed, b"\x01\0\0\x07welcome");
    some.write_all(b"\0\x02\x01a").await.unwrap();
    let mut pong = [0; 8];
    some.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"\x04\x06\x04PONGx");
    let mut welcomed = [0; 12];
    some.read_exact(&mut welcomed).await.unwrap();
    assert_eq!(&welcomed, b"\x01\x01a\0\x07welcome");
    let message = |topic: &'static str| vec![Bytes::from(topic), Bytes::from("1")];
    publisher.publish(message("abc")).await;
    publisher.publish(message("b")).await;
    place.ending.send_replace(true);
    while place.tasks.join_next().await.is_some() {}
    assert_eq!(rest(some).await, b"\x01\x03abc\0\x011");
    assert_eq!(rest(all).await, b"\x01\x03abc\0\x011\x01\x01b\0\x011");
}

/// The clock stands still, and goes on by itself when all wait.
#[tokio::test(start_paused = true)]
async fn a_reader_that_stands_still_is_disconnected() {
    let mut place = Place::new();
    let (listener, terms) = place.listener().await;
    let mut publisher =
        Publisher::start(listener, terms, &mut place.tasks, |topic| vec![topic.clone()]);
    let mut stalled = connect(&place.path(), "SUB", "").await;
    stalled.write_all(&[0, 1, 1]).await.unwrap();
    publisher.subscribed().await;
    let large = Bytes::from(vec![7; 1 << 16]);
    // More than the queue and the buffers of the connection hold.
    for _ in 0..500 {
        publisher.publish(vec![Bytes::new(), large.clone()]).await;
    }
    assert!(rest(stalled).await.len() < 500 << 16);
}

#[tokio::test]
async fn an_echo_gives_back_what_it_gets() {
    let mut place = Place::new();
    let (listener, terms) = place.listener().await;
    place.tasks.spawn(echo(listener, terms));
    let mut stream = connect(&place.path(), "REQ", "").await;
    for number in 0..3 {
        let message = [1, 0, 0, 1, number];
        stream.write_all(&message).await.unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, message);
    }
}
