//! What holds of a model after every decision. The ids are those of `docs/invariants.md`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Model;

impl Model {
    /// Says which invariant is broken, if one is.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let ensure = |holds: bool, text: &str| if holds { Ok(()) } else { Err(text.to_owned()) };
        ensure(self.running.len() <= self.config.concurrent, "S-1: no more run than may")?;
        let waiting = self.waiting.iter().chain(self.sessions.values().flat_map(|s| &s.waiting));
        let waiting: BTreeSet<_> = waiting.collect();
        let queued: BTreeSet<_> =
            self.jobs.iter().filter(|(_, job)| !job.is_running).map(|(id, _)| id).collect();
        ensure(waiting == queued, "S-2: what waits is exactly what was admitted and doesn't run")?;
        let bytes: usize = queued.iter().map(|id| self.jobs[id].bytes).sum();
        ensure(
            (self.queued_count, self.queued_bytes) == (queued.len(), bytes),
            "S-3: the queue's counters are its sums",
        )?;
        let runnable: BTreeMap<_, _> = self
            .sessions
            .iter()
            .filter(|(_, session)| self.is_ready(session))
            .filter_map(|(id, session)| Some((*session.waiting.first()?, *id)))
            .collect();
        ensure(
            runnable == self.runnable_sessions,
            "S-4: runnable sessions are those with a job and none running, by their oldest job",
        )?;
        let running: BTreeSet<_> = self.running.values().collect();
        let marked: BTreeSet<_> =
            self.jobs.iter().filter(|(_, job)| job.is_running).map(|(id, _)| id).collect();
        ensure(
            running == marked && running.len() == self.running.len(),
            "S-5: a job runs on exactly one worker",
        )?;
        let could_run = self.running.len() < self.config.concurrent
            && self.next_job().is_some()
            && !self.idle.is_empty();
        ensure(!could_run, "S-6: nothing waits while a worker that could run it is idle")?;
        let homes: HashMap<_, _> = self
            .sessions
            .iter()
            .filter_map(|(id, session)| Some((session.resident?, *id)))
            .collect();
        let resident = self.sessions.values().filter(|session| session.resident.is_some()).count();
        ensure(
            homes == self.residents && resident == homes.len(),
            "S-8: a session is on at most one worker, and a worker has at most one",
        )
    }
}
