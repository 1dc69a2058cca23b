//! Decides which job goes to which worker.

use std::time::Duration;

use pool::{JobId, WorkerId};

use super::{Effect, EvictionReason, Model, Run};
use crate::job::{Growth, Queued};
use crate::policy::residency::Session;
use crate::policy::workers::Activity;

/// The most that a job is assumed to need: 256 TiB, so that sums don't overflow.
pub(super) const MOST_FLIGHT_BYTES: u64 = 1 << 48;
/// What a job that runs alone may grow by, even where less is free. Where less than this is left
/// beside the image and the compiled build, jobs are refused.
pub(super) const LEAST_GROWTH_BYTES: u64 = 128 << 20;
/// With this much to grow by, a job that runs alone doesn't wait for sessions to be offloaded.
const AMPLE_GROWTH_BYTES: u64 = 256 << 20;

/// The memory that a job would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// The job fits, with its full limits or with less.
    Fits {
        /// What it takes while it runs, in bytes.
        bytes: u64,
        /// What it may grow by, if that is less than its limits.
        cut: Option<Growth>,
    },
    /// The job has to wait until this many bytes are free.
    Missing(u64),
}

impl Model {
    /// Starts the jobs that can run now, in the order of the tenants' shares.
    pub(super) fn dispatch(&mut self, effects: &mut Vec<Effect>) {
        while self.running < self.config.concurrent
            && let Some((id, worker)) = self.next_dispatch()
        {
            match self.fit_of(id, worker) {
                Fit::Fits { bytes, cut } => self.assign(id, worker, bytes, cut, effects),
                // The next job waits for memory: others that overtook it could starve it.
                Fit::Missing(bytes) => {
                    if self.eviction_would_help(bytes) {
                        self.shortage_bytes = self.shortage_bytes.max(bytes);
                    }
                    return;
                }
            }
        }
    }

    /// The next job that an idle worker can take, and that worker. A turn on a worker that its
    /// session keeps doesn't wait behind jobs for which that worker isn't free.
    pub(super) fn next_dispatch(&self) -> Option<(JobId, WorkerId)> {
        let id = self.fair_queue.next()?;
        match self.pick_worker(&self.jobs[&id].queued) {
            Some(worker) => Some((id, worker)),
            None => self.workers.idle_holding().find_map(|worker| {
                let session = self.sessions.get(self.resident(worker)?)?;
                let (tenant, key) = session.offered.as_ref()?;
                self.fair_queue.may_start(tenant, *key).then_some((key.1, worker))
            }),
        }
    }

    /// Idle workers that can take any job. Those whose sessions can't be suspended are left out
    /// while there is or comes another worker.
    pub(super) fn free_workers(&self) -> usize {
        let (idle, kept) = (self.workers.idle(), self.sessions.kept);
        let most = self.workers.most(&self.config.workers);
        if kept >= self.workers.count().max(most) { idle } else { idle - kept }
    }

    /// Picks the idle worker on which a job costs least: the one that holds its session, else a
    /// vacant one. An interpreter of the job's build is preferred. The last resort is the worker
    /// whose session has been idle longest, and of all last a session that is lost by it.
    pub(super) fn pick_worker(&self, queued: &Queued) -> Option<WorkerId> {
        let home = queued.session.and_then(|id| self.sessions.get(id)?.worker());
        if home.is_some() {
            // S-4: a session with an offered job is at rest where it is.
            return home;
        }
        let held = || {
            let (_, session) = self.sessions.oldest_idle_held()?;
            self.sessions.get(session)?.worker()
        };
        // Its queued jobs wait for something other than a worker.
        let held_with_jobs = || self.workers.idle_holding().find(|worker| !self.is_kept(*worker));
        let lost = || self.workers.idle_holding().next().filter(|_| self.free_workers() > 0);
        let vacant = self.workers.idle_without_session(queued.build);
        vacant.or_else(held).or_else(held_with_jobs).or_else(lost)
    }

    /// Whether the session that this worker holds would be lost by another job.
    pub(super) fn is_kept(&self, worker: WorkerId) -> bool {
        let session = self.resident(worker).and_then(|session| self.sessions.get(session));
        session.is_some_and(Session::is_kept)
    }

