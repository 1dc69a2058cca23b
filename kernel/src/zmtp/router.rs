//! A socket whose messages say which peer they come from, and which they go to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{Debug, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::greeting::Kind;
use super::peer::{Hear, MOST_QUEUED, accept};
use super::{Frames, Listener, Terms};

/// How long a message may wait for room in the queue of a peer that doesn't read.
const LONGEST_SEND: Duration = Duration::from_secs(10);

/// Sends messages to single peers. Clones share the socket.
#[derive(Clone, Default)]
pub(crate) struct Router(Arc<Peers>);

#[derive(Default)]
struct Peers {
    queues: Mutex<HashMap<Bytes, Queue>>,
    /// Numbers the connections.
    count: AtomicU64,
}

struct Queue {
    connection: u64,
    sender: mpsc::Sender<Frames>,
}

impl Debug for Router {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Router").finish_non_exhaustive()
    }
}

impl Router {
    /// Serves connections in a task. Each message is given to `read` with the identity of its peer as
    /// its first frame, and what that returns goes to `received`; after `None` the peer is
    /// disconnected.
    pub(crate) fn start<T: Send + 'static>(
        listener: Listener,
        terms: Terms,
        tasks: &mut JoinSet<()>,
        read: impl Fn(Frames) -> Option<T> + Clone + Send + Sync + 'static,
        received: mpsc::Sender<T>,
    ) -> Self {
        let router = Self::default();
        let peers = Arc::clone(&router.0);
        tasks.spawn(accept(listener, Kind::Router, terms, move |peer| {
            let (sender, queue) = mpsc::channel(MOST_QUEUED);
            let entered = peers.enter(&peer.identity, sender);
            let (read, received) = (read.clone(), received.clone());
            async move { peer.run(queue, Hearing { entered, read, received }).await }
        }));
        router
    }

    /// Sends a message to the peer whose identity is its first frame. Returns whether it is on its
    /// way: it isn't if the peer is gone, or has stopped reading.
    pub(crate) async fn send(&self, mut frames: Frames) -> bool {
        let identity = frames.remove(0);
        let queue = self.0.queues().get(&identity).map(|queue| queue.sender.clone());
        let Some(queue) = queue else { return false };
        matches!(timeout(LONGEST_SEND, queue.send(frames)).await, Ok(Ok(())))
    }
}

impl Peers {
    /// Enters a connection. One that had the same identity is disconnected: its front end has
    /// connected again, and the end of the earlier connection hasn't been seen yet.
    fn enter(self: &Arc<Self>, identity: &Bytes, sender: mpsc::Sender<Frames>) -> Entered {
        let connection = self.count.fetch_add(1, Ordering::Relaxed);
        let identity = if identity.is_empty() { made_up(connection) } else { identity.clone() };
        self.queues().insert(identity.clone(), Queue { connection, sender });
        Entered { peers: Arc::clone(self), identity, connection }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Bytes, Queue>> {
        self.queues.lock().expect("no holder panics")
    }
}

/// Returns an identity for a connection without one. No peer can choose it, since it begins with 0.
fn made_up(connection: u64) -> Bytes {
    let mut identity = BytesMut::with_capacity(9);
    identity.put_u8(0);
    identity.put_u64(connection);
    identity.freeze()
}

/// A connection among the peers, until it is dropped.
struct Entered {
    peers: Arc<Peers>,
    identity: Bytes,
    connection: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Entry::Occupied(queue) = self.peers.queues().entry(self.identity.clone())
            && queue.get().connection == self.connection
        {
            queue.remove();
        }
    }
}

struct Hearing<T, R> {
    entered: Entered,
    read: R,
    received: mpsc::Sender<T>,
}

impl<T: Send, R: Fn(Frames) -> Option<T> + Send> Hear for Hearing<T, R> {
    async fn hear(&mut self, mut frames: Frames, turn: Option<OwnedSemaphorePermit>) -> bool {
        frames.insert(0, self.entered.identity.clone());
        let Some(message) = (self.read)(frames) else { return false };
        // It is somebody's who may ask.
        drop(turn);
        self.received.send(message).await.is_ok()
    }
}
