//! Where the states of sessions are, and which session is evicted next.
//!
//! ```text
//!   Fresh --run--> OnWorker <--run-- Suspended, Compressed, OnDisk, Leaving
//!   OnWorker --evicted, displaced--> Leaving --suspended by its worker--> Suspended
//!   Suspended --compress--> Compressed --offload--> OnDisk          Suspended --offload--> OnDisk
//! ```
//!
//! Only an idle session is evicted: one without queued or running jobs, whose worker isn't busy
//! with it. Of those, the one that has been idle longest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::SharedBytes;
use pool::{JobId, OffloadError, SessionId, Tier, WorkerId};
use rustc_hash::FxHashMap;

use super::fair_queue::Key;
use super::holdings::{Holdings, UnsharedState};
use crate::decision::EvictionReason;
use crate::timer::Time;

#[cfg(test)]
mod tests;

/// How many of the longest idle sessions are searched for one that fits on the disk.
const SEARCHED_COUNT: usize = 16;
/// How long nothing is offloaded after the disk refused a session. It may stay full for a while.
const DISK_REST: Duration = Duration::from_secs(10);
/// How long a session that the disk refused isn't offered again.
const DISK_RETRY: Duration = Duration::from_secs(60);

/// Where the state of a session is, and what happens to it there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Residence {
    /// It takes nothing of its own: nothing has run in the session since it was opened or forked, or
    /// all that it has is shared with forks.
    #[default]
    Fresh,
    /// On this worker, or it will be once the worker begins its job.
    OnWorker(WorkerId, Turn),
    /// A worker is about to suspend it.
    Leaving,
    /// Suspended in memory.
    Suspended(Motion),
    /// Suspended in memory, compressed to this many bytes.
    Compressed(u64, Motion),
    /// On disk, where it takes this many bytes.
    OnDisk(u64),
}

impl Residence {
    /// Returns that of a state which takes this memory when it is suspended; 0 for a fresh one.
    pub(crate) fn stored(bytes: u64) -> Self {
        if bytes == 0 { Self::Fresh } else { Self::Suspended(Motion::Possible) }
    }
}

/// What the worker that has a session's state does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It runs a job of the session.
    Runs,
    /// That job has ended, and the worker isn't ready yet.
    Ended,
    /// It is idle.
    Idle,
}

/// Whether a suspended state can move to another tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Motion {
    Possible,
    UnderWay,
    /// It failed since the session last ran.
    Failed,
}

/// What can be done with an idle session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    /// It is on an idle worker, and can be suspended.
    Held,
    /// It can be compressed or offloaded.
    Suspended,
    /// It can be offloaded.
    Compressed,
    /// It can only be closed.
    Settled,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    /// Queued jobs, oldest first.
    pub(crate) waiting: BTreeSet<JobId>,
    pub(crate) place: Residence,
    /// Where its state was before it moved to its present worker.
    pub(crate) previous_place: Residence,
    /// The worker that was last told to suspend it.
    pub(crate) leaving_worker: Option<WorkerId>,
    /// What its state takes when suspended, as last reported.
    pub(crate) bytes: u64,
    /// Whose it is.
    pub(crate) tenant: Arc<str>,
    /// The shared state that its bytes don't include.
    pub(crate) shared: Option<u64>,
    /// The state that it shared until its forks had ended, which its bytes don't include either: its
    /// id and its bytes.
    unshared: Option<(u64, u64)>,
    pub(crate) rests_since: Time,
    /// Its state can't be suspended as it is on its worker.
    pub(crate) stays: bool,
    /// It ends with its last job.
    pub(crate) is_closing: bool,
    /// Why it was last evicted.
    pub(crate) evicted: Option<EvictionReason>,
    /// The job that it offers to its tenant's queue.
    pub(crate) offered: Option<(Arc<str>, Key)>,
}

/// What a session adds to the lists and sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexEntry {
    /// The list that an idle session is on, and since when it is idle.
    list: Option<(List, Time)>,
    is_in_memory: bool,
    /// It keeps an idle worker, since it can't be suspended.
    is_kept: bool,
    memory_bytes: u64,
    disk_bytes: u64,
    /// What it counts for its tenant, wherever it is.
    held_bytes: u64,
}

impl IndexEntry {
    /// Bytes in memory that may be offloaded.
    fn movable_bytes(&self) -> u64 {
        match self.list {
            Some((List::Suspended | List::Compressed, _)) => self.memory_bytes,
            Some((List::Held | List::Settled, _)) | None => 0,
        }
    }
}

