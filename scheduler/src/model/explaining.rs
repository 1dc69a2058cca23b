//! Explains why a job waits.

use pool::JobId;

use super::{Job, Model};
use crate::explain::{Explanation, JobState, WaitReason};
use crate::timer::Time;

impl Model {
    /// Says where a job is, and why; `None` if it has ended. Takes time linear in the number of
    /// jobs.
    pub(crate) fn explain(&self, id: JobId, now: Time) -> Option<Explanation> {
        let job = self.jobs.get(&id)?;
        let state = match &job.run {
            Some(run) => {
                JobState::Running { worker: run.worker, ran: now.saturating_sub(run.since) }
            }
            None => self.explain_waiting(id, job, now),
        };
        let queued = &job.queued;
        Some(Explanation {
            job: id,
            tenant: queued.tenant.to_string(),
            priority: queued.priority,
            session: queued.session,
            failed_attempts: job.failed_attempts,
            build: queued.build,
            hidden: Vec::new(),
            network: None,
            state,
        })
    }

    fn explain_waiting(&self, id: JobId, job: &Job, now: Time) -> JobState {
        let name = &*job.queued.tenant;
        let ahead_in_tenant = self.ahead_in_tenant(id, job);
        let ahead_of_others = self.fair_queue.ahead_of_others(name, ahead_in_tenant);
        let turns = self.turns_ahead(id, job);
        JobState::Waiting {
            waited: now.saturating_sub(job.submitted),
            reason: self.wait_reason(job, turns, now),
            ahead_in_tenant,
            ahead_of_others,
            estimate: self.estimate_wait_behind(name, ahead_in_tenant, ahead_of_others, turns),
        }
    }

    /// Jobs of the same tenant that go before this one, once their sessions let them.
    fn ahead_in_tenant(&self, id: JobId, job: &Job) -> usize {
        let (name, key) = (&job.queued.tenant, self.key(id, job));
        let could_run = self.fair_queue.tenant(name).map_or(0, |tenant| tenant.ahead(key));
        let is_ahead = |other: &&JobId| {
            self.jobs
                .get(other)
                .is_some_and(|found| found.queued.tenant == *name && self.key(**other, found) < key)
        };
        let behind_turns = self.sessions.iter().map(|session| {
            let offered = session.offered.as_ref().map(|(_, (_, offered))| *offered);
            let rest = session.waiting.iter().filter(|other| Some(**other) != offered);
            rest.filter(is_ahead).count()
        });
        could_run + behind_turns.sum::<usize>()
    }

    /// Jobs of the same session that come before this one.
    fn turns_ahead(&self, id: JobId, job: &Job) -> usize {
        let session = job.queued.session.and_then(|session| self.sessions.get(session));
        session
            .map_or(0, |session| session.waiting.range(..id).count() + usize::from(session.runs()))
    }

    fn wait_reason(&self, job: &Job, turns_ahead: usize, now: Time) -> WaitReason {
        if let Some(session) = job.queued.session
            && turns_ahead > 0
        {
            return WaitReason::SessionBusy { session, turns_ahead };
        }
        if let Some(at) = job.retry_at {
            let remaining = at.saturating_sub(now);
            return WaitReason::BackingOff { failed_attempts: job.failed_attempts, remaining };
        }
        if let Some(tenant) = self.fair_queue.tenant(&job.queued.tenant)
            && tenant.running >= tenant.limit
        {
            let (running, limit) = (tenant.running, tenant.limit);
            return WaitReason::TenantAtLimit { running, limit };
        }
        let (running, concurrent) = (self.running, self.places());
        if running >= concurrent {
            return WaitReason::WorkersBusy { running, concurrent };
        }
        let session = job.queued.session.and_then(|session| self.sessions.get(session));
        let is_ready = session.is_none_or(|session| session.is_ready());
        // S-6: with a free worker, a job that could run waits only for memory.
        if is_ready && let Some((head, _)) = self.next_dispatch() {
            let memory = self.memory();
            let queued = &self.jobs[&head].queued;
            let (more, freed) = (self.flight_bytes(queued), queued.bytes as u64);
            let used = memory.used_bytes().saturating_sub(freed).saturating_add(more);
            return WaitReason::NoMemory { used, limit: memory.limit_bytes };
        }
        let starting = self.workers.count() - self.workers.idle() - running;
        WaitReason::WorkersStarting { starting }
    }
}
