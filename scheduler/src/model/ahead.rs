//! Gives workers short jobs ahead.
//!
//! A worker in a process of its own goes from one job to the next in less time than the next one takes
//! to get there. So where only short jobs wait, it gets several at once. Those behind the first one are
//! ahead: they stay in the queue, with everything that this means for their callers, and are withdrawn
//! from their tenant's share until the worker begins them, is gone, or returns them because the one
//! before takes longer than such jobs do.
//!
//! A job goes ahead only if that changes nothing for others: all workers that should be there are, and
//! are busy; no other tenant has a job that could run; and it replaces a job of the same tenant on the
//! same worker, so that no limit of jobs that run at once can be exceeded.

use std::time::Duration;

use pool::{JobId, WorkerId};

use super::dispatch::MOST_FLIGHT_BYTES;
use super::{Activity, Effect, Model, Run, Settlement};

/// What the jobs take together, by their tenant's mean, that a worker gets at once.
const AT_ONCE_FOR: Duration = Duration::from_millis(1);

impl Model {
    /// Adds jobs to dispatches that were just decided.
    pub(super) fn dispatch_ahead(&mut self, effects: &mut [Effect]) {
        for effect in effects {
            if let Effect::Dispatch { job, worker, cut: None, ahead, .. } = effect {
                *ahead = self.give_ahead(*job, *worker);
            }
        }
    }

    /// Gives a worker jobs ahead that has just got `first`.
    fn give_ahead(&mut self, first: JobId, worker: WorkerId) -> Vec<JobId> {
        let is_full = self.fleet.idle() == 0 && self.wanted_workers() <= self.fleet.living();
        let Some(first) = self.jobs.get(&first).filter(|_| is_full) else { return Vec::new() };
        let first = first.queued.clone();
        let Some(most) = self.most_at_once(&first.tenant).filter(|_| first.may_go_ahead) else {
            return Vec::new();
        };
        // Half of an equal share, so that the last jobs of a queue end on all workers at once.
        let share = self.shares.could_run() / self.fleet.living().max(1) / 2;
        let mut ahead = Vec::new();
        while ahead.len() < share.min(most - 1)
            && let Some(id) = self.shares.next_of_only(&first.tenant)
            && let Some(job) = self.jobs.get_mut(&id)
            && job.queued.may_go_ahead
            && job.queued.build == first.build
            // It needs no more memory than is reserved for the first one.
            && job.queued.growth.bytes() <= first.growth.bytes()
            && job.queued.output_bytes <= first.output_bytes
        {
            job.ahead_on = Some(worker);
            let key = self.key(id, &self.jobs[&id]);
            self.shares.withdraw(&first.tenant, key);
            ahead.push(id);
        }
        self.fleet.give_ahead(worker, ahead.iter().copied());
        ahead
    }

    /// How many jobs of a tenant a worker may get at once.
    fn most_at_once(&self, tenant: &str) -> Option<usize> {
        let each = self.shares.service(tenant)?.max(Duration::from_micros(1));
        let most = (AT_ONCE_FOR.as_nanos() / each.as_nanos()).min(self.jobs_at_once as u128);
        (most > 1).then_some(most as usize)
    }

    /// Has a worker that has finished a job go on with the next one that it has.
    pub(super) fn go_on(&mut self, worker: WorkerId, effects: &mut Vec<Effect>) {
        while let Some(id) = self.fleet.next_ahead(worker) {
            // It may have ended.
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.ahead_on = None;
            let queued = &self.jobs[&id].queued;
            let bytes = self.fixed_bytes(queued) + self.growth_bytes(queued, Some(worker));
            let bytes = bytes.min(MOST_FLIGHT_BYTES);
            let charged = self.leave_queue(id);
            self.fleet.occupy(worker, Activity::Busy(id));
            self.begin(id, Run { worker, since: self.now, charged, bytes, is_unwanted: false });
            effects.push(Effect::GoOn(id, worker));
            return;
        }
    }

    /// Puts jobs back that a worker returns.
    pub(super) fn returned(&mut self, worker: WorkerId, jobs: &[JobId], effects: &mut Vec<Effect>) {
        let running = jobs.iter().find_map(|id| Some((*id, self.stop_running(worker, *id)?)));
        if let Some((id, (job, run))) = running {
            // The worker was to go on with it, and didn't.
            self.shares.end(&job.queued.tenant, run.charged, Duration::ZERO);
            self.fleet.occupy(worker, Activity::Preparing);
            self.jobs.insert(id, job);
            self.enqueue(id);
            effects.push(Effect::Recall(id));
            if run.is_unwanted || self.is_aborted {
                let _ = self.settle(id, Settlement::Cancelled, effects);
            }
        }
        let ahead = self.fleet.take_ahead(worker, jobs);
        self.offer_again(ahead, effects);
    }

    /// Offers jobs again that a worker had ahead, unless they have ended.
    pub(super) fn offer_again(
        &mut self,
        jobs: impl IntoIterator<Item = JobId>,
        effects: &mut Vec<Effect>,
    ) {
        for id in jobs {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.ahead_on = None;
            let (tenant, key) = (job.queued.tenant.clone(), self.key(id, &self.jobs[&id]));
            self.shares.offer(&tenant, key);
            effects.push(Effect::Recall(id));
        }
    }
}
