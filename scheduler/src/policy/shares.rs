//! Whose job is next: tenants share the CPU time by their weights, and the jobs of each go by age
//! and priority.
//!
//! Start-time fair queueing: each tenant has a virtual time, the CPU time that it was given divided
//! by its weight, and of those that have a job that could run the one whose virtual time is least
//! is next. A job is charged for when it starts, by what such jobs took before, and what it really
//! took is put right when it ends. A tenant that had nothing to run begins again where the others
//! are, so nobody saves up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pool::JobId;

use super::estimate::Measured;
use crate::config::TenantConfig;
use crate::job::Priority;
use crate::timer::Time;

mod check;

/// What a job costs at least. Jobs that take no CPU time take turns as well.
const LEAST_COST: Duration = Duration::from_micros(50);
/// Tenants without jobs of which nothing but measurements is worth knowing.
const REMEMBERED_COUNT: usize = 256;
/// Tenants without jobs that are remembered at all. Further ones that are ahead of the others owe
/// nothing when they come back, those first that owe least.
const MOST_REMEMBERED: usize = 2_000;
/// Virtual nanoseconds have so many more bits than real ones, so that large weights count.
const FRACTION_BITS: u32 = 20;

/// A job's place among those of its tenant: when it counts as submitted.
pub(crate) type Key = (Time, JobId);

/// A job that waits, as its tenant knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) key: Key,
    pub(crate) priority: Priority,
    pub(crate) bytes: usize,
}

/// Every tenant with jobs, and some that had.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shares {
    tenants: HashMap<Arc<str>, Tenant>,
    /// Tenants that could run a job, by virtual time and then by the age of that job.
    ready: BTreeMap<(u128, Key), Arc<str>>,
    /// Tenants that have no jobs, by virtual time.
    resting: BTreeSet<(u128, Arc<str>)>,
    /// That at which the last job started.
    virtual_time: u128,
    /// Jobs that could run at once on as many workers.
    could_run: usize,
    /// Weights of the tenants for which jobs wait.
    weights: u64,
    overall: Measured,
    /// The same, as it is believed of tenants of which nothing was measured.
    newcomers: Measured,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tenant {
    weight: u32,
    limit: usize,
    virtual_time: u128,
    /// Jobs that wait and could run.
    eligible: BTreeSet<Key>,
    /// Jobs that wait, by priority.
    depths: [usize; 3],
    queued_bytes: usize,
    running: usize,
    measured: Measured,
    /// Where it is among the ready ones.
    listed: Option<(u128, Key)>,
    /// What it adds to `Shares::could_run`.
    counted: usize,
}

impl Tenant {
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    /// Its jobs that may run at once.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn depths(&self) -> [usize; 3] {
        self.depths
    }

    pub(crate) fn queued(&self) -> usize {
        self.depths.iter().sum()
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Its jobs that could run and go before one with this key. Takes as long as they are many.
    pub(crate) fn ahead(&self, key: Key) -> usize {
        self.eligible.range(..key).count()
    }

    fn has_jobs(&self) -> bool {
        self.running > 0 || self.queued() > 0
    }

    /// Whether one more job of it could run, beside those that run or could.
    pub(crate) fn may_run_more(&self) -> bool {
        self.running.saturating_add(self.eligible.len()) < self.limit
    }

    fn could_run(&self) -> usize {
        self.eligible.len().min(self.limit.saturating_sub(self.running))
    }

    fn virtual_cost(&self, cost: Duration) -> u128 {
        (cost.max(LEAST_COST).as_nanos() << FRACTION_BITS) / u128::from(self.weight.max(1))
    }
}

