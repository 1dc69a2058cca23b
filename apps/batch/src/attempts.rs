//! Submits jobs until the pool accepts them: overload delays a line of a batch and never loses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hatchery::{Error, Hatchery, Job, Outcome, Refusal, Ticket, Verdict};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::{now, sleep};
use crate::stragglers::{Cut, Stragglers};

/// Pause between two attempts if the pool gives no estimate.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Estimates can be wrong, so no pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Attempts while no other job of the batch is in the pool. A refusal then doesn't depend on a job
/// of this batch, and would be repeated forever.
pub(crate) const TRIES_ALONE: u32 = 20;

/// Submits jobs to a pool.
pub(crate) struct Attempts {
    pool: Hatchery,
    in_pool: Arc<InPool>,
    stragglers: Option<Arc<Stragglers>>,
}

/// The outcome of a job, and why it was cut if it was a straggler.
pub(crate) type Ended = (Outcome, Option<Cut>);

/// Jobs of the batch that are queued or running in the pool.
#[derive(Default)]
struct InPool {
    count: AtomicUsize,
    /// Notifies one refused job when one of them ends, since that makes room for one.
    ended: Notify,
}

impl Attempts {
    pub(crate) fn new(pool: Hatchery) -> Self {
        Self { pool, in_pool: Arc::default(), stragglers: None }
    }

    /// Cuts stragglers in this way.
    pub(crate) fn cutting(self, stragglers: Stragglers) -> Self {
        Self { stragglers: Some(Arc::new(stragglers)), ..self }
    }

    /// Runs a job. Its deadline starts now.
    pub(crate) fn outcome(
        &self,
        job: Job,
        deadline: Option<Duration>,
    ) -> impl Future<Output = Result<Ended, Error>> + use<> {
        let (pool, in_pool) = (self.pool.clone(), Arc::clone(&self.in_pool));
        let stragglers = self.stragglers.clone();
        stragglers.iter().for_each(|stragglers| stragglers.begin());
        let due = deadline.and_then(|deadline| now().checked_add(deadline));
        async move {
            // Releases its copy of the job as soon as the pool has accepted it.
            let submit = move |left: Option<Duration>| {
                let (pool, job) = (pool.clone(), left.into_iter().fold(job.clone(), Job::deadline));
                async move { pool.submit(job).await }
            };
            let ended = match until_accepted(due, &in_pool, submit).await {
                Ok(ticket) => {
                    let _counted = Counted::new(&in_pool);
                    Ok(ended(ticket, stragglers.as_deref()).await)
                }
                Err(error) => Err(error),
            };
            let ran = ended.as_ref().ok().and_then(|(outcome, _)| run_time(outcome));
            stragglers.iter().for_each(|stragglers| stragglers.end(ran));
            ended
        }
    }
}

async fn ended(ticket: Ticket, stragglers: Option<&Stragglers>) -> Ended {
    match stragglers {
        Some(stragglers) => stragglers.outcome(ticket).await,
        None => (ticket.await, None),
    }
}

/// Returns how long the program ran; `None` if it didn't, or if the sandbox failed.
fn run_time(outcome: &Outcome) -> Option<Duration> {
    let is_failure = matches!(outcome.verdict, Verdict::SandboxFailed(_));
    Some(outcome.usage.wall).filter(|wall| !is_failure && !wall.is_zero())
}

/// Counts one job in the pool until it is dropped.
struct Counted<'a>(&'a InPool);

impl<'a> Counted<'a> {
    fn new(in_pool: &'a InPool) -> Self {
        in_pool.count.fetch_add(1, Ordering::Relaxed);
        Self(in_pool)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_one();
    }
}

/// Calls `submit` with the remaining time until it no longer refuses because of overload.
async fn until_accepted<T, F: Future<Output = Result<T, Error>>>(
    due: Option<Instant>,
    in_pool: &InPool,
    mut submit: impl FnMut(Option<Duration>) -> F,
) -> Result<T, Error> {
    let mut alone = 0;
    loop {
        let left = due.map(|due| due.saturating_duration_since(now()));
        let refusal = match submit(left).await {
            Err(Error::Refused(refusal)) => refusal,
            result => return result,
        };
        alone = if in_pool.count.load(Ordering::Relaxed) == 0 { alone + 1 } else { 0 };
        let Some(pause) = pause(&refusal, left).filter(|_| alone < TRIES_ALONE) else {
            return Err(reason(refusal, left).into());
        };
        tokio::select! {
            () = sleep(pause) => {}
            // The worker of the job that ended has to reset first.
            () = in_pool.ended.notified() => sleep(pause.min(SHORTEST_PAUSE)).await,
        }
    }
}

