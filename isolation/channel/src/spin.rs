//! Adaptive spinning: spin briefly before blocking, while that pays.
//!
//! Blocking and being woken takes 10 to 60 µs and costs CPU time on both sides. What a thread waits
//! for often comes sooner. It yields its core between checks, since the provider may need one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The checks between two readings of the clock.
const CHECKS: u32 = 16;
/// The most hits that count against misses.
const MOST_CREDIT: u8 = 8;
/// How many waits block at once before one spins again, as powers of two: at first, and at most.
const FIRST_PAUSE: u8 = 3;
const LONGEST_PAUSE: u8 = 12;

/// Spins before a wait blocks. Threads that wait for the same kind of event may share one: a count
/// that is lost makes one wait spin too early or too late.
#[derive(Debug)]
pub struct SpinWait {
    longest: Duration,
    policy: AtomicU32,
}

impl SpinWait {
    /// Returns one that spins for at most this long; zero always blocks.
    pub fn new(longest: Duration) -> Self {
        Self { longest, policy: AtomicU32::new(SpinPolicy::NEW.to_bits()) }
    }

    /// Spins until `find` finds something or the time is over. Doesn't spin while most spins miss,
    /// except for an occasional try.
    pub fn until<T>(&self, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        if self.longest.is_zero() {
            return None;
        }
        let mut policy = SpinPolicy::from_bits(self.policy.load(Ordering::Relaxed));
        let found = policy.spins().then(|| {
            let began = Instant::now();
            loop {
                std::thread::yield_now();
                let found = (0..CHECKS).find_map(|_| {
                    std::hint::spin_loop();
                    find()
                });
                let took = began.elapsed();
                if found.is_some() || took >= self.longest {
                    policy.count(found.is_some(), took, self.longest);
                    return found;
                }
            }
        });
        self.policy.store(policy.to_bits(), Ordering::Relaxed);
        found.flatten()
    }
}

/// Whether the next wait spins. Once most spins miss, waits block at once and one spins now and then:
/// after 8 waits, and after twice as many each time that this misses, up to 4,096.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SpinPolicy {
    /// Hits less misses. At zero, waits block at once.
    credit: u8,
    /// How many waits block at once before one spins again, as a power of two.
    pause: u8,
    /// Waits that blocked at once since the last spin.
    blocked: u16,
}

impl SpinPolicy {
    const NEW: Self = Self { credit: MOST_CREDIT, pause: FIRST_PAUSE, blocked: 0 };

    /// Returns whether this wait spins, and counts it if it doesn't.
    fn spins(&mut self) -> bool {
        let spins = self.credit > 0 || self.blocked >> self.pause > 0;
        self.blocked = if spins { 0 } else { self.blocked + 1 };
        spins
    }

    /// Counts a spin. One that found something late is as many misses as the time that it took: a
    /// thread to which this one yielded may have kept the core for its time slice.
    fn count(&mut self, is_found: bool, took: Duration, longest: Duration) {
        if is_found && took < longest {
            self.credit = (self.credit + 1).min(MOST_CREDIT);
            if self.credit == MOST_CREDIT {
                self.pause = FIRST_PAUSE;
            }
            return;
        }
        if self.credit == 0 {
            self.pause = (self.pause + 1).min(LONGEST_PAUSE);
        }
        let misses = (took.as_nanos() / longest.as_nanos()).clamp(1, u8::MAX.into()) as u8;
        self.credit = self.credit.saturating_sub(misses);
    }

    const fn to_bits(self) -> u32 {
        u32::from_le_bytes([self.credit, self.pause, self.blocked as u8, (self.blocked >> 8) as u8])
    }

    const fn from_bits(bits: u32) -> Self {
        let [credit, pause, low, high] = bits.to_le_bytes();
        Self { credit, pause, blocked: u16::from_le_bytes([low, high]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(100);

    fn miss(policy: &mut SpinPolicy) {
        policy.count(false, LONGEST, LONGEST);
    }

    fn hit(policy: &mut SpinPolicy) {
        policy.count(true, LONGEST / 2, LONGEST);
    }

    /// Returns how many waits block at once before one spins.
    fn pause(policy: &mut SpinPolicy) -> usize {
        (0..).take_while(|_| !policy.spins()).count()
    }

    #[test]
    fn a_few_misses_change_nothing() {
        let mut policy = SpinPolicy::NEW;
        for _ in 0..100 {
            (1..MOST_CREDIT).for_each(|_| miss(&mut policy));
            assert!(policy.spins());
            (1..MOST_CREDIT).for_each(|_| hit(&mut policy));
        }
    }

    #[test]
    fn waits_spin_more_and_more_seldom_while_that_misses() {
        let mut policy = SpinPolicy::NEW;
        (0..MOST_CREDIT).for_each(|_| miss(&mut policy));
        for expected in [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096] {
            assert_eq!(pause(&mut policy), expected);
            miss(&mut policy);
        }
        // A hit leads to more spins, but only many are trusted as at first.
        hit(&mut policy);
        assert!(policy.spins());
        miss(&mut policy);
        assert_eq!(pause(&mut policy), 4096);
        (0..MOST_CREDIT).for_each(|_| hit(&mut policy));
        (0..MOST_CREDIT).for_each(|_| miss(&mut policy));
        assert_eq!(pause(&mut policy), 8);
    }

    #[test]
    fn a_late_hit_counts_as_misses_for_the_time_that_it_took() {
        let mut policy = SpinPolicy::NEW;
        policy.count(true, 3 * LONGEST, LONGEST);
        assert_eq!(policy.credit, MOST_CREDIT - 3);
        policy.count(true, Duration::from_secs(1), LONGEST);
        assert_eq!(pause(&mut policy), 8);
    }

    #[test]
    fn a_policy_fits_into_a_word() {
        for policy in [SpinPolicy::NEW, SpinPolicy { credit: 0, pause: 12, blocked: 4096 }] {
            assert_eq!(SpinPolicy::from_bits(policy.to_bits()), policy);
        }
    }

    #[test]
    fn a_wait_spins_only_while_that_pays() {
        // So long that no pause of this thread is as long.
        let patient = SpinWait::new(Duration::from_secs(60));
        assert_eq!(patient.until(|| Some(())), Some(()));
        // Each of these takes longer than it may, whether or not it finds something.
        for found in [None, Some(())] {
            let hasty = SpinWait::new(Duration::from_nanos(1));
            while SpinPolicy::from_bits(hasty.policy.load(Ordering::Relaxed)).credit > 0 {
                assert_eq!(hasty.until(|| found), found);
            }
            assert_eq!(hasty.until(|| -> Option<()> { unreachable!("it blocks at once") }), None);
        }
        let never = SpinWait::new(Duration::ZERO);
        assert_eq!(never.until(|| -> Option<()> { unreachable!("it blocks at once") }), None);
    }
}
