//! The clock of the server.

use std::time::Instant;

/// Returns the present time.
pub(super) fn now() -> Instant {
    Instant::now()
}