impl Session {
    fn new(tenant: Arc<str>, bytes: u64, shared: Option<u64>, now: Time) -> Self {
        let place = Residence::stored(bytes);
        let rests_since = now;
        Self { place, previous_place: place, bytes, tenant, shared, rests_since, ..Self::default() }
    }

    /// Bytes of its state, without what it shares.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.unshared_bytes())
    }

    fn unshared_bytes(&self) -> u64 {
        self.unshared.map_or(0, |(_, bytes)| bytes)
    }

    /// Whether it shares again what it has shared before.
    fn shares_again(&self, id: Option<u64>) -> bool {
        self.unshared.is_some_and(|(before, _)| Some(before) == id)
    }

    /// Adds what it has shared before to what its new forks share.
    fn with_unshared(&self, mut shared: SharedBytes) -> SharedBytes {
        if let Some((_, more)) = self.unshared {
            let is_again = self.shares_again(Some(shared.id));
            let all = if is_again { more } else { shared.bytes.saturating_add(more) };
            shared.bytes = all.min(shared.whole_bytes);
        }
        shared
    }

    /// Queued and running jobs.
    pub(crate) fn load(&self) -> usize {
        self.waiting.len() + usize::from(self.runs())
    }

    /// Whether one of its jobs runs.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.place, Residence::OnWorker(_, Turn::Runs))
    }

    /// Whether one of its jobs could run on an idle worker. If its state is on a worker that isn't
    /// idle, one of its jobs runs or has just ended.
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self.place, Residence::OnWorker(_, Turn::Runs | Turn::Ended))
    }

    pub(crate) fn worker(&self) -> Option<WorkerId> {
        match self.place {
            Residence::OnWorker(worker, _) => Some(worker),
            _ => None,
        }
    }

    /// Whether it would be lost if its idle worker took another job.
    pub(crate) fn is_kept(&self) -> bool {
        self.stays && matches!(self.place, Residence::OnWorker(_, Turn::Idle))
    }

    /// Records that one of its jobs begins on this worker.
    pub(crate) fn begin(&mut self, worker: WorkerId) {
        self.previous_place = match self.place {
            Residence::OnWorker(..) => self.previous_place,
            Residence::Suspended(_) => Residence::Suspended(Motion::Possible),
            Residence::Compressed(bytes, _) => Residence::Compressed(bytes, Motion::Possible),
            place @ (Residence::Fresh | Residence::Leaving | Residence::OnDisk(_)) => place,
        };
        self.place = Residence::OnWorker(worker, Turn::Runs);
    }

    /// Records what the worker that has its state does now.
    pub(crate) fn set_turn(&mut self, now: Turn) {
        if let Residence::OnWorker(_, turn) = &mut self.place {
            *turn = now;
        }
    }

    fn motion(&mut self) -> Option<&mut Motion> {
        match &mut self.place {
            Residence::Suspended(motion) | Residence::Compressed(_, motion) => Some(motion),
            _ => None,
        }
    }

    /// Records that a worker has suspended it, and its size; `None` if that is unknown.
    pub(crate) fn note_suspended(&mut self, bytes: Option<u64>) {
        if self.place == Residence::Leaving {
            self.place = Residence::Suspended(Motion::Possible);
        } else if self.worker().is_none() {
            return;
        } else {
            // By another worker, on the way to the present one; or by the present one, which has
            // died.
            self.previous_place = match bytes {
                Some(0) => Residence::Fresh,
                _ => Residence::Suspended(Motion::Possible),
            };
        }
        self.bytes = bytes.unwrap_or(self.bytes);
    }

    /// Records what the copy of its state takes that its worker has; 0 if there is none. Not if it
    /// was forked: a worker process counts what its forks share, too.
    pub(crate) fn note_copied(&mut self, bytes: u64) {
        if bytes > 0 && self.shared.is_none() && self.unshared.is_none() {
            self.bytes = bytes;
        }
    }

    fn index_entry(&self) -> IndexEntry {
        let (bytes, unshared) = (self.state_bytes(), self.unshared_bytes());
        let (list, memory_bytes, disk_bytes) = match self.place {
            Residence::OnWorker(_, Turn::Idle) if !self.is_kept() => (List::Held, unshared, 0),
            Residence::Fresh | Residence::OnWorker(..) => (List::Settled, unshared, 0),
            // A fork would take more elsewhere: all that it shares.
            Residence::Suspended(Motion::Possible) if !self.is_closing && self.shared.is_none() => {
                (List::Suspended, bytes, 0)
            }
            Residence::Leaving | Residence::Suspended(_) => (List::Settled, bytes, 0),
            Residence::Compressed(bytes, Motion::Possible) if !self.is_closing => {
                (List::Compressed, bytes, 0)
            }
            Residence::Compressed(bytes, _) => (List::Settled, bytes, 0),
            Residence::OnDisk(bytes) => (List::Settled, 0, bytes),
        };
        IndexEntry {
            list: (self.load() == 0).then_some((list, self.rests_since)),
            is_in_memory: !matches!(self.place, Residence::Fresh | Residence::OnDisk(_)),
            is_kept: self.is_kept(),
            memory_bytes,
            disk_bytes,
            held_bytes: match self.place {
                Residence::Compressed(bytes, _) | Residence::OnDisk(bytes) => bytes,
                _ => bytes,
            },
        }
    }

    /// Whether its state is being offloaded.
    fn is_moving(&self) -> bool {
        let (Residence::Suspended(motion) | Residence::Compressed(_, motion)) = self.place else {
            return false;
        };
        motion == Motion::UnderWay
    }

    /// Bytes that its suspended state takes in memory.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.index_entry().memory_bytes
    }

    /// Bytes that its tenant holds by it.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.index_entry().held_bytes
    }
}

