//! Why a run is asked to end.

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
    /// Returns whether a limit was reached.
    pub(crate) fn is_limit(self) -> bool {
        match self {
            Self::WallTime | Self::CpuTime | Self::Output | Self::HostCalls => true,
            Self::Interrupted | Self::Cancelled => false,
        }
    }
}
