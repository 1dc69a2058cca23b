//! The crate's clock.

use std::time::{Duration, Instant};

/// Returns the instant in `time` from now.
#[expect(clippy::disallowed_methods, reason = "this is the crate's clock file")]
pub(crate) fn after(time: Duration) -> Instant {
    Instant::now() + time
}

/// Returns whether an instant has come.
#[expect(clippy::disallowed_methods, reason = "this is the crate's clock file")]
pub(crate) fn has_come(instant: Instant) -> bool {
    Instant::now() >= instant
}
