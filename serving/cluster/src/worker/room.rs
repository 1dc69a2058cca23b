//! How many jobs are claimed, and waiting for room for more; `policy/room.rs` says how much there
//! is.
//!
//! A job that was claimed ahead and finds no slot in time is given back.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::policy;

/// Counts claims that haven't ended.
#[derive(Debug)]
pub(super) struct Room {
    slots: usize,
    claimed: AtomicUsize,
    /// The mean time of a run, in microseconds; 0 if none has ended yet.
    mean_us: AtomicU64,
    freed: Notify,
}

impl Room {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots,
            claimed: AtomicUsize::new(0),
            mean_us: AtomicU64::new(0),
            freed: Notify::new(),
        }
    }

    /// Waits until there is room for some jobs, and returns for how many. Cancel-safe.
    pub(super) async fn some(&self) -> usize {
        loop {
            let room = self.room();
            if room > 0 {
                return room;
            }
            // What frees room later than this check leaves a permit.
            self.freed.notified().await;
        }
    }

    fn room(&self) -> usize {
        let claimed = self.claimed.load(Ordering::Relaxed);
        policy::room(self.slots, claimed, self.mean_us.load(Ordering::Relaxed))
    }

    /// Returns how long the result of a program that has ended may wait for others, and whether none
    /// is to come.
    pub(super) fn held(&self) -> (Duration, bool) {
        let is_last = self.claimed.load(Ordering::Relaxed) == 0;
        (policy::held(self.mean_us.load(Ordering::Relaxed)), is_last)
    }

    /// Counts a claim.
    pub(super) fn take(&self) {
        self.claimed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a claim's use of a slot.
    pub(super) fn free(&self) {
        self.claimed.fetch_sub(1, Ordering::Relaxed);
        self.freed.notify_one();
    }

    /// Counts a run.
    pub(super) fn ran(&self, time: Duration) {
        let mean = self.mean_us.load(Ordering::Relaxed);
        // Another one that counts at the same time may be lost.
        self.mean_us.store(policy::mean_after(mean, time), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_claimed_as_slots_are_free() {
        let room = Room::new(3);
        assert_eq!(room.room(), 3);
        room.take();
        assert_eq!(room.room(), 2);
        room.ran(Duration::from_millis(50));
        (0..2).for_each(|_| room.take());
        assert_eq!(room.room(), 0);
        room.free();
        assert_eq!(room.room(), 1);
    }

    #[test]
    fn short_jobs_are_claimed_ahead_until_a_long_one_comes() {
        let room = Room::new(2);
        room.ran(Duration::from_millis(4));
        assert_eq!(room.room(), 2 + 16);
        (0..8).for_each(|_| room.take());
        // In few requests.
        assert_eq!(room.room(), 10);
        room.take();
        room.take();
        assert_eq!(room.room(), 0);
        room.ran(Duration::from_millis(50));
        (0..9).for_each(|_| room.free());
        assert_eq!(room.room(), 1);
        (0..50).for_each(|_| room.ran(Duration::from_millis(4)));
        assert!(room.room() > 8);
    }

    #[tokio::test]
    async fn waiting_for_room_ends_when_some_is_freed() {
        let room = Room::new(1);
        room.take();
        let (found, ()) = tokio::join!(room.some(), async { room.free() });
        assert_eq!(found, 1);
    }
}
