//! Runs that go on after they were stopped, and who is told of them.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

/// A run that goes on for this long after a stop is overdue. Stops take effect within milliseconds;
/// the rest allows for machines that are short of CPU time, or whose disk is slow to serve a mount.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(10);

/// Is told of a run that a stop doesn't end.
///
/// A stop takes effect within milliseconds, wherever the guest is. If the run still goes on after
/// [`OVERDUE_AFTER`](crate::OVERDUE_AFTER), its thread hangs in the host, or has an unknown fault.
/// Nobody should wait for that thread any longer.
pub trait Overdue: Send + Sync {
    /// Reports that the run with this number still goes on. The watchdog's thread calls this, once
    /// per run; it must not block.
    fn overdue(&self, number: u64);
}

/// Who is told of one run that is overdue, and the number that they gave it.
#[derive(Clone)]
pub(crate) struct OverdueHook {
    listener: Weak<dyn Overdue>,
    number: u64,
}

impl OverdueHook {
    pub(crate) fn new(listener: Weak<dyn Overdue>, number: u64) -> Self {
        Self { listener, number }
    }

    pub(crate) fn call(&self) {
        if let Some(listener) = self.listener.upgrade() {
            listener.overdue(self.number);
        }
    }
}

impl fmt::Debug for OverdueHook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OverdueHook").field("number", &self.number).finish_non_exhaustive()
    }
}
