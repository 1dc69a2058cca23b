//! The end of a call that nobody wants any more, for whoever works on it.

use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use super::Calls;

/// Tells of the end of a call that nobody wants any more.
pub struct Cancellation {
    pub(super) calls: Arc<Calls>,
    pub(super) ticket: u32,
}

impl Debug for Cancellation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cancellation").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Cancellation {
    /// Runs `hook` when the program gives the call up or its run ends, on the thread of the guest;
    /// at once if that has happened or the call was answered. It must not block.
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
