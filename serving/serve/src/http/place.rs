//! The places of connections: which are idle, and so give way to others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The connections that wait for their clients.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    idle: Mutex<Idle>,
    /// Told whenever a connection becomes idle.
    turned_idle: Notify,
}

#[derive(Debug, Default)]
struct Idle {
    /// By the order in which they became idle.
    places: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// The place of one connection. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Place {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    crowd: Arc<Crowd>,
    /// Its number among the idle ones.
    number: Mutex<Option<u64>>,
    close: Arc<Notify>,
    first: Notify,
    /// Whether the server works on a request, so that only part of a body keeps it waiting.
    has_request: AtomicBool,
}

/// A request that the server works on.
#[derive(Debug)]
pub(super) struct Busy {
    place: Place,
}

impl Crowd {
    /// Closes the connection that has been idle longest; returns whether there is one.
    pub(super) fn close_oldest(&self) -> bool {
        let oldest = self.idle.lock().places.pop_first();
        oldest.map(|(_, close)| close.notify_one()).is_some()
    }

    /// Waits until a connection becomes idle.
    pub(super) async fn turned_idle(&self) {
        self.turned_idle.notified().await;
    }
}

impl Place {
    /// Takes the place of a new connection, which is idle until it has a request.
    pub(super) fn new(crowd: Arc<Crowd>) -> Self {
        let place = Self {
            inner: Arc::new(Inner {
                crowd,
                number: Mutex::new(None),
                close: Arc::default(),
                first: Notify::new(),
                has_request: AtomicBool::new(false),
            }),
        };
        place.wait();
        place
    }

    /// Begins a request.
    pub(super) fn begin(&self) -> Busy {
        self.inner.has_request.store(true, Ordering::Relaxed);
        self.inner.first.notify_one();
        self.work();
        Busy { place: self.clone() }
    }

    /// Says that the client has to send something: the connection may be closed.
    pub(super) fn wait(&self) {
        let mut number = self.inner.number.lock();
        let mut idle = self.inner.crowd.idle.lock();
        let next = idle.next;
        idle.next += 1;
        let before = number.replace(next);
        before.map(|before| idle.places.remove(&before));
        idle.places.insert(next, Arc::clone(&self.inner.close));
        drop(idle);
        self.inner.crowd.turned_idle.notify_one();
    }

    /// Says that the client waits for the server.
    pub(super) fn work(&self) {
        if let Some(number) = self.inner.number.lock().take() {
            self.inner.crowd.idle.lock().places.remove(&number);
        }
    }

    /// Returns whether the server works on a request.
    pub(super) fn has_request(&self) -> bool {
        self.inner.has_request.load(Ordering::Relaxed)
    }

    /// Waits for the first request.
    pub(super) async fn first_request(&self) {
        self.inner.first.notified().await;
    }

    /// Waits until the connection is to give way.
    pub(super) async fn closed(&self) {
        self.inner.close.notified().await;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(number) = self.number.lock().take() {
            self.crowd.idle.lock().places.remove(&number);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.place.inner.has_request.store(false, Ordering::Relaxed);
        self.place.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_gives_way_and_no_busy_one() {
        let crowd = Arc::new(Crowd::default());
        let places = [(); 3].map(|()| Place::new(Arc::clone(&crowd)));
        let count = || crowd.idle.lock().places.len();
        let first = places[0].begin();
        assert!(places[0].has_request() && count() == 2);
        drop(first);
        // It is idle for the shortest time now.
        assert!(!places[0].has_request());
        let oldest = crowd.idle.lock().places.values().next().cloned().unwrap();
        assert!(Arc::ptr_eq(&oldest, &places[1].inner.close));
        let _busy = places.each_ref().map(Place::begin);
        assert!(!crowd.close_oldest());
        places[2].wait();
        assert_eq!(count(), 1);
        drop((_busy, places));
        assert_eq!(count(), 0);
    }
}