    /// Computes the memory that a job takes on this worker. All growth that its limits allow is
    /// reserved. So no job is refused memory, or the process killed, because of another job. A job
    /// that runs alone gets what is free.
    pub(super) fn fit_of(&self, id: JobId, worker: WorkerId) -> Fit {
        let queued = &self.jobs[&id].queued;
        let (fixed, growth) = (self.fixed_bytes(queued), self.growth_bytes(queued, Some(worker)));
        let memory = self.memory();
        let used = memory.used_bytes().saturating_sub(queued.bytes as u64).saturating_add(fixed);
        let free = memory.limit_bytes.saturating_sub(used);
        let bytes = fixed.saturating_add(growth).min(MOST_FLIGHT_BYTES);
        if used <= memory.limit_bytes && growth <= free {
            return Fit::Fits { bytes, cut: None };
        }
        let waits_for_disk = || {
            self.sessions.offloading.is_some()
                || self.sessions.to_offload(self.config.sessions.disk_bytes).is_some()
        };
        if self.running > 0
            || self.workers.gives_memory_back()
            || (free < growth.min(AMPLE_GROWTH_BYTES) && waits_for_disk())
        {
            return Fit::Missing(bytes);
        }
        let cut = growth.min(free.max(LEAST_GROWTH_BYTES));
        let bytes = fixed.saturating_add(cut).min(MOST_FLIGHT_BYTES);
        Fit::Fits { bytes, cut: (cut < growth).then(|| queued.growth.cut_by(growth - cut)) }
    }

    /// Bytes for the job's input and output, and for the state that it begins from.
    pub(super) fn fixed_bytes(&self, queued: &Queued) -> u64 {
        let bytes = (queued.bytes as u64).saturating_add(queued.output_bytes as u64);
        // The state that a session begins from is kept until the run has ended normally.
        bytes.saturating_add(self.coming_bytes(queued)).min(MOST_FLIGHT_BYTES)
    }

    /// Bytes that a job may grow by beyond what the worker's interpreter already has.
    pub(super) fn growth_bytes(&self, queued: &Queued, worker: Option<WorkerId>) -> u64 {
        let slot = worker.and_then(|worker| self.workers.get(worker));
        let (has, resident) = slot.map_or((0, None), |slot| (slot.slot_bytes, slot.resident));
        let growth = queued.growth.bytes().max(self.coming_bytes(queued));
        if resident.is_some() && resident != queued.session {
            // The resident session is copied before it is evicted.
            growth.max(has)
        } else {
            growth.saturating_sub(has)
        }
    }

    /// Bytes of state that a session brings to its worker.
    fn coming_bytes(&self, queued: &Queued) -> u64 {
        let session = queued.session.and_then(|id| self.sessions.get(id));
        let whole = |session: &Session| {
            let shared = self.sessions.holdings.bytes_with_under(session.shared);
            session.state_bytes().saturating_add(shared)
        };
        session.filter(|session| session.worker().is_none()).map_or(0, whole)
    }

    /// Bytes that a job takes while it runs, on any worker.
    pub(super) fn flight_bytes(&self, queued: &Queued) -> u64 {
        let growth = self.growth_bytes(queued, None);
        self.fixed_bytes(queued).saturating_add(growth).min(MOST_FLIGHT_BYTES)
    }

    /// Whether evicting idle sessions from memory could free this many bytes.
    fn eviction_would_help(&self, bytes: u64) -> bool {
        let memory = self.memory();
        let used = memory.used_bytes().saturating_sub(self.sessions.movable_bytes);
        self.running == 0 || used.saturating_add(bytes) <= memory.limit_bytes
    }

    fn assign(
        &mut self,
        id: JobId,
        worker: WorkerId,
        bytes: u64,
        cut: Option<Growth>,
        effects: &mut Vec<Effect>,
    ) {
        let now = self.now;
        let Some(job) = self.jobs.get(&id) else { return };
        let Queued { build, session, .. } = job.queued;
        let due_in = job.due().map(|due| due.saturating_sub(now));
        let charged = self.leave_queue(id);
        if self.resident(worker) != session {
            // The job's state displaces whatever state the worker holds.
            let reason = EvictionReason::WorkerNeeded { worker };
            if let Some(displaced) = self.resident(worker) {
                effects.push(Effect::Displace(displaced, reason.clone()));
            }
            self.move_out(worker, reason);
        }
        self.workers.occupy(worker, Activity::Busy(id));
        self.workers.change_to(worker, build);
        if let Some(session) = session {
            self.workers.house(worker, Some(session));
            self.sessions.change(session, |session| session.begin(worker));
            self.reoffer(session);
        }
        self.begin(id, Run { worker, since: now, charged, bytes, is_stop_requested: false });
        effects.push(Effect::Dispatch { job: id, worker, due_in, cut });
    }

    /// Takes a job out of the queue, and charges its tenant for it. Returns the charge.
    pub(super) fn leave_queue(&mut self, id: JobId) -> Duration {
        self.remove_from_queue(id);
        let job = &self.jobs[&id];
        let (tenant, waiting) = (job.queued.tenant.clone(), self.as_waiting(id, job));
        let charged = self.fair_queue.cost(&tenant);
        self.fair_queue.start(&tenant, waiting, charged);
        charged
    }

    /// Records that a job that has left the queue runs.
    pub(super) fn begin(&mut self, id: JobId, run: Run) {
        self.running += 1;
        self.in_flight_bytes += run.bytes;
        self.jobs.get_mut(&id).expect("S-2: what waits is a job").run = Some(run);
    }
}
