//! The errors of the pool.

use engine::Cause;

/// An operation of the pool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The supervisor could not be started.
    #[error("the supervisor of the pool could not be started")]
    Start(#[source] Cause),
    /// The pool has been closed.
    #[error("the pool is closed")]
    Closed,
}

/// A session's state could not be offloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// It can't be written to disk: it stays in memory, compressed.
    #[error("it can't be spilled, and is compressed in memory")]
    NotWritten {
        /// What failed.
        #[source]
        cause: Cause,
        /// The memory that it takes now, in bytes.
        bytes: u64,
    },
    /// The state is unchanged, or the session has moved on.
    #[error(transparent)]
    Unchanged(Cause),
}

impl OffloadError {
    pub(crate) fn unchanged(reason: &str) -> Self {
        Self::Unchanged(reason.into())
    }
}
