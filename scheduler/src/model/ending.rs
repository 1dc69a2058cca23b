//! Decides how jobs and sessions end.

use std::time::Duration;

use engine::{Cause, StopReason};
use pool::{JobId, SessionId, WorkerId};

use super::{
    Effect, Fault, Finish, Job, Model, Report, Residence, RetireReason, Run, Settlement, StopKind,
};
use crate::decision::DecisionKind;
use crate::policy::residency::{Motion, Session, Turn};
use crate::policy::workers::Activity;
use crate::status::Phase;
use crate::timer::Time;

/// The wait before the first retry; it doubles each time. What ends one worker often ends all. The
/// system kills a whole group of processes, or memory is short for a second.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait before a retry.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

impl Model {
    pub(super) fn stop_requested(&mut self, id: JobId, kind: StopKind, effects: &mut Vec<Effect>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(run) = &mut job.run {
            run.is_stop_requested = true;
            // Keeping a session is worth the grace period of an interrupt; an interpreter that
            // nobody will use again is not.
            effects.push(match (kind, job.queued.session) {
                (StopKind::Interrupt, _) => Effect::InterruptRun(id, StopReason::Interrupted),
                (StopKind::Cancel, Some(_)) => Effect::InterruptRun(id, StopReason::Cancelled),
                (StopKind::Cancel, None) | (StopKind::Kill, _) => Effect::StopRun(id),
            });
            return;
        }
        if let Some(session) = self.settle(id, Settlement::Cancelled, effects) {
            self.end_session_if_done(session, effects);
        }
    }

    pub(super) fn finished(
        &mut self,
        worker: WorkerId,
        id: JobId,
        report: &Report,
        effects: &mut Vec<Effect>,
    ) -> Finish {
        let Some((mut job, run)) = self.stop_running(worker, id) else { return Finish::Ignore };
        let Report { wall, cpu, overhead, peak_memory_bytes, own_memory_bytes, .. } = *report;
        if report.session_left
            && let Some(session) = job.queued.session
        {
            self.detach_session(session);
        }
        let tenant = &job.queued.tenant;
        self.fair_queue.end(tenant, run.charged, cpu);
        if report.fault.is_none() && !report.never_ran {
            self.fair_queue.note(tenant, cpu, wall.saturating_add(overhead));
        }
        let limit = self.config.retire_above_bytes;
        let retire = match report.fault {
            Some(Fault::Sandbox) => Some(RetireReason::SandboxFailed),
            // Such a run takes its interpreter with it.
            Some(Fault::Tampering | Fault::Stuck) => None,
            None => {
                let bytes = peak_memory_bytes;
                (bytes > limit).then_some(RetireReason::HighWater { bytes, limit })
            }
        };
        // Until the worker is ready again, its interpreter keeps what the job took.
        self.workers.finished(worker, self.now, retire, own_memory_bytes);
        if let Some(fault) = report.fault
            && self.may_retry(&job, &run, fault)
        {
            return Finish::Retry { attempt: self.requeue(id, job) };
        }
        if let Some(session) = job.queued.session.take() {
            self.end_session_if_done(session, effects);
        }
        Finish::Conclude
    }

    /// Records that a run took its interpreter along: any worker may now take up the session's
    /// state.
    fn detach_session(&mut self, id: SessionId) {
        if let Some(worker) = self.sessions.get(id).and_then(Session::worker) {
            self.workers.house(worker, None);
        }
        self.sessions
            .change(id, |session| session.place = Residence::stored(session.state_bytes()));
        self.reoffer(id);
    }

    pub(super) fn captured(&mut self, worker: WorkerId, id: JobId, effects: &mut Vec<Effect>) {
        let Some((job, run)) = self.stop_running(worker, id) else { return };
        self.fair_queue.end(&job.queued.tenant, run.charged, self.now.saturating_sub(run.since));
        let bytes = self.workers.get(worker).map_or(0, |worker| worker.slot_bytes);
        self.workers.finished(worker, self.now, None, bytes);
        if let Some(session) = job.queued.session {
            self.end_session_if_done(session, effects);
        }
    }

