//! The scheduler's clock. No other file of this crate reads a clock or waits on one.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The time since the scheduler began.
pub(crate) type Time = Duration;

/// Measures time from the scheduler's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the scheduler's clock file")]
    pub(crate) fn start() -> Self {
        Self { began: Instant::now() }
    }

    /// Returns the time since the scheduler began.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

/// An alarm that rings once, at the earliest time that was set.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    set: Option<(Duration, JoinHandle<()>)>,
}

impl Alarm {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, set: None }
    }

    /// Calls `ring` at `at`, unless an earlier call is set or `at` is beyond the clock's range.
    /// After the call, `rang` must be called before the alarm can be set again.
    pub(crate) fn set(&mut self, at: Duration, ring: impl FnOnce() + Send + 'static) {
        if self.set.as_ref().is_some_and(|(earlier, _)| *earlier <= at) {
            return;
        }
        self.cancel();
        let Some(due) = self.clock.began.checked_add(at) else { return };
        let waiting = tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            ring();
        });
        self.set = Some((at, waiting));
    }

    /// Allows the alarm to be set again after it rang.
    pub(crate) fn rang(&mut self) {
        self.set = None;
    }

    fn cancel(&mut self) {
        if let Some((_, waiting)) = self.set.take() {
            waiting.abort();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Serializes a duration as a number of seconds.
pub(crate) fn as_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub(crate) fn as_maybe_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
