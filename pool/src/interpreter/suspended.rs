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

    /// Makes this state one from which any number of sessions continue.
    fn branch(&self) -> Branched {
        Branched { fork: self.fork(), shared: None }
    }

    /// Counts later states of this session beside what its forks share. For a state that `branch`
    /// returned, when it has become its session's.
    fn begin_branch(&self) {}

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

    /// Makes this state one from which any number of sessions continue. May block, as
    /// [`Self::fork`] does.
    pub fn branch(&self) -> Branched {
        self.state.branch()
    }

    /// Counts later states of this session beside what its forks share. For [`Branched::shared`],
    /// when it has become its session's state.
    pub fn begin_branch(&self) {
        self.state.begin_branch();
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

/// A state from which sessions continue.
#[derive(Clone, Debug)]
pub struct Branched {
    /// The state with which each of them begins, by a clone.
    pub fork: Suspended,
    /// What they share with the state, and the state in a form that takes nothing beside that.
    /// `None` if each of them has all of it for itself.
    pub shared: Option<(SharedBytes, Suspended)>,
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
