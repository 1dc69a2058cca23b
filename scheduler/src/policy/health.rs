//! The health of the pool: starting, ready, or degraded, and why.
//!
//! A single worker that dies is replaced, and a decision reports it. A pool is degraded if workers
//! don't start, or die repeatedly. A condition is reported again only when it gets worse, so a pool
//! that keeps trying doesn't repeat itself.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Cause;

use crate::decision::{DecisionKind, DegradedReason};
use crate::timer::Time;

/// How many workers die within [`WINDOW`] before the pool counts as degraded. A job that kills its
/// worker and is tried again twice costs three.
const MOST_DEATHS: usize = 5;
/// For how long a death counts.
const WINDOW: Duration = Duration::from_secs(60);

/// What happened to the workers, and what has been told of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    /// Why the last start failed, unless one has succeeded since.
    failed_start: Option<Cause>,
    /// When workers died that had started: the last ones, oldest first.
    deaths: VecDeque<Time>,
    /// Why the last one died.
    last_death: Option<Cause>,
    told: Told,
}

/// What was last told of the pool's health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    #[default]
    Starting,
    Ready,
    WorkersDie,
    WorkersDoNotStart,
    NoWorkerLeft,
}

/// What the workers are like now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workforce<'a> {
    /// Why no worker is left, if none is.
    pub(crate) lost: Option<&'a Cause>,
    /// How many places for workers were given up.
    pub(crate) given_up: usize,
    /// How many workers are alive.
    pub(crate) living: usize,
    /// How many there should be.
    pub(crate) wanted: usize,
}

impl Health {
    /// Records that a worker has started.
    pub(crate) fn started(&mut self) {
        self.failed_start = None;
    }

    /// Records that a worker couldn't start.
    pub(crate) fn not_started(&mut self, reason: &Cause) {
        self.failed_start = Some(reason.clone());
    }

    /// Records that a worker that had started has died.
    pub(crate) fn died(&mut self, reason: &Cause, now: Time) {
        if self.deaths.len() == MOST_DEATHS {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        self.last_death = Some(reason.clone());
    }

    /// Returns what is new and has to be told: the pool is ready, or degraded, or more than before.
    pub(crate) fn update(&mut self, workforce: Workforce<'_>, now: Time) -> Option<DecisionKind> {
        while self.deaths.front().is_some_and(|at| at.saturating_add(WINDOW) <= now) {
            self.deaths.pop_front();
        }
        let (state, reason) = self.state(workforce);
        let is_news = match self.told {
            Told::Starting => state != Told::Starting,
            // Later on, workers that start are no news.
            told => state > told || (state == Told::Ready && told != Told::Ready),
        };
        if !is_news {
            return None;
        }
        self.told = state;
        Some(match reason {
            None => DecisionKind::PoolReady { workers: workforce.living },
            Some(reason) => DecisionKind::PoolDegraded { reason },
        })
    }

    /// When deaths have to be looked at again, if they make the pool degraded.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        let oldest = self.deaths.front().filter(|_| self.deaths.len() == MOST_DEATHS);
        oldest.map(|at| at.saturating_add(WINDOW))
    }

    fn state(&self, workforce: Workforce<'_>) -> (Told, Option<DegradedReason>) {
        let Workforce { lost, given_up, living, wanted } = workforce;
        if let Some(error) = lost {
            let error = text(error);
            return (Told::NoWorkerLeft, Some(DegradedReason::NoWorkerLeft { error }));
        }
        if let Some(error) = &self.failed_start {
            let reason = DegradedReason::WorkersDoNotStart { given_up, error: text(error) };
            return (Told::WorkersDoNotStart, Some(reason));
        }
        if let Some(error) = self.last_death.as_ref().filter(|_| self.deaths.len() == MOST_DEATHS) {
            let (count, within) = (MOST_DEATHS, WINDOW);
            let reason = DegradedReason::WorkersDie { count, within, error: text(error) };
            return (Told::WorkersDie, Some(reason));
        }
        (if living > 0 || wanted == 0 { Told::Ready } else { Told::Starting }, None)
    }
}

fn text(cause: &Cause) -> String {
    engine::chain(cause).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Workforce<'_> = Workforce { lost: None, given_up: 0, living: 1, wanted: 2 };
    const DOWN: Workforce<'_> = Workforce { living: 0, ..UP };
    const READY: Option<DecisionKind> = Some(DecisionKind::PoolReady { workers: 1 });

    fn seconds(seconds: u64) -> Time {
        Duration::from_secs(seconds)
    }

    fn why(news: Option<DecisionKind>) -> Option<DegradedReason> {
        match news {
            Some(DecisionKind::PoolDegraded { reason }) => Some(reason),
            _ => None,
        }
    }

    #[test]
    fn a_pool_is_ready_once_and_a_death_is_no_news() {
        let mut health = Health::default();
        assert_eq!(health.update(DOWN, seconds(0)), None);
        let unwanted = Workforce { wanted: 0, ..DOWN };
        assert_ne!(health.clone().update(unwanted, seconds(0)), None);
        assert_eq!(health.update(UP, seconds(1)), READY);
        health.died(&"died".into(), seconds(2));
        assert_eq!(health.update(DOWN, seconds(2)), None);
        assert_eq!(health.update(UP, seconds(3)), None);
    }

    #[test]
    fn starts_that_fail_are_told_once_and_when_it_gets_worse() {
        let mut health = Health::default();
        let broken = Cause::from("broken");
        health.not_started(&broken);
        let error = "broken".to_owned();
        let reason = DegradedReason::WorkersDoNotStart { given_up: 0, error: error.clone() };
        assert_eq!(why(health.update(DOWN, seconds(0))), Some(reason));
        health.not_started(&broken);
        let one = Workforce { given_up: 1, ..DOWN };
        assert_eq!(health.update(one, seconds(1)), None);
        let none = Workforce { lost: Some(&broken), ..one };
        let reason = DegradedReason::NoWorkerLeft { error };
        assert_eq!(why(health.update(none, seconds(2))), Some(reason));
        // Another one is tried, which is no news before it starts.
        assert_eq!(health.update(DOWN, seconds(30)), None);
        health.started();
        assert_eq!(health.update(UP, seconds(31)), READY);
        assert_eq!(health.update(UP, seconds(32)), None);
    }

    #[test]
    fn workers_that_die_again_and_again_degrade_the_pool_until_they_stop() {
        let mut health = Health::default();
        let _ = health.update(UP, seconds(0));
        for second in 1..=4 {
            health.died(&"died".into(), seconds(second));
            assert_eq!(health.update(UP, seconds(second)), None);
        }
        assert_eq!(health.wakes_at(), None);
        health.died(&"died".into(), seconds(10));
        let reason = why(health.update(UP, seconds(10))).unwrap();
        let error = "died".to_owned();
        assert_eq!(reason, DegradedReason::WorkersDie { count: 5, within: WINDOW, error });
        assert_eq!(health.wakes_at(), Some(seconds(61)));
        assert_eq!(health.update(UP, seconds(60)), None);
        assert_eq!(health.update(UP, seconds(61)), READY);
        assert_eq!(health.wakes_at(), None);
        // Deaths that lie apart are none too many.
        for second in [70, 100, 130, 160, 190, 220] {
            health.died(&"died".into(), seconds(second));
            assert_eq!(health.update(UP, seconds(second)), None);
        }
    }
}
