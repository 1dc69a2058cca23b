//! Looking for something for a while before sleeping until it comes.
//!
//! To sleep and be woken takes some 10 to 60 µs, most of it on a processor that went idle meanwhile,
//! and costs CPU time on both sides. What is needed often comes sooner: the next order of a caller
//! that sends one job after another, or the outcome of a short job. So a thread looks for a while
//! before it sleeps, if that has paid before, and lets other threads go first meanwhile.
//! `channel/src/wait.rs` has the same rule for positions in memory that processes share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{hint, thread};

use crate::clock;

/// The pauses of the processor between two looks: some 0.2 to 0.7 µs, as long as the system call
/// between them.
const PAUSES: u32 = 16;
/// The most looks that found something which count against those in vain.
const MOST_HITS: u32 = 8;
/// Waits that sleep at once, while looking doesn't pay, before one looks again.
const TRY_AGAIN: u32 = 64;

/// Whether the next wait looks before it sleeps. Threads that wait for the same kind of thing may
/// share it.
#[derive(Debug)]
pub struct Look {
    longest: Duration,
    /// How many more looks found something than were in vain: at most [`MOST_HITS`]. At zero, waits
    /// sleep at once.
    hits: AtomicU32,
    /// Waits that slept at once since the last look.
    slept: AtomicU32,
}

impl Look {
    /// Returns one of waits that look for `longest`, while that pays.
    pub fn new(longest: Duration) -> Self {
        Self { longest, hits: AtomicU32::new(MOST_HITS), slept: AtomicU32::new(0) }
    }

    /// Looks without sleeping, until `find` finds something or the time is over. Looks no more once
    /// most looks were in vain, but for a try now and then: so waiting for what comes late costs next
    /// to nothing, and a few late things in a row don't change how the next is waited for.
    pub fn until<T>(&self, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        let hits = self.hits.load(Ordering::Relaxed);
        if hits == 0 && !self.tries_again() {
            return None;
        }
        let began = clock::real_now();
        loop {
            (0..PAUSES).for_each(|_| hint::spin_loop());
            thread::yield_now();
            if let Some(found) = find() {
                self.hits.store((hits + 1).min(MOST_HITS), Ordering::Relaxed);
                return Some(found);
            }
            if began.elapsed() >= self.longest {
                self.hits.store(hits.saturating_sub(1), Ordering::Relaxed);
                return None;
            }
        }
    }

    /// Counts the waits that sleep at once, and says of one now and then that it looks. Threads that
    /// do this at once may lose each other's counts, which only makes one look too early or too late.
    fn tries_again(&self) -> bool {
        let slept = self.slept.load(Ordering::Relaxed);
        let again = slept >= TRY_AGAIN;
        self.slept.store(if again { 0 } else { slept + 1 }, Ordering::Relaxed);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in_vain(look: &Look) -> bool {
        let mut looked = false;
        let found = look.until(|| {
            looked = true;
            None::<()>
        });
        found.is_none() && looked
    }

    #[test]
    fn a_few_looks_in_vain_change_nothing() {
        let look = Look::new(Duration::from_micros(1));
        for _ in 0..100 {
            for _ in 1..MOST_HITS {
                assert!(is_in_vain(&look));
            }
            for _ in 1..MOST_HITS {
                assert_eq!(look.until(|| Some(())), Some(()));
            }
        }
    }

    #[test]
    fn a_thread_looks_only_while_that_pays() {
        let look = Look::new(Duration::from_micros(1));
        for _ in 0..MOST_HITS {
            assert!(is_in_vain(&look));
        }
        for tried in [false, true] {
            for _ in 0..TRY_AGAIN {
                assert_eq!(look.until(|| Some(())), None);
            }
            match tried {
                false => assert!(is_in_vain(&look)),
                true => assert_eq!(look.until(|| Some(())), Some(())),
            }
        }
        assert_eq!(look.until(|| Some(())), Some(()));
    }
}