/// Sessions that were forked from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForkedSessions {
    pub(crate) parent: SessionId,
    /// The first of their ids, which follow each other and are new.
    pub(crate) first: SessionId,
    pub(crate) count: usize,
    /// What the state of each takes beside what they share.
    pub(crate) bytes: u64,
    /// What they share.
    pub(crate) shared: Option<SharedBytes>,
    /// Whether the state of the forked session is still the one that they share.
    pub(crate) has_base: bool,
}

/// A state that is being offloaded.
#[derive(Debug, Clone)]
pub(crate) struct Offloading {
    pub(crate) session: SessionId,
    pub(crate) tier: Tier,
    pub(crate) reason: EvictionReason,
    /// Its size in memory when that began.
    pub(crate) bytes: u64,
}

/// Every session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Residency {
    sessions: FxHashMap<SessionId, Session>,
    /// Sessions without jobs, longest idle first, by what can be done with them.
    lists: [BTreeSet<(Time, SessionId)>; 4],
    /// Sessions whose state is on workers or suspended in memory.
    pub(crate) in_memory: usize,
    /// Sessions that keep idle workers, since they can't be suspended.
    pub(crate) kept: usize,
    /// What tenants hold, and what forks share.
    pub(crate) holdings: Holdings,
    /// Bytes of memory that suspended sessions take, each for itself.
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    /// Bytes of those that are suspended or compressed and may be offloaded.
    pub(crate) movable_bytes: u64,
    /// Only one at a time, because it takes a CPU.
    pub(crate) offloading: Option<Offloading>,
    /// Until when nothing is offloaded, after the disk refused a session.
    disk_rests_until: Option<Time>,
    /// The sessions that the disk refused, and until when they aren't offered again.
    not_taken: Vec<SessionId>,
    not_offered_until: Option<Time>,
}

impl Residency {
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.keys().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes of memory that will be free once the present offload has ended.
    pub(crate) fn freeing_bytes(&self) -> u64 {
        let to_disk = |offloading: &&Offloading| match offloading.tier {
            Tier::Disk => self.get(offloading.session).is_some_and(Session::is_moving),
            Tier::Compressed => false,
        };
        self.offloading.as_ref().filter(to_disk).map_or(0, |offloading| offloading.bytes)
    }

    /// The longest idle session on an idle worker, and since when it is idle.
    pub(crate) fn oldest_idle_held(&self) -> Option<(Time, SessionId)> {
        self.list(List::Held).first().copied()
    }

    /// The longest idle session of all without jobs, and since when it is idle.
    pub(crate) fn oldest_idle(&self) -> Option<(Time, SessionId)> {
        self.lists.iter().filter_map(BTreeSet::first).min().copied()
    }

    /// The longest idle suspended session that is not compressed.
    pub(crate) fn to_compress(&self) -> Option<SessionId> {
        self.list(List::Suspended).first().map(|(_, id)| *id)
    }

