//! The clock of this crate, which is monotonic. No other file of it reads one, and none the time of
//! day: that can be set or wrong, and is the server's alone.

use std::time::Duration;

use tokio::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "until the next attempt, sign of life or check")]
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}
