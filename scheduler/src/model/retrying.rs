//! Retries jobs that the sandbox failed, after a wait.
//!
//! What ends one worker often ends all: the system kills a whole group of processes, or memory is
//! short for a second. So a job waits before each retry, twice as long each time. Without that, its
//! tries would meet one dying worker after the other.

use std::time::Duration;

use pool::JobId;

use super::{Fault, Job, Model, Run};
use crate::timer::Time;

/// The wait before the first retry.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait before a retry.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Returns how long a job waits before its next try, after this many failed ones.
fn wait_after(failed_attempts: u32) -> Duration {
    let factor = 1_u32.checked_shl(failed_attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT)
}

impl Model {
    /// Whether a job is retried after a fault.
    pub(super) fn may_retry(&self, job: &Job, run: &Run, fault: Fault) -> bool {
        job.queued.is_idempotent
            && job.queued.session.is_none()
            && job.failed_attempts < fault.most_retries(self.config.retries)
            && !run.is_unwanted
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits = [1, 2, 3, 7, 8, 40, u32::MAX].map(|failed| wait_after(failed).as_millis());
        assert_eq!(waits, [100, 200, 400, 6_400, 10_000, 10_000, 10_000]);
    }
}
