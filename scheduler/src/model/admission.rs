//! Decides which jobs and sessions are admitted.

use std::time::Duration;

use pool::{JobId, SessionId};

use super::dispatch::LEAST_GROWTH_BYTES;
use super::{Job, Model, Opening};
use crate::error::Refusal;
use crate::job::Queued;
use crate::policy::fair_queue::Tenant;
use crate::policy::residency::{ForkedSessions, Session};
use crate::status::Phase;

impl Model {
    pub(super) fn submitted(&mut self, id: JobId, queued: Queued) -> Result<(), Refusal> {
        if let Some(refusal) = self.refuses(&queued) {
            return Err(refusal);
        }
        let job =
            Job { queued, submitted: self.now, failed_attempts: 0, retry_at: None, run: None };
        self.jobs.insert(id, Box::new(job));
        self.enqueue(id);
        Ok(())
    }

    fn refuses(&mut self, queued: &Queued) -> Option<Refusal> {
        if self.phase != Phase::Open {
            return Some(Refusal::ShuttingDown);
        }
        if queued.session.is_some_and(|session| !self.is_open(session)) {
            return Some(Refusal::not_open());
        }
        let never_fits = self.refuses_as_never_fitting(queued);
        if never_fits.is_some() {
            return never_fits;
        }
        if let Some(cause) = self.workers.lost() {
            let (cause, retry_after) = (cause.clone(), self.next_try());
            return Some(Refusal::NoWorker { cause, retry_after });
        }
        let can_run_now = self.can_run_now(queued);
        if !can_run_now && !self.brings_a_worker(queued) {
            let full = self.refuses_as_full(queued);
            if full.is_some() {
                return full;
            }
        }
        let late = self.refuses_as_late(queued, can_run_now);
        if late.is_some() || can_run_now {
            return late;
        }
        self.refuses_as_large(queued)
    }

    /// Refuses a job that would not fit in memory even if it were alone.
    fn refuses_as_never_fitting(&self, queued: &Queued) -> Option<Refusal> {
        let (used, limit) = (self.shared_bytes, self.config.memory_bytes);
        let needed = queued.growth.bytes().min(LEAST_GROWTH_BYTES);
        let refusal = Refusal::NoMemory { used, needed, limit, retry_after: None };
        (used.saturating_add(needed) > limit && needed > 0).then_some(refusal)
    }

    /// Whether this job would be dispatched as soon as it is admitted.
    fn can_run_now(&self, queued: &Queued) -> bool {
        // S-6: while a worker is idle and another job may run, queued jobs wait for memory alone.
        let home = queued.session.and_then(|id| self.sessions.get(id)?.worker());
        let has_worker = home.is_some() || self.free_workers() > 0;
        self.running < self.config.concurrent
            && has_worker
            && self.fair_queue.could_run == 0
            && self.is_unblocked(queued)
    }

    /// Whether another worker would be started for this job alone. Otherwise a queue without room
    /// would keep the pool from growing, and a pool without workers would never run anything.
    fn brings_a_worker(&self, queued: &Queued) -> bool {
        let jobs = self.running.saturating_add(self.fair_queue.could_run);
        let more = jobs.saturating_add(1).saturating_add(self.sessions.kept);
        let wanted = self.workers.wanted(&self.config.workers, more);
        jobs < self.config.concurrent && wanted > self.workers.count() && self.is_unblocked(queued)
    }

    /// Whether neither its session, its tenant's limit nor memory keeps this job from running.
    fn is_unblocked(&self, queued: &Queued) -> bool {
        let tenant = self.fair_queue.tenant(&queued.tenant);
        let is_first = queued
            .session
            .and_then(|id| self.sessions.get(id))
            .is_none_or(|session| session.is_ready() && session.waiting.is_empty());
        let has_memory = self.running == 0 || {
            let memory = self.memory();
            let more = self.flight_bytes(queued);
            memory.used_bytes().saturating_add(more) <= memory.limit_bytes
        };
        is_first && has_memory && tenant.is_none_or(Tenant::may_run_more)
    }

