//! What time it is by the clock of the server, from which the times of messages are. Between two looks
//! at it this machine's monotonic clock counts on, so that a wall clock that is set or wrong changes
//! nothing: nobody here reads it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The server's clock, as it was seen last.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    /// Nanoseconds since 1970 by the server's clock.
    time: i128,
}

impl ServerClock {
    /// Notes that the server's clock showed this time, in nanoseconds since 1970, between the two
    /// instants.
    pub(super) fn saw(&self, time: i128, from: Instant, to: Instant) {
        *self.0.lock() = Some(Seen { at: from + (to - from) / 2, time });
    }

    /// Returns how long ago the server's clock showed this time, in nanoseconds since 1970; zero if
    /// that clock was never seen.
    pub(super) fn since(&self, time: i128, now: Instant) -> Duration {
        let since = self.time(now).map_or(0, |shown| shown.saturating_sub(time).max(0));
        Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Returns what the server's clock shows, in nanoseconds since 1970; `None` if it was never seen.
    pub(super) fn time(&self, now: Instant) -> Option<i128> {
        let seen = (*self.0.lock())?;
        let passed = (now - seen.at).as_nanos().try_into().unwrap_or(i128::MAX);
        Some(seen.time.saturating_add(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    const SECOND: Duration = Duration::from_secs(1);
    /// Some time of the server, far from what this machine has.
    const NOON: i128 = 43_200 * 1_000_000_000;

    #[test]
    fn times_are_counted_from_what_the_server_showed() {
        let (clock, begin) = (ServerClock::default(), now());
        assert_eq!(clock.since(NOON, begin), Duration::ZERO);
        clock.saw(NOON, begin, begin + 2 * SECOND);
        assert_eq!(clock.time(begin + SECOND), Some(NOON));
        // Seen in the middle of the question.
        assert_eq!(clock.since(NOON, begin + 3 * SECOND), 2 * SECOND);
        assert_eq!(clock.since(NOON + 1_000_000_000, begin + 3 * SECOND), SECOND);
        // A message that the server got after that.
        assert_eq!(clock.since(2 * NOON, begin + 3 * SECOND), Duration::ZERO);
    }

    #[test]
    fn a_server_whose_clock_is_set_is_followed() {
        let (clock, begin) = (ServerClock::default(), now());
        clock.saw(2 * NOON, begin, begin);
        clock.saw(NOON, begin + SECOND, begin + SECOND);
        assert_eq!(clock.since(NOON, begin + 3 * SECOND), 2 * SECOND);
    }
}
