//! The state of a session apart from its interpreter, as it is and as bytes.

use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

/// The state of a session as its interpreter left it. Nothing changes it; clones share it.
#[derive(Clone)]
pub struct Parked {
    state: Arc<dyn Any + Send + Sync>,
    bytes: u64,
}

impl Parked {
    /// Wraps what an interpreter copied out, which takes this many bytes of memory.
    pub fn new<T: Any + Send + Sync>(state: Arc<T>, bytes: u64) -> Self {
        Self { state, bytes }
    }

    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was wrapped, if it is a `T`.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.state.downcast_ref()
    }

    /// Whether both are clones of one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Debug for Parked {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Parked").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A parked state as bytes, with what can't be bytes beside them.
#[derive(Clone)]
pub struct Packed {
    /// They are compressed, and may go to disk and back.
    pub bytes: Vec<u8>,
    /// It stays in memory as it is.
    pub rest: Option<Arc<dyn Any + Send + Sync>>,
}

impl Debug for Packed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Packed").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