    /// Refuses a job for which the queue of all or that of its tenant has no room.
    fn refuses_as_full(&self, queued: &Queued) -> Option<Refusal> {
        let Queued { tenant, bytes: job, .. } = queued;
        let full = |tenant: Option<&str>,
                    (count, bytes): (usize, usize),
                    most: (usize, usize),
                    retry_after| {
            let tenant = || tenant.map(str::to_owned);
            let (most_count, most_bytes) = most;
            let with_job = job.saturating_add(bytes);
            if count >= most_count {
                let (queued, limit) = (count, most_count);
                return Some(Refusal::QueueFull { tenant: tenant(), queued, limit, retry_after });
            }
            (with_job > most_bytes).then(|| {
                let (job, queued, limit) = (*job, with_job, most_bytes);
                Refusal::QueueBytes { tenant: tenant(), job, queued, limit, retry_after }
            })
        };
        let (of_all, of_tenant) = (&self.config, self.config.of_tenant(tenant));
        let all = (self.waiting.len(), self.queued_bytes);
        let known = self.fair_queue.tenant(tenant);
        let own = known.map_or((0, 0), |known| (known.queued(), known.queued_bytes));
        let places = self.places().min(of_tenant.concurrent) as u32;
        let next = self.fair_queue.service(tenant).map(|service| service / places);
        full(None, all, (of_all.queued_count, of_all.queued_bytes), self.next_start()).or_else(
            || full(Some(&**tenant), own, (of_tenant.queued_count, of_tenant.queued_bytes), next),
        )
    }

    fn refuses_as_late(&mut self, queued: &Queued, can_run_now: bool) -> Option<Refusal> {
        let due_in = queued.deadline?;
        let wait = if can_run_now { Some(Duration::ZERO) } else { self.estimate_wait(queued) };
        let service = self.fair_queue.service(&queued.tenant);
        if due_in.is_zero() {
            let estimate = wait.zip(service).map_or(Duration::ZERO, |(wait, run)| wait + run);
            return Some(Refusal::DeadlineTooSoon { due_in, estimate, retry_after: None });
        }
        let (wait, service) = wait.zip(service)?;
        let estimate = wait.saturating_add(service);
        if estimate <= due_in {
            return None;
        }
        if wait.is_zero() {
            self.fair_queue.lower_service(&queued.tenant);
        }
        let late = estimate - due_in;
        let retry_after = (late <= wait).then_some(late);
        Some(Refusal::DeadlineTooSoon { due_in, estimate, retry_after })
    }

    fn refuses_as_large(&mut self, queued: &Queued) -> Option<Refusal> {
        let needed = queued.bytes as u64;
        let memory = self.memory();
        let (used, limit) = (memory.used_bytes(), memory.limit_bytes);
        if used.saturating_add(needed) <= limit {
            return None;
        }
        // At the end of this step, eviction frees what it can, whether or not that suffices.
        self.shortage_bytes = self.shortage_bytes.max(needed);
        let used_then = used.saturating_sub(self.soon_freed(queued.session));
        let retry_after = self.next_start();
        let refusal = Refusal::NoMemory { used, needed, limit, retry_after };
        (used_then.saturating_add(needed) > limit).then_some(refusal)
    }

    /// Bytes of the session that is being offloaded or is next to be; 0 if that is `but`.
    fn soon_freed(&self, but: Option<SessionId>) -> u64 {
        if self.sessions.offloading.is_some() {
            return self.sessions.freeing_bytes();
        }
        let offload = self.sessions.to_offload(self.config.sessions.disk_bytes);
        let offload = offload.map(|(_, id)| id).filter(|id| Some(*id) != but);
        offload.and_then(|id| self.sessions.get(id)).map_or(0, Session::stored_bytes)
    }

    /// Refuses to open forks, or returns `None`.
    pub(crate) fn refuses_forks(
        &self,
        forked: &ForkedSessions,
        tenant: &str,
        depth: usize,
    ) -> Option<Refusal> {
        let held_bytes = self.sessions.fork_bytes(forked, Session::held_bytes);
        let bytes = self.sessions.fork_bytes(forked, |session| match session.worker() {
            Some(worker) => self.workers.kept_bytes(worker),
            None => session.stored_bytes(),
        });
        let opening = Opening { tenant, count: forked.count, bytes, held_bytes, depth };
        self.refuses_sessions(&opening)
    }

