//! A socket that sends messages to all who have subscribed to their topic.
//!
//! Nothing is lost by reading slowly: whoever publishes waits for the readers. A reader that stands
//! still for [`LONGEST_SEND`] is disconnected.

use std::collections::HashMap;
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::greeting::Kind;
use super::peer::{Hear, MOST_QUEUED, Peer, accept};
use super::{Frames, Listener, Terms};

/// How long a message may wait for one reader.
const LONGEST_SEND: Duration = Duration::from_secs(10);
/// The most topics of a subscriber, and the longest topic.
const MOST_TOPICS: usize = 64;
const MOST_TOPIC_BYTES: usize = 1024;

/// The first bytes of what a subscriber sends, before the topic.
const UNSUBSCRIBES: u8 = 0;
const SUBSCRIBES: u8 = 1;

/// Publishes messages. Clones share the socket.
#[derive(Clone)]
pub(crate) struct Publisher {
    readers: Arc<Readers>,
    has_subscriber: watch::Receiver<bool>,
}

struct Readers {
    table: Mutex<Table>,
    has_subscriber: watch::Sender<bool>,
}

#[derive(Default)]
struct Table {
    /// Numbers the connections.
    count: u64,
    readers: HashMap<u64, Reader>,
}

struct Reader {
    queue: mpsc::Sender<Frames>,
    topics: Vec<Bytes>,
    /// Dropped to disconnect it.
    _connected: oneshot::Sender<()>,
}

impl Debug for Publisher {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl Publisher {
    /// Serves connections in a task. Each subscription is welcomed by the message that `welcome`
    /// makes of its topic.
    pub(crate) fn start(
        listener: Listener,
        terms: Terms,
        tasks: &mut JoinSet<()>,
        welcome: impl Fn(&Bytes) -> Frames + Clone + Send + Sync + 'static,
    ) -> Self {
        let (sender, has_subscriber) = watch::channel(false);
        let readers = Arc::new(Readers { table: Mutex::default(), has_subscriber: sender });
        let publisher = Self { readers: Arc::clone(&readers), has_subscriber };
        tasks.spawn(accept(listener, Kind::Publisher, terms, move |peer| {
            serve(peer, Arc::clone(&readers), welcome.clone())
        }));
        publisher
    }

    /// Publishes a message, whose first frame is its topic.
    pub(crate) async fn publish(&self, frames: Frames) {
        let mut waiting = JoinSet::new();
        for (number, queue) in self.readers.of(&frames[0]) {
            let Err(TrySendError::Full(frames)) = queue.try_send(frames.clone()) else { continue };
            waiting.spawn(async move {
                timeout(LONGEST_SEND, queue.send(frames)).await.is_err().then_some(number)
            });
        }
        while let Some(waited) = waiting.join_next().await {
            if let Ok(Some(stalled)) = waited {
                tracing::warn!("a front end was disconnected: it has stopped reading outputs");
                self.readers.table().readers.remove(&stalled);
            }
        }
    }

    /// Waits until somebody has subscribed. Cancel-safe.
    pub(crate) async fn subscribed(&mut self) {
        let _ = self.has_subscriber.wait_for(|has_subscriber| *has_subscriber).await;
    }
}

impl Readers {
    /// Returns those who have subscribed to a topic.
    fn of(&self, topic: &Bytes) -> Vec<(u64, mpsc::Sender<Frames>)> {
        let table = self.table();
        let readers = table.readers.iter().filter(|(_, reader)| {
            reader.topics.iter().any(|subscribed| topic.starts_with(subscribed))
        });
        readers.map(|(number, reader)| (*number, reader.queue.clone())).collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder panics")
    }
}

async fn serve(peer: Peer, readers: Arc<Readers>, welcome: impl Fn(&Bytes) -> Frames + Send) {
    let (queue, queued) = mpsc::channel(MOST_QUEUED);
    let (connected, disconnected) = oneshot::channel();
    let number = {
        let mut table = readers.table();
        table.count += 1;
        let number = table.count;
        let reader = Reader { queue, topics: Vec::new(), _connected: connected };
        table.readers.insert(number, reader);
        number
    };
    let subscription = Subscription { readers, number, welcome };
    tokio::select! {
        () = peer.run(queued, subscription) => {}
        _ = disconnected => {}
    }
}

/// A connection among the readers, until it is dropped.
struct Subscription<W> {
    readers: Arc<Readers>,
    number: u64,
    welcome: W,
}

impl<W> Drop for Subscription<W> {
    fn drop(&mut self) {
        self.readers.table().readers.remove(&self.number);
    }
}

impl<W: Fn(&Bytes) -> Frames + Send> Hear for Subscription<W> {
    /// Takes a subscription or its end; anything else means nothing here.
    async fn hear(&mut self, frames: Frames, _turn: Option<OwnedSemaphorePermit>) -> bool {
        let Some((&first, _)) = frames[0].split_first() else { return true };
        let topic = frames[0].slice(1..);
        let mut table = self.readers.table();
        let Some(reader) = table.readers.get_mut(&self.number) else { return false };
        match first {
            SUBSCRIBES => {
                if topic.len() > MOST_TOPIC_BYTES || reader.topics.len() == MOST_TOPICS {
                    return false;
                }
                // Before any message of the topic; a reader whose queue is full isn't waiting for it.
                let _ = reader.queue.try_send((self.welcome)(&topic));
                reader.topics.push(topic);
                self.readers.has_subscriber.send_replace(true);
            }
            UNSUBSCRIBES => {
                if let Some(place) = reader.topics.iter().position(|of| *of == topic) {
                    reader.topics.swap_remove(place);
                }
            }
            _ => {}
        }
        true
    }
}
