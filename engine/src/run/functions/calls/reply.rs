//! The answer to one call, which any thread may give.

use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use serde_json::Value as Json;

use super::Calls;
use crate::run::functions::error::HostError;

/// Takes the answer to one call. If it is dropped without an answer, the call fails.
#[must_use = "a call that nobody answers fails"]
pub struct Reply {
    pub(super) calls: Arc<Calls>,
    pub(super) ticket: u32,
    pub(super) function: String,
    pub(super) is_answered: bool,
}

impl Debug for Reply {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reply").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Reply {
    /// Answers the call. Does nothing if the call was cancelled or its run has ended.
    pub fn answer(mut self, result: Result<Json, HostError>) {
        self.is_answered = true;
        self.calls.answer(self.ticket, &self.function, result);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_answered {
            let text = match std::thread::panicking() {
                true => "it panicked",
                false => "it ended without an answer",
            };
            let failed = Err(HostError::private(text));
            self.calls.answer(self.ticket, &self.function, failed);
        }
    }
}