    /// Refuses to open sessions, or returns `None`.
    pub(crate) fn refuses_sessions(&self, wanted: &Opening<'_>) -> Option<Refusal> {
        let Opening { tenant, count, bytes, held_bytes, depth } = *wanted;
        if self.phase != Phase::Open {
            return Some(Refusal::ShuttingDown);
        }
        let limit = self.config.sessions.depth;
        if depth > limit {
            return Some(Refusal::TooDeep(limit));
        }
        let limit = self.config.sessions.open;
        if self.sessions.len().saturating_add(count) > limit {
            return Some(Refusal::TooManySessions(limit));
        }
        let (own, held) = (self.config.of_tenant(tenant), self.sessions.holdings.of(tenant));
        if held.sessions.saturating_add(count) > own.sessions {
            let (tenant, open, limit) = (tenant.to_owned(), held.sessions, own.sessions);
            return Some(Refusal::TenantSessions { tenant, open, wanted: count, limit });
        }
        // A fresh session takes nothing, but it will.
        let (used, needed, limit) = (held.bytes, held_bytes, own.session_bytes);
        if used.saturating_add(needed) > limit || used >= limit {
            let tenant = tenant.to_owned();
            return Some(Refusal::TenantSessionBytes { tenant, used, needed, limit });
        }
        let memory = self.memory();
        let (used, limit) = (memory.used_bytes(), memory.limit_bytes);
        let room = self.sessions.disk_room(self.config.sessions.disk_bytes).unwrap_or(0);
        let movable = self.sessions.movable_bytes.min(room);
        let used_then = used.saturating_sub(movable).saturating_add(bytes);
        let retry_after = self.next_start();
        (used_then > limit).then_some(Refusal::NoMemory { used, needed: bytes, limit, retry_after })
    }

    /// How many jobs may run at once on the present workers, without those that sessions keep.
    pub(super) fn places(&self) -> usize {
        let others = self.workers.count().saturating_sub(self.sessions.kept);
        self.config.concurrent.min(others).max(1)
    }

    /// The mean time between two starts of jobs while more are queued than can run.
    fn next_start(&self) -> Option<Duration> {
        self.fair_queue.overall.service.map(|service| service / self.places() as u32)
    }

    /// Estimates how long a new job waits, if its tenant gets its share; `None` before any job was
    /// measured.
    fn estimate_wait(&self, queued: &Queued) -> Option<Duration> {
        let tenant = self.fair_queue.tenant(&queued.tenant);
        let config = self.config.of_tenant(&queued.tenant);
        let urgent_first =
            |tenant: &Tenant| tenant.depths[..=queued.priority as usize].iter().sum::<usize>();
        let ahead = tenant.map_or(0, urgent_first);
        let others = match tenant {
            Some(tenant) if tenant.queued() > 0 => {
                self.fair_queue.weights - u64::from(tenant.weight)
            }
            Some(_) | None => self.fair_queue.weights,
        };
        // In each round, in which this tenant gets one job, the others get as many as their
        // weights.
        let rounds = (ahead as u64).saturating_add(1);
        let of_others = rounds.saturating_mul(others) / u64::from(config.weight.max(1));
        let of_others = usize::try_from(of_others).unwrap_or(usize::MAX);
        let elsewhere = self.waiting.len() - tenant.map_or(0, Tenant::queued);
        let turns = queued.session.map_or(0, |session| self.load(session));
        self.estimate_wait_behind(&queued.tenant, ahead, of_others.min(elsewhere), turns)
    }

    /// Estimates how long a job waits behind this many jobs of its tenant, of other tenants and of
    /// its session.
    pub(super) fn estimate_wait_behind(
        &self,
        tenant: &str,
        of_tenant: usize,
        of_others: usize,
        turns: usize,
    ) -> Option<Duration> {
        let overall = self.fair_queue.overall.service?;
        let own = self.fair_queue.service(tenant)?;
        let limit = self.config.of_tenant(tenant).concurrent.min(self.places());
        let times = |service: Duration, count: usize| {
            service.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
        };
        let first = overall / self.places() as u32;
        let all = times(own, of_tenant).saturating_add(times(overall, of_others));
        let by_load = first.saturating_add(all / self.places() as u32);
        let by_tenant = times(own, of_tenant) / limit as u32;
        Some(by_load.max(by_tenant).max(times(own, turns)))
    }
}
