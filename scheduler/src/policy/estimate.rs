//! What was measured of jobs that ran, as a guess at those that will.

use std::time::Duration;

/// Part of a mean that a new measurement makes up: the last dozen or so count.
const WEIGHT: u32 = 8;

/// What was measured of some jobs, the latest of which count most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    cpu: Option<Duration>,
    service: Option<Duration>,
}

impl Measured {
    /// Takes in a job that ended.
    pub(crate) fn note(&mut self, cpu: Duration, service: Duration) {
        self.cpu = Some(mean(self.cpu, cpu));
        self.service = Some(mean(self.service, service));
    }

    /// The CPU time of a job; `None` before any was measured.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.cpu
    }

    /// The time from a job's dispatch to its end; `None` before any was measured.
    pub(crate) fn service(&self) -> Option<Duration> {
        self.service
    }

    /// Takes the service time for a little shorter. One that keeps jobs from running would never
    /// be measured again otherwise.
    pub(crate) fn doubt_service(&mut self) {
        self.service = self.service.map(|service| service - service / WEIGHT);
    }
}

fn mean(before: Option<Duration>, new: Duration) -> Duration {
    before.map_or(new, |before| (before.saturating_mul(WEIGHT - 1).saturating_add(new)) / WEIGHT)
}
