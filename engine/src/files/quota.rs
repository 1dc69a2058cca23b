//! Limits on a guest's files. Checked before anything is allocated.

use crate::limits::{LimitHit, LimitKind, Limits};

/// The longest name of one entry, in bytes, as on common filesystems.
pub(crate) const MOST_NAME_BYTES: usize = 255;
/// The longest path that is resolved, in bytes, as on Linux.
pub(crate) const MOST_PATH_BYTES: usize = 4096;
/// The deepest nesting of folders. Deeper trees only serve to exhaust their readers.
pub(crate) const MOST_DEPTH: usize = 64;
/// The most links followed in one lookup, as on Linux.
pub(crate) const MOST_LINKS: usize = 40;

/// The largest byte quota of any run: even an empty file of this length takes some memory.
const MOST_BYTES: u64 = 64 << 30;

/// The limits on a guest's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileQuota {
    /// Lengths of all files together.
    pub(crate) bytes: u64,
    /// Files, folders and links together.
    pub(crate) count: u64,
    /// Descriptors open at once, the standard ones not counted.
    pub(crate) open: usize,
}

impl FileQuota {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            bytes: limits.file_bytes.min(MOST_BYTES),
            count: limits.file_count,
            open: usize::try_from(limits.open_files).unwrap_or(usize::MAX),
        }
    }

    /// No limits, for code that builds the library.
    pub(crate) const NONE: Self = Self { bytes: u64::MAX, count: u64::MAX, open: 0 };
}

/// The current usage of a guest's files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileUsage {
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

/// The limits that refused requests of a run, each with the most that it asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    bytes: Option<LimitHit>,
    count: Option<LimitHit>,
    open: Option<LimitHit>,
}

impl Refusals {
    pub(crate) fn note(&mut self, limit: LimitKind, allowed: u64, wanted: u64) {
        let slot = match limit {
            LimitKind::FileBytes => &mut self.bytes,
            LimitKind::FileCount => &mut self.count,
            _ => &mut self.open,
        };
        let before = slot.map_or(0, |hit| hit.used);
        *slot = Some(LimitHit::new(limit, allowed, wanted.max(before)));
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = LimitHit> {
        [self.bytes, self.count, self.open].into_iter().flatten()
    }
}
