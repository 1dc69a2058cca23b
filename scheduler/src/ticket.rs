//! A caller's handle of one job's outcome, and how it waits for that.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use engine::{
    Cause, Cursor, Event, Next, Outcome, OwnerProcess, SandboxFailure, Transcript, Verdict,
};
use pool::{JobId, SpinWait};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};

use crate::error::Refusal;
use crate::message::Mailbox;
use crate::model::StopKind;

/// A caller's claim on the outcome of one job. Awaiting it returns the outcome; dropping it cancels
/// the job.
///
/// ```no_run
/// # async fn example(ticket: scheduler::Ticket) {
/// let outcome = ticket.await;
/// println!("{:?}", outcome.verdict);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a ticket cancels its job"]
pub struct Ticket {
    job: JobId,
    scheduler: Mailbox,
    reply: oneshot::Receiver<Box<Outcome>>,
    transcript: Arc<Transcript>,
    /// Told of every change of the transcript; set by the first who wants to know.
    changed: OnceLock<Arc<Notify>>,
    /// `None` once the job has ended, so that dropping the ticket cancels nothing.
    open: Option<PendingOutcome>,
    /// What [`Self::outcome`] has returned.
    outcome: Option<Box<Outcome>>,
}

impl Ticket {
    pub(crate) fn new(
        job: JobId,
        scheduler: Mailbox,
        open: PendingOutcome,
        reply: oneshot::Receiver<Box<Outcome>>,
        transcript: Arc<Transcript>,
    ) -> Self {
        let (open, outcome, changed) = (Some(open), None, OnceLock::new());
        Self { job, scheduler, reply, transcript, changed, open, outcome }
    }

    /// Returns what is notified of changes from now on.
    fn changed(&self) -> &Arc<Notify> {
        self.changed.get_or_init(|| {
            let changed = Arc::new(Notify::new());
            let watcher = Arc::clone(&changed);
            self.transcript.watch(move || watcher.notify_waiters());
            changed
        })
    }

    /// Returns the job's id, which is unique in its pool, and which `explain` and decisions use.
    pub fn job_id(&self) -> JobId {
        self.job
    }

