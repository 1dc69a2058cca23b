//! The only file of this crate that reads the clock: deadlines, and how long a wait spins.
#![expect(clippy::disallowed_methods, reason = "the clock file of this crate")]

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whether a deadline has passed.
pub(crate) fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| now() >= deadline)
}

/// Returns how long a wait may still take, as the kernel wants it; zero after the deadline.
pub(crate) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(now())
}

/// Returns the time of the monotonic clock after `wait` from now.
pub(crate) fn monotonic_after(wait: Duration) -> Timespec {
    let now = clock_gettime(ClockId::Monotonic);
    let nanos = now.tv_nsec + i64::from(wait.subsec_nanos());
    let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: now.tv_sec.saturating_add(seconds).saturating_add(nanos / 1_000_000_000),
        tv_nsec: nanos % 1_000_000_000,
    }
}
