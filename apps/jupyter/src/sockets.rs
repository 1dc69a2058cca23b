//! The five sockets of a kernel: what arrives at them, and what leaves.
//!
//! Each socket has its own task. Requests are read, checked and queued; a full queue leaves further
//! ones in their socket. Messages to a disconnected client are dropped.

pub(crate) use self::outputs::IoPub;

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zeromq::{
    RouterRecvHalf, RouterSendHalf, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage,
};

use crate::connection::Connection;
use crate::error::KernelError;
use crate::message::{Key, Message, Writer};

mod outputs;

/// Requests that wait at one socket. A front end that runs all cells of a notebook sends as many.
const MOST_WAITING: usize = 1000;

/// How long a reply may wait for room in the queue of a front end that doesn't read.
const LONGEST_SEND: Duration = Duration::from_secs(10);

/// The sockets of a kernel, bound to their addresses.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) shell: Channels,
    pub(crate) control: Channels,
    pub(crate) stdin: Channels,
    pub(crate) iopub: IoPub,
    /// Identifies the kernel.
    pub(crate) session: String,
    /// The tasks of the sockets, which end when this is dropped.
    pub(crate) tasks: JoinSet<()>,
}

/// Requests from a socket, and the way back.
#[derive(Debug)]
pub(crate) struct Channels {
    /// Requests in their order.
    pub(crate) requests: mpsc::Receiver<Message>,
    pub(crate) replies: Replies,
}

/// Sends messages to single front ends through a socket.
#[derive(Clone)]
pub(crate) struct Replies {
    socket: RouterSendHalf,
    writer: Writer,
}

impl std::fmt::Debug for Replies {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Replies").finish_non_exhaustive()
    }
}

impl Sockets {
    /// Binds the sockets, and begins to answer heartbeats.
    pub(crate) async fn bind(connection: &Connection) -> Result<Self, KernelError> {
        let key = &connection.key;
        let writer = Writer::new(key.clone()).map_err(KernelError::Random)?;
        let heartbeat = router(connection, connection.file.hb_port).await?;
        let mut tasks = JoinSet::new();
        let endpoint = connection.endpoint(connection.file.iopub_port);
        let iopub = IoPub::bind(endpoint, writer.clone(), &mut tasks).await?;
        let shell = router(connection, connection.file.shell_port).await?;
        let control = router(connection, connection.file.control_port).await?;
        let stdin = router(connection, connection.file.stdin_port).await?;
        tasks.spawn(beat(heartbeat));
        let [shell, control, stdin] =
            [shell, control, stdin].map(|socket| Channels::of(socket, key, &writer, &mut tasks));
        let session = writer.session().to_owned();
        Ok(Self { shell, control, stdin, iopub, session, tasks })
    }
}

async fn router(connection: &Connection, port: u16) -> Result<RouterSocket, KernelError> {
    let endpoint = connection.endpoint(port);
    let mut socket = RouterSocket::new();
    match socket.bind(&endpoint).await {
        Ok(_) => Ok(socket),
        Err(source) => Err(KernelError::Bind(endpoint, source)),
    }
}

/// Sends back whatever arrives. A router, since it doesn't mind who asks twice or goes away.
async fn beat(mut socket: RouterSocket) {
    while let Ok(message) = socket.recv().await {
        let _ = timeout(LONGEST_SEND, socket.send(message)).await;
    }
}

impl Channels {
    fn of(socket: RouterSocket, key: &Key, writer: &Writer, tasks: &mut JoinSet<()>) -> Self {
        let (socket, receiving) = socket.split();
        let (sender, requests) = mpsc::channel(MOST_WAITING);
        tasks.spawn(receive(receiving, sender, key.clone()));
        Self { requests, replies: Replies { socket, writer: writer.clone() } }
    }
}

/// Reads requests until nobody wants them any more.
async fn receive(mut socket: RouterRecvHalf, sender: mpsc::Sender<Message>, key: Key) {
    loop {
        let received = tokio::select! {
            received = socket.recv() => received,
            () = sender.closed() => return,
        };
        let Ok(frames) = received else { return };
        match Message::read(frames.into_vec(), &key) {
            Ok(message) => {
                if sender.send(message).await.is_err() {
                    return;
                }
            }
            Err(problem) => tracing::warn!("a message was dropped: {problem}"),
        }
    }
}

impl Replies {
    /// Sends a message to the front end that sent the request.
    pub(crate) async fn send(&mut self, request: &Message, kind: &str, content: &Value) {
        let frames = self.writer.write(&request.identities, kind, &request.header, content);
        let sent = timeout(LONGEST_SEND, self.socket.send(message_of(frames))).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::info!(kind, "a message was not sent: its front end has disconnected");
        }
    }
}

fn message_of(frames: Vec<Bytes>) -> ZmqMessage {
    ZmqMessage::try_from(frames).expect("a message has frames")
}
