//! What a worker decides about jobs of the queue, as pure functions: how many to ask for, what to
//! do with one that was delivered, when it may start, when its claim is extended, and when a
//! refused one may come again.
//!
//! Nothing here waits, reads a clock or sends. A time is the duration since a start that the caller
//! chooses. The worker carries the decisions out, and so does the simulation of a cluster, so what
//! the simulation shows holds for the rules of the worker.

use std::time::Duration;

pub use self::lanes::{Ask, Lane, Lanes, PRIORITIES, TenantIndex};

mod lanes;

/// How long the server waits for a sign of life of a claimed job before it delivers the job again.
/// Shorter, and a worker that stalls for some seconds loses its claims; longer, and the jobs of a
/// worker that died wait for longer.
pub const ACK_WAIT: Duration = Duration::from_secs(30);

/// Time between two signs of life of a claimed job. Two may be lost before the claim is.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Starts after which a job runs alone in its pool. A pool that dies takes its other jobs along, so
/// a job may have been a neighbour at each of these.
pub const SHARED_STARTS: u32 = 2;

/// Starts after which a job is a dead letter. The last of these was alone.
pub const MOST_STARTS: u32 = 3;

/// The shortest time for which a refused job is given back. Shorter, and a full pool and the server
/// only pass it back and forth.
pub const LEAST_REST: Duration = Duration::from_millis(100);

/// The longest time for which a refused job is given back without a word from the pool on when
/// there is room.
pub const MOST_REST: Duration = Duration::from_secs(30);

/// What a pool holds at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Jobs that the pool can run at once.
    pub slots: usize,
    /// Jobs that it has claimed and that haven't ended, running or not.
    pub claimed: usize,
    /// Jobs among these that run.
    pub running: usize,
    /// Jobs that it has asked for, and neither been given nor refused yet.
    pub asked: usize,
    /// Claimed jobs that must run alone, running or not.
    pub lone: usize,
    /// Whether the pool takes no further jobs.
    pub is_draining: bool,
}

impl Load {
    /// Returns how many more jobs to ask for: as many as have a free slot, so that no claimed job
    /// waits here while another pool is idle, and none dies with a neighbour that it never met.
    /// While a job has to run alone, none.
    pub fn wanted(&self) -> usize {
        if self.is_draining || self.lone > 0 {
            return 0;
        }
        self.slots.saturating_sub(self.claimed + self.asked)
    }

    /// Returns whether a claimed job may start now. A job that runs alone waits until no other job
    /// runs, and holds the others back while it runs.
    pub fn may_start(&self, is_alone: bool, lone_runs: bool) -> bool {
        match is_alone {
            true => self.running == 0,
            false => !lone_runs && self.running < self.slots,
        }
    }
}

/// What is known of a job when it is delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Whether its result is stored already: another worker ended it, and its acknowledgement was
    /// lost or late.
    pub has_result: bool,
    /// How many times it was started before, by any worker.
    pub starts: u32,
}

/// What to do with a job that was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Acknowledge it; its result is there.
    Acknowledge,
    /// Give it back, for others to take at once.
    GiveBack,
    /// Count the start, then run it.
    Start,
    /// Count the start, then run it while no other job runs in this pool.
    StartAlone,
    /// Store a result that says so, keep the job as a dead letter, and acknowledge it.
    DeadLetter,
}

/// Decides what to do with a job that was delivered to a pool.
pub fn step(delivery: Delivery, is_draining: bool) -> Step {
    match (delivery.has_result, delivery.starts) {
        (true, _) => Step::Acknowledge,
        // What ends a job takes no slot, so a pool that drains does it, too.
        (false, MOST_STARTS..) => Step::DeadLetter,
        (false, _) if is_draining => Step::GiveBack,
        (false, SHARED_STARTS..) => Step::StartAlone,
        (false, _) => Step::Start,
    }
}

