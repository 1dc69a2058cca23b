//! What the two halves of an end share, and the handle that closes them.

use std::sync::Arc;

use crate::layout::Places;
use crate::memory::Memory;
use crate::wait::Gate;

/// The mapping and the gate of one end.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    pub(crate) memory: Memory,
    pub(crate) gate: Gate,
}

/// Closes an end from any thread, as when the other process has died.
#[derive(Debug, Clone)]
pub struct Closer {
    shared: Arc<SharedMapping>,
    /// The bells on which this end sleeps.
    bells: [usize; 2],
}

impl Closer {
    pub(crate) fn new(shared: Arc<SharedMapping>, send: &Places, receive: &Places) -> Self {
        Self { shared, bells: [send.for_space, receive.for_bytes] }
    }

    /// Ends all waits of this end. Nothing more can be sent; frames that had arrived as a whole can
    /// still be received.
    pub fn close(&self) {
        self.shared.gate.close(self.bells.map(|bell| self.shared.memory.bell(bell)));
    }

    /// Whether this end was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.gate.is_closed()
    }
}