    /// The longest idle session in memory that fits on the disk, and since when it is idle.
    pub(crate) fn to_offload(&self, disk_limit_bytes: u64) -> Option<(Time, SessionId)> {
        let room = self.disk_room(disk_limit_bytes)?;
        let fits = |(_, id): &&(Time, SessionId)| {
            self.get(*id).is_some_and(|session| session.stored_bytes() <= room)
        };
        let of = |list| self.list(list).iter().take(SEARCHED_COUNT).find(fits).copied();
        of(List::Suspended).into_iter().chain(of(List::Compressed)).min()
    }

    /// Bytes that more sessions may take on the disk; `None` while nothing is offloaded.
    pub(crate) fn disk_room(&self, disk_limit_bytes: u64) -> Option<u64> {
        let room = disk_limit_bytes.saturating_sub(self.disk_bytes);
        self.disk_rests_until.is_none().then_some(room)
    }

    /// When the disk is tried again.
    pub(crate) fn disk_wakes_at(&self) -> Option<Time> {
        self.disk_rests_until.into_iter().chain(self.not_offered_until).min()
    }

    /// Allows offloading again once the disk has rested.
    pub(crate) fn wake_disk(&mut self, now: Time) {
        self.disk_rests_until.take_if(|until| *until <= now);
        if self.not_offered_until.take_if(|until| *until <= now).is_some() {
            for id in std::mem::take(&mut self.not_taken) {
                self.change(id, |session| {
                    if let Some(motion @ Motion::Failed) = session.motion() {
                        *motion = Motion::Possible;
                    }
                });
            }
        }
    }

    pub(crate) fn open(&mut self, id: SessionId, tenant: &Arc<str>, bytes: u64, now: Time) {
        self.insert(id, Session::new(Arc::clone(tenant), bytes, None, now));
    }

    fn insert(&mut self, id: SessionId, session: Session) {
        let index_entry = session.index_entry();
        let tenant = Arc::clone(&session.tenant);
        self.sessions.insert(id, session);
        self.count(id, index_entry, &tenant);
    }

    /// Returns the bytes that are counted more after [`Self::fork`], at most: the forks' own, and
    /// what they share beyond what is `counted` for the forked session now. That may be much. At
    /// rest a state can be compressed, and what sessions share isn't.
    pub(crate) fn fork_bytes(
        &self,
        forked: &ForkedSessions,
        counted: impl FnOnce(&Session) -> u64,
    ) -> u64 {
        let own = forked.bytes.saturating_mul(forked.count as u64);
        let session = self.get(forked.parent);
        let Some((shared, session)) = forked.shared.zip(session) else { return own };
        if self.holdings.is_shared(shared.id) {
            return own;
        }
        let before = match forked.has_base {
            true => counted(session),
            false if session.shares_again(Some(shared.id)) => session.unshared_bytes(),
            false => 0,
        };
        own.saturating_add(session.with_unshared(shared).bytes.saturating_sub(before))
    }

    /// Opens forks of a session, whose ids begin with `first`. Each has `bytes` of its own beside
    /// what they share. If `has_base`, so does the forked session, which has nothing else.
    pub(crate) fn fork(&mut self, forked: &ForkedSessions, now: Time) {
        let ForkedSessions { parent, first, count, bytes, shared, has_base } = *forked;
        let Some(session) = self.get(parent) else { return };
        let (tenant, under) = (Arc::clone(&session.tenant), session.shared);
        let id = shared.map(|shared| shared.id);
        let is_again = session.shares_again(id);
        if let Some(shared) = shared {
            let shared = session.with_unshared(shared);
            let is_new = is_again || (has_base && under != id);
            let users = count + usize::from(is_new);
            self.holdings.share(shared, under, &tenant, users, is_new.then_some(parent));
            if is_new {
                self.leave(under, parent);
            }
        }
        if has_base || is_again {
            self.change(parent, |session| {
                (session.shared, session.unshared) = (id, None);
                session.bytes = if has_base { 0 } else { session.bytes };
                let is_stored = matches!(
                    session.place,
                    Residence::Suspended(Motion::Possible | Motion::Failed)
                );
                if session.bytes == 0 && is_stored {
                    session.place = Residence::Fresh;
                }
            });
        }
        for number in 0..count as u64 {
            let fork = Session::new(Arc::clone(&tenant), bytes, id, now);
            self.insert(SessionId(first.0 + number), fork);
        }
    }

    /// Records that a session's state is its own now.
    pub(crate) fn unshare(&mut self, id: SessionId) {
        let mut shared = None;
        self.change(id, |session| {
            shared = session.shared.take();
            session.unshared = None;
        });
        self.leave(shared, id);
    }

