//! Which job goes to which worker.

use pool::{JobId, SessionId, WorkerId};

use super::{Effect, EvictionReason, Model, Place, Run};
use crate::policy::fleet::Activity;

/// No job is taken to need more than this: 256 TiB, so that sums of it are still numbers.
const MOST_FLIGHT_BYTES: u64 = 1 << 48;

impl Model {
    /// Starts the jobs that can run now, as the shares of their tenants say.
    pub(super) fn dispatch(&mut self, effects: &mut Vec<Effect>) {
        while self.running < self.config.concurrent
            && let Some(id) = self.shares.next()
            && let Some(worker) = self.seat_for(self.jobs[&id].queued.session)
        {
            let bytes = self.flight_bytes(id);
            if !self.has_memory_for(id, bytes) {
                // Whoever is next waits for memory; if others overtook it, that might be for ever.
                self.shortage_bytes = self.shortage_bytes.max(bytes);
                return;
            }
            self.assign(id, worker, bytes, effects);
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

    /// What a job holds and may take while it runs, in bytes: its input, its output, its
    /// session's state, and what jobs of its tenant took lately beyond what interpreters have.
    pub(super) fn flight_bytes(&self, id: JobId) -> u64 {
        let queued = &self.jobs[&id].queued;
        let slot_bytes = self.fleet.mean_slot_bytes();
        let tenant = self.shares.tenant(&queued.tenant);
        let peak_bytes = tenant.map_or(0, |tenant| tenant.measured().peak_bytes());
        let session = queued.session.and_then(|id| self.sessions.get(id));
        let comes = session.filter(|session| session.worker().is_none());
        let state_bytes = comes.map_or(0, |session| session.bytes);
        let growth = peak_bytes.saturating_sub(slot_bytes).max(state_bytes);
        let bytes = (queued.bytes as u64).saturating_add(queued.output_bytes as u64);
        // What a session comes from is kept until the run has ended in order.
        bytes.saturating_add(growth).saturating_add(state_bytes).min(MOST_FLIGHT_BYTES)
    }

    /// Whether a job that waits may begin to take so many bytes. One may whatever it takes, so that
    /// none waits for ever.
    pub(super) fn has_memory_for(&self, id: JobId, bytes: u64) -> bool {
        let memory = self.memory();
        let freed = self.jobs[&id].queued.bytes as u64;
        let used = memory.used_bytes().saturating_sub(freed).saturating_add(bytes);
        self.running == 0 || used <= memory.limit_bytes
    }

    fn assign(&mut self, id: JobId, worker: WorkerId, bytes: u64, effects: &mut Vec<Effect>) {
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
        effects.push(Effect::Dispatch { job: id, worker, due_in });
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
