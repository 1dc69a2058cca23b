//! Suspended states: the state of a session without an interpreter, as it is or as bytes.

use std::any::Any;
use std::sync::Arc;

use derive_more::Debug;
use engine::SharedBytes;

/// The state of a session as its interpreter left it. It is immutable.
pub trait SuspendedState: Any + Send + Sync {
    /// Returns the memory that it takes, in bytes, without what is counted as shared by forks. Must
    /// be quick.
    fn bytes(&self) -> u64;

    /// Returns a state for a session that continues from this one. Random numbers drawn there
    /// differ, unless the session is deterministic.
    fn fork(&self) -> Suspended;

    /// Returns a state with which any number of forked sessions begin, and what they share; `None`
    /// if they share nothing.
    fn branch(&self) -> (Suspended, Option<SharedBytes>) {
        (self.fork(), None)
    }

    /// Counts what this state shares with `fork`, which `branch` returned, no more as its own.
    fn become_base_of(&self, _fork: &Suspended) {}

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
#[debug("Suspended({} bytes)", self.bytes())]
pub struct Suspended {
    state: Arc<dyn SuspendedState>,
}

impl Suspended {
    /// Wraps a state that an interpreter copied out.
    pub fn new(state: impl SuspendedState) -> Self {
        Self { state: Arc::new(state) }
    }

    /// Returns the memory that it takes, in bytes, without what is counted as shared by forks.
    pub fn bytes(&self) -> u64 {
        self.state.bytes()
    }

    /// Returns a state for a session that continues from this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.state.fork()
    }

    /// Returns a state with which any number of forked sessions begin, and what they share; `None`
    /// if they share nothing. May block, as [`Self::fork`] does.
    pub fn branch(&self) -> (Self, Option<SharedBytes>) {
        self.state.branch()
    }

    /// Counts what this state shares with `fork`, which `branch` returned, no more as its own.
    pub fn become_base_of(&self, fork: &Self) {
        self.state.become_base_of(fork);
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