    /// Removes a running job that its worker has finished with.
    pub(super) fn stop_running(&mut self, worker: WorkerId, id: JobId) -> Option<(Box<Job>, Run)> {
        if self.jobs.get(&id)?.run.as_ref()?.worker != worker {
            return None;
        }
        let left = self.workers.take_leaving(worker);
        self.note_vacated(worker, left);
        let mut job = self.jobs.remove(&id)?;
        let run = job.run.take()?;
        self.running -= 1;
        self.in_flight_bytes -= run.bytes;
        if let Some(session) = job.queued.session {
            let now = self.now;
            self.sessions.change(session, |session| {
                session.set_turn(Turn::Ended);
                session.rests_since = now;
                session.previous_place = Residence::Suspended(Motion::Possible);
            });
        }
        Some((job, run))
    }

    pub(super) fn gone(
        &mut self,
        worker: WorkerId,
        reason: &Cause,
        is_replaced: bool,
        takes_session: bool,
        fault: Fault,
        effects: &mut Vec<Effect>,
    ) {
        if self.workers.get(worker).is_some() {
            self.health.died(reason, self.now);
        } else if !self.workers.is_dismissed(worker) {
            self.health.not_started(reason);
        }
        let Some(was) = self.workers.gone(worker, is_replaced, reason, self.now) else {
            self.give_up_if_lost(effects);
            return;
        };
        self.note_vacated(worker, was.leaving);
        let previous = was.resident.and_then(|id| Some(self.sessions.get(id)?.previous_place));
        if let Activity::Busy(id) = was.activity
            && let Some((job, run)) = self.stop_running(worker, id)
        {
            // The CPU time is lost with the worker. The wall time is an upper bound.
            let took = self.now.saturating_sub(run.since);
            self.fair_queue.end(&job.queued.tenant, run.charged, took);
            if self.may_retry(&job, &run, fault) {
                effects.push(Effect::Retry { job: id, attempt: self.requeue(id, job) });
            } else {
                effects.push(Effect::Settle(id, Settlement::WorkerDied(reason.clone())));
            }
        }
        if let Some(id) = was.resident {
            if takes_session {
                self.lose_session(id, reason, effects);
            } else {
                let place = previous.unwrap_or(Residence::Suspended(Motion::Possible));
                self.sessions.change(id, |session| session.place = place);
                self.reoffer(id);
                self.end_session_if_done(id, effects);
            }
        }
        self.give_up_if_lost(effects);
    }

    /// Once no worker is left, settles all queued jobs.
    fn give_up_if_lost(&mut self, effects: &mut Vec<Effect>) {
        let Some(reason) = self.workers.lost().cloned() else { return };
        self.settle_waiting(&Settlement::NoWorker(reason), effects);
    }

    pub(super) fn settle_waiting(&mut self, settlement: &Settlement, effects: &mut Vec<Effect>) {
        while let Some(id) = self.waiting.first().copied() {
            if let Some(session) = self.settle(id, settlement.clone(), effects) {
                self.end_session_if_done(session, effects);
            }
        }
    }

    /// Ends a queued job and returns its session.
    pub(super) fn settle(
        &mut self,
        id: JobId,
        settlement: Settlement,
        effects: &mut Vec<Effect>,
    ) -> Option<SessionId> {
        self.remove_from_queue(id);
        let job = self.jobs.remove(&id)?;
        self.fair_queue.dequeue(&job.queued.tenant, self.as_waiting(id, &job));
        effects.push(Effect::Settle(id, settlement));
        if let Some(session) = job.queued.session {
            self.reoffer(session);
        }
        job.queued.session
    }

    /// Ends a session at once, and its queued jobs with it.
    pub(super) fn lose_session(
        &mut self,
        id: SessionId,
        reason: &Cause,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(job) = self.sessions.get(id).and_then(|session| session.waiting.first()) {
            let lost = Settlement::SessionLost(reason.clone());
            let _ = self.settle(*job, lost, effects);
        }
        self.end_session(id, reason.clone(), effects);
    }

