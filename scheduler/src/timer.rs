//! The clock of this crate; nothing else in it reads one.

use tokio::time::Instant;

/// The time.
#[expect(clippy::disallowed_methods, reason = "this is the scheduler's clock file")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
