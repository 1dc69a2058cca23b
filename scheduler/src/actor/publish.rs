//! What handles read without a message to the actor: the snapshot behind `status()`, and the
//! measures.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pool::{DEFAULT_PYTHON, Pool, SessionCell, SessionId, SessionPlace};
use rpds::RedBlackTreeMapSync;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{OpenSession, SessionTree};
use crate::decision::{DecisionLog, EvictionReason};
use crate::job::Priority;
use crate::measures::Measures;
use crate::metrics::{Metrics, set_gauges};
use crate::model::{Model, TenantView};
use crate::status::{
    ForkOrigin, MemoryStatus, Phase, QueueDepth, SchedulerStatus, SessionPlaces, SessionStatus,
    TenantStatus, Totals, TreeStatus,
};
use crate::timer::Clock;

/// The most trees of forks in the status, and the depth up to which it counts forks by depth.
const MOST_TREES: usize = 20;
const MOST_LEVELS: usize = 10;

/// What handles read without asking the actor.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) clock: Clock,
    pub(crate) pool: OnceLock<Pool>,
    pub(crate) snapshot: RwLock<Snapshot>,
    pub(crate) measures: Mutex<Measures>,
    pub(crate) metrics: Metrics,
    pub(crate) decisions: DecisionLog,
}

/// The scheduler after its last decision. Cloning it is cheap, however large it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) phase: Phase,
    pub(crate) queue_depth: usize,
    pub(crate) queued_bytes: usize,
    /// When the oldest queued job was submitted.
    pub(crate) oldest: Option<Duration>,
    pub(crate) running: usize,
    pub(crate) tenants: RedBlackTreeMapSync<Arc<str>, TenantView>,
    pub(crate) sessions: RedBlackTreeMapSync<SessionId, ShownSession>,
    pub(crate) memory: MemoryStatus,
    pub(crate) totals: Totals,
}

/// An open session after the last decision. Its cell says where its state is now.
#[derive(Debug, Clone)]
pub(crate) struct ShownSession {
    pub(crate) name: Arc<str>,
    tree: Arc<SessionTree>,
    queue_depth: usize,
    turns: u64,
    pub(crate) origin: Option<ForkOrigin>,
    pub(crate) cell: Arc<SessionCell>,
    evicted: Option<EvictionReason>,
}

/// What changed since the last publication. Publishing everything each time would take too long.
#[derive(Debug, Default)]
pub(super) struct Changes {
    sessions: Vec<SessionId>,
    tenants: Vec<Arc<str>>,
}

impl Changes {
    pub(super) fn session(&mut self, session: SessionId) {
        // A decision changes few, and mostly one several times.
        if self.sessions.last() != Some(&session) {
            self.sessions.push(session);
        }
    }

    pub(super) fn tenant(&mut self, tenant: &Arc<str>) {
        if self.tenants.last() != Some(tenant) {
            self.tenants.push(Arc::clone(tenant));
        }
    }
}

impl Snapshot {
    /// Publishes the changes. `open` gives an open session.
    pub(super) fn update<'a>(
        &mut self,
        changes: &mut Changes,
        model: &Model,
        open: impl Fn(SessionId) -> Option<&'a OpenSession>,
        totals: Totals,
    ) {
        for id in changes.sessions.drain(..) {
            let (Some(open), Some(session)) = (open(id), model.session(id)) else {
                self.sessions.remove_mut(&id);
                continue;
            };
            let (queue_depth, evicted) = (session.waiting.len(), session.evicted.clone());
            // In its place if nobody has a copy, without allocating.
            if let Some(shown) = self.sessions.get_mut(&id) {
                (shown.queue_depth, shown.turns, shown.evicted) =
                    (queue_depth, open.turns, evicted);
                continue;
            }
            let OpenSession { name, cell, turns, origin, tree } = open;
            let (name, tree, cell) = (Arc::clone(name), Arc::clone(tree), Arc::clone(cell));
            let (turns, origin) = (*turns, *origin);
            let shown = ShownSession { name, tree, queue_depth, turns, origin, cell, evicted };
            self.sessions.insert_mut(id, shown);
        }
        for name in changes.tenants.drain(..) {
            match model.tenant(&name) {
                // In its place if nobody has a copy, without allocating.
                Some(view) => match self.tenants.get_mut(&name) {
                    Some(shown) => *shown = view,
                    None => self.tenants.insert_mut(name, view),
                },
                None => {
                    self.tenants.remove_mut(&name);
                }
            }
        }
        self.phase = model.phase;
        self.queue_depth = model.queue_depth();
        self.queued_bytes = model.queued_bytes;
        self.oldest = model.oldest();
        self.running = model.running;
        self.memory = model.memory();
        self.totals = totals;
    }
}

impl SchedulerStatus {
    /// Returns the status of a scheduler that has ended and of which nothing is known.
    pub(crate) fn ended() -> Self {
        let published = Published::default();
        published.snapshot.write().phase = Phase::Drained;
        Self::of(&published)
    }

