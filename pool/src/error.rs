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
