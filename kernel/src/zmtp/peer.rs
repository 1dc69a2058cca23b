//! Connections of a socket: accepts and greets them, and serves each until it ends.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::frames::{FrameReader, FrameWriter, Incoming};
use super::greeting::{Kind, greet};
use super::{Frames, Listener, Terms};

/// The most connections of a socket; further ones are closed. A front end has one, and the five
/// sockets of a kernel stay within the files that a process may have open by default.
const MOST_CONNECTIONS: usize = 100;
/// The most connections that haven't greeted yet. The oldest goes for a new one, so that those which
/// never greet keep nobody out.
const MOST_GREETING: usize = 20;
/// How long a greeting may take, as in ZeroMQ's own library.
const LONGEST_GREETING: Duration = Duration::from_secs(30);
/// The pause after a connection that couldn't be accepted, most likely for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// Messages that wait for one peer.
pub(super) const MOST_QUEUED: usize = 64;

/// The commands by which a peer asks whether this side is there, and the answer.
const PING: &[u8] = b"\x04PING";
const PONG: &[u8] = b"\x04PONG";
/// The bytes between a ping's name and what its answer repeats.
const PING_TTL_BYTES: usize = 2;

/// A connection that has greeted.
pub(super) struct Peer {
    /// What it calls itself; empty if it has no name.
    pub(super) identity: Bytes,
    reader: FrameReader,
    writer: FrameWriter,
    ending: watch::Receiver<bool>,
}

/// Takes the messages of one peer.
pub(super) trait Hear: Send {
    /// Takes a message, and its turn if it is large. Returns whether the peer may go on.
    fn hear(
        &mut self,
        frames: Frames,
        turn: Option<OwnedSemaphorePermit>,
    ) -> impl Future<Output = bool> + Send;
}

/// Accepts connections until the socket is to end, and then waits until all have sent what is queued.
/// `serve` is called with each that has greeted.
pub(super) async fn accept<F>(
    listener: Listener,
    kind: Kind,
    terms: Terms,
    serve: impl Fn(Peer) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut ending = terms.ending.clone();
    let mut greeting = JoinSet::new();
    let mut handles: VecDeque<AbortHandle> = VecDeque::new();
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = told(&mut ending) => break,
            Some(_) = served.join_next() => {}
            Some(greeted) = greeting.join_next() => {
                handles.retain(|handle| !handle.is_finished());
                match greeted {
                    Ok(Ok(Ok(peer))) if served.len() < MOST_CONNECTIONS => {
                        served.spawn(serve(peer));
                    }
                    Ok(Ok(Ok(_))) => tracing::debug!("a connection was closed: there are too many"),
                    Ok(Ok(Err(error))) => tracing::debug!("a connection was refused: {error}"),
                    Ok(Err(_)) => tracing::debug!("a connection was closed: it didn't greet"),
                    // Its place was needed.
                    Err(_) => {}
                }
            }
            accepted = listener.accept() => {
                if handles.len() >= MOST_GREETING && let Some(oldest) = handles.pop_front() {
                    oldest.abort();
                }
                match accepted {
                    Ok((reader, writer)) => {
                        let reader =
                            FrameReader::new(reader, terms.most_bytes, terms.large.clone());
                        let meeting =
                            meet(kind, reader, FrameWriter::new(writer), terms.ending.clone());
                        handles.push_back(greeting.spawn(timeout(LONGEST_GREETING, meeting)));
                    }
                    Err(error) => {
                        tracing::debug!("a connection can't be accepted: {error}");
                        let _ = timeout(PAUSE, pending::<()>()).await;
                    }
                }
            }
        }
    }
    drop((listener, greeting));
    while served.join_next().await.is_some() {}
}

async fn meet(
    kind: Kind,
    mut reader: FrameReader,
    mut writer: FrameWriter,
    ending: watch::Receiver<bool>,
) -> io::Result<Peer> {
    let identity = greet(kind, &mut reader, &mut writer).await?;
    Ok(Peer { identity, reader, writer, ending })
}

impl Peer {
    /// Sends what is queued and passes on what arrives, until the connection, the queue or the socket
    /// ends, the peer breaks the protocol, or `hear` has enough of it.
    pub(super) async fn run(self, queue: mpsc::Receiver<Frames>, hear: impl Hear) {
        let Self { reader, writer, ending, .. } = self;
        // A second ping needs no answer of its own.
        let (pong, pongs) = mpsc::channel(1);
        tokio::select! {
            error = listen(reader, pong, hear) => {
                if let Some(error) = error {
                    tracing::debug!("a connection was closed: {error}");
                }
            }
            _ = send(writer, queue, pongs, ending) => {}
        }
    }
}

/// Passes on what arrives. Returns why nothing else can arrive, unless that is `hear`'s wish.
async fn listen(
    mut reader: FrameReader,
    pong: mpsc::Sender<Bytes>,
    mut hear: impl Hear,
) -> Option<io::Error> {
    loop {
        match reader.next().await {
            Ok(Incoming::Message(frames, turn)) => {
                if !hear.hear(frames, turn).await {
                    return None;
                }
            }
            Ok(Incoming::Command(body)) => {
                let ping = body.strip_prefix(PING).and_then(|rest| rest.get(PING_TTL_BYTES..));
                if let Some(context) = ping {
                    let _ = pong.try_send(Bytes::from([PONG, context].concat()));
                }
            }
            Err(error) => return Some(error),
        }
    }
}

/// Sends what is queued until there can't be more.
async fn send(
    mut writer: FrameWriter,
    mut queue: mpsc::Receiver<Frames>,
    mut pongs: mpsc::Receiver<Bytes>,
    mut ending: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut is_ending = false;
    loop {
        tokio::select! {
            biased;
            () = told(&mut ending), if !is_ending => {
                is_ending = true;
                queue.close();
            }
            Some(pong) = pongs.recv() => writer.command(&pong).await?,
            message = queue.recv() => match message {
                Some(frames) => writer.message(&frames).await?,
                None => return writer.end().await,
            }
        }
        if queue.is_empty() {
            writer.flush().await?;
        }
    }
}

/// Waits until the socket is to end.
async fn told(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|is_ending| *is_ending).await;
}
