//! Which job goes to which worker.

use pool::{JobId, SessionId, WorkerId};

use super::{Effect, EvictionReason, Model, Place, Run};
use crate::job::{Growth, Queued};
use crate::policy::fleet::Activity;

/// No job is taken to need more than this: 256 TiB, so that sums of it are still numbers.
const MOST_FLIGHT_BYTES: u64 = 1 << 48;
/// What a job that runs alone is given to grow by even where less is left. Where less is left beside
/// the image and the compiled build jobs are refused.
pub(super) const LEAST_GROWTH_BYTES: u64 = 128 << 20;
/// With so much to grow by, a job that runs alone doesn't wait for sessions to go to disk.
const AMPLE_GROWTH_BYTES: u64 = 256 << 20;

/// What a job that could run takes from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// So many bytes while it runs; it may grow by what its limits say, or by less.
    For {
        /// All of it.
        bytes: u64,
        /// What it may grow by, if that is less than its limits.
        cut: Option<Growth>,
    },
    /// It waits: so many bytes have to be free.
    Missing(u64),
}

impl Model {
    /// Starts the jobs that can run now, as the shares of their tenants say.
    pub(super) fn dispatch(&mut self, effects: &mut Vec<Effect>) {
        while self.running < self.config.concurrent
            && let Some(id) = self.shares.next()
            && let Some(worker) = self.seat_for(self.jobs[&id].queued.session)
        {
            match self.room_for(id, worker) {
                Room::For { bytes, cut } => self.assign(id, worker, bytes, cut, effects),
                // Whoever is next waits for memory; if others overtook it, that might be for ever.
                Room::Missing(bytes) => {
                    if self.would_help(bytes) {
                        self.shortage_bytes = self.shortage_bytes.max(bytes);
                    }
                    return;
                }
            }
        }
    }

    /// The idle worker on which a job costs least: that which has its session, else one that has
    /// none, else that whose session rested longest.
    pub(super) fn seat_for(&self, session: Option<SessionId>) -> Option<WorkerId> {
        let home = session.and_then(|id| self.sessions.get(id)?.worker());
        if home.is_some() {
            // S-4: a session whose job could run is at rest where it is.
            return home;
        }
        let held = || {
            let (_, session) = self.sessions.stalest_held()?;
            self.sessions.get(session)?.worker()
        };
        // The last resort is a session with jobs that wait for something else than a worker.
        self.fleet.freshest_vacant().or_else(held).or_else(|| self.fleet.stalest_holding())
    }

    /// What a job takes on this worker. All that its limits allow is kept free for it, so that no
    /// job is refused memory, or the process ended, for what another one does. A job that runs alone
    /// gets what there is.
    pub(super) fn room_for(&self, id: JobId, worker: WorkerId) -> Room {
        let queued = &self.jobs[&id].queued;
        let (fixed, growth) = (self.fixed_bytes(queued), self.growth_bytes(queued, Some(worker)));
        let memory = self.memory();
        let used = memory.used_bytes().saturating_sub(queued.bytes as u64).saturating_add(fixed);
        let free = memory.limit_bytes.saturating_sub(used);
        let bytes = fixed.saturating_add(growth).min(MOST_FLIGHT_BYTES);
        if used <= memory.limit_bytes && growth <= free {
            return Room::For { bytes, cut: None };
        }
        let waits_for_disk = || {
            self.sessions.stowing().is_some()
                || self.sessions.to_spill(self.config.sessions.disk_bytes).is_some()
        };
        if self.running > 0
            || self.fleet.gives_memory_back()
            || (free < growth.min(AMPLE_GROWTH_BYTES) && waits_for_disk())
        {
            return Room::Missing(bytes);
        }
        let cut = growth.min(free.max(LEAST_GROWTH_BYTES));
        let bytes = fixed.saturating_add(cut).min(MOST_FLIGHT_BYTES);
        Room::For { bytes, cut: (cut < growth).then(|| queued.growth.cut_by(growth - cut)) }
    }

    /// What a job holds while it runs, and says, in bytes.
    fn fixed_bytes(&self, queued: &Queued) -> u64 {
        let bytes = (queued.bytes as u64).saturating_add(queued.output_bytes as u64);
        // What a session comes from is kept until the run has ended in order.
        bytes.saturating_add(self.coming_bytes(queued)).min(MOST_FLIGHT_BYTES)
    }

    /// What a job may grow by beyond what the worker's interpreter has already, in bytes.
    fn growth_bytes(&self, queued: &Queued, worker: Option<WorkerId>) -> u64 {
        let slot = worker.and_then(|worker| self.fleet.get(worker));
        let (has, resident) = slot.map_or((0, None), |slot| (slot.slot_bytes(), slot.resident()));
        let growth = queued.growth.bytes().max(self.coming_bytes(queued));
        if resident.is_some() && resident != queued.session {
            // It is copied before it makes room.
            growth.max(has)
        } else {
            growth.saturating_sub(has)
        }
    }

    /// The state that a session brings to its worker, in bytes.
    fn coming_bytes(&self, queued: &Queued) -> u64 {
        let session = queued.session.and_then(|id| self.sessions.get(id));
        session.filter(|session| session.worker().is_none()).map_or(0, |session| session.bytes)
    }

    /// What a job takes while it runs, wherever that will be, in bytes.
    pub(super) fn flight_bytes(&self, queued: &Queued) -> u64 {
        let growth = self.growth_bytes(queued, None);
        self.fixed_bytes(queued).saturating_add(growth).min(MOST_FLIGHT_BYTES)
    }

    /// Whether sessions that rest in memory could make so much room, with what is free.
    fn would_help(&self, bytes: u64) -> bool {
        let memory = self.memory();
        let used = memory.used_bytes().saturating_sub(self.sessions.movable_bytes());
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
        self.take_out(id);
        let now = self.now;
        let Some(job) = self.jobs.get(&id) else { return };
        let waiting = self.as_waiting(id, job);
        let (tenant, session) = (job.queued.tenant.clone(), job.queued.session);
        let due_in = job.due().map(|due| due.saturating_sub(now));
        let charged = self.shares.cost(&tenant);
        self.shares.start(&tenant, waiting, charged);
        if self.resident(worker) != session {
            // Whatever state the worker has makes way for this job's.
            let reason = EvictionReason::WorkerNeeded { worker };
            if let Some(displaced) = self.resident(worker) {
                effects.push(Effect::Displace(displaced, reason.clone()));
            }
            self.move_out(worker, reason);
        }
        self.fleet.occupy(worker, Activity::Busy(id));
        if let Some(session) = session {
            self.move_in(session, worker);
        }
        self.running += 1;
        self.in_flight_bytes += bytes;
        let run = Run { worker, since: now, charged, bytes, is_unwanted: false };
        self.jobs.get_mut(&id).expect("S-2: what waits is a job").run = Some(run);
        effects.push(Effect::Dispatch { job: id, worker, due_in, cut });
    }

    /// A job of the session begins on this worker.
    fn move_in(&mut self, id: SessionId, worker: WorkerId) {
        self.fleet.house(worker, Some(id));
        self.sessions.change(id, |session| {
            if session.worker().is_none() {
                session.before = session.place;
            }
            session.place = Place::OnWorker(worker);
            session.runs = true;
            session.is_at_rest = false;
            session.is_stowing = false;
            session.is_unmovable = false;
        });
        self.reoffer(id);
    }
}