    /// Ends a session's use of a shared state. What only the forked session uses then is its own
    /// again, and can be offloaded with the rest of its state.
    fn leave(&mut self, shared: Option<u64>, session: SessionId) {
        for UnsharedState { session, id, bytes, under } in self.holdings.leave(shared, session) {
            self.change(session, |session| {
                (session.shared, session.unshared) = (under, Some((id, bytes)));
                for place in [&mut session.place, &mut session.previous_place] {
                    if *place == Residence::Fresh {
                        *place = Residence::Suspended(Motion::Possible);
                    }
                }
            });
        }
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.unshare(id);
        let session = self.sessions.remove(&id)?;
        self.uncount(id, session.index_entry(), &session.tenant);
        Some(session)
    }

    /// Changes a session, and updates the lists and sums.
    pub(crate) fn change(&mut self, id: SessionId, change: impl FnOnce(&mut Session)) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let before = session.index_entry();
        change(session);
        let after = session.index_entry();
        if before != after {
            let tenant = Arc::clone(&session.tenant);
            self.uncount(id, before, &tenant);
            self.count(id, after, &tenant);
        }
    }

    /// Records that a session's state is being offloaded.
    pub(crate) fn offload(&mut self, id: SessionId, tier: Tier, reason: EvictionReason) {
        let bytes = self.get(id).map_or(0, Session::stored_bytes);
        self.change(id, |session| {
            if let Some(motion) = session.motion() {
                *motion = Motion::UnderWay;
            }
        });
        self.offloading = Some(Offloading { session: id, tier, reason, bytes });
    }

    /// Records the result of offloading a session: its new size, or why it failed.
    pub(crate) fn offloaded(
        &mut self,
        id: SessionId,
        tier: Tier,
        result: Result<u64, OffloadError>,
        now: Time,
    ) {
        let Some(offloading) = self.offloading.take_if(|offloading| offloading.session == id)
        else {
            return;
        };
        if let Err(OffloadError::NotWritten { .. }) = result {
            self.disk_rests_until = Some(now.saturating_add(DISK_REST));
            // Smaller sessions may still fit.
            self.not_taken.push(id);
            self.not_offered_until.get_or_insert(now.saturating_add(DISK_RETRY));
        }
        self.change(id, |session| {
            // The session has run since, or its state was replaced.
            if !session.is_moving() {
                return;
            }
            session.place = match (tier, result) {
                (Tier::Disk, Ok(bytes)) => Residence::OnDisk(bytes),
                (Tier::Compressed, Ok(bytes)) => Residence::Compressed(bytes, Motion::Possible),
                (_, Err(OffloadError::NotWritten { bytes, .. })) => {
                    Residence::Compressed(bytes, Motion::Failed)
                }
                (_, Err(OffloadError::Unchanged(_))) => {
                    if let Some(motion) = session.motion() {
                        *motion = Motion::Failed;
                    }
                    return;
                }
            };
            session.evicted = Some(offloading.reason);
        });
        if self.get(id).is_some_and(|session| {
            matches!(session.place, Residence::Compressed(..) | Residence::OnDisk(_))
        }) {
            self.unshare(id);
        }
    }

    fn list(&self, list: List) -> &BTreeSet<(Time, SessionId)> {
        &self.lists[list as usize]
    }

    fn count(&mut self, id: SessionId, index_entry: IndexEntry, tenant: &Arc<str>) {
        self.holdings.add(tenant, index_entry.held_bytes);
        if let Some((list, since)) = index_entry.list {
            self.lists[list as usize].insert((since, id));
            self.movable_bytes += index_entry.movable_bytes();
        }
        self.in_memory += usize::from(index_entry.is_in_memory);
        self.kept += usize::from(index_entry.is_kept);
        self.memory_bytes += index_entry.memory_bytes;
        self.disk_bytes += index_entry.disk_bytes;
    }

    fn uncount(&mut self, id: SessionId, index_entry: IndexEntry, tenant: &Arc<str>) {
        self.holdings.take(tenant, index_entry.held_bytes);
        if let Some((list, since)) = index_entry.list {
            self.lists[list as usize].remove(&(since, id));
            self.movable_bytes -= index_entry.movable_bytes();
        }
        self.in_memory -= usize::from(index_entry.is_in_memory);
        self.kept -= usize::from(index_entry.is_kept);
        self.memory_bytes -= index_entry.memory_bytes;
        self.disk_bytes -= index_entry.disk_bytes;
    }
}
