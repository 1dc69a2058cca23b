//! Batches the results of short programs, so that the server gets many at once.
//!
//! The last of the claimed jobs opens the gate for all. So does one that has waited for the time in
//! `policy/room.rs`. A job that is alone passes at once.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

/// The most results that wait.
const MOST: usize = 64;

/// A gate that opens for all who wait.
#[derive(Debug, Default)]
pub(super) struct ReplyBatcher {
    waiting: Mutex<usize>,
    /// Counts how often it has opened.
    opened: watch::Sender<u64>,
}

impl ReplyBatcher {
    /// Waits for others for at most this long. `is_last` says that none is to come.
    pub(super) async fn pass(&self, longest: Duration, is_last: bool) {
        let mut opened = {
            let mut waiting = self.waiting.lock();
            *waiting += 1;
            if is_last || longest.is_zero() || *waiting >= MOST {
                return self.open(&mut waiting);
            }
            // Within the lock: what opens later is seen.
            self.opened.subscribe()
        };
        // The sender is in `self`.
        if timeout(longest, opened.changed()).await.is_err() {
            self.open(&mut self.waiting.lock());
        }
    }

    fn open(&self, waiting: &mut usize) {
        *waiting = 0;
        self.opened.send_modify(|opened| *opened += 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::clock::now;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn whoever_is_alone_or_long_passes_at_once() {
        let (batcher, begin): (ReplyBatcher, Instant) = (ReplyBatcher::default(), now());
        batcher.pass(LONG, true).await;
        batcher.pass(Duration::ZERO, false).await;
        assert_eq!(now(), begin);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_one_opens_for_all() {
        let (batcher, begin) = (ReplyBatcher::default(), now());
        tokio::join!(
            batcher.pass(LONG, false),
            batcher.pass(LONG, false),
            batcher.pass(LONG, true)
        );
        assert_eq!(now(), begin);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_waited_long_enough_opens_for_all() {
        let (batcher, begin) = (ReplyBatcher::default(), now());
        tokio::join!(batcher.pass(LONG, false), batcher.pass(LONG / 2, false));
        assert_eq!(now() - begin, LONG / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn many_do_not_wait_for_more() {
        let (batcher, begin) = (ReplyBatcher::default(), now());
        futures_util::future::join_all((0..MOST).map(|_| batcher.pass(LONG, false))).await;
        assert_eq!(now(), begin);
    }
}
