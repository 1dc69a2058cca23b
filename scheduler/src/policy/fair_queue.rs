//! Decides whose job is next. Tenants share CPU time by weight, and each tenant's jobs are ordered
//! by age and priority.
//!
//! Start-time fair queueing: each tenant has a virtual time, the CPU time that it got divided by
//! its weight. Of the tenants with a job that could run, the one with the least virtual time is
//! next. A job is charged an estimate when it starts, which is corrected to its real cost when it
//! ends. A tenant that had nothing to run resumes at the virtual time of the others, so no tenant
//! accumulates credit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pool::JobId;

use crate::config::TenantConfig;
use crate::job::Priority;
use crate::timer::Time;

#[cfg(test)]
mod tests;

/// The least that a job costs, so that jobs without CPU time take turns as well.
const LEAST_COST: Duration = Duration::from_micros(50);
/// How many tenants without jobs are remembered for their measurements only.
const REMEMBERED_COUNT: usize = 256;
/// How many tenants without jobs are remembered at all. Beyond that, tenants that are ahead of the
/// others are forgiven, those that are least ahead first.
const MOST_REMEMBERED: usize = 2_000;
/// Fractional bits of virtual nanoseconds, so that dividing by large weights keeps precision.
const FRACTION_BITS: u32 = 20;

/// A job's position in its tenant's queue: its shifted submission time, then its id.
pub(crate) type Key = (Time, JobId);

/// A queued job, as its tenant knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) key: Key,
    pub(crate) priority: Priority,
    pub(crate) bytes: usize,
}

/// Every tenant with jobs, and some that had jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct FairQueue {
    tenants: HashMap<Arc<str>, Tenant>,
    /// Tenants with a job that could run, by virtual time and then by the age of that job.
    ready: BTreeMap<(u128, Key), Arc<str>>,
    /// Tenants without jobs, by virtual time.
    resting: BTreeSet<(u128, Arc<str>)>,
    /// The virtual time at which the last job started.
    virtual_time: u128,
    /// Jobs that could run at once, given enough workers.
    pub(crate) could_run: usize,
    /// The summed weights of the tenants with queued jobs.
    pub(crate) weights: u64,
    pub(crate) overall: Measured,
    /// The same, as assumed for tenants without measurements of their own.
    newcomers: Measured,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tenant {
    pub(crate) weight: u32,
    pub(crate) limit: usize,
    virtual_time: u128,
    /// Queued jobs that could run.
    eligible: BTreeSet<Key>,
    /// Queued jobs by priority.
    pub(crate) depths: [usize; 3],
    pub(crate) queued_bytes: usize,
    pub(crate) running: usize,
    measured: Measured,
    /// Its entry in `FairQueue::ready`.
    listed: Option<(u128, Key)>,
    /// What it adds to `FairQueue::could_run`.
    counted: usize,
}

impl Tenant {
    pub(crate) fn queued(&self) -> usize {
        self.depths.iter().sum()
    }

    /// Counts its jobs that could run and go before one with this key. Takes time linear in the
    /// count.
    pub(crate) fn ahead(&self, key: Key) -> usize {
        self.eligible.range(..key).count()
    }

    fn has_jobs(&self) -> bool {
        self.running > 0 || self.queued() > 0
    }

    /// Whether one more of its jobs could run, beside those that run or could run.
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

impl FairQueue {
    pub(crate) fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.get(name)
    }

    /// The next job to run, of those that could.
    pub(crate) fn next(&self) -> Option<JobId> {
        self.ready.first_key_value().map(|((_, (_, job)), _)| *job)
    }

    /// Whether this job of the tenant could run now.
    pub(crate) fn may_start(&self, name: &str, key: Key) -> bool {
        self.tenant(name)
            .is_some_and(|tenant| tenant.running < tenant.limit && tenant.eligible.contains(&key))
    }

