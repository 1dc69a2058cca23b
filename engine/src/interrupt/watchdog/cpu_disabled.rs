//! Stands in for `cpu.rs` where no thread can read another one's CPU clock: the clock stands still.

use std::time::Duration;

/// A clock that stands still: no run reaches a limit on CPU time, only the one on wall time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadCpuClock;

impl ThreadCpuClock {
    pub(super) fn of_this_thread() -> Self {
        Self
    }

    pub(super) fn now(self) -> Duration {
        Duration::ZERO
    }
}
