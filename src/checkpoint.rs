//! A checkpoint: the state of a session at one moment, to return to.

use pool::{BuildId, Parked};

/// The state of a session at one moment. Cheap to clone; clones share it.
///
/// It holds the variables, the files and everything else that the session's jobs left in the
/// interpreter, and doesn't depend on the session any more: see
/// [`Session::checkpoint`](crate::Session::checkpoint).
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// `None` is the state of a fresh interpreter.
    state: Option<Parked>,
    /// The build of that interpreter.
    build: BuildId,
}

impl Checkpoint {
    pub(crate) fn new(state: Option<Parked>, build: BuildId) -> Self {
        Self { state, build }
    }

    pub(crate) fn build(&self) -> BuildId {
        self.build
    }

    /// Returns the memory that it takes, in bytes: what the session's jobs changed. It is freed
    /// when the last clone is dropped and no session continues from it unchanged. A checkpoint is
    /// never spilled, and doesn't count towards
    /// [`Builder::memory_limit_bytes`](crate::Builder::memory_limit_bytes).
    pub fn bytes(&self) -> u64 {
        self.state.as_ref().map_or(0, Parked::bytes)
    }

    pub(crate) fn state(&self) -> Option<Parked> {
        self.state.clone()
    }
}
