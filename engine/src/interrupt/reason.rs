//! Why a run is asked to end.

/// Why a run is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Its wall time is over.
    WallTime,
    /// Its CPU time is over.
    CpuTime,
    /// Its output reached a limit that was to end it.
    Output,
    /// It called the host too often.
    HostCalls,
    /// The caller wants the program to hear `KeyboardInterrupt`.
    Interrupted,
    /// The caller no longer wants it.
    Cancelled,
}
