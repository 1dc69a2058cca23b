//! Evicts idle sessions, frees memory, adds and removes workers, and reports how they are.

use std::time::Duration;

use pool::{SessionId, Tier, WorkerId};

use super::{Effect, EvictionReason, Model};
use crate::policy::health::Workforce;
use crate::status::Phase;
use crate::timer::Time;

impl Model {
    /// Suspends sessions that have been idle for long, and compresses or offloads one.
    pub(super) fn evict_idle(&mut self, effects: &mut Vec<Effect>) {
        while let Some((since, id)) = self.sessions.oldest_idle_held()
            && self.has_passed(since, self.config.sessions.suspend_after)
            && let Some(worker) = self.sessions.get(id).and_then(|session| session.worker())
        {
            let rested = self.now.saturating_sub(since);
            self.vacate(worker, id, EvictionReason::Idle { rested }, effects);
        }
        if self.sessions.offloading.is_some() {
            return;
        }
        if let Some((id, tier, reason)) = self.next_offload() {
            self.sessions.offload(id, tier, reason.clone());
            effects.push(Effect::Offload(id, tier, reason));
        }
    }

    /// Closes sessions that have been idle for too long.
    pub(super) fn close_idle(&mut self, effects: &mut Vec<Effect>) {
        let Some(close_after) = self.config.sessions.close_after else { return };
        while let Some((since, id)) = self.sessions.oldest_idle()
            && self.has_passed(since, close_after)
        {
            let rested = self.now.saturating_sub(since).as_secs_f64();
            self.end_session(id, format!("it was idle for {rested:.1} s"), effects);
        }
    }

    /// Picks the session to compress or offload next, and why.
    fn next_offload(&self) -> Option<(SessionId, Tier, EvictionReason)> {
        let config = &self.config.sessions;
        let memory = self.memory();
        let (used, limit) =
            (memory.used_bytes().saturating_add(self.shortage_bytes), memory.limit_bytes);
        let is_above = |percent| u128::from(used) * 100 >= u128::from(limit) * percent;
        let short = EvictionReason::MemoryPressure { used, limit };
        let offload = self.sessions.to_offload(config.disk_bytes);
        if let Some((_, id)) = offload
            && is_above(OFFLOAD_PERCENT)
        {
            return Some((id, Tier::Disk, short));
        }
        if let Some((_, id)) = offload
            && self.sessions.in_memory > config.in_memory
        {
            let reason = EvictionReason::TooManyInMemory { limit: config.in_memory };
            return Some((id, Tier::Disk, reason));
        }
        if let Some(id) = self.sessions.to_compress()
            && is_above(COMPRESS_PERCENT)
        {
            return Some((id, Tier::Compressed, short));
        }
        let (since, id) =
            offload.filter(|(since, _)| self.has_passed(*since, config.offload_after))?;
        let rested = self.now.saturating_sub(since);
        Some((id, Tier::Disk, EvictionReason::Idle { rested }))
    }

    /// Asks for the workers that are missing.
    pub(super) fn grow(&mut self, effects: &mut Vec<Effect>) {
        let wanted = self.wanted_workers();
        while self.workers.count() < wanted {
            self.workers.add();
            effects.push(Effect::AddWorker);
        }
    }

    /// Ends one surplus worker that has been idle for long enough. A session that it holds is
    /// suspended first, which makes the worker the next to end.
    pub(super) fn shrink(&mut self, effects: &mut Vec<Effect>) {
        let Some((since, worker)) = self.surplus() else { return };
        if !self.has_passed(since, self.config.workers.shrink_after) {
            return;
        }
        match self.resident(worker) {
            None => {
                self.workers.dismiss(worker);
                effects.push(Effect::DismissWorker(worker));
            }
            Some(session) => {
                let rested = self.now.saturating_sub(since);
                self.vacate(worker, session, EvictionReason::Idle { rested }, effects);
            }
        }
    }

    /// Reports whether the pool has become ready or degraded, while it is open.
    pub(super) fn update_health(&mut self, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Open {
            return;
        }
        let workforce = Workforce {
            lost: self.workers.lost(),
            given_up: self.workers.given_up(),
            living: self.workers.living(),
            wanted: self.wanted_workers(),
        };
        effects.extend(self.health.update(workforce, self.now).map(Effect::Record));
    }

    pub(super) fn wanted_workers(&self) -> usize {
        if self.workers.lost().is_some() {
            return 0;
        }
        let jobs = self.running.saturating_add(self.fair_queue.could_run);
        let jobs = jobs.min(self.config.concurrent).saturating_add(self.sessions.kept);
        match self.phase {
            Phase::Open => self.workers.wanted(&self.config.workers, jobs),
            Phase::Draining => self.workers.needed(&self.config.workers, jobs),
            Phase::Drained => 0,
        }
    }

    /// A surplus worker and since when it has been idle: vacant ones first, then longest idle
    /// first.
    fn surplus(&self) -> Option<(Time, WorkerId)> {
        // Workers that are still starting may never come.
        if self.phase != Phase::Open || self.workers.living() <= self.wanted_workers() {
            return None;
        }
        self.workers.oldest_without_session().or_else(|| {
            let (since, session) = self.sessions.oldest_idle_held()?;
            Some((since, self.sessions.get(session)?.worker()?))
        })
    }

    /// Returns when a `Tick` is due, if nothing happens before.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        let sessions = &self.config.sessions;
        let deadline = self.due.first().map(|(due, _)| *due);
        let drained = self.drain_until.filter(|_| !self.is_aborted);
        let suspends = self.sessions.oldest_idle_held();
        let suspends = suspends.map(|(since, _)| since.saturating_add(sessions.suspend_after));
        let offloads = match self.sessions.offloading {
            Some(_) => None,
            None => self.sessions.to_offload(sessions.disk_bytes),
        };
        let offloads = offloads.map(|(since, _)| since.saturating_add(sessions.offload_after));
        let closes = sessions.close_after.and_then(|close_after| {
            Some(self.sessions.oldest_idle()?.0.saturating_add(close_after))
        });
        let shrink_after = self.config.workers.shrink_after;
        let shrinks = self.surplus().map(|(since, _)| since.saturating_add(shrink_after));
        let taken_back = self.next_taken_back();
        let offloads_again = self.sessions.disk_wakes_at();
        let recovers = self.health.wakes_at().filter(|_| self.phase == Phase::Open);
        let retries = self.next_retry();
        let all =
            [deadline, drained, suspends, offloads, offloads_again, closes, shrinks, taken_back];
        all.into_iter().chain([recovers, retries]).flatten().min()
    }

    /// When a worker place that was given up is tried again.
    fn next_taken_back(&self) -> Option<Time> {
        let retry_after = self.config.workers.retry_after;
        self.workers.next_taken_back(retry_after).filter(|_| self.phase == Phase::Open)
    }

    /// The time until then.
    pub(crate) fn next_try(&self) -> Option<Duration> {
        self.next_taken_back().map(|at| at.saturating_sub(self.now))
    }

    fn has_passed(&self, since: Time, time: Duration) -> bool {
        since.saturating_add(time) <= self.now
    }
}

/// Suspended sessions are compressed from this percentage of the limit on.
const COMPRESS_PERCENT: u128 = 80;
/// Suspended sessions are offloaded to disk from this percentage of the limit on.
const OFFLOAD_PERCENT: u128 = 90;
