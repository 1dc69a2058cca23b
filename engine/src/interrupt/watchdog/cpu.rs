//! The CPU clock of one thread, read from any other. Nothing else.
#![expect(unsafe_code, reason = "two calls of the C library that no safe wrapper offers")]

use std::time::Duration;

/// The CPU clock of the thread that made this.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadCpuClock(Option<libc::clockid_t>);

impl ThreadCpuClock {
    pub(super) fn of_this_thread() -> Self {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: `pthread_self` is this thread, which lives, and the pointer is to a local.
        let result = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        Self((result == 0).then_some(clock))
    }

    /// Returns the CPU time that the thread has used. Zero once it has ended, or if the system has
    /// no such clock. Then only the limit on wall time ends a run.
    pub(super) fn now(self) -> Duration {
        let Some(clock) = self.0 else { return Duration::ZERO };
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local; a clock of a thread that has ended is an error.
        let result = unsafe { libc::clock_gettime(clock, &raw mut now) };
        if result != 0 {
            return Duration::ZERO;
        }
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}
