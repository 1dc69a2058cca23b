//! What holds of a model after every decision. The ids are those of `docs/invariants.md`.

use std::collections::{BTreeMap, BTreeSet};

use pool::{JobId, SessionId};

use crate::model::dispatch::Fit;
use crate::model::{Job, Model};
use crate::policy::residency::{Residence, Session, Turn};
use crate::policy::workers::Activity;
use crate::timer::Time;

fn ensure(holds: bool, text: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text.to_owned()) }
}

impl Model {
    /// Returns the first broken invariant as an error.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        self.check_queue()?;
        self.check_workers()?;
        self.check_sessions()?;
        self.check_timers()?;
        self.fair_queue.check()?;
        self.workers.check()?;
        self.sessions.check()
    }

    fn waits(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().filter(|(_, job)| job.run.is_none()).map(|(id, job)| (*id, &**job))
    }

    fn check_queue(&self) -> Result<(), String> {
        ensure(self.running <= self.config.concurrent, "S-1: too many jobs run")?;
        let queued: BTreeSet<JobId> = self.waits().map(|(id, _)| id).collect();
        ensure(
            queued == self.waiting,
            "S-2: the queue isn't exactly the admitted jobs that don't run",
        )?;
        let bytes: usize = self.waits().map(|(_, job)| job.queued.bytes).sum();
        let runs: Vec<_> = self.jobs.values().filter_map(|job| job.run.as_ref()).collect();
        ensure(
            (bytes, runs.len()) == (self.queued_bytes, self.running),
            "S-3: a counter of the queue isn't its sum",
        )?;
        ensure(
            runs.iter().map(|run| run.bytes).sum::<u64>() == self.in_flight_bytes,
            "S-13: the ledger's running jobs aren't their sum",
        )?;
        let mut tenants: BTreeMap<&str, ([usize; 3], usize, usize)> = BTreeMap::new();
        for job in self.jobs.values() {
            let sums = tenants.entry(&job.queued.tenant).or_default();
            match job.run {
                Some(_) => sums.2 += 1,
                None => {
                    sums.0[job.queued.priority as usize] += 1;
                    sums.1 += job.queued.bytes;
                }
            }
        }
        let is_sum = tenants.iter().all(|(name, (depths, bytes, running))| {
            self.tenant(name).is_some_and(|tenant| {
                (tenant.depths, tenant.queued_bytes, tenant.running) == (*depths, *bytes, *running)
            })
        });
        ensure(is_sum, "S-9: a tenant's counter isn't the sum over its jobs")
    }

    fn check_workers(&self) -> Result<(), String> {
        let busy: BTreeMap<_, _> = self
            .workers
            .iter()
            .filter_map(|(id, worker)| match worker.activity {
                Activity::Busy(job) => Some((job, id)),
                Activity::Idle | Activity::Preparing => None,
            })
            .collect();
        let runs: BTreeMap<_, _> = self
            .jobs
            .iter()
            .filter_map(|(id, job)| Some((*id, job.run.as_ref()?.worker)))
            .collect();
        let count = self
            .workers
            .iter()
            .filter(|(_, worker)| matches!(worker.activity, Activity::Busy(_)))
            .count();
        ensure(
            busy == runs && count == runs.len(),
            "S-5: a job doesn't run on exactly one worker",
        )?;
        let could_run = self.running < self.config.concurrent && self.fair_queue.could_run > 0;
        let waits_rightly = !could_run
            || match self.next_dispatch() {
                Some((id, worker)) => matches!(self.fit_of(id, worker), Fit::Missing(_)),
                None => self.has_no_free_worker(),
            };
        ensure(waits_rightly, "S-6: a job waits although a worker is free and there is memory")?;
        ensure(
            self.workers.lost().is_none() || self.waiting.is_empty(),
            "S-15: a job waits although no worker will come",
        )?;
        let comes =
            self.waiting.is_empty() || self.fair_queue.could_run == 0 || self.workers.count() > 0;
        ensure(comes, "S-15: no worker comes although a job could run")
    }

    /// Whether each idle worker is kept by a session without a turn, and there is or comes another
    /// worker.
    fn has_no_free_worker(&self) -> bool {
        let idle = self.workers.iter().filter(|(_, worker)| worker.activity == Activity::Idle);
        let kept = idle.map(|(_, worker)| self.sessions.get(worker.resident?));
        let kept: Vec<_> = kept.collect();
        let may_start = |session: &Session| {
            let offered = session.offered.as_ref();
            offered.is_some_and(|(tenant, key)| self.fair_queue.may_start(tenant, *key))
        };
        let is_kept = |session: &Option<&Session>| {
            session.is_some_and(|session| session.stays && !may_start(session))
        };
        let others = self.workers.count() > kept.len()
            || self.workers.count() + self.workers.given_up() < self.config.workers.max;
        kept.iter().all(is_kept) && (others || kept.is_empty())
    }

    fn check_sessions(&self) -> Result<(), String> {
        let mut waiting: BTreeMap<SessionId, BTreeSet<JobId>> = BTreeMap::new();
        for (id, job) in self.waits() {
            if let Some(session) = job.queued.session {
                waiting.entry(session).or_default().insert(id);
            }
        }
        let mut residents = BTreeMap::new();
        let mut on_workers = 0;
        for id in self.sessions.ids() {
            let Some(session) = self.sessions.get(id) else { continue };
            let own = waiting.remove(&id).unwrap_or_default();
            ensure(own == session.waiting, "S-2: a session's queue isn't its queued jobs")?;
            let next = session.waiting.first().filter(|_| session.is_ready());
            let next = next.map(|job| {
                let waits = &self.jobs[job];
                (waits.queued.tenant.clone(), self.key(*job, waits))
            });
            ensure(
                next == session.offered,
                "S-4: a session doesn't offer its oldest job, or offers one while another runs",
            )?;
            let worker = session.worker().and_then(|worker| self.workers.get(worker));
            let is_idle = worker.is_some_and(|worker| worker.activity == Activity::Idle);
            ensure(
                is_idle == matches!(session.place, Residence::OnWorker(_, Turn::Idle)),
                "S-4: a session isn't at rest exactly while its worker is idle",
            )?;
            if let Residence::OnWorker(worker, _) = session.place {
                on_workers += 1;
                residents.insert(worker, id);
            }
        }
        ensure(waiting.is_empty(), "S-2: a job waits for a session that isn't open")?;
        let housed: BTreeMap<_, _> =
            self.workers.iter().filter_map(|(id, worker)| Some((id, worker.resident?))).collect();
        ensure(
            housed == residents && on_workers == residents.len(),
            "S-8: a session is on two workers, or a worker holds two",
        )
    }

    fn check_timers(&self) -> Result<(), String> {
        let due: BTreeSet<_> =
            self.waits().filter_map(|(id, job)| Some((job.due()?, id))).collect();
        ensure(due == self.due, "S-16: the watched deadlines aren't those of the queued jobs")?;
        let retries: BTreeSet<_> =
            self.waits().filter_map(|(id, job)| Some((job.retry_at?, id))).collect();
        ensure(
            retries == self.retries,
            "S-16: the watched retries aren't those of the queued jobs",
        )?;
        ensure(
            self.next_retry().is_none_or(|retry| retry > self.now),
            "S-16: a job waits although it is time for its retry",
        )?;
        let wake = self.next_wake();
        let first = due.first().map(|(due, _)| *due);
        let is_watched = |at: Time| wake.is_some_and(|wake| wake <= at);
        ensure(
            first.into_iter().chain(self.next_retry()).all(is_watched),
            "S-16: a deadline or a retry would pass unnoticed",
        )?;
        ensure(first.is_none_or(|first| first > self.now), "S-16: a job waits beyond its deadline")
    }
}