    /// Returns a reader of everything that happens in the job, from its beginning, in one order.
    /// Each reader is independent of the ticket and of other readers, and may be slow or idle.
    ///
    /// ```no_run
    /// # async fn example(ticket: scheduler::Ticket) {
    /// let mut events = ticket.events();
    /// while let Some(event) = events.next().await {
    ///     println!("{}: {:?}", event.sequence, event.kind);
    /// }
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        let (cursor, owner) = (Cursor::default(), self.scheduler.owner());
        let changed = match owner.is_current() {
            true => Arc::clone(self.changed()),
            // Another thread of the parent may hold what the transcript is locked with.
            false => Arc::default(),
        };
        Events { transcript: Arc::clone(&self.transcript), changed, cursor, owner }
    }

    /// Raises `KeyboardInterrupt` in the program, as Ctrl-C does. The program may catch it and
    /// finish; if it runs on for [`Limits::grace`](engine::Limits::grace), it is stopped. A session
    /// keeps its variables; if the program had to be stopped, they are those from before the job. A
    /// queued job is cancelled.
    ///
    /// ```no_run
    /// # async fn example(ticket: scheduler::Ticket) {
    /// ticket.interrupt();
    /// // The program may catch `KeyboardInterrupt` and finish.
    /// let outcome = ticket.await;
    /// # drop(outcome);
    /// # }
    /// ```
    pub fn interrupt(&self) {
        self.scheduler.stop(self.job, StopKind::Interrupt);
    }

    /// Cancels the job. Its outcome still comes. In a session the program is interrupted first, so
    /// that the session survives; a fresh interpreter is stopped at once.
    ///
    /// ```no_run
    /// # async fn example(ticket: scheduler::Ticket) {
    /// ticket.cancel();
    /// println!("{:?}", ticket.await.verdict);
    /// # }
    /// ```
    pub fn cancel(&self) {
        self.scheduler.stop(self.job, StopKind::Cancel);
    }

    /// Stops the job at once. Its effects on its session are undone: [`Outcome::session_restored`].
    pub fn stop(&self) {
        self.scheduler.stop(self.job, StopKind::Kill);
    }

    /// Waits for the job to end and returns its outcome, the same at every call. Cancel-safe. In
    /// a forked child process no outcome comes, so it is a failure of the sandbox that says so.
    ///
    /// If the last jobs ended within 0.2 ms, and few jobs are open for the CPUs, this spins. It
    /// yields to the other tasks of its thread, and then spins that long for the outcome before it
    /// blocks.
    ///
    /// ```no_run
    /// # async fn example(mut ticket: scheduler::Ticket) {
    /// use std::time::Duration;
    ///
    /// let soon = tokio::time::timeout(Duration::from_secs(1), ticket.outcome()).await;
    /// if soon.is_err() {
    ///     ticket.cancel();
    /// }
    /// let outcome = ticket.await;
    /// # drop(outcome);
    /// # }
    /// ```
    pub async fn outcome(&mut self) -> Outcome {
        if self.outcome.is_none() {
            self.open.iter_mut().for_each(PendingOutcome::spin_again);
            let outcome = poll_fn(|context| self.poll_receive(context)).await;
            self.outcome = Some(outcome);
        }
        self.outcome.as_deref().expect("it was just received").clone()
    }

    /// Receives the one answer.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Box<Outcome>> {
        // What is here needs no wait: callers may poll once, and give up.
        let outcome = match received(&mut self.reply) {
            Some(outcome) => outcome,
            None if !self.scheduler.owner().is_current() => None,
            None => {
                let find = || received(&mut self.reply);
                match self.open.as_mut().map(|open| open.poll_spin(context, find)) {
                    Some(Poll::Ready(Some(outcome))) => outcome,
                    // While other tasks go first, the outcome wakes this one as well. One of them
                    // may block its thread, and an executor within tokio's never resumes them.
                    None | Some(Poll::Ready(None) | Poll::Pending) => {
                        ready!(Pin::new(&mut self.reply).poll(context)).ok()
                    }
                }
            }
        };
        let is_open = self.open.take().is_some();
        assert!(is_open || outcome.is_some(), "a ticket was polled after it gave its outcome");
        Poll::Ready(outcome.unwrap_or_else(|| Box::new(self.lost())))
    }

    /// Returns the outcome of a job whose outcome can't come any more.
    fn lost(&self) -> Outcome {
        let cause = match Refusal::unless_here(self.scheduler.owner()) {
            Ok(()) => Cause::from("the scheduler died"),
            // It comes in the other process.
            Err(refusal) => Cause::new(refusal),
        };
        Outcome::not_run(Verdict::SandboxFailed(SandboxFailure::WorkerDied(cause)))
    }
}

/// A reader of what happens in one job. It blocks nobody: what it hasn't read yet is kept within
/// the job's limits. Dropping it doesn't affect the job.
#[derive(Debug)]
pub struct Events {
    transcript: Arc<Transcript>,
    changed: Arc<Notify>,
    cursor: Cursor,
    owner: OwnerProcess,
}

impl Events {
    /// Returns the next event as it happens. `None` once the job has ended and all was read, and in
    /// a forked child process. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        if !self.owner.is_current() {
            return None;
        }
        loop {
            let changed = self.changed.notified();
            match self.transcript.read(&mut self.cursor) {
                Next::Found(event) => return Some(event),
                Next::End => return None,
                Next::Pending => changed.await,
            }
        }
    }
}

impl IntoFuture for Ticket {
    type Output = Outcome;
    type IntoFuture = AwaitedTicket;

    fn into_future(self) -> Self::IntoFuture {
        AwaitedTicket(self)
    }
}

/// A ticket that is awaited: waits as [`Ticket::outcome`] does. Dropping it cancels the job.
///
/// # Panics
/// If it is polled again after it gave the outcome.
#[derive(Debug)]
#[must_use = "dropping a ticket cancels its job"]
pub struct AwaitedTicket(Ticket);

impl Future for AwaitedTicket {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let ticket = &mut self.0;
        match ticket.outcome.take() {
            Some(outcome) => Poll::Ready(*outcome),
            None => ticket.poll_receive(context).map(|outcome| *outcome),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open.is_some() {
            self.cancel();
        }
    }
}

/// How long a caller spins for an outcome before it blocks. A short program takes about 50 µs, and
/// one whose worker has to be woken first twice as long.
const LONGEST_SPIN: Duration = Duration::from_micros(200);

/// The callers of a scheduler who wait for outcomes.
#[derive(Debug)]
pub(crate) struct OutcomeWaiters {
    spin: SpinWait,
    /// How many jobs have callers that don't have their outcomes.
    open: AtomicUsize,
    /// The most such jobs with which a caller spins.
    most_spinning: usize,
}

