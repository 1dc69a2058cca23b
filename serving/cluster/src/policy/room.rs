//! How much goes to the server and back at once. Each message wakes its sender, the server and its
//! receiver, which costs more than a short program. So while programs end within milliseconds, some
//! more jobs are claimed than there are free slots, and results wait for each other.

use std::time::Duration;

/// How long jobs that were claimed ahead may be expected to wait for a slot, and urgent ones that
/// come meanwhile.
const AHEAD: Duration = Duration::from_millis(32);
/// The most jobs that are claimed ahead for each slot.
pub const MOST_AHEAD: usize = 64;
/// How many mean times of a run a result waits for others.
const RUNS_HELD: u64 = 4;
/// The longest that a result waits for others.
const LONGEST_HELD: Duration = Duration::from_millis(8);
/// The weight of the latest run in the mean, as a power of two.
const WEIGHT_BITS: u32 = 3;

/// Returns how many jobs to claim now, given how many are claimed and the mean time of a run in
/// microseconds, which is 0 if none has ended yet.
pub fn room(slots: usize, claimed: usize, mean_us: u64) -> usize {
    let ahead = ahead(slots, mean_us);
    let room = (slots + ahead).saturating_sub(claimed);
    // In few requests, unless a slot is free.
    if claimed >= slots && room <= ahead / 2 { 0 } else { room }
}

/// Returns how long a result may wait for others, given the mean time of a run in microseconds. Those
/// of programs that take longer than that together gain nothing.
pub fn held(mean_us: u64) -> Duration {
    let held = Duration::from_micros(mean_us.saturating_mul(RUNS_HELD));
    if Duration::from_micros(mean_us) > LONGEST_HELD {
        Duration::ZERO
    } else {
        held.min(LONGEST_HELD)
    }
}

/// Returns how many jobs to claim beyond the slots.
fn ahead(slots: usize, mean_us: u64) -> usize {
    if mean_us == 0 {
        return 0;
    }
    let each = AHEAD.as_micros() / u128::from(mean_us);
    slots * usize::try_from(each).unwrap_or(MOST_AHEAD).min(MOST_AHEAD)
}

/// Returns the mean time of a run in microseconds, after another run; it is at least 1.
pub fn mean_after(mean_us: u64, run: Duration) -> u64 {
    let time = u64::try_from(run.as_micros()).unwrap_or(u64::MAX).max(1);
    // A long run counts at once: others may follow it.
    let is_longer = mean_us == 0 || time > mean_us;
    let mean = if is_longer { time } else { mean_us - (mean_us - time) / (1 << WEIGHT_BITS) };
    mean.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_claimed_as_slots_are_free() {
        assert_eq!(room(3, 0, 0), 3);
        assert_eq!(room(3, 1, 50_000), 2);
        assert_eq!(room(3, 3, 50_000), 0);
        assert_eq!(room(3, 5, 50_000), 0);
    }

    #[test]
    fn short_jobs_are_claimed_ahead_in_few_requests() {
        assert_eq!(room(2, 0, 4000), 2 + 16);
        assert_eq!(room(2, 8, 4000), 10);
        assert_eq!(room(2, 10, 4000), 0);
        assert_eq!(room(2, 1, 4000), 17);
        assert_eq!(room(2, 0, 10), 2 + 2 * MOST_AHEAD);
    }

    #[test]
    fn results_of_short_runs_wait_for_each_other() {
        assert_eq!(held(0), Duration::ZERO);
        assert_eq!(held(100), Duration::from_micros(400));
        assert_eq!(held(6000), LONGEST_HELD);
        assert_eq!(held(50_000), Duration::ZERO);
    }

    #[test]
    fn a_long_run_counts_at_once_and_short_ones_slowly() {
        let ms = Duration::from_millis;
        assert_eq!(mean_after(0, ms(2)), 2000);
        assert_eq!(mean_after(500, ms(50)), 50_000);
        assert_eq!(mean_after(8000, Duration::ZERO), 7001);
        let mean = (0..100).fold(50_000, |mean, _| mean_after(mean, ms(1)));
        assert!((1000..1010).contains(&mean), "{mean}");
    }
}
