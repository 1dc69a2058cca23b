//! The pool's clock: no other file of the crate reads one.

use tokio::time::Instant;

/// Returns the current time, which tests may pause.
#[expect(clippy::disallowed_methods, reason = "this is the pool's clock file")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
