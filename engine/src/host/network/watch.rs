//! Wakes guests whose connections can continue.
//!
//! A guest waits at its gate, where stops and interrupts reach it. So one thread watches the
//! sockets of all guests of a process. It sleeps in the system until a socket is ready, and then
//! wakes the gate. It starts with the first wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use parking_lot::Mutex;

use super::lookup::Lookup;
use super::socket::Connection;
use crate::errno::{Errno, Result};
use crate::interrupt::gate::{Gate, ThreadGate, Woken};
use crate::owner::OwnerProcess;

/// How many events the thread takes from the system at once.
const EVENTS: usize = 256;

/// How many descriptors are watched for one guest at once, whatever its threads poll for: a process
/// has few descriptors.
const MOST_WATCHED: usize = 128;

#[derive(Debug, Clone)]
pub(crate) enum Want {
    Readable(Connection),
    Writable(Connection),
    Lookup(Arc<Lookup>),
}

impl Want {
    /// Waits at the gate until this is there or the run is asked to end.
    pub(crate) fn wait(&self, passage: &ThreadGate) -> Result<Woken> {
        match self {
            Self::Lookup(lookup) => {
                let gate = Arc::clone(passage.gate());
                lookup.begin(move || gate.wake())?;
                Ok(passage.wait(None, || lookup.is_done()))
            }
            Self::Readable(_) | Self::Writable(_) => {
                let watch = Watch::begin(passage.gate(), std::slice::from_ref(self))?;
                Ok(passage.wait(None, || watch.is_ready()))
            }
        }
    }
}

/// Sockets that are watched for one guest, as long as this lives.
pub(crate) struct Watch {
    is_ready: Arc<AtomicBool>,
    /// `None` if there is nothing to watch.
    watcher: Option<Arc<Watcher>>,
    /// A descriptor of its own for each, since the system watches a descriptor only once.
    watched: Vec<(Token, OwnedFd)>,
}

impl Watch {
    /// Wakes the gate when one of these is ready, which then stays so.
    pub(crate) fn begin(gate: &Arc<Gate>, wants: &[Want]) -> Result<Self> {
        let mut watch = Self {
            is_ready: Arc::default(),
            watcher: None,
            watched: Vec::with_capacity(wants.len()),
        };
        for want in wants {
            let (connection, interest) = match want {
                Want::Readable(connection) => (connection, Interest::READABLE),
                Want::Writable(connection) => (connection, Interest::WRITABLE),
                Want::Lookup(_) => continue,
            };
            watch.add(gate, connection, interest)?;
        }
        Ok(watch)
    }

    fn add(&mut self, gate: &Arc<Gate>, connection: &Connection, interest: Interest) -> Result {
        let refused = |error: io::Error| {
            tracing::warn!(%error, "the system refused to watch a connection of a guest");
            Errno::InputOutput
        };
        let watcher = match &self.watcher {
            Some(watcher) => watcher,
            None => self.watcher.insert(Watcher::current().map_err(refused)?),
        };
        let descriptor = connection.stream().as_fd().try_clone_to_owned().map_err(refused)?;
        let waiting = Waiting { is_ready: Arc::clone(&self.is_ready), gate: Arc::clone(gate) };
        let token = watcher.note(waiting).ok_or(Errno::TooManyOpen)?;
        let fd = descriptor.as_raw_fd();
        self.watched.push((token, descriptor));
        watcher.registry.register(&mut SourceFd(&fd), token, interest).map_err(refused)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(watcher) = &self.watcher else { return };
        for (token, descriptor) in &self.watched {
            // One that couldn't be registered isn't there.
            let _ = watcher.registry.deregister(&mut SourceFd(&descriptor.as_raw_fd()));
            watcher.state.lock().waiting.remove(token);
        }
    }
}

struct Watcher {
    owner: OwnerProcess,
    registry: Registry,
    state: Mutex<WatchState>,
}

#[derive(Default)]
struct WatchState {
    last: usize,
    waiting: HashMap<Token, Waiting>,
}

struct Waiting {
    is_ready: Arc<AtomicBool>,
    gate: Arc<Gate>,
}

impl Watcher {
    fn current() -> io::Result<Arc<Self>> {
        static CURRENT: Mutex<Option<Arc<Watcher>>> = Mutex::new(None);
        let mut current = CURRENT.lock();
        if let Some(watcher) = current.as_ref().filter(|watcher| watcher.owner.is_current()) {
            return Ok(Arc::clone(watcher));
        }
        let watcher = Self::start()?;
        *current = Some(Arc::clone(&watcher));
        Ok(watcher)
    }

    fn start() -> io::Result<Arc<Self>> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let watcher =
            Arc::new(Self { owner: OwnerProcess::current(), registry, state: Mutex::default() });
        let watches = Arc::clone(&watcher);
        thread::Builder::new()
            .name("hatchery-network".to_owned())
            .spawn(move || watches.watch(poll))?;
        Ok(watcher)
    }

    /// Notes a descriptor of a guest, unless it has too many already.
    fn note(&self, waiting: Waiting) -> Option<Token> {
        let mut state = self.state.lock();
        let is_its = |other: &&Waiting| Arc::ptr_eq(&other.gate, &waiting.gate);
        if state.waiting.values().filter(is_its).count() >= MOST_WATCHED {
            return None;
        }
        state.last = state.last.wrapping_add(1);
        let token = Token(state.last);
        state.waiting.insert(token, waiting);
        Some(token)
    }

    fn watch(&self, mut poll: Poll) {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            if let Err(error) = poll.poll(&mut events, None)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "the connections of guests can't be watched");
            }
            for event in &events {
                let state = self.state.lock();
                if let Some(waiting) = state.waiting.get(&event.token()) {
                    waiting.is_ready.store(true, Ordering::SeqCst);
                    let gate = Arc::clone(&waiting.gate);
                    drop(state);
                    gate.wake();
                }
            }
        }
    }
}