impl Shares {
    pub(crate) fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.get(name)
    }

    /// The job that is to run next, of those that could.
    pub(crate) fn next(&self) -> Option<JobId> {
        self.ready.first_key_value().map(|((_, (_, job)), _)| *job)
    }

    /// Jobs that would run now if there were workers enough.
    pub(crate) fn could_run(&self) -> usize {
        self.could_run
    }

    /// Weights of the tenants for which jobs wait.
    pub(crate) fn weights(&self) -> u64 {
        self.weights
    }

    /// What was measured of the jobs of all tenants.
    pub(crate) fn overall(&self) -> &Measured {
        &self.overall
    }

    /// The CPU time that a job of this tenant probably takes.
    pub(crate) fn cost(&self, name: &str) -> Duration {
        let own = self.tenant(name).and_then(|tenant| tenant.measured.cpu());
        own.or(self.overall.cpu()).unwrap_or(LEAST_COST).max(LEAST_COST)
    }

    /// How long a job of this tenant probably takes; `None` before any job was measured.
    pub(crate) fn service(&self, name: &str) -> Option<Duration> {
        let own = self.tenant(name).and_then(|tenant| tenant.measured.service());
        own.or(self.newcomers.service())
    }

    /// Takes the measured service time that `service` gives for a little shorter.
    pub(crate) fn doubt_service(&mut self, name: &str) {
        let tenant = self.tenants.get_mut(name).map(|tenant| &mut tenant.measured);
        tenant
            .filter(|measured| measured.service().is_some())
            .unwrap_or(&mut self.newcomers)
            .doubt_service();
    }

    /// A job of the tenant waits. It can't run before it is offered.
    pub(crate) fn enqueue(&mut self, name: &Arc<str>, job: Waiting, config: &TenantConfig) {
        let tenant = self.tenants.entry(Arc::clone(name)).or_default();
        if !tenant.has_jobs() {
            self.resting.remove(&(tenant.virtual_time, Arc::clone(name)));
            tenant.weight = config.weight;
            tenant.limit = config.concurrent;
        }
        if tenant.queued() == 0 {
            self.weights += u64::from(tenant.weight);
        }
        tenant.depths[job.priority as usize] += 1;
        tenant.queued_bytes += job.bytes;
    }

    /// A job of the tenant no longer waits.
    pub(crate) fn dequeue(&mut self, name: &Arc<str>, job: Waiting) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        tenant.eligible.remove(&job.key);
        tenant.depths[job.priority as usize] -= 1;
        tenant.queued_bytes -= job.bytes;
        if tenant.queued() == 0 {
            self.weights -= u64::from(tenant.weight);
        }
        self.relist(name);
    }

    /// A job of the tenant that waits could run.
    pub(crate) fn offer(&mut self, name: &Arc<str>, key: Key) {
        if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.eligible.insert(key);
        }
        self.relist(name);
    }

    /// A job of the tenant that waits can't run any more, for now.
    pub(crate) fn withdraw(&mut self, name: &Arc<str>, key: Key) {
        if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.eligible.remove(&key);
        }
        self.relist(name);
    }

    /// The job that was next starts, and is charged with so much CPU time.
    pub(crate) fn start(&mut self, name: &Arc<str>, job: Waiting, cost: Duration) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        self.virtual_time = self.virtual_time.max(tenant.virtual_time);
        tenant.running += 1;
        tenant.virtual_time += tenant.virtual_cost(cost);
        self.dequeue(name, job);
        self.forget();
    }

    /// A job that was charged with `charged` has ended, and took `cost`.
    pub(crate) fn end(&mut self, name: &Arc<str>, charged: Duration, cost: Duration) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        tenant.running -= 1;
        let (charged, cost) = (tenant.virtual_cost(charged), tenant.virtual_cost(cost));
        tenant.virtual_time = (tenant.virtual_time + cost).saturating_sub(charged);
        self.relist(name);
    }

    /// What a job of the tenant took.
    pub(crate) fn note(&mut self, name: &str, cpu: Duration, service: Duration) {
        self.overall.note(cpu, service);
        self.newcomers.note(cpu, service);
        if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.measured.note(cpu, service);
        }
    }

    /// Jobs of other tenants that probably start before one of `name` that has `ahead` others of
    /// its own before it. Takes as long as there are tenants.
    pub(crate) fn ahead_of_others(&self, name: &str, ahead: usize) -> usize {
        let Some(own) = self.tenant(name) else { return 0 };
        let begin = own.virtual_time.max(self.virtual_time);
        let start = begin + own.virtual_cost(self.cost(name)) * ahead as u128;
        let others = self.tenants.iter().filter(|(other, _)| &***other != name);
        let before = others.map(|(other, tenant)| {
            let Some((at, _)) = tenant.listed else { return 0 };
            let Some(lead) = start.checked_sub(at) else { return 0 };
            let jobs = lead / tenant.virtual_cost(self.cost(other)).max(1) + 1;
            tenant.eligible.len().min(usize::try_from(jobs).unwrap_or(usize::MAX))
        });
        before.sum()
    }

    /// Puts a tenant among the ready ones, or the resting, as it is now.
    fn relist(&mut self, name: &Arc<str>) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        let could_run = tenant.could_run();
        self.could_run = self.could_run - tenant.counted + could_run;
        tenant.counted = could_run;
        let head = tenant.eligible.first().copied().filter(|_| could_run > 0);
        if head.is_some() && tenant.listed.is_none() {
            tenant.virtual_time = tenant.virtual_time.max(self.virtual_time);
        }
        let listed = head.map(|key| (tenant.virtual_time, key));
        if listed != tenant.listed {
            if let Some(before) = std::mem::replace(&mut tenant.listed, listed) {
                self.ready.remove(&before);
            }
            if let Some(now) = listed {
                self.ready.insert(now, Arc::clone(name));
            }
        }
        if !tenant.has_jobs() {
            self.resting.insert((tenant.virtual_time, Arc::clone(name)));
            self.forget();
        }
    }

    /// Forgets tenants without jobs, but for some of the last and many that are ahead of the others.
    fn forget(&mut self) {
        if self.resting.len() == self.tenants.len() {
            // Nobody is ahead of anybody when all have what they wanted.
            let furthest = self.resting.last().map_or(0, |(at, _)| *at);
            self.virtual_time = self.virtual_time.max(furthest);
        }
        while self.resting.len() > self.remembered()
            && let Some((_, name)) = self.resting.pop_first()
        {
            self.tenants.remove(&name);
        }
    }

    /// How many tenants without jobs are remembered.
    fn remembered(&self) -> usize {
        let is_ahead = self.resting.first().is_some_and(|(at, _)| *at > self.virtual_time);
        if is_ahead { MOST_REMEMBERED } else { REMEMBERED_COUNT }
    }
}
