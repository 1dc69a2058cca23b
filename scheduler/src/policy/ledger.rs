//! How short memory is.

use crate::status::MemoryStatus;

/// Parked sessions are compressed from this percentage of the limit on.
const COMPRESS_PERCENT: u128 = 80;
/// Parked sessions are spilled to disk from this percentage of the limit on.
const SPILL_PERCENT: u128 = 90;

/// How short memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// There is enough.
    None,
    /// Compress parked sessions.
    Compress,
    /// Spill parked sessions.
    Spill,
}

impl Pressure {
    /// Computes the pressure if `more` bytes are needed as well.
    pub(crate) fn of(memory: &MemoryStatus, more: u64) -> Self {
        let used = u128::from(memory.used_bytes().saturating_add(more)) * 100;
        let percent = |percent| u128::from(memory.limit_bytes) * percent;
        if used >= percent(SPILL_PERCENT) {
            Self::Spill
        } else if used >= percent(COMPRESS_PERCENT) {
            Self::Compress
        } else {
            Self::None
        }
    }
}