    /// Ends a closing session once none of its jobs is queued or running.
    pub(super) fn end_session_if_done(&mut self, id: SessionId, effects: &mut Vec<Effect>) {
        let is_done = |session: &Session| session.is_closing && session.load() == 0;
        if self.sessions.get(id).is_some_and(is_done) {
            self.end_session(id, "it was closed", effects);
        }
    }

    /// Ends a session without queued jobs.
    pub(super) fn end_session(
        &mut self,
        id: SessionId,
        reason: impl Into<Cause>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(session) = self.sessions.remove(id) else { return };
        if let Some(worker) = session.worker() {
            self.workers.house(worker, None);
        }
        effects.push(Effect::EndSession(id, reason.into()));
    }

    /// Ends queued jobs that have passed their deadline, and everything once draining has timed
    /// out.
    pub(super) fn expire(&mut self, effects: &mut Vec<Effect>) {
        while let Some((due, id)) = self.due.first().copied()
            && due <= self.now
        {
            let Some(job) = self.jobs.get(&id) else { return };
            let allowed = job.queued.deadline.unwrap_or_default();
            let waited = self.now.saturating_sub(job.submitted);
            let passed = Settlement::DeadlinePassed { allowed, waited };
            if let Some(session) = self.settle(id, passed, effects) {
                self.end_session_if_done(session, effects);
            }
        }
        if !self.is_aborted && self.drain_until.is_some_and(|until| until <= self.now) {
            self.is_aborted = true;
            self.settle_waiting(&Settlement::Cancelled, effects);
            let running = self.jobs.iter().filter(|(_, job)| job.run.is_some());
            effects.extend(running.map(|(id, _)| Effect::StopRun(*id)));
        }
    }

    /// Once the last job has ended, closes all sessions and reports the end.
    pub(super) fn finish_draining(&mut self, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Draining || !self.jobs.is_empty() {
            return;
        }
        self.phase = Phase::Drained;
        let mut sessions: Vec<_> = self.sessions.ids().collect();
        sessions.sort_unstable();
        for id in sessions {
            self.end_session(id, "the pool has shut down", effects);
        }
        effects.push(Effect::Record(DecisionKind::Drained));
    }

    /// Whether a job is retried after a fault.
    pub(super) fn may_retry(&self, job: &Job, run: &Run, fault: Fault) -> bool {
        job.queued.is_idempotent
            && job.queued.session.is_none()
            && job.failed_attempts < fault.most_retries(self.config.retries)
            && !run.is_stop_requested
            && !self.is_aborted
    }

    /// Queues a job for another try, which is offered after a wait. Returns the number of the failed
    /// one.
    pub(super) fn requeue(&mut self, id: JobId, mut job: Box<Job>) -> u32 {
        job.failed_attempts += 1;
        let attempt = job.failed_attempts;
        let retry_at = self.now.saturating_add(wait_after(attempt));
        job.retry_at = Some(retry_at);
        self.retries.insert((retry_at, id));
        self.jobs.insert(id, job);
        self.enqueue(id);
        attempt
    }

    /// Offers the jobs whose wait before a retry is over.
    pub(super) fn offer_retries(&mut self) {
        while let Some((at, id)) = self.retries.first().copied()
            && at <= self.now
        {
            self.retries.remove(&(at, id));
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.retry_at = None;
            let (tenant, key) = (job.queued.tenant.clone(), self.key(id, &self.jobs[&id]));
            self.fair_queue.offer(&tenant, key);
        }
    }

    /// When the next job is to be retried.
    pub(super) fn next_retry(&self) -> Option<Time> {
        self.retries.first().map(|(at, _)| *at)
    }
}

/// Returns how long a job waits before its next try, after this many failed ones.
fn wait_after(failed_attempts: u32) -> Duration {
    let factor = 1_u32.checked_shl(failed_attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits = [1, 2, 3, 7, 8, 40, u32::MAX].map(|failed| wait_after(failed).as_millis());
        assert_eq!(waits, [100, 200, 400, 6_400, 10_000, 10_000, 10_000]);
    }
}
