//! Looking for something for a while before sleeping until it comes.
//!
//! To sleep and be woken takes some 10 to 60 µs, most of it on a processor that went idle meanwhile,
//! and costs CPU time on both sides. What is needed often comes sooner: the next order of a caller
//! that sends one job after another, or the outcome of a short job. So a thread looks for a while
//! before it sleeps, if that has paid before ([`Odds`]), and lets other threads go first meanwhile,
//! from the beginning or after a time ([`Look::alone_for`]).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{hint, thread};

use channel::Odds;

use crate::clock;

/// The pauses of the processor between two looks: some 0.2 to 0.7 µs, as long as the system call
/// between them.
const PAUSES: u32 = 16;

/// Whether the next wait looks before it sleeps. Threads that wait for the same kind of thing may
/// share it; they may lose each other's counts, which only makes one look too early or too late.
#[derive(Debug)]
pub struct Look {
    longest: Duration,
    /// How long it looks before it lets other threads go first.
    alone: Duration,
    odds: AtomicU32,
}

impl Look {
    /// Returns one of waits that look for `longest`, while that pays.
    pub fn new(longest: Duration) -> Self {
        Self { longest, alone: Duration::ZERO, odds: AtomicU32::new(Odds::new().to_bits()) }
    }

    /// Returns the same, which lets no other thread go first for this time. For what mostly comes that
    /// soon: a thread that goes first may keep the CPU for the rest of its time slice.
    #[must_use]
    pub fn alone_for(self, alone: Duration) -> Self {
        Self { alone, ..self }
    }

    /// Returns whether looking pays at present, and so letting other threads go first.
    pub fn pays(&self) -> bool {
        self.odds().are_good()
    }

    /// Looks without sleeping, until `find` finds something or the time is over; not at all while
    /// that doesn't pay, but for a try now and then.
    pub fn until<T>(&self, find: impl FnMut() -> Option<T>) -> Option<T> {
        self.until_with(find, thread::yield_now)
    }

    /// `until`, with how other threads go first.
    fn until_with<T>(
        &self,
        mut find: impl FnMut() -> Option<T>,
        let_others_go: impl Fn(),
    ) -> Option<T> {
        let mut odds = self.odds();
        if !odds.looks() {
            self.put(odds);
            return None;
        }
        let began = clock::real_now();
        let mut took = Duration::ZERO;
        loop {
            (0..PAUSES).for_each(|_| hint::spin_loop());
            if took >= self.alone {
                let_others_go();
            }
            let found = find();
            took = began.elapsed();
            if found.is_some() || took >= self.longest {
                odds.count(found.is_some(), took, self.longest);
                self.put(odds);
                return found;
            }
        }
    }

    fn odds(&self) -> Odds {
        Odds::from_bits(self.odds.load(Ordering::Relaxed))
    }

    fn put(&self, odds: Odds) {
        self.odds.store(odds.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn others_go_first_before_each_look_or_after_a_time() {
        let others_go = |look: Look| {
            let (mut looks, gone) = (0, Cell::new(0));
            let third = || {
                looks += 1;
                (looks == 3).then_some(())
            };
            // So long that no pause of this thread is as long.
            let look = Look { longest: Duration::from_secs(60), ..look };
            assert_eq!(look.until_with(third, || gone.set(gone.get() + 1)), Some(()));
            gone.get()
        };
        let look = || Look::new(Duration::ZERO);
        assert_eq!(others_go(look()), 3);
        assert_eq!(others_go(look().alone_for(Duration::from_nanos(1))), 2);
        assert_eq!(others_go(look().alone_for(Duration::from_secs(60))), 0);
    }

    #[test]
    fn a_thread_looks_only_while_that_pays() {
        let look = Look::new(Duration::from_micros(1));
        while look.pays() {
            assert_eq!(look.until(|| None::<()>), None);
        }
        // What is found late doesn't pay, either.
        let late = Look::new(Duration::from_nanos(1));
        while late.pays() {
            late.until(|| Some(()));
        }
        assert_eq!(look.until(|| -> Option<()> { unreachable!("it sleeps at once") }), None);
        // So long that no pause of this thread is as long.
        let look = Look { longest: Duration::from_secs(60), ..look };
        while !look.pays() {
            look.until(|| Some(()));
        }
        assert_eq!(look.until(|| Some(())), Some(()));
    }
}
