//! The clock of the server.

use std::time::Instant;

/// Returns the present time.
#[expect(clippy::disallowed_methods, reason = "the one file here that reads the clock")]
pub(super) fn now() -> Instant {
    Instant::now()
}
