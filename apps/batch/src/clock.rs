//! The clock of a batch. No other file of it reads one.

use std::time::Duration;

use tokio::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "until the next attempt, or until a job is cut")]
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}
