//! What the shell and callers may see of a model.

use pool::{SessionId, WorkerId};

use super::{Model, TenantView};
use crate::decision::EvictionReason;
use crate::policy::residency::Session;
use crate::status::MemoryStatus;
use crate::timer::Time;

impl Model {
    pub(crate) fn queue_depth(&self) -> usize {
        self.waiting.len()
    }

    /// Workers that are alive.
    pub(crate) fn living(&self) -> usize {
        self.workers.living()
    }

    /// When the oldest queued job was submitted.
    pub(crate) fn oldest(&self) -> Option<Time> {
        let oldest = self.waiting.first().and_then(|id| self.jobs.get(id));
        oldest.map(|job| job.submitted)
    }

    /// Queued jobs of `session`; `None` if it isn't open.
    pub(crate) fn session_depth(&self, session: SessionId) -> Option<usize> {
        self.sessions.get(session).map(|session| session.waiting.len())
    }

    /// Whether `session` takes jobs.
    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|session| !session.is_closing)
    }

    /// Queued and running jobs of `session`.
    pub(crate) fn load(&self, session: SessionId) -> usize {
        self.sessions.get(session).map_or(0, Session::load)
    }

    /// Why `session` was last evicted, if it ever was.
    pub(crate) fn eviction_of(&self, session: SessionId) -> Option<&EvictionReason> {
        self.sessions.get(session)?.evicted.as_ref()
    }

    /// The session whose state `worker` holds.
    pub(crate) fn resident(&self, worker: WorkerId) -> Option<SessionId> {
        self.workers.get(worker)?.resident
    }

    /// A tenant's queue; `None` if it has no jobs.
    pub(crate) fn tenant(&self, name: &str) -> Option<TenantView> {
        let tenant = self.fair_queue.tenant(name)?;
        let view = TenantView {
            weight: tenant.weight,
            depths: tenant.depths,
            queued_bytes: tenant.queued_bytes,
            running: tenant.running,
        };
        (tenant.queued() > 0 || view.running > 0).then_some(view)
    }

    /// What memory is used for.
    pub(crate) fn memory(&self) -> MemoryStatus {
        MemoryStatus {
            limit_bytes: self.config.memory_bytes,
            shared_bytes: self.shared_bytes,
            slot_bytes: self.workers.slot_bytes(),
            session_bytes: self.sessions.memory_bytes,
            queued_bytes: self.queued_bytes as u64,
            in_flight_bytes: self.in_flight_bytes,
            disk_bytes: self.sessions.disk_bytes,
        }
    }
}