/// Returns when a claim needs its next sign of life, which was last claimed or extended at
/// `touched`.
pub fn progress_at(touched: Duration) -> Duration {
    touched.saturating_add(PROGRESS_EVERY)
}

/// Returns whether the server may have given a claim to another worker. The job goes on: whichever
/// result comes first counts.
pub fn may_be_lost(touched: Duration, now: Duration) -> bool {
    now.saturating_sub(touched) >= ACK_WAIT
}

/// Returns for how long to give back a job that the pool refused: as long as the pool says, or else
/// twice as long after each delivery.
pub fn rest(retry_after: Option<Duration>, deliveries: u64) -> Duration {
    let doublings = deliveries.saturating_sub(1).min(16) as u32;
    let doubled = LEAST_REST.saturating_mul(1 << doublings).min(MOST_REST);
    retry_after.unwrap_or(doubled).max(LEAST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pool_asks_for_as_many_jobs_as_it_has_free_slots() {
        let load = Load { slots: 4, ..Load::default() };
        assert_eq!(load.wanted(), 4);
        assert_eq!(Load { claimed: 1, asked: 2, ..load }.wanted(), 1);
        // A range of workers may have shrunk.
        assert_eq!(Load { claimed: 3, asked: 2, ..load }.wanted(), 0);
        assert_eq!(Load { lone: 1, ..load }.wanted(), 0);
        assert_eq!(Load { is_draining: true, ..load }.wanted(), 0);
    }

    #[test]
    fn a_job_that_runs_alone_waits_for_the_others_and_they_for_it() {
        let load = Load { slots: 2, claimed: 2, ..Load::default() };
        assert!(load.may_start(false, false) && load.may_start(true, false));
        let one_runs = Load { running: 1, ..load };
        assert!(one_runs.may_start(false, false) && !one_runs.may_start(true, false));
        assert!(!one_runs.may_start(false, true) && !one_runs.may_start(true, true));
        assert!(!Load { running: 2, ..load }.may_start(false, false));
    }

    #[test]
    fn a_delivered_job_has_one_step_for_each_history() {
        let step =
            |has_result, starts, is_draining| step(Delivery { has_result, starts }, is_draining);
        let steps = [0, 1, 2, 3, u32::MAX].map(|starts| step(false, starts, false));
        let expected =
            [Step::Start, Step::Start, Step::StartAlone, Step::DeadLetter, Step::DeadLetter];
        assert_eq!(steps, expected);
        let draining = [0, 1, 2, 3, u32::MAX].map(|starts| step(false, starts, true));
        let expected =
            [Step::GiveBack, Step::GiveBack, Step::GiveBack, Step::DeadLetter, Step::DeadLetter];
        assert_eq!(draining, expected);
        for starts in 0..5 {
            assert_eq!(step(true, starts, false), Step::Acknowledge);
            assert_eq!(step(true, starts, true), Step::Acknowledge);
        }
    }

    #[test]
    fn a_claim_outlives_two_lost_signs_of_life() {
        let touched = 5 * SECOND;
        assert_eq!(progress_at(touched), 15 * SECOND);
        let third = progress_at(progress_at(touched));
        assert!(!may_be_lost(touched, third) && third < touched + ACK_WAIT);
        assert!(may_be_lost(touched, touched + ACK_WAIT));
        assert!(!may_be_lost(touched, Duration::ZERO), "a clock that went back");
    }

    #[test]
    fn a_refused_job_rests_as_long_as_the_pool_says_or_ever_longer() {
        assert_eq!(rest(Some(3 * SECOND), 9), 3 * SECOND);
        assert_eq!(rest(Some(Duration::ZERO), 1), LEAST_REST);
        assert_eq!(rest(None, 0), LEAST_REST);
        assert_eq!(rest(None, 1), LEAST_REST);
        assert_eq!(rest(None, 3), 4 * LEAST_REST);
        assert_eq!(rest(None, u64::MAX), MOST_REST);
    }
}
