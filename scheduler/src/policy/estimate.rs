//! Estimates what a job will take from what earlier jobs took.

use std::time::Duration;

/// A new measurement makes up one `WEIGHT`th of the mean, so the last dozen or so count.
const WEIGHT: u32 = 8;

/// Exponentially weighted means over jobs that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    cpu: Option<Duration>,
    service: Option<Duration>,
}

impl Measured {
    /// Adds a job that ended.
    pub(crate) fn note(&mut self, cpu: Duration, service: Duration) {
        self.cpu = Some(mean(self.cpu, cpu));
        self.service = Some(mean(self.service, service));
    }

    /// The mean CPU time of a job; `None` before any was measured.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.cpu
    }

    /// The mean time from a job's dispatch to its end; `None` before any was measured.
    pub(crate) fn service(&self) -> Option<Duration> {
        self.service
    }

    /// Lowers the service time a little. Otherwise an estimate that refuses all jobs would never be
    /// corrected.
    pub(crate) fn lower_service(&mut self) {
        self.service = self.service.map(|service| service - service / WEIGHT);
    }
}

fn mean(before: Option<Duration>, new: Duration) -> Duration {
    before.map_or(new, |before| (before.saturating_mul(WEIGHT - 1).saturating_add(new)) / WEIGHT)
}
