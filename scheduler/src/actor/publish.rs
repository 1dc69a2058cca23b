//! The shell's part about what others see: the snapshot behind `status()`, and the decisions.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pool::{JobId, Pool, SessionCell, SessionId};
use rpds::RedBlackTreeMapSync;

use super::SchedulerState;
use crate::decision::{DecisionKind, EvictedTo, EvictionReason};
use crate::decisions::Told;
use crate::job::DEFAULT_TENANT;
use crate::measures::Measures;
use crate::metrics::Metrics;
use crate::model::TenantView;
use crate::status::{MemoryStatus, Phase, Totals};
use crate::timer::Clock;

/// What handles read without asking the actor.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) clock: Clock,
    pub(crate) pool: OnceLock<Pool>,
    pub(crate) snapshot: RwLock<Snapshot>,
    pub(crate) measures: Mutex<Measures>,
    pub(crate) metrics: Metrics,
    pub(crate) told: Told,
}

impl Published {
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::start(),
            pool: OnceLock::new(),
            snapshot: RwLock::default(),
            measures: Mutex::default(),
            metrics: Metrics::new(),
            told: Told::default(),
        }
    }
}

/// The scheduler after its last decision. A copy takes no time, however much is in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) phase: Phase,
    pub(crate) queue_depth: usize,
    pub(crate) queued_bytes: usize,
    /// When the oldest job came that waits.
    pub(crate) oldest: Option<Duration>,
    pub(crate) running: usize,
    pub(crate) tenants: RedBlackTreeMapSync<Arc<str>, TenantView>,
    pub(crate) sessions: RedBlackTreeMapSync<SessionId, ShownSession>,
    pub(crate) memory: MemoryStatus,
    pub(crate) totals: Totals,
}

/// One open session after the last decision; its cell says where its state is now.
#[derive(Debug, Clone)]
pub(crate) struct ShownSession {
    pub(crate) name: Arc<str>,
    pub(crate) queue_depth: usize,
    pub(crate) cell: Arc<SessionCell>,
    pub(crate) evicted: Option<EvictionReason>,
}

/// What is not as it was published. There may be too much to publish all of it.
#[derive(Debug, Default)]
pub(super) struct Changes {
    sessions: Vec<SessionId>,
    tenants: Vec<Arc<str>>,
}

impl Changes {
    pub(super) fn session(&mut self, session: SessionId) {
        self.sessions.push(session);
    }
}

impl SchedulerState {
    /// Lets `decide` change the model and answer callers, and publishes the result.
    ///
    /// The snapshot is locked meanwhile, so that a caller that has its answer and asks for the status
    /// sees what it was told: it waits for the publication, and callers that don't ask never do.
    pub(super) fn decide_and_publish(&mut self, decide: impl FnOnce(&mut Self)) {
        let published = Arc::clone(&self.published);
        let mut snapshot = published.snapshot.write();
        decide(self);
        self.publish(&mut snapshot);
    }

    /// Notes that the queues change that a job waits in.
    pub(super) fn touch(&mut self, job: JobId) {
        self.changes.sessions.extend(self.session_of(job));
        self.changes.tenants.extend(self.jobs.get(&job).map(|live| Arc::clone(&live.tenant)));
        let copies = self.captures.contains_key(&job);
        self.changes.tenants.extend(copies.then(|| DEFAULT_TENANT.clone()));
    }

    fn publish(&mut self, snapshot: &mut Snapshot) {
        for id in self.changes.sessions.drain(..) {
            match (self.sessions.get(&id), self.model.session_depth(id)) {
                (Some(open), Some(queue_depth)) => {
                    let (name, cell) = (Arc::clone(&open.name), Arc::clone(&open.cell));
                    let evicted = self.model.eviction_of(id).cloned();
                    let shown = ShownSession { name, queue_depth, cell, evicted };
                    snapshot.sessions.insert_mut(id, shown);
                }
                (None, _) | (_, None) => {
                    snapshot.sessions.remove_mut(&id);
                }
            }
        }
        for name in self.changes.tenants.drain(..) {
            match self.model.tenant(&name) {
                Some(view) => snapshot.tenants.insert_mut(name, view),
                None => {
                    snapshot.tenants.remove_mut(&name);
                }
            }
        }
        snapshot.phase = self.model.phase();
        snapshot.queue_depth = self.model.queue_depth();
        snapshot.queued_bytes = self.model.queued_bytes();
        snapshot.oldest = self.model.oldest();
        snapshot.running = self.model.running();
        snapshot.memory = self.model.memory();
        snapshot.totals = self.totals;
    }

    /// Tells of a decision that is kept for the status.
    pub(super) fn tell(&self, kind: DecisionKind) {
        self.published.told.keep(self.now, kind);
    }

    /// Tells of a decision about one job, of which there are too many to be kept.
    pub(super) fn tell_of(&self, kind: impl FnOnce() -> DecisionKind) {
        self.published.told.pass(self.now, kind);
    }

    pub(super) fn evicted(&mut self, session: SessionId, to: EvictedTo, reason: EvictionReason) {
        self.published.metrics.evicted(to, &reason);
        self.tell(DecisionKind::Evicted { session, to, reason });
        self.changes.sessions.push(session);
    }
}
