//! What the memory is used for, and how pressing that is.

use crate::status::MemoryStatus;

/// From so many percent on, parked sessions are compressed.
const COMPRESS_PERCENT: u128 = 80;
/// From so many percent on, parked sessions are spilled to disk.
const SPILL_PERCENT: u128 = 90;

/// How short memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// There is enough.
    None,
    /// What rests should take less.
    Compress,
    /// What rests should go.
    Spill,
}

impl Pressure {
    /// How short memory is if `more` bytes are to be had as well.
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
