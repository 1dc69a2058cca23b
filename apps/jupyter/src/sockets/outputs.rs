//! The socket to which front ends subscribe for outputs.
//!
//! Slow readers lose nothing. The socket waits for its readers, and the output waits in the job's
//! transcript, within the job's limits. Only a reader that doesn't read for [`LONGEST_SEND`] costs
//! messages, also those of the other readers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zeromq::util::PeerIdentity;
use zeromq::{
    MultiPeerBackend, Socket, SocketEvent, SocketRecv, SocketSend, XPubSocket, ZmqMessage,
};

use super::message_of;
use crate::error::KernelError;
use crate::message::{Message, Object, Writer};

/// Messages that wait for the socket; publishing another one waits.
const MOST_WAITING: usize = 64;

/// How long a message may wait for a reader that stands still, before it is dropped.
const LONGEST_SEND: Duration = Duration::from_secs(10);

/// The same for the messages after one that was dropped, until one gets through again.
const LATER_SEND: Duration = Duration::from_millis(50);

/// How long each request waits for somebody who sees its outputs, until somebody has subscribed.
const LONGEST_WELCOME: Duration = Duration::from_secs(1);

/// The most connections that are remembered, to be closed at the end. Older ones have most likely
/// ended.
const MOST_CONNECTIONS: usize = 1024;

/// The first byte of what a subscriber sends, before the topic.
const SUBSCRIBES: u8 = 1;

/// Publishes outputs and status. Clones share the socket.
#[derive(Debug, Clone)]
pub(crate) struct IoPub {
    outbox: mpsc::Sender<ZmqMessage>,
    writer: Writer,
    has_subscriber: watch::Receiver<bool>,
}

impl IoPub {
    pub(super) async fn bind(
        endpoint: String,
        writer: Writer,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, KernelError> {
        let mut socket = XPubSocket::new();
        if let Err(source) = socket.bind(&endpoint).await {
            return Err(KernelError::Bind(endpoint, source));
        }
        let (outbox, messages) = mpsc::channel(MOST_WAITING);
        let (subscribed, has_subscriber) = watch::channel(false);
        tasks.spawn(publish(socket, messages, writer.clone(), subscribed));
        Ok(Self { outbox, writer, has_subscriber })
    }

    /// Publishes a message about a request.
    pub(crate) async fn publish(&self, request: &Message, kind: &str, content: &Value) {
        let topic = Bytes::from(format!("kernel.{kind}"));
        self.queue(topic, kind, &request.header, content).await;
    }

    /// Publishes a status that belongs to no request.
    pub(crate) async fn announce(&self, state: &str) {
        let content = json!({ "execution_state": state });
        self.queue(Bytes::from_static(b"kernel.status"), "status", &Object::new(), &content).await;
    }

    /// Waits a while for the first subscriber. Front ends connect all sockets at once, and a request
    /// may come before the subscription.
    pub(crate) async fn wait_for_subscriber(&mut self) {
        let subscribed = self.has_subscriber.wait_for(|subscribed| *subscribed);
        let _ = timeout(LONGEST_WELCOME, subscribed).await;
    }

    async fn queue(&self, topic: Bytes, kind: &str, parent: &Object, content: &Value) {
        let frames = self.writer.write(&[topic], kind, parent, content);
        // Fails if the kernel ends.
        let _ = self.outbox.send(message_of(frames)).await;
    }
}

/// Sends messages as they come, and welcomes subscribers.
async fn publish(
    mut socket: XPubSocket,
    mut messages: mpsc::Receiver<ZmqMessage>,
    writer: Writer,
    subscribed: watch::Sender<bool>,
) {
    let mut connections = Connections::of(&mut socket);
    let mut patience = LONGEST_SEND;
    loop {
        connections.note();
        let message = tokio::select! {
            biased;
            // An error is one of a subscriber, who is gone then.
            heard = socket.recv() => match heard.ok().and_then(|heard| topic_of(&heard)) {
                Some(topic) => {
                    subscribed.send_replace(true);
                    welcome(&writer, topic)
                }
                None => continue,
            },
            message = messages.recv() => match message {
                Some(message) => message,
                None => return,
            },
        };
        patience = match timeout(patience, socket.send(message)).await {
            Ok(_) => LONGEST_SEND,
            Err(_) => {
                tracing::warn!("an output was dropped: a front end has stopped reading");
                LATER_SEND
            }
        };
    }
}

/// The connections of subscribers. Dropped, it closes them: a socket of this kind leaves them open when
/// it is dropped, and front ends would wait at them for the kernel that follows in the same process.
struct Connections {
    backend: Arc<dyn MultiPeerBackend>,
    /// Returns what has happened at the socket, one by one.
    next: Box<dyn FnMut() -> Option<SocketEvent> + Send>,
    peers: VecDeque<PeerIdentity>,
}

impl Connections {
    fn of(socket: &mut XPubSocket) -> Self {
        let mut events = socket.monitor();
        let next = Box::new(move || events.try_recv().ok());
        Self { backend: socket.backend(), next, peers: VecDeque::new() }
    }

    /// Takes note of new connections.
    fn note(&mut self) {
        while let Some(event) = (self.next)() {
            if let SocketEvent::Accepted(_, peer) = event {
                self.peers.push_back(peer);
                let surplus = self.peers.len().saturating_sub(MOST_CONNECTIONS);
                self.peers.drain(..surplus);
            }
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.note();
        self.peers.iter().for_each(|peer| self.backend.peer_disconnected(peer));
    }
}

/// Returns the topic to which this message subscribes.
fn topic_of(heard: &ZmqMessage) -> Option<Bytes> {
    let frame = heard.get(0)?;
    (frame.first() == Some(&SUBSCRIBES)).then(|| frame.slice(1..))
}

fn welcome(writer: &Writer, topic: Bytes) -> ZmqMessage {
    let content = json!({ "subscription": String::from_utf8_lossy(&topic) });
    message_of(writer.write(&[topic], "iopub_welcome", &Object::new(), &content))
}
