//! The five sockets of a kernel: what arrives at them, and what leaves.
//!
//! Requests are read, checked and queued; a queue that is full leaves further ones in their
//! connection. Who sends anything that the kernel's key didn't sign is disconnected. What can't be
//! sent, since whoever asked is gone, is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::{Channel, Connection};
use crate::error::KernelError;
use crate::message::{Key, MOST_MESSAGE_BYTES, Message, Object, Writer};
use crate::zmtp::{Frames, Large, Listener, Router, Terms, echo};

pub(crate) use self::outputs::IoPub;

mod outputs;

/// Requests that wait at one socket. A front end that runs all cells of a notebook sends as many.
const MOST_WAITING: usize = 1000;
/// The most bytes of a heartbeat, or of a subscription.
const MOST_SMALL_BYTES: usize = 4096;
/// How many messages that nobody may send are told of in the log.
const MOST_TOLD: u32 = 20;
/// How long the last replies may take to leave. Front ends wait some seconds before they end a kernel
/// by force.
const LONGEST_END: Duration = Duration::from_secs(2);

/// The sockets of a kernel, bound to their addresses.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) shell: Channels,
    pub(crate) control: Channels,
    pub(crate) stdin: Channels,
    pub(crate) iopub: IoPub,
    /// Identifies the kernel.
    pub(crate) session: String,
    pub(crate) tasks: Tasks,
}

/// The tasks of the sockets, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: JoinSet<()>,
    ending: watch::Sender<bool>,
}

/// Requests from a socket, and the way back.
#[derive(Debug)]
pub(crate) struct Channels {
    /// Requests in their order.
    pub(crate) requests: mpsc::Receiver<Message>,
    pub(crate) replies: Replies,
}

/// Sends messages to single front ends through a socket.
#[derive(Debug, Clone)]
pub(crate) struct Replies {
    router: Router,
    writer: Writer,
}

impl Sockets {
    /// Binds the sockets, and begins to answer heartbeats.
    pub(crate) async fn bind(connection: &Connection) -> Result<Self, KernelError> {
        let key = connection.key();
        let writer = Writer::new(key.clone()).map_err(KernelError::Random)?;
        let (ending, is_ending) = watch::channel(false);
        let large = Large::default();
        let terms =
            |most_bytes| Terms { most_bytes, large: large.clone(), ending: is_ending.clone() };
        let heartbeat = listen(connection, Channel::Heartbeat).await?;
        let iopub = listen(connection, Channel::IoPub).await?;
        let shell = listen(connection, Channel::Shell).await?;
        let control = listen(connection, Channel::Control).await?;
        let stdin = listen(connection, Channel::Stdin).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(echo(heartbeat, terms(MOST_SMALL_BYTES)));
        let iopub = IoPub::start(iopub, terms(MOST_SMALL_BYTES), writer.clone(), &mut tasks);
        let [shell, control, stdin] = [shell, control, stdin].map(|listener| {
            Channels::start(listener, terms(MOST_MESSAGE_BYTES), key, &writer, &mut tasks)
        });
        let session = writer.session().to_owned();
        Ok(Self { shell, control, stdin, iopub, session, tasks: Tasks { tasks, ending } })
    }
}

async fn listen(connection: &Connection, channel: Channel) -> Result<Listener, KernelError> {
    let address = connection.address(channel);
    let bound = Listener::bind(&address).await;
    bound.map_err(|source| KernelError::Bind { endpoint: address.to_string(), source })
}

impl Tasks {
    /// Ends the sockets once all that is queued was sent, as far as its readers take it.
    pub(crate) async fn end(self) {
        let Self { mut tasks, ending } = self;
        ending.send_replace(true);
        let ended = async { while tasks.join_next().await.is_some() {} };
        let _ = timeout(LONGEST_END, ended).await;
    }
}

impl Channels {
    fn start(
        listener: Listener,
        terms: Terms,
        key: &Key,
        writer: &Writer,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (sender, requests) = mpsc::channel(MOST_WAITING);
        let (key, told) = (key.clone(), Arc::new(AtomicU32::new(0)));
        let read = move |frames: Frames| {
            let read = Message::read(frames, &key);
            read.inspect_err(|problem| {
                if told.fetch_add(1, Ordering::Relaxed) < MOST_TOLD {
                    tracing::warn!("a front end was disconnected for its message: {problem}");
                }
            })
            .ok()
        };
        let router = Router::start(listener, terms, tasks, read, sender);
        Self { requests, replies: Replies { router, writer: writer.clone() } }
    }
}

impl Replies {
    /// Sends a message to the front end that sent the request.
    pub(crate) async fn send(&mut self, request: &Message, kind: &str, content: &Value) {
        let frames = self.writer.write(&request.identities, kind, &request.header, content);
        if !self.router.send(frames).await {
            tracing::info!(kind, "a message was not sent, since its front end is gone");
        }
    }
}

/// Returns the header of nothing, for messages that answer none.
fn no_parent() -> Object {
    Object::new()
}
