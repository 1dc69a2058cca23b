//! The scheduler's clock. No other file of this crate reads a clock or waits on one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The time since the scheduler began.
pub(crate) type Time = Duration;

/// Measures time from the scheduler's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { began: Instant::now() }
    }
}

impl Clock {
    /// Returns the time since the scheduler began.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

/// An alarm that rings at the time that was set last. One task waits for all of its times. To set a
/// time costs other threads nothing, unless it is the next one.
#[derive(Debug)]
pub(crate) struct Alarm {
    times: Arc<Times>,
    waiting: JoinHandle<()>,
}

/// In nanoseconds since the scheduler began.
#[derive(Debug)]
struct Times {
    /// When the alarm rings; `NEVER` if it doesn't.
    due: AtomicU64,
    /// Until when the task sleeps, unless it is notified of a change; 0 while it doesn't.
    sleeps_until: AtomicU64,
    changed: Notify,
}

const NEVER: u64 = u64::MAX;

impl Alarm {
    /// Starts the task that calls `ring`. Once it was called, it isn't called again before `set`.
    pub(crate) fn new(clock: Clock, ring: impl Fn() + Send + 'static) -> Self {
        let times = Arc::new(Times {
            due: AtomicU64::new(NEVER),
            sleeps_until: AtomicU64::new(0),
            changed: Notify::new(),
        });
        let waiting = tokio::spawn(wait(Arc::clone(&times), clock, ring));
        Self { times, waiting }
    }

    /// Sets the time of the next ring, in place of the one that was set before.
    pub(crate) fn set(&self, at: Option<Duration>) {
        let nanoseconds = |at: Duration| u64::try_from(at.as_nanos()).unwrap_or(NEVER);
        let due = at.map_or(NEVER, nanoseconds);
        self.times.due.store(due, Ordering::SeqCst);
        // A later time than that is found when it wakes.
        if due < self.times.sleeps_until.load(Ordering::SeqCst) {
            self.times.changed.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

async fn wait(times: Arc<Times>, clock: Clock, ring: impl Fn()) {
    loop {
        let due = times.due.load(Ordering::SeqCst);
        times.sleeps_until.store(due, Ordering::SeqCst);
        // One that was set in between found no sleeper to tell.
        if times.due.load(Ordering::SeqCst) < due {
            continue;
        }
        let changed = times.changed.notified();
        match clock.began.checked_add(Duration::from_nanos(due)) {
            Some(instant) if due != NEVER => {
                let _ = tokio::time::timeout_at(instant, changed).await;
            }
            _ => changed.await,
        }
        times.sleeps_until.store(0, Ordering::SeqCst);
        let due = times.due.load(Ordering::SeqCst);
        let is_over = Duration::from_nanos(due) <= clock.now();
        let change = |to| times.due.compare_exchange(due, to, Ordering::SeqCst, Ordering::SeqCst);
        if is_over && change(NEVER).is_ok() {
            ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings() -> (Alarm, Clock, Arc<AtomicU64>) {
        let (clock, rung) = (Clock::default(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&rung);
        let alarm = Alarm::new(clock, move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        (alarm, clock, rung)
    }

    #[expect(clippy::disallowed_methods, reason = "of a paused clock")]
    async fn rung_after(rung: &AtomicU64, milliseconds: u64) -> u64 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        rung.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_once_at_the_time_that_was_set_last() {
        let (alarm, clock, rung) = rings();
        let after = |milliseconds| Some(clock.now() + Duration::from_millis(milliseconds));
        assert_eq!(rung_after(&rung, 1000).await, 0);
        alarm.set(after(10));
        assert_eq!(rung_after(&rung, 9).await, 0);
        assert_eq!(rung_after(&rung, 1000).await, 1);
        // A later time, an earlier one, and none.
        alarm.set(after(10));
        assert_eq!(rung_after(&rung, 5).await, 1);
        alarm.set(after(20));
        assert_eq!(rung_after(&rung, 15).await, 1);
        assert_eq!(rung_after(&rung, 10).await, 2);
        alarm.set(after(100));
        assert_eq!(rung_after(&rung, 5).await, 2);
        alarm.set(after(10));
        assert_eq!(rung_after(&rung, 15).await, 3);
        alarm.set(after(10));
        assert_eq!(rung_after(&rung, 5).await, 3);
        alarm.set(None);
        assert_eq!(rung_after(&rung, 1000).await, 3);
        // The past, and beyond the range of the clock.
        alarm.set(Some(Duration::ZERO));
        assert_eq!(rung_after(&rung, 1).await, 4);
        alarm.set(Some(Duration::MAX));
        assert_eq!(rung_after(&rung, 1000).await, 4);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_time_is_missed_that_another_thread_sets() {
        let (alarm, clock, rung) = rings();
        for round in 1..=2000 {
            alarm.set(Some(clock.now()));
            while rung.load(Ordering::SeqCst) < round {
                tokio::task::yield_now().await;
            }
        }
    }
}
