//! The scenario of a simulation, and its results.

use super::queue::{Job, Messages};

/// What is simulated.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) workers: u32,
    pub(crate) slots: u32,
    /// For each tenant.
    pub(crate) tenants: Vec<Tenant>,
    /// Jobs that take their worker down whenever they run.
    pub(crate) poison: u32,
    /// Urgent jobs of the first tenant, which come when a quarter of the jobs have ended.
    pub(crate) urgent: u32,
    /// The part of the workers that vanishes when half of the jobs have ended.
    pub(crate) vanishing: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tenant {
    pub(crate) weight: u32,
    pub(crate) jobs: u32,
    /// The mean time of its jobs, in seconds.
    pub(crate) mean_seconds: f64,
    /// The most jobs that are claimed at once.
    pub(crate) limit: u32,
}

impl Scenario {
    /// Returns how many jobs there are.
    pub(crate) fn jobs(&self) -> u32 {
        self.tenants.iter().map(|tenant| tenant.jobs).sum::<u32>() + self.urgent
    }

    /// Returns whether a job takes its worker down.
    pub(crate) fn is_poison(&self, job: Job) -> bool {
        self.poison > 0 && job % (self.jobs() / self.poison).max(1) == 7
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) results: u64,
    pub(crate) dead_letters: Vec<Job>,
    /// Runs whose result another run had stored, or that ended with their worker.
    pub(crate) lost_runs: u64,
    pub(crate) seconds: f64,
    /// The part of the slots' time that was idle although a job could be claimed.
    pub(crate) idle: f64,
    /// Results of each tenant when a quarter of the jobs had ended.
    pub(crate) at_a_quarter: Vec<u64>,
    /// Seconds from the loss of workers to the last result, and with the work divided evenly.
    pub(crate) drain_seconds: f64,
    pub(crate) ideal_drain_seconds: f64,
    /// The longest wait of an urgent job for its first start, in seconds.
    pub(crate) urgent_seconds: f64,
    pub(crate) most_claimed: Vec<u32>,
    pub(crate) messages: Messages,
    pub(crate) events: u64,
}
