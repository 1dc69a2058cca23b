//! The clock of a batch's progress. No other file of it reads one.

use tokio::time::Instant;

#[expect(clippy::disallowed_methods, reason = "how long a batch takes")]
pub(super) fn now() -> Instant {
    Instant::now()
}
