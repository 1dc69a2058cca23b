//! Tells whoever works on a call that the program no longer wants it.

use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use super::{Calls, Reply};

/// Reports that the program no longer wants a call.
pub struct Cancellation {
    calls: Arc<Calls>,
    ticket: u32,
}

impl Reply {
    /// Returns a handle that reports when the call is cancelled.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation { calls: Arc::clone(&self.calls), ticket: self.ticket }
    }
}

impl Debug for Cancellation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cancellation").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Cancellation {
    /// Runs `hook` on the guest's thread when the program gives the call up or its run ends; at
    /// once if that has happened or the call was answered. The hook must not block.
    pub fn on_cancel(self, hook: impl FnOnce() + Send + 'static) {
        let mut state = self.calls.state.lock();
        match state.pending.get_mut(&self.ticket) {
            Some(pending) => *pending = Some(Box::new(hook)),
            None => {
                drop(state);
                hook();
            }
        }
    }
}
