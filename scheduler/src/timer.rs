//! The clock of this crate; nothing else in it reads one or waits on one.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Since the scheduler began.
pub(crate) type Time = Duration;

/// The clock of one scheduler: it counts from when the scheduler began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the scheduler's clock file")]
    pub(crate) fn start() -> Self {
        Self { began: Instant::now() }
    }

    /// Since the scheduler began.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Rings once, at the earliest time that was asked for.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    set: Option<(Duration, JoinHandle<()>)>,
}

impl Alarm {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, set: None }
    }

    /// Has `ring` called at `at`, unless it will be called earlier anyhow, or that is further than
    /// the clock goes. Once it was called, it has to be told so by `rang`.
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

    /// It rang, and can be set again.
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

/// A time as a number of seconds.
pub(crate) fn as_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub(crate) fn as_maybe_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
