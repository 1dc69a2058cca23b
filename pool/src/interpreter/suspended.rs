//! Suspended states: the state of a session without an interpreter, as it is or as bytes.

use std::any::Any;
use std::sync::Arc;

use derive_more::Debug;

/// The state of a session as its interpreter left it. It is immutable.
pub trait SuspendedState: Any + Send + Sync {
    /// Returns the memory that it takes, in bytes.
    fn bytes(&self) -> u64;

    /// Returns a state for a session that continues from this one. Random numbers drawn there
    /// differ, unless the session is deterministic.
    fn fork(&self) -> Suspended;

    /// Returns the same state in less memory; `None` if there is no such form. May take as long as
    /// [`Interpreter::suspend`](super::Interpreter::suspend).
    fn compact(&self) -> Option<Suspended> {
        None
    }

    /// Returns whether it was lost with the process that kept it.
    fn is_gone(&self) -> bool {
        false
    }
}

/// A suspended state. Clones share it.
#[derive(Clone, Debug)]
#[debug("Suspended({bytes} bytes)")]
pub struct Suspended {
    state: Arc<dyn SuspendedState>,
    /// Cached, since adding it up takes a while.
    bytes: u64,
}

impl Suspended {
    /// Wraps a state that an interpreter copied out.
    pub fn new(state: impl SuspendedState) -> Self {
        let bytes = state.bytes();
        Self { state: Arc::new(state), bytes }
    }

    /// Returns the memory that it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a state for a session that continues from this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.state.fork()
    }

    /// Returns the same state in the least memory. Takes a while if it was copied between two turns.
    #[must_use]
    pub fn compact(self) -> Self {
        self.state.compact().unwrap_or(self)
    }

    /// Returns whether it was lost with the process that kept it.
    pub(crate) fn is_gone(&self) -> bool {
        self.state.is_gone()
    }

    /// Returns the wrapped state if it is a `T`.
    pub fn downcast_ref<T: SuspendedState>(&self) -> Option<&T> {
        let state: &dyn Any = &*self.state;
        state.downcast_ref()
    }

    /// Returns whether both are clones of the same state.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

/// A suspended state as bytes, with the part that can't be bytes.
#[derive(Clone, Debug)]
#[debug("PackedBytes({} bytes)", bytes.len())]
pub struct PackedBytes {
    /// The bytes, which may be compressed and offloaded to disk.
    pub bytes: Vec<u8>,
    /// The rest, which stays in memory.
    pub rest: Option<Arc<dyn Any + Send + Sync>>,
}
