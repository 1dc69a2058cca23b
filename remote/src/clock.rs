//! The clock of this crate. No other file of it reads one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "how long a lane has been empty, and how long to wait"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the time since 1970, as this machine's clock has it.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "until the next attempt, sign of life or check")]
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}