    pub(crate) fn of(published: &Published) -> Self {
        let now = published.clock.now();
        let snapshot = published.snapshot.read().clone();
        let pool = published.pool.get();
        let python = |build| pool.map_or(DEFAULT_PYTHON, |pool| pool.builds().name(build));
        let shown = |(id, shown): (&SessionId, &ShownSession)| {
            SessionStatus::of(*id, shown, python(shown.cell.build()))
        };
        let sessions: Vec<_> = snapshot.sessions.iter().map(shown).collect();
        let names = pool.map(|pool| pool.builds().names().map(|name| name.to_string()));
        let pythons = names.into_iter().flatten().collect();
        let workers = pool.map(Pool::workers).unwrap_or_default();
        let measures = published.measures.lock();
        let status = Self {
            version: env!("CARGO_PKG_VERSION"),
            phase: snapshot.phase,
            uptime: now,
            queue_depth: snapshot.queue_depth,
            queued_bytes: snapshot.queued_bytes,
            oldest_wait: snapshot.oldest.map(|oldest| now.saturating_sub(oldest)),
            running: snapshot.running,
            tenants: snapshot.tenants.iter().map(TenantStatus::of).collect(),
            places: SessionPlaces::of(&sessions),
            sessions,
            trees: TreeStatus::largest(snapshot.sessions.values()),
            pythons,
            // The facade knows the images.
            hidden: Vec::new(),
            isolation: pool.map(|pool| pool.builds().isolation()).unwrap_or_default(),
            workers,
            memory: snapshot.memory,
            totals: snapshot.totals,
            latency: measures.latencies(),
            last_ended: measures.last_ended(now),
            jobs_per_second: measures.jobs_per_second(now),
            last_errors: measures.last_errors(now),
            last_program_errors: measures.last_program_errors(now),
            last_decisions: published.decisions.last(),
        };
        drop(measures);
        set_gauges(&status);
        status
    }
}

impl TenantStatus {
    fn of((name, view): (&Arc<str>, &TenantView)) -> Self {
        let depth = |(priority, depth): (Priority, usize)| QueueDepth { priority, depth };
        let mut queued = Priority::ALL.into_iter().zip(view.depths).map(depth);
        Self {
            tenant: name.to_string(),
            weight: view.weight,
            queued: std::array::from_fn(|_| queued.next().expect("there are three priorities")),
            queued_bytes: view.queued_bytes,
            running: view.running,
        }
    }
}

impl SessionStatus {
    fn of(session: SessionId, shown: &ShownSession, python: &str) -> Self {
        Self {
            session,
            name: shown.name.to_string(),
            tenant: shown.tree.tenant.to_string(),
            python: python.to_owned(),
            queue_depth: shown.queue_depth,
            turns: shown.turns,
            fork: shown.origin,
            place: shown.cell.place(),
            evicted: shown.evicted.as_ref().map(ToString::to_string),
        }
    }
}

impl TreeStatus {
    fn largest<'a>(sessions: impl Iterator<Item = &'a ShownSession>) -> Vec<Self> {
        let mut trees: FxHashMap<_, (Self, FxHashSet<SessionId>)> = FxHashMap::default();
        for ShownSession { tree, origin, .. } in sessions {
            let Some(ForkOrigin { parent, depth, .. }) = *origin else { continue };
            let none = || (Self::empty(tree), FxHashSet::default());
            let (status, parents) = trees.entry(Arc::as_ptr(tree)).or_insert_with(none);
            parents.insert(parent);
            (status.forks, status.parents) = (status.forks + 1, parents.len());
            status.depth = status.depth.max(depth);
            if depth <= MOST_LEVELS {
                status.levels.resize(status.levels.len().max(depth), 0);
                status.levels[depth - 1] += 1;
            }
        }
        let mut trees: Vec<Self> = trees.into_values().map(|(status, _)| status).collect();
        trees.sort_unstable_by(|one, other| {
            (Reverse(one.forks), &one.root).cmp(&(Reverse(other.forks), &other.root))
        });
        trees.truncate(MOST_TREES);
        trees
    }

    fn empty(tree: &SessionTree) -> Self {
        let (root, tenant) = (tree.name.to_string(), tree.tenant.to_string());
        Self { root, tenant, forks: 0, parents: 0, depth: 0, levels: Vec::new() }
    }
}

impl SessionPlaces {
    fn of(sessions: &[SessionStatus]) -> Self {
        let mut places = Self::default();
        for session in sessions {
            let count = match session.place {
                SessionPlace::Fresh => &mut places.fresh,
                SessionPlace::OnWorker { .. } => &mut places.on_workers,
                SessionPlace::Suspended { .. } => &mut places.suspended,
                SessionPlace::Compressed { .. } => &mut places.compressed,
                SessionPlace::OnDisk { .. } => &mut places.on_disk,
                SessionPlace::Lost => &mut places.lost,
                _ => continue,
            };
            *count += 1;
        }
        places
    }
}
