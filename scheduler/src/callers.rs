//! How callers wait for outcomes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use pool::SpinWait;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// How long a caller looks for an outcome before it sleeps. A short program takes some 50 µs, and
/// one whose worker has to be woken first twice as long.
const LONGEST_LOOK: Duration = Duration::from_micros(200);

/// What the callers of a scheduler share.
#[derive(Debug)]
pub(crate) struct OutcomeWaiters {
    look: SpinWait,
    /// How many jobs have callers that don't have their outcomes.
    open: AtomicUsize,
    /// The most such jobs with which a caller looks.
    most_looking: usize,
}

/// A job whose caller doesn't have its outcome.
#[derive(Debug)]
pub(crate) struct PendingOutcome {
    callers: Arc<OutcomeWaiters>,
    looking: Looking,
}

/// How far a caller is with looking for an outcome.
#[derive(Debug, Clone, Copy)]
enum Looking {
    Begins,
    /// The other tasks of its thread go first.
    Yields,
    Over,
}

impl OutcomeWaiters {
    /// Returns the callers of a scheduler on a machine with `cpus` CPUs. They look while each of
    /// them can have a CPU, and its worker another one.
    pub(crate) fn new(cpus: usize) -> Arc<Self> {
        Arc::new(Self {
            look: SpinWait::new(LONGEST_LOOK),
            open: AtomicUsize::new(0),
            most_looking: cpus / 2,
        })
    }

    /// Counts a job until what this returns is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> PendingOutcome {
        self.open.fetch_add(1, Ordering::Relaxed);
        PendingOutcome { callers: Arc::clone(self), looking: Looking::Begins }
    }

    fn are_few(&self) -> bool {
        self.open.load(Ordering::Relaxed) <= self.most_looking
    }
}

impl PendingOutcome {
    /// Looks for an outcome that isn't here yet without sleeping, for a while, if CPUs are free for
    /// that. Once it was polled to its end, it looks no more.
    ///
    /// Other tasks of this thread go first, since they may be about to submit jobs: if the first of
    /// many kept them from it, the jobs would run one after another.
    ///
    /// It is unusual for a future to keep its thread for up to 0.2 ms. This one goes on doing so only
    /// while jobs end within that time ([`SpinWait::until`]). Without it, the outcome of a short job comes
    /// 20 to 100 µs later and costs more CPU time, since the caller sleeps and the worker wakes it.
    pub(crate) fn poll_look<T>(
        &mut self,
        context: &mut Context<'_>,
        find: impl FnMut() -> Option<T>,
    ) -> Poll<Option<T>> {
        match std::mem::replace(&mut self.looking, Looking::Over) {
            Looking::Begins if self.callers.are_few() => {
                self.looking = Looking::Yields;
                // It wakes this task after the others.
                let yielded = pin!(tokio::task::yield_now()).poll(context);
                debug_assert!(yielded.is_pending(), "it yields once");
                Poll::Pending
            }
            Looking::Yields if self.callers.are_few() => Poll::Ready(self.callers.look.until(find)),
            Looking::Begins | Looking::Yields | Looking::Over => Poll::Ready(None),
        }
    }

    /// Lets the next poll look as the first one did.
    pub(crate) fn look_again(&mut self) {
        self.looking = Looking::Begins;
    }
}

/// Returns what has come to a receiver: `Some(None)` if nothing can come any more.
pub(crate) fn received<T>(receiver: &mut oneshot::Receiver<T>) -> Option<Option<T>> {
    match receiver.try_recv() {
        Err(TryRecvError::Empty) => None,
        received => Some(received.ok()),
    }
}

impl Drop for PendingOutcome {
    fn drop(&mut self) {
        self.callers.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn look<T>(open: &mut PendingOutcome, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        open.look_again();
        poll_fn(|context| match find() {
            None => open.poll_look(context, &mut find),
            found => Poll::Ready(found),
        })
        .await
    }

    /// Finds something at the third look: who polls looks before each of the two polls.
    fn later() -> impl FnMut() -> Option<u32> {
        let mut looks = 0;
        move || {
            looks += 1;
            (looks > 2).then_some(looks)
        }
    }

    #[tokio::test]
    async fn callers_look_while_half_of_the_cpus_are_free() {
        let callers = OutcomeWaiters::new(5);
        let (mut first, mut second) = (callers.open(), callers.open());
        assert_eq!(look(&mut second, later()).await, Some(3));
        let mut third = callers.open();
        assert_eq!(look(&mut first, later()).await, None);
        drop(second);
        assert_eq!(look(&mut third, later()).await, Some(3));
        let one_cpu = OutcomeWaiters::new(1);
        assert_eq!(look(&mut one_cpu.open(), later()).await, None);
    }

    #[tokio::test]
    async fn nobody_looks_before_the_other_tasks_have_submitted() {
        let callers = OutcomeWaiters::new(2);
        let mut first = callers.open();
        let (looked, second) = tokio::join!(look(&mut first, later()), async { callers.open() });
        assert_eq!(looked, None);
        drop(second);
        assert_eq!(look(&mut first, later()).await, Some(3));
    }
}