    /// Estimates the CPU time of a job of this tenant.
    pub(crate) fn cost(&self, name: &str) -> Duration {
        let own = self.tenant(name).and_then(|tenant| tenant.measured.cpu);
        own.or(self.overall.cpu).unwrap_or(LEAST_COST).max(LEAST_COST)
    }

    /// Estimates the service time of a job of this tenant; `None` before any job was measured.
    pub(crate) fn service(&self, name: &str) -> Option<Duration> {
        let own = self.tenant(name).and_then(|tenant| tenant.measured.service);
        own.or(self.newcomers.service)
    }

    /// Lowers the estimate that `service` returns a little. Otherwise one that refuses all jobs would
    /// never be corrected.
    pub(crate) fn lower_service(&mut self, name: &str) {
        let tenant = self.tenants.get_mut(name).map(|tenant| &mut tenant.measured);
        let own = tenant.filter(|measured| measured.service.is_some());
        let Measured { service, .. } = own.unwrap_or(&mut self.newcomers);
        *service = service.map(|service| service - service / WEIGHT);
    }

    /// Adds a job to the tenant's queue. It can't run before it is offered.
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

    /// Removes a job from the tenant's queue.
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

    /// Marks a queued job of the tenant as one that could run.
    pub(crate) fn offer(&mut self, name: &Arc<str>, key: Key) {
        if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.eligible.insert(key);
        }
        self.relist(name);
    }

    /// Marks a queued job of the tenant as one that can't run for now.
    pub(crate) fn withdraw(&mut self, name: &Arc<str>, key: Key) {
        if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.eligible.remove(&key);
        }
        self.relist(name);
    }

    /// Starts a job that could run, and charges its tenant `cost`.
    pub(crate) fn start(&mut self, name: &Arc<str>, job: Waiting, cost: Duration) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        self.virtual_time = self.virtual_time.max(tenant.virtual_time);
        tenant.running += 1;
        tenant.virtual_time += tenant.virtual_cost(cost);
        self.dequeue(name, job);
        self.forget();
    }

    /// Ends a job that was charged `charged` and took `cost`.
    pub(crate) fn end(&mut self, name: &Arc<str>, charged: Duration, cost: Duration) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        tenant.running -= 1;
        let (charged, cost) = (tenant.virtual_cost(charged), tenant.virtual_cost(cost));
        tenant.virtual_time = (tenant.virtual_time + cost).saturating_sub(charged);
        self.relist(name);
    }

    /// Records what a job of the tenant took.
    pub(crate) fn note(&mut self, name: &str, cpu: Duration, service: Duration) {
        self.overall.note(cpu, service);
        self.newcomers.note(cpu, service);
        if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.measured.note(cpu, service);
        }
    }

    /// Estimates how many jobs of other tenants start before one of `name` that has `ahead` of its
    /// own before it. Takes time linear in the number of tenants.
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

    /// Updates where a tenant stands among the ready or the resting ones.
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

    /// Forgets tenants without jobs, except some recent ones and many that are ahead of the others.
    fn forget(&mut self) {
        if self.resting.len() == self.tenants.len() {
            // Once no tenant has jobs, none is ahead of another.
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

/// A new measurement makes up one `WEIGHT`th of the mean, so the last dozen or so count.
const WEIGHT: u32 = 8;

/// Exponentially weighted means over jobs that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// The mean CPU time of a job; `None` before any was measured.
    cpu: Option<Duration>,
    /// The mean time from a job's dispatch to its end.
    pub(crate) service: Option<Duration>,
}

impl Measured {
    /// Adds a job that ended.
    pub(crate) fn note(&mut self, cpu: Duration, service: Duration) {
        self.cpu = Some(mean(self.cpu, cpu));
        self.service = Some(mean(self.service, service));
    }
}

fn mean(before: Option<Duration>, new: Duration) -> Duration {
    before.map_or(new, |before| (before.saturating_mul(WEIGHT - 1).saturating_add(new)) / WEIGHT)
}
