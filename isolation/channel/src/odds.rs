//! Whether it pays to look for something for a while before sleeping until it comes.
//!
//! A thread that looks lets other threads go first. If one of those has much to do, the kernel gives
//! it a time slice of some milliseconds, and what the thread looked for has long been there when it
//! goes on; a sleeper would have been woken at once. So a look that found something late counts like
//! looks in vain, and for all the time that it took.

use std::time::Duration;

/// The most looks that found something which count against those in vain.
const MOST_HITS: u8 = 8;

/// How many waits sleep at once before one looks again, as a power of two: at first, and at most.
const FIRST_REST: u8 = 3;
const LONGEST_REST: u8 = 12;

/// What the looks so far say of the next one.
///
/// A few looks in vain change nothing, so that a few late things in a row don't decide how the next is
/// waited for. Once most are in vain, waits sleep at once, and one looks now and then: after 8 of them,
/// and after twice as many each time that this fails, up to 4,096.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Odds {
    /// How many more looks found something than were in vain. At zero, waits sleep at once.
    hits: u8,
    /// How many waits sleep at once before one looks again, as a power of two.
    rest: u8,
    /// Waits that slept at once since the last look.
    slept: u16,
}

impl Odds {
    /// Returns those of things for which nobody has looked.
    pub const fn new() -> Self {
        Self { hits: MOST_HITS, rest: FIRST_REST, slept: 0 }
    }

    /// Returns whether looking pays at present.
    pub const fn are_good(self) -> bool {
        self.hits > 0
    }

    /// Returns whether this wait looks, and counts it if it doesn't.
    pub fn looks(&mut self) -> bool {
        if self.are_good() {
            return true;
        }
        let has_rested = self.slept >> self.rest > 0;
        self.slept = if has_rested { 0 } else { self.slept + 1 };
        has_rested
    }

    /// Counts a look that took this long, where `longest` is how long it may take.
    pub fn count(&mut self, has_found: bool, took: Duration, longest: Duration) {
        if has_found && took < longest {
            self.hits = (self.hits + 1).min(MOST_HITS);
            if self.hits == MOST_HITS {
                self.rest = FIRST_REST;
            }
            return;
        }
        if self.hits == 0 {
            self.rest = (self.rest + 1).min(LONGEST_REST);
        }
        let lost = took.as_nanos() / longest.as_nanos().max(1);
        let lost = u8::try_from(lost).unwrap_or(u8::MAX).max(1);
        self.hits = self.hits.saturating_sub(lost);
    }

    /// Returns them as a word, which threads can share.
    pub const fn to_bits(self) -> u32 {
        let [slept, more] = self.slept.to_le_bytes();
        u32::from_le_bytes([self.hits, self.rest, slept, more])
    }

    /// Returns the odds of such a word.
    pub const fn from_bits(bits: u32) -> Self {
        let [hits, rest, slept, more] = bits.to_le_bytes();
        Self { hits, rest, slept: u16::from_le_bytes([slept, more]) }
    }
}

impl Default for Odds {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(100);

    /// Looks in vain, in time.
    fn fail(odds: &mut Odds) {
        odds.count(false, LONGEST, LONGEST);
    }

    /// Finds something in time.
    fn find(odds: &mut Odds) {
        odds.count(true, LONGEST / 2, LONGEST);
    }

    /// Returns how many waits sleep at once before one looks.
    fn rest(odds: &mut Odds) -> usize {
        (0..).take_while(|_| !odds.looks()).count()
    }

    #[test]
    fn a_few_looks_in_vain_change_nothing() {
        let mut odds = Odds::new();
        for _ in 0..100 {
            (1..MOST_HITS).for_each(|_| fail(&mut odds));
            assert!(odds.looks());
            (1..MOST_HITS).for_each(|_| find(&mut odds));
        }
    }

    #[test]
    fn waits_look_more_and_more_seldom_while_that_fails() {
        let mut odds = Odds::new();
        (0..MOST_HITS).for_each(|_| fail(&mut odds));
        assert!(!odds.are_good());
        for expected in [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096] {
            assert_eq!(rest(&mut odds), expected);
            fail(&mut odds);
        }
        // One that pays leads to more, but only many that pay are trusted as at first.
        find(&mut odds);
        assert!(odds.are_good());
        fail(&mut odds);
        assert_eq!(rest(&mut odds), 4096);
        (0..MOST_HITS).for_each(|_| find(&mut odds));
        (0..MOST_HITS).for_each(|_| fail(&mut odds));
        assert_eq!(rest(&mut odds), 8);
    }

    #[test]
    fn what_is_found_late_counts_for_the_time_that_it_took() {
        let mut odds = Odds::new();
        odds.count(true, 3 * LONGEST, LONGEST);
        assert_eq!(odds.hits, MOST_HITS - 3);
        odds.count(true, Duration::from_secs(1), LONGEST);
        assert_eq!(rest(&mut odds), 8);
    }

    #[test]
    fn they_fit_into_a_word() {
        for odds in [Odds::new(), Odds { hits: 0, rest: LONGEST_REST, slept: 4096 }] {
            assert_eq!(Odds::from_bits(odds.to_bits()), odds);
        }
    }
}
