//! Looking for something for a while before sleeping until it comes.
//!
//! To sleep and be woken takes some 10 to 60 µs, most of it on a processor that went idle meanwhile,
//! and costs CPU time on both sides. What is needed often comes sooner: the next order of a caller
//! that sends one job after another, or the outcome of a short job. So a thread looks for a while
//! before it sleeps, if that has paid before, and lets other threads go first meanwhile.
//! `channel/src/wait.rs` has the same rule for positions in memory that processes share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{hint, thread};

use crate::clock;

/// The pauses of the processor between two looks: some 0.2 to 0.7 µs, as long as the system call
/// between them.
const PAUSES: u32 = 16;
/// Waits that sleep at once, after those that looked in vain, before one looks again.
const TRY_AGAIN: u64 = 64;
/// Looking for less time than this isn't tried, in nanoseconds.
const LEAST: u64 = 1_000;

/// How long the next wait looks before it sleeps. Threads that wait for the same kind of thing may
/// share it.
#[derive(Debug)]
pub struct Look {
    /// In nanoseconds, as `next`.
    longest: u64,
    next: AtomicU64,
    /// Waits that slept at once since the last look.
    slept: AtomicU64,
}

impl Look {
    /// Returns one of waits that look for `longest` at most, and for less while that doesn't pay.
    pub fn new(longest: Duration) -> Self {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Self { longest, next: AtomicU64::new(longest), slept: AtomicU64::new(0) }
    }

    /// Looks without sleeping, until `find` finds something or the time is over. Each success
    /// doubles how long the next wait looks, each failure halves it. So waiting for what comes late
    /// costs next to nothing.
    pub fn until<T>(&self, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        let time = self.time()?;
        let began = clock::real_now();
        loop {
            (0..PAUSES).for_each(|_| hint::spin_loop());
            thread::yield_now();
            if let Some(found) = find() {
                self.next.store((2 * time).min(self.longest), Ordering::Relaxed);
                return Some(found);
            }
            if began.elapsed() >= Duration::from_nanos(time) {
                self.next.store(time / 2, Ordering::Relaxed);
                return None;
            }
        }
    }

    /// Returns how long to look, if that has paid before or is tried again. Threads that do this at
    /// once may lose each other's counts, which only makes one look too long or too short.
    fn time(&self) -> Option<u64> {
        let time = match self.next.load(Ordering::Relaxed) {
            time if time >= LEAST => time,
            _ if self.slept.load(Ordering::Relaxed) < TRY_AGAIN => {
                self.slept.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            _ => self.longest,
        };
        self.slept.store(0, Ordering::Relaxed);
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_looks_only_while_that_pays() {
        let look = Look::new(Duration::from_micros(64));
        let next = || look.next.load(Ordering::Relaxed);
        let in_vain = || look.until(|| None::<()>).is_none();
        while next() >= LEAST {
            assert!(in_vain());
        }
        for _ in 0..TRY_AGAIN {
            assert_eq!(look.until(|| Some(())), None);
        }
        assert_eq!(look.until(|| Some(())), Some(()));
        assert_eq!(next(), 64_000);
        assert!(in_vain());
        assert_eq!(next(), 32_000);
        assert_eq!(look.until(|| Some(())), Some(()));
        assert_eq!(next(), 64_000);
    }
}
