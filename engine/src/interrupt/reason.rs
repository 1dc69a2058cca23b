//! Why a run is stopped, and the report of runs that don't end.

use std::sync::Weak;
use std::time::Duration;

/// Why a run is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum StopReason {
    /// Its wall time is over.
    WallTime,
    /// Its CPU time is over.
    CpuTime,
    /// Its output reached `Limits::output_bytes`, and `Limits::stop_at_output_limit` is set.
    Output,
    /// It made more calls to the host than `Limits::host_calls`.
    HostCalls,
    /// The caller interrupted the program.
    Interrupted,
    /// The caller no longer wants its outcome.
    Cancelled,
}

impl StopReason {
    pub(crate) fn is_limit(self) -> bool {
        match self {
            Self::WallTime | Self::CpuTime | Self::Output | Self::HostCalls => true,
            Self::Interrupted | Self::Cancelled => false,
        }
    }
}

/// A run that goes on for this long after a stop is overdue. Stops take effect within milliseconds.
/// The rest allows for machines that are short of CPU time, or whose disk is slow to serve a mount.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(10);

/// Receives reports of runs that a stop doesn't end.
///
/// A stop takes effect within milliseconds. If the run still goes on after
/// [`OVERDUE_AFTER`](crate::OVERDUE_AFTER), its thread hangs in the host, or has an unknown fault.
/// Nobody should wait for that thread any longer.
pub trait Overdue: Send + Sync {
    /// Reports that the run with this number still goes on. The watchdog's thread calls this, once
    /// per run; it must not block.
    fn overdue(&self, number: u64);
}

/// Reports one run as overdue, by the number that its listener gave it.
#[derive(Clone, Debug)]
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
