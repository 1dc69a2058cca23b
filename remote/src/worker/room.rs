//! How many jobs to claim: as many as there are free slots; and while programs end within
//! milliseconds, some more, so that slots don't wait for the server.
//!
//! A job that was claimed ahead and finds no slot in time is given back.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// How long jobs that were claimed ahead may be expected to wait for a slot. About as long as the
/// server takes to answer.
const AHEAD: Duration = Duration::from_millis(4);
/// The most jobs that are claimed ahead for each slot.
const MOST_AHEAD: usize = 8;
/// The weight of the latest run in the mean, as a power of two.
const WEIGHT_BITS: u32 = 3;

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
        let ahead = self.ahead();
        let claimed = self.claimed.load(Ordering::Relaxed);
        let room = (self.slots + ahead).saturating_sub(claimed);
        // In few requests, unless a slot is free.
        if claimed >= self.slots && room <= ahead / 2 { 0 } else { room }
    }

    /// Returns how many jobs to claim beyond the slots.
    fn ahead(&self) -> usize {
        match self.mean_us.load(Ordering::Relaxed) {
            0 => 0,
            mean => {
                let each = AHEAD.as_micros() / u128::from(mean);
                self.slots * usize::try_from(each).unwrap_or(MOST_AHEAD).min(MOST_AHEAD)
            }
        }
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
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let mean = self.mean_us.load(Ordering::Relaxed);
        // A long run counts at once: others may follow it.
        let mean =
            if mean == 0 || time > mean { time } else { mean - (mean - time) / (1 << WEIGHT_BITS) };
        // Another one that counts at the same time may be lost.
        self.mean_us.store(mean.max(1), Ordering::Relaxed);
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
        room.ran(Duration::from_micros(500));
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
        (0..50).for_each(|_| room.ran(Duration::from_micros(500)));
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