/// Returns why a job is given up: one that waited for room until its deadline is late, however full
/// the pool is.
fn reason(refusal: Refusal, left: Option<Duration>) -> Refusal {
    let has_time = left.is_none_or(|left| !left.is_zero());
    if has_time || !refusal.is_overload() {
        return refusal;
    }
    let none = Duration::ZERO;
    Refusal::DeadlineTooSoon { due_in: none, estimate: none, retry_after: None }
}

/// Returns how long to wait before the next attempt; `None` if there is none.
fn pause(refusal: &Refusal, left: Option<Duration>) -> Option<Duration> {
    // A deadline that can't be met is the job's result.
    let is_over = left.is_some_and(|left| left.is_zero());
    if is_over || !refusal.is_overload() || matches!(refusal, Refusal::DeadlineTooSoon { .. }) {
        return None;
    }
    let pause = refusal.retry_after().unwrap_or(PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    Some(left.map_or(pause, |left| pause.min(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(retry_after: Option<Duration>) -> Refusal {
        Refusal::QueueFull { queued: 1, limit: 1, retry_after }
    }

    /// Submits something that is refused `refusals` times, with other jobs in the pool or not.
    /// Returns whether it was accepted, after what time, and after how many attempts.
    async fn tried(
        refusals: u32,
        refusal: Refusal,
        deadline: Option<Duration>,
        others: usize,
    ) -> (bool, Duration, u32) {
        let start = now();
        let mut tries = 0;
        let submit = |_left| {
            tries += 1;
            let is_taken = tries > refusals;
            std::future::ready(if is_taken { Ok(()) } else { Err(refusal.clone().into()) })
        };
        let due = deadline.map(|deadline| start + deadline);
        let in_pool = InPool { count: AtomicUsize::new(others), ended: Notify::new() };
        let result = until_accepted(due, &in_pool, submit).await;
        (result.is_ok(), now() - start, tries)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_job_is_tried_again_when_the_pool_says() {
        let second = Duration::from_secs(1);
        assert_eq!(tried(3, full(Some(second)), None, 1).await, (true, 3 * second, 4));
        assert_eq!(tried(2, full(None), None, 1).await, (true, 2 * PAUSE, 3));
        assert_eq!(tried(1, full(Some(Duration::MAX)), None, 1).await, (true, LONGEST_PAUSE, 2));
        assert_eq!(tried(1, full(Some(Duration::ZERO)), None, 1).await, (true, SHORTEST_PAUSE, 2));
    }

    /// Otherwise workers would idle for as long as estimates are wrong.
    #[tokio::test(start_paused = true)]
    async fn a_refused_job_is_tried_again_when_another_one_has_ended() {
        let in_pool = InPool::default();
        let second = Duration::from_secs(1);
        let start = now();
        let mut tries = 0;
        let tried = until_accepted(None, &in_pool, |_left| {
            tries += 1;
            let has_room = now() - start > second;
            let refusal = full(Some(LONGEST_PAUSE));
            std::future::ready(if has_room { Ok(()) } else { Err(refusal.into()) })
        });
        let other = async {
            let _counted = Counted::new(&in_pool);
            sleep(second).await;
        };
        assert!(tokio::join!(other, tried).1.is_ok());
        assert_eq!((now() - start, tries), (second + SHORTEST_PAUSE, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn other_refusals_are_returned_at_once() {
        let (is_accepted, time, tries) = tried(1, Refusal::ShuttingDown, None, 1).await;
        assert_eq!((is_accepted, time, tries), (false, Duration::ZERO, 1));
        let too_soon = Refusal::DeadlineTooSoon {
            due_in: Duration::from_secs(1),
            estimate: Duration::from_secs(2),
            retry_after: Some(Duration::from_secs(1)),
        };
        let (is_accepted, time, tries) = tried(1, too_soon, Some(Duration::from_secs(1)), 1).await;
        assert_eq!((is_accepted, time, tries), (false, Duration::ZERO, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_ends_the_tries() {
        let deadline = Duration::from_millis(250);
        let (is_accepted, time, tries) = tried(u32::MAX, full(None), Some(deadline), 1).await;
        assert_eq!((is_accepted, time, tries), (false, deadline, 4));
        assert_eq!(reason(full(None), Some(Duration::ZERO)).name(), "deadline");
        assert_eq!(reason(full(None), Some(deadline)).name(), "queue_full");
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_an_empty_pool_refuses_is_given_up() {
        let (is_accepted, _, tries) = tried(u32::MAX, full(None), None, 0).await;
        assert_eq!((is_accepted, tries), (false, TRIES_ALONE));
        let (is_accepted, _, tries) = tried(10 * TRIES_ALONE, full(None), None, 1).await;
        assert_eq!((is_accepted, tries), (true, 10 * TRIES_ALONE + 1));
    }
}
