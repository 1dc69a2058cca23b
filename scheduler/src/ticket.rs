//! A caller's claim on the outcome of one job.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use engine::{
    Cause, Chunk, Cursor, Event, Home, Next, Outcome, SandboxFailure, Transcript, Verdict,
};
use pool::JobId;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};

use crate::callers::OpenJob;
use crate::error::Refusal;
use crate::message::Mailbox;
use crate::model::Ending;

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
    cursor: Cursor,
    changed: Arc<Notify>,
    /// `None` once the job has ended, so that dropping the ticket cancels nothing.
    open: Option<OpenJob>,
    /// What [`Self::outcome`] has returned.
    outcome: Option<Box<Outcome>>,
}

impl Ticket {
    pub(crate) fn new(
        job: JobId,
        scheduler: Mailbox,
        open: OpenJob,
        reply: oneshot::Receiver<Box<Outcome>>,
        transcript: Arc<Transcript>,
    ) -> Self {
        let changed = Arc::new(Notify::new());
        transcript.watch({
            let changed = Arc::clone(&changed);
            move || changed.notify_waiters()
        });
        let cursor = Cursor::default();
        let (open, outcome) = (Some(open), None);
        Self { job, scheduler, reply, transcript, cursor, changed, open, outcome }
    }

    /// Returns the job's id, which is unique in its pool, and which `explain` and decisions use.
    pub fn job_id(&self) -> JobId {
        self.job
    }

    /// Returns the next chunk of output as it is written; `None` once the job has ended and all was
    /// read. If the job is retried, the failed try's output comes first; only [`Self::events`]
    /// tells the two apart. Cancel-safe.
    ///
    /// ```no_run
    /// # async fn example(mut ticket: scheduler::Ticket) {
    /// while let Some(chunk) = ticket.next_output().await {
    ///     print!("{}", String::from_utf8_lossy(&chunk.bytes));
    /// }
    /// let outcome = ticket.await;
    /// # drop(outcome);
    /// # }
    /// ```
    pub async fn next_output(&mut self) -> Option<Chunk> {
        if !self.scheduler.home().is_here() {
            return None;
        }
        loop {
            // Created before the read, so that no change in between is missed.
            let changed = self.changed.notified();
            match self.transcript.read(&mut self.cursor) {
                Next::Found(chunk) => return Some(chunk),
                Next::End => return None,
                Next::Pending => changed.await,
            }
        }
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
        let cursor = Cursor::default();
        let (transcript, changed) = (Arc::clone(&self.transcript), Arc::clone(&self.changed));
        Events { transcript, changed, cursor, home: self.scheduler.home() }
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
        self.scheduler.end(self.job, Ending::Interrupt);
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
        self.scheduler.end(self.job, Ending::Cancel);
    }

    /// Stops the job at once. Its effects on its session are undone: [`Outcome::session_restored`].
    pub fn stop(&self) {
        self.scheduler.end(self.job, Ending::Stop);
    }

    /// Waits for the job to end and returns its outcome, the same at every call. Cancel-safe. In
    /// a forked child process no outcome comes, so it is a failure of the sandbox that says so.
    ///
    /// While the last jobs ended within 0.2 ms, and no more jobs are open than half of the CPUs, this
    /// yields to the other tasks of its thread, and then looks for the outcome that long before it
    /// sleeps.
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
            let outcome = self.receive().await;
            self.outcome = Some(outcome);
        }
        self.outcome.as_deref().expect("it was just received").clone()
    }

    /// Waits for the one answer. Cancel-safe.
    async fn receive(&mut self) -> Box<Outcome> {
        let lost =
            |cause| Outcome::not_run(Verdict::SandboxFailed(SandboxFailure::WorkerDied(cause)));
        let outcome = match Refusal::unless_here(self.scheduler.home()) {
            Ok(()) => {
                let reply = &mut self.reply;
                let find = || match reply.try_recv() {
                    Err(TryRecvError::Empty) => None,
                    // Nothing more can be received.
                    received => Some(received.ok()),
                };
                let looked = match &self.open {
                    Some(open) => open.look(find).await,
                    None => None,
                };
                let outcome = match looked {
                    Some(outcome) => outcome,
                    None => reply.await.ok(),
                };
                outcome.ok_or_else(|| lost("the scheduler died".into()))
            }
            // It comes in the other process, unless it came before the fork.
            Err(refusal) => self.reply.try_recv().map_err(|_| lost(Cause::new(refusal))),
        };
        self.open = None;
        outcome.unwrap_or_else(Box::new)
    }
}

/// A reader of what happens in one job. It blocks nobody: what it hasn't read yet is kept within
/// the job's limits. Dropping it doesn't affect the job.
#[derive(Debug)]
pub struct Events {
    transcript: Arc<Transcript>,
    changed: Arc<Notify>,
    cursor: Cursor,
    home: Home,
}

impl Events {
    /// Returns the next event as it happens; `None` once the job has ended and all was read, and in
    /// a forked child process. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        if !self.home.is_here() {
            return None;
        }
        loop {
            let changed = self.changed.notified();
            match self.transcript.read_event(&mut self.cursor) {
                Next::Found(event) => return Some(event),
                Next::End => return None,
                Next::Pending => changed.await,
            }
        }
    }
}

impl IntoFuture for Ticket {
    type Output = Outcome;
    type IntoFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.outcome.take() {
                Some(outcome) => *outcome,
                None => *self.receive().await,
            }
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open.is_some() {
            self.cancel();
        }
    }
}