/// A job whose caller doesn't have its outcome.
#[derive(Debug)]
pub(crate) struct PendingOutcome {
    waiters: Arc<OutcomeWaiters>,
    phase: SpinPhase,
}

/// How far a caller is with spinning for an outcome.
#[derive(Debug, Clone, Copy)]
enum SpinPhase {
    Begins,
    /// The other tasks of its thread go first.
    Yields,
    Over,
}

impl OutcomeWaiters {
    /// Returns those on a machine with `cpus` CPUs. They spin while each can have a CPU, and its
    /// worker another one.
    pub(crate) fn new(cpus: usize) -> Arc<Self> {
        Arc::new(Self {
            spin: SpinWait::new(LONGEST_SPIN),
            open: AtomicUsize::new(0),
            most_spinning: cpus / 2,
        })
    }

    /// Counts a job until what this returns is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> PendingOutcome {
        self.open.fetch_add(1, Ordering::Relaxed);
        PendingOutcome { waiters: Arc::clone(self), phase: SpinPhase::Begins }
    }

    fn are_few(&self) -> bool {
        self.open.load(Ordering::Relaxed) <= self.most_spinning
    }
}

impl PendingOutcome {
    /// Spins for an outcome that isn't here yet, if CPUs are free for that; once for each wait.
    ///
    /// Other tasks of this thread go first, since they may be about to submit jobs. It is unusual
    /// for a future to keep its thread for up to 0.2 ms. This one does only while jobs end that
    /// soon. Otherwise the outcome of a short job comes 20 to 100 µs later and costs more CPU time.
    pub(crate) fn poll_spin<T>(
        &mut self,
        context: &mut Context<'_>,
        find: impl FnMut() -> Option<T>,
    ) -> Poll<Option<T>> {
        match std::mem::replace(&mut self.phase, SpinPhase::Over) {
            SpinPhase::Begins if self.waiters.are_few() => {
                self.phase = SpinPhase::Yields;
                // It wakes this task after the others.
                let yielded = pin!(tokio::task::yield_now()).poll(context);
                debug_assert!(yielded.is_pending(), "it yields once");
                Poll::Pending
            }
            SpinPhase::Yields if self.waiters.are_few() => {
                Poll::Ready(self.waiters.spin.until(find))
            }
            _ => Poll::Ready(None),
        }
    }

    /// Lets the next poll spin as the first one did.
    pub(crate) fn spin_again(&mut self) {
        self.phase = SpinPhase::Begins;
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
        self.waiters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Callers that spin for so long that no pause of this thread counts as a miss.
    fn waiters(cpus: usize) -> Arc<OutcomeWaiters> {
        let spin = SpinWait::new(std::time::Duration::from_secs(60));
        Arc::new(OutcomeWaiters { spin, open: AtomicUsize::new(0), most_spinning: cpus / 2 })
    }

    async fn spin<T>(open: &mut PendingOutcome, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        open.spin_again();
        poll_fn(|context| match find() {
            None => open.poll_spin(context, &mut find),
            found => Poll::Ready(found),
        })
        .await
    }

    /// Finds something at the third check: who polls checks before each of the two polls.
    fn later() -> impl FnMut() -> Option<u32> {
        let mut checks = 0;
        move || {
            checks += 1;
            (checks > 2).then_some(checks)
        }
    }

    #[tokio::test]
    async fn callers_spin_while_half_of_the_cpus_are_free() {
        let callers = waiters(5);
        let (mut first, mut second) = (callers.open(), callers.open());
        assert_eq!(spin(&mut second, later()).await, Some(3));
        let mut third = callers.open();
        assert_eq!(spin(&mut first, later()).await, None);
        drop(second);
        assert_eq!(spin(&mut third, later()).await, Some(3));
        let one_cpu = waiters(1);
        assert_eq!(spin(&mut one_cpu.open(), later()).await, None);
    }

    #[tokio::test]
    async fn nobody_spins_before_the_other_tasks_have_submitted() {
        let callers = waiters(2);
        let mut first = callers.open();
        let (found, second) = tokio::join!(spin(&mut first, later()), async { callers.open() });
        assert_eq!(found, None);
        drop(second);
        assert_eq!(spin(&mut first, later()).await, Some(3));
    }
}
