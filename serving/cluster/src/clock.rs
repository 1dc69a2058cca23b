//! The monotonic clock of this crate. No other file of it reads one. None reads the time of day,
//! which can be wrong; only the server's counts.

use std::time::Duration;

use tokio::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "until the next attempt, heartbeat or check")]
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}
