//! Which lane to ask for the next jobs: the most urgent that may have one; among lanes of one
//! priority, that whose tenant has had the least for its weight.

use std::time::Duration;

/// How long a lane that was empty isn't asked again, unless a client says that it has jobs. Jobs
/// that others give back, or that the dead have claimed, wait up to this long.
pub const EMPTY: Duration = Duration::from_secs(1);

/// What a worker knows of its lanes, which are named by their index.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    lanes: Vec<Lane>,
}

#[derive(Debug, Clone)]
struct Lane {
    /// 0 for the most urgent.
    rank: u8,
    weight: f64,
    /// Jobs claimed so far, divided by the weight.
    claimed: f64,
    /// Until when it isn't asked.
    empty_until: Option<Duration>,
}

impl Shares {
    /// Adds a lane, and returns its index. The most urgent ones have rank 0. It begins level with
    /// the others.
    pub fn add(&mut self, rank: u8, weight: f64) -> usize {
        let claimed = self.lanes.iter().map(|lane| lane.claimed).fold(f64::INFINITY, f64::min);
        let claimed = if claimed.is_finite() { claimed } else { 0.0 };
        self.lanes.push(Lane { rank, weight, claimed, empty_until: None });
        self.lanes.len() - 1
    }

    /// Returns the lane to ask next, of those that weren't asked for the present jobs.
    pub fn next(&self, asked: &[usize], now: Duration) -> Option<usize> {
        let may_have = |lane: &Lane| lane.empty_until.is_none_or(|until| until <= now);
        let lanes = self.lanes.iter().enumerate();
        let left = lanes.filter(|(index, lane)| may_have(lane) && !asked.contains(index));
        let next = left.min_by(|(_, one), (_, other)| {
            one.rank.cmp(&other.rank).then(one.claimed.total_cmp(&other.claimed))
        })?;
        Some(next.0)
    }

    /// Counts what a lane has given; if that was less than was asked for, until when it isn't asked
    /// again.
    pub fn account(&mut self, index: usize, got: usize, empty_until: Option<Duration>) {
        // Whoever had nothing for long gets no credit for it.
        let least = (self.lanes.iter().enumerate())
            .filter(|(other, lane)| *other != index && lane.empty_until.is_none())
            .map(|(_, lane)| lane.claimed)
            .fold(f64::INFINITY, f64::min);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        if got > 0 && lane.empty_until.is_some() && least.is_finite() {
            lane.claimed = lane.claimed.max(least);
        }
        lane.claimed += got as f64 / lane.weight;
        lane.empty_until = empty_until;
    }

    /// Notes that a lane has jobs.
    pub fn wake(&mut self, index: usize) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.empty_until = None;
        }
    }

    /// Returns how long no lane is to be asked, after none gave any.
    pub fn wait(&self, now: Duration) -> Duration {
        let waits = self.lanes.iter().map(|lane| match lane.empty_until {
            Some(until) => until.saturating_sub(now),
            // It didn't answer.
            None => EMPTY,
        });
        waits.min().unwrap_or(EMPTY).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Takes jobs one at a time from lanes that never end, and counts them.
    fn served(shares: &mut Shares, lanes: usize, jobs: usize) -> Vec<usize> {
        let mut counts = vec![0; lanes];
        for _ in 0..jobs {
            let index = shares.next(&[], Duration::ZERO).unwrap();
            shares.account(index, 1, None);
            counts[index] += 1;
        }
        counts
    }

    #[test]
    fn tenants_of_one_priority_share_by_weight() {
        let mut shares = Shares::default();
        for weight in [1.0, 2.0, 5.0] {
            shares.add(1, weight);
        }
        assert_eq!(served(&mut shares, 3, 800), [100, 200, 500]);
    }

    #[test]
    fn urgent_lanes_come_first_and_empty_ones_are_left_alone() {
        let mut shares = Shares::default();
        let (low, high) = (shares.add(2, 1.0), shares.add(0, 1.0));
        assert_eq!(shares.next(&[], Duration::ZERO), Some(high));
        assert_eq!(shares.next(&[high], Duration::ZERO), Some(low));
        shares.account(high, 0, Some(SECOND));
        assert_eq!(shares.next(&[], Duration::ZERO), Some(low));
        shares.account(low, 0, Some(2 * SECOND));
        assert_eq!(shares.next(&[], Duration::ZERO), None);
        assert_eq!(shares.wait(SECOND / 2), SECOND / 2);
        shares.wake(low);
        assert_eq!(shares.next(&[], Duration::ZERO), Some(low));
        assert_eq!(shares.next(&[], SECOND), Some(high));
    }

    #[test]
    fn whoever_had_nothing_for_long_saves_nothing_up() {
        let mut shares = Shares::default();
        let (busy, resting) = (shares.add(1, 1.0), shares.add(1, 1.0));
        shares.account(resting, 0, Some(SECOND));
        for _ in 0..1000 {
            shares.account(busy, 1, None);
        }
        shares.account(resting, 1, None);
        let counts = served(&mut shares, 2, 100);
        assert!(counts[busy].abs_diff(counts[resting]) <= 2, "{counts:?}");
    }
}
