//! Moves snapshots of idle sessions out of their workers.
//!
//! A snapshot protects against the death of its worker, so it must leave the worker. Fetching it
//! after each turn would cost as much as the turn, and the next turn replaces most of them. So a
//! snapshot stays in its worker until nothing has replaced it for a while; the larger, the longer.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long a copy rests before it is moved, at least.
const REST: Duration = Duration::from_millis(10);

/// What is moved in a second of rest, in bytes: a twentieth of what could be.
const RATE: u64 = 64 << 20;

/// How often idle copies are checked. A worker that makes one needn't wake this thread.
const TICK: Duration = Duration::from_millis(5);

/// A copy that can be moved to this process.
pub(crate) trait Movable: Debug + Send + Sync {
    /// Moves it, unless that has been done. May block for as long as its worker takes.
    fn move_here(&self);
}

/// Moves copies in a thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SnapshotOffloader(Arc<OffloaderShared>);

#[derive(Debug, Default)]
struct OffloaderShared {
    resting: Mutex<Resting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Resting {
    /// The last copy of each worker, by the worker's number, and when it is moved.
    copies: HashMap<u64, (Instant, Weak<dyn Movable>)>,
    /// The thread waits to be woken.
    is_asleep: bool,
    is_over: bool,
}

impl SnapshotOffloader {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::<OffloaderShared>::default();
        let its = Arc::clone(&shared);
        thread::Builder::new().name("hatchery-copies".to_owned()).spawn(move || its.move_all())?;
        Ok(Self(shared))
    }

    /// Notes that a worker has made a copy of this length, which replaces the one before.
    pub(crate) fn add(&self, worker: u64, copy: Weak<dyn Movable>, bytes: u64) {
        let due = Instant::now() + REST + Duration::from_millis(bytes.saturating_mul(1_000) / RATE);
        let mut resting = self.0.resting.lock();
        let before = resting.copies.insert(worker, (due, copy));
        let was_asleep = std::mem::take(&mut resting.is_asleep);
        drop(resting);
        drop(before);
        if was_asleep {
            self.0.changed.notify_one();
        }
    }
}

impl Drop for SnapshotOffloader {
    fn drop(&mut self) {
        self.0.resting.lock().is_over = true;
        self.0.changed.notify_one();
    }
}

impl OffloaderShared {
    fn move_all(&self) {
        let mut resting = self.resting.lock();
        while !resting.is_over {
            let due: Vec<_> =
                resting.copies.extract_if(|_, (due, _)| Instant::now() >= *due).collect();
            if !due.is_empty() {
                drop(resting);
                for (_, (_, copy)) in due {
                    // Its owner may have dropped it, or replaced it by another one.
                    if let Some(copy) = copy.upgrade() {
                        copy.move_here();
                    }
                }
                resting = self.resting.lock();
            } else if resting.copies.is_empty() {
                resting.is_asleep = true;
                self.changed.wait(&mut resting);
            } else {
                self.changed.wait_for(&mut resting, TICK);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    #[derive(Debug)]
    struct Told(u32, Mutex<Sender<u32>>);

    impl Movable for Told {
        fn move_here(&self) {
            self.1.lock().send(self.0).unwrap();
        }
    }

    fn copy(number: u32, tells: &Sender<u32>) -> Arc<dyn Movable> {
        Arc::new(Told(number, Mutex::new(tells.clone())))
    }

    #[test]
    fn the_last_copy_of_each_worker_is_moved() {
        let (tells, told) = channel();
        let copies = SnapshotOffloader::start().unwrap();
        let made = [copy(1, &tells), copy(2, &tells), copy(3, &tells)];
        let hours = RATE * 3_600;
        copies.add(7, Arc::downgrade(&made[0]), hours);
        copies.add(7, Arc::downgrade(&made[1]), 0);
        copies.add(8, Arc::downgrade(&made[2]), 0);
        let mut moved = [told.recv().unwrap(), told.recv().unwrap()];
        moved.sort_unstable();
        assert_eq!(moved, [2, 3], "the first one was replaced");
        // Again after it had nothing to do.
        copies.add(7, Arc::downgrade(&made[0]), 0);
        assert_eq!(told.recv().unwrap(), 1);
    }

    #[test]
    fn a_copy_that_is_gone_is_none_and_the_thread_ends() {
        let (tells, told) = channel();
        let copies = SnapshotOffloader::start().unwrap();
        let (gone, stays) = (copy(1, &tells), copy(2, &tells));
        copies.add(1, Arc::downgrade(&gone), 0);
        drop(gone);
        copies.add(2, Arc::downgrade(&stays), 1);
        assert_eq!(told.recv().unwrap(), 2);
        let shared = Arc::downgrade(&copies.0);
        drop(copies);
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
