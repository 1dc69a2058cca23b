//! What happens to workers and sessions of a world, besides what its jobs do.

use engine::SharedBytes;
use pool::{OffloadError, SessionId, Tier, WorkerId};

use super::super::queued;
use super::World;
use crate::job::{DEFAULT_TENANT, Queued, SHARED_DEFAULT_TENANT};
use crate::model::{Event, Fault, Opening};
use crate::policy::residency::{ForkedSessions, Residence, Session};

impl World {
    /// Kills a worker: one that runs a job, is preparing, is idle or is starting.
    pub(super) fn kill(&mut self) {
        let is_replaced = !self.random.one_in(3);
        let worker = match self.random.below(4) {
            0 => self.busy(),
            1 => self.preparing.pop(),
            2 => self.idle.pop_first(),
            _ if self.coming > 0 => {
                self.coming -= 1;
                self.next_worker += 1;
                Some(WorkerId(self.next_worker - 1))
            }
            _ => None,
        };
        let Some(worker) = worker else { return };
        self.running.remove(&worker);
        self.retiring.remove(&worker);
        self.coming += usize::from(is_replaced);
        self.states.retain(|_, on| *on != worker);
        let takes_session = self.random.one_in(2);
        let reason = "killed".into();
        let fault = self.fault().unwrap_or(Fault::Sandbox);
        self.send(Event::Gone { worker, reason, is_replaced, takes_session, fault });
    }

    pub(super) fn retire(&mut self) {
        let worker = WorkerId(1 + self.random.below(self.next_worker));
        let lives = self.idle.contains(&worker)
            || self.preparing.contains(&worker)
            || self.running.contains_key(&worker);
        let (decision, effects) = self.model.retire(worker, self.now);
        assert_eq!(self.model.check_invariants(), Ok(()), "after {worker}: {effects:?}");
        assert_eq!(decision.is_ok(), lives, "{decision:?}");
        if lives {
            self.retiring.insert(worker);
        }
        self.perform(effects);
    }

    pub(super) fn open(&mut self) {
        let bytes = self.random.below(2) * self.random.below(400);
        let tenant = SHARED_DEFAULT_TENANT.clone();
        let opening = Opening { tenant: &tenant, count: 1, bytes, held_bytes: bytes, depth: 0 };
        if self.model.refuses_sessions(&opening).is_none() {
            let session = SessionId(self.next_session);
            self.next_session += 1;
            self.send(Event::SessionOpened { session, tenant, bytes });
        }
    }

    pub(super) fn fork(&mut self) {
        let parent = self.any_session();
        let Some(session) = self.model.sessions.get(parent).filter(|it| !it.is_closing) else {
            return;
        };
        // Of a packed state there is no copy at hand.
        let is_packed = matches!(session.place, Residence::Compressed(..) | Residence::OnDisk(_));
        let (first, count) = (SessionId(self.next_session), 1 + self.random.below(3) as usize);
        // Some forks are of a state that was forked before.
        let shared = SharedBytes { id: self.random.below(20), bytes: 100, whole_bytes: 250 };
        let shared = (!self.random.one_in(4)).then_some(shared);
        let bytes = if shared.is_some() { 0 } else { 50 };
        let can_have_base = shared.is_some() && !is_packed && self.model.load(parent) == 0;
        let has_base = can_have_base && self.random.one_in(2);
        let forked = ForkedSessions { parent, first, count, bytes, shared, has_base };
        if self.model.refuses_forks(&forked, DEFAULT_TENANT, 1).is_some() {
            return;
        }
        self.next_session += count as u64;
        let held = |world: &Self| world.model.sessions.holdings.of(DEFAULT_TENANT).bytes;
        let most = held(self) + self.model.sessions.fork_bytes(&forked, Session::held_bytes);
        self.send(Event::SessionsForked(forked));
        assert!(held(self) <= most, "S-13: a tenant holds more than its forks were admitted for");
    }

    pub(super) fn restore(&mut self) {
        let session = self.any_session();
        if self.model.is_open(session) && self.model.load(session) == 0 {
            self.states.remove(&session);
            let bytes = self.random.below(400);
            self.send(Event::SessionMoved { session, bytes });
        }
    }

    pub(super) fn capture(&mut self) {
        let session = self.any_session();
        if !self.model.is_open(session) || self.model.load(session) > 0 {
            return;
        }
        let queued = Queued { session: Some(session), ..queued() };
        let job = self.new_job(Some(session));
        self.captures.insert(job);
        self.send_job(job, queued);
    }

    pub(super) fn suspend(&mut self) {
        if let Some(session) = self.leaving.pop_front() {
            let bytes = self.random.below(400);
            self.send(Event::SessionSuspended { session, bytes });
        }
    }

    pub(super) fn offloaded(&mut self) {
        let Some((session, tier)) = self.offloading.take() else { return };
        // A state that was taken up meanwhile stays where it is.
        let is_kept = self.states.contains_key(&session) || self.random.one_in(4);
        let bytes = self.random.below(200);
        let result = match (is_kept, tier) {
            (true, _) => Err(OffloadError::Unchanged("no".into())),
            (false, Tier::Disk) if self.random.one_in(4) => {
                Err(OffloadError::NotWritten { cause: "full".into(), bytes })
            }
            (false, _) => Ok(bytes),
        };
        self.send(Event::Offloaded { session, tier, result });
    }

    /// Wakes the model when it asked for that, after which something must have happened.
    pub(super) fn wake(&mut self) {
        self.now = self.model.next_wake().map_or(self.now, |at| self.now.max(at));
        for _ in 0..8 {
            if self.model.next_wake().is_none_or(|at| at > self.now) {
                return;
            }
            self.send(Event::Tick);
        }
        panic!("it was woken for nothing");
    }
}
