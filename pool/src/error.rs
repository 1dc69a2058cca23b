//! What can go wrong when a pool starts or is used.

/// The pool can't do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The supervisor could not be started.
    #[error("the supervisor of the pool could not be started: {0}")]
    Start(String),
    /// The pool has been closed.
    #[error("the pool is closed")]
    Closed,
}

/// A session's state isn't where it was to be put.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StowError {
    /// The disk doesn't take it: it stays in memory, compressed.
    #[error("it can't be spilled: {reason}; it is compressed in memory")]
    NotWritten {
        /// What failed.
        reason: String,
        /// The memory that it takes now, in bytes.
        bytes: u64,
    },
    /// It is what it was before, or has moved on.
    #[error("{0}")]
    Unchanged(String),
}

impl StowError {
    pub(crate) fn unchanged(reason: &str) -> Self {
        Self::Unchanged(reason.to_owned())
    }
}
