//! Guest time: the machine's, or one that starts where the caller says and moves by itself.
//!
//! The virtual clock moves by a microsecond at each look, so that a program that waits by looking
//! gets there, and by the whole time at each sleep, which then doesn't wait.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

const REALTIME: u32 = 0;
const MONOTONIC: u32 = 1;
const PROCESS_CPU: u32 = 2;
const THREAD_CPU: u32 = 3;

/// What each look at the virtual clock takes.
const TICK_NANOSECONDS: u64 = 1_000;

/// The clocks of one guest. Times are in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// The monotonic clock shows what has passed since `started`, and `before` that.
    Real {
        started: Instant,
        before: u64,
    },
    Virtual {
        start: u64,
        passed: u64,
    },
}

/// A clock as it is put away: the monotonic one never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SavedClock {
    Real { passed: u64 },
    Virtual { start: u64, passed: u64 },
}

impl Clock {
    pub(crate) fn real() -> Self {
        Self::real_after(0)
    }

    /// The machine's clock, for a guest whose monotonic clock has shown `passed`.
    #[expect(clippy::disallowed_methods, reason = "guest time comes from the real clock")]
    pub(crate) fn real_after(passed: u64) -> Self {
        Self::Real { started: Instant::now(), before: passed }
    }

    /// A clock whose first look is at `start`, in nanoseconds since 1970.
    pub(crate) fn starting_at(start: u64) -> Self {
        Self::starting_after(start, 0)
    }

    /// The same for a guest whose monotonic clock has shown `passed`.
    pub(crate) fn starting_after(start: u64, passed: u64) -> Self {
        Self::Virtual { start: start.saturating_sub(passed), passed }
    }

    /// What the monotonic clock shows, without moving a virtual one.
    pub(crate) fn passed(&self) -> u64 {
        self.peek(MONOTONIC)
    }

    pub(crate) fn saved(&self) -> SavedClock {
        match *self {
            Self::Real { .. } => SavedClock::Real { passed: self.passed() },
            Self::Virtual { start, passed } => SavedClock::Virtual { start, passed },
        }
    }

    /// Nanoseconds on clock `id`, if there is such a clock. A virtual clock moves on.
    pub(crate) fn look(&mut self, id: u32) -> Option<u64> {
        if id > THREAD_CPU {
            return None;
        }
        let now = self.peek(id);
        if let Self::Virtual { passed, .. } = self {
            *passed = passed.saturating_add(TICK_NANOSECONDS);
        }
        Some(now)
    }

    /// Nanoseconds since 1970, without moving a virtual clock: for the times of files.
    pub(crate) fn timestamp(&self) -> u64 {
        self.peek(REALTIME)
    }

    fn peek(&self, id: u32) -> u64 {
        match (self, id) {
            (Self::Real { .. }, REALTIME) => {
                nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
            }
            (Self::Real { .. }, PROCESS_CPU | THREAD_CPU) => {
                // The guest is one thread of this process, and this is that thread.
                let now = clock_gettime(ClockId::ThreadCPUTime);
                let seconds = now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000);
                seconds + now.tv_nsec.unsigned_abs()
            }
            (Self::Real { started, before }, _) => {
                before.saturating_add(nanoseconds(started.elapsed()))
            }
            (Self::Virtual { start, passed }, REALTIME) => start.saturating_add(*passed),
            (Self::Virtual { passed, .. }, _) => *passed,
        }
    }

    pub(crate) fn is_clock(id: u32) -> bool {
        matches!(id, REALTIME | MONOTONIC | PROCESS_CPU | THREAD_CPU)
    }

    /// What is left to wait after a sleep of `duration` has been taken into account: all of it on
    /// a real clock, nothing on a virtual one, which moves on instead.
    pub(crate) fn sleep(&mut self, duration: Duration) -> Duration {
        match self {
            Self::Real { .. } => duration,
            Self::Virtual { passed, .. } => {
                *passed = passed.saturating_add(nanoseconds(duration));
                Duration::ZERO
            }
        }
    }
}

impl From<SavedClock> for Clock {
    fn from(saved: SavedClock) -> Self {
        match saved {
            SavedClock::Real { passed } => Self::real_after(passed),
            SavedClock::Virtual { start, passed } => Self::Virtual { start, passed },
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_by_looks_and_sleeps_alone() {
        let mut clock = Clock::starting_at(5_000_000);
        assert_eq!(clock.look(REALTIME), Some(5_000_000));
        assert_eq!(clock.look(MONOTONIC), Some(1_000));
        assert_eq!(clock.sleep(Duration::from_secs(3600)), Duration::ZERO);
        assert_eq!(clock.timestamp(), 5_000_000 + 2_000 + 3_600_000_000_000);
        assert_eq!(clock.look(MONOTONIC), Some(3_600_000_002_000));
        assert_eq!(clock.look(4), None);
    }

    #[test]
    fn a_monotonic_clock_never_goes_back() {
        let before = Clock::starting_after(5_000_000, 7_000);
        assert_eq!((before.timestamp(), before.passed()), (5_000_000, 7_000));
        let real = Clock::real_after(before.passed());
        assert!(real.passed() >= 7_000);
        let SavedClock::Real { passed } = real.saved() else { panic!("a real clock") };
        assert!(Clock::from(SavedClock::Real { passed }).passed() >= passed);
        assert_eq!(Clock::from(before.saved()).saved(), before.saved());
    }

    #[test]
    fn a_real_clock_has_to_be_waited_for() {
        let mut clock = Clock::real();
        assert_eq!(clock.sleep(Duration::from_secs(1)), Duration::from_secs(1));
        let first = clock.look(MONOTONIC);
        assert!(clock.look(MONOTONIC) >= first);
        assert!(clock.look(REALTIME) > Some(1_700_000_000_000_000_000));
        assert!(clock.look(PROCESS_CPU) > Some(0));
    }
}
