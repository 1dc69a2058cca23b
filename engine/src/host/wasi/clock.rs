//! Guest time: the machine's, or a virtual clock that starts where the caller says.
//!
//! The virtual clock advances by a microsecond at each reading, so that a program that polls it
//! makes progress. It advances by the full duration at each sleep, which then doesn't wait.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub(super) const REALTIME: u32 = 0;
pub(super) const MONOTONIC: u32 = 1;
const PROCESS_CPU: u32 = 2;
const THREAD_CPU: u32 = 3;

/// How far each reading advances the virtual clock.
const TICK_NANOSECONDS: u64 = 1_000;

/// The clocks of one guest. Times are in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// The monotonic clock shows `before` plus the time since `started`. The clock of CPU time shows
    /// `used`, and in a run also what the thread has used since it had used `since`.
    Real {
        started: Instant,
        before: u64,
        used: u64,
        since: Option<u64>,
    },
    Virtual {
        start: u64,
        passed: u64,
    },
}

/// A saved clock, from which the monotonic clock continues and never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SavedClock {
    Real { passed: u64 },
    Virtual { start: u64, passed: u64 },
}

impl Clock {
    pub(crate) fn real() -> Self {
        Self::real_after(0)
    }

    /// Returns the machine's clock, for a guest whose monotonic clock has shown `passed`. It can't have
    /// used more CPU time.
    pub(crate) fn real_after(passed: u64) -> Self {
        Self::Real { started: Instant::now(), before: passed, used: passed, since: None }
    }

    /// Counts the CPU time of the run that begins on this thread.
    pub(crate) fn begin_run(&mut self) {
        if let Self::Real { since, .. } = self {
            *since = Some(thread_cpu());
        }
    }

    /// Ends what [`Self::begin_run`] began, on the same thread.
    pub(crate) fn end_run(&mut self) {
        let cpu = self.peek(PROCESS_CPU);
        if let Self::Real { used, since, .. } = self {
            (*used, *since) = (cpu, None);
        }
    }

    /// Returns a virtual clock whose first reading is `start`, in nanoseconds since 1970.
    pub(crate) fn starting_at(start: u64) -> Self {
        Self::starting_after(start, 0)
    }

    /// Like [`Self::starting_at`], for a guest whose monotonic clock has shown `passed`.
    pub(crate) fn starting_after(start: u64, passed: u64) -> Self {
        Self::Virtual { start: start.saturating_sub(passed), passed }
    }

    /// Returns what the monotonic clock shows, without advancing a virtual one.
    pub(crate) fn passed(&self) -> u64 {
        self.peek(MONOTONIC)
    }

    pub(crate) fn saved(&self) -> SavedClock {
        match *self {
            Self::Real { .. } => SavedClock::Real { passed: self.passed() },
            Self::Virtual { start, passed } => SavedClock::Virtual { start, passed },
        }
    }

    /// Returns the nanoseconds on clock `id`, if it exists. Advances a virtual clock.
    pub(crate) fn read(&mut self, id: u32) -> Option<u64> {
        if id > THREAD_CPU {
            return None;
        }
        let now = self.peek(id);
        if let Self::Virtual { passed, .. } = self {
            *passed = passed.saturating_add(TICK_NANOSECONDS);
        }
        Some(now)
    }

    /// Returns the nanoseconds since 1970 for file times, without advancing a virtual clock.
    pub(crate) fn timestamp(&self) -> u64 {
        self.peek(REALTIME)
    }

    fn peek(&self, id: u32) -> u64 {
        match (self, id) {
            (Self::Real { .. }, REALTIME) => {
                nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
            }
            (Self::Real { used, since, .. }, PROCESS_CPU | THREAD_CPU) => {
                let since = since.map_or(0, |since| thread_cpu().saturating_sub(since));
                used.saturating_add(since)
            }
            (Self::Real { started, before, .. }, _) => {
                before.saturating_add(nanoseconds(started.elapsed()))
            }
            (Self::Virtual { start, passed }, REALTIME) => start.saturating_add(*passed),
            (Self::Virtual { passed, .. }, _) => *passed,
        }
    }

    pub(crate) fn is_clock(id: u32) -> bool {
        matches!(id, REALTIME | MONOTONIC | PROCESS_CPU | THREAD_CPU)
    }

    /// Accounts for a sleep of `duration` and returns what remains to wait. That is all of it on a
    /// real clock. A virtual clock advances instead, and nothing remains.
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

/// Returns the CPU time of this thread. A guest is one thread of this process, but for those of its own.
fn thread_cpu() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000) + now.tv_nsec.unsigned_abs()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_advances_only_by_readings_and_sleeps() {
        let mut clock = Clock::starting_at(5_000_000);
        assert_eq!(clock.read(REALTIME), Some(5_000_000));
        assert_eq!(clock.read(MONOTONIC), Some(1_000));
        assert_eq!(clock.sleep(Duration::from_secs(3600)), Duration::ZERO);
        assert_eq!(clock.timestamp(), 5_000_000 + 2_000 + 3_600_000_000_000);
        assert_eq!(clock.read(MONOTONIC), Some(3_600_000_002_000));
        assert_eq!(clock.read(4), None);
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
    fn a_real_clock_makes_the_caller_wait() {
        let mut clock = Clock::real();
        assert_eq!(clock.sleep(Duration::from_secs(1)), Duration::from_secs(1));
        let first = clock.read(MONOTONIC);
        assert!(clock.read(MONOTONIC) >= first);
        assert!(clock.read(REALTIME) > Some(1_700_000_000_000_000_000));
    }

    #[test]
    fn the_clock_of_cpu_time_counts_runs() {
        let mut clock = Clock::real_after(7_000);
        assert_eq!(clock.read(PROCESS_CPU), Some(7_000));
        clock.begin_run();
        while clock.read(THREAD_CPU) == Some(7_000) {}
        clock.end_run();
        let used = clock.read(PROCESS_CPU).unwrap();
        assert!(used > 7_000 && clock.read(PROCESS_CPU) == Some(used));
        assert!(clock.read(MONOTONIC) >= Some(used), "a thread has no more than one CPU");
        // Another thread goes on where this one has ended.
        let going_on = move || {
            clock.begin_run();
            clock.read(PROCESS_CPU)
        };
        assert!(std::thread::spawn(going_on).join().unwrap() >= Some(used));
    }
}
