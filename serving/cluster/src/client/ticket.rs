//! What a submitter holds of a job: its key, its events, and its result to come.

use std::future::IntoFuture;
use std::pin::Pin;

use async_nats::jetstream::message::PublishMessage;
use tokio::sync::oneshot;

use crate::control::Control;
use crate::error::Error;
use crate::event::EventStream;
use crate::names::{JobKey, Lane};
use crate::publish::Stored;
use crate::result::{self, JobResult};

use super::Client;

/// A submitter's claim on the result of one job. Awaiting it returns the result. Dropping it drops
/// the result, but doesn't cancel the job.
#[derive(Debug)]
#[must_use = "it has the result of the job"]
pub struct Ticket {
    key: JobKey,
    receiver: oneshot::Receiver<JobResult>,
    events: Option<EventStream>,
    lane: Lane,
    /// Of the job, or of the turn.
    subject: String,
    client: Client,
}

impl Ticket {
    pub(super) fn new(
        key: JobKey,
        receiver: oneshot::Receiver<JobResult>,
        events: Option<EventStream>,
        lane: Lane,
        subject: String,
        client: Client,
    ) -> Self {
        Self { key, receiver, events, lane, subject, client }
    }

    /// Returns the job's key.
    pub fn key(&self) -> &JobKey {
        &self.key
    }

    /// Returns the reader of the job's events, if they were asked for; the first call alone has it.
    pub fn events(&mut self) -> Option<EventStream> {
        self.events.take()
    }

    /// Waits for the result. Cancel-safe; to be called until it returns once.
    ///
    /// # Errors
    /// The client was closed.
    pub async fn result(&mut self) -> Result<JobResult, Error> {
        (&mut self.receiver).await.map_err(|_| Error::Closed)
    }

    /// Cancels the job: its result is `cancelled`, unless it has one already. A program that runs is
    /// stopped soon. Returns whether the job is cancelled. A turn of a session that ran may have left
    /// something in the state.
    ///
    /// # Errors
    /// The server doesn't take the result.
    pub async fn cancel(&self) -> Result<bool, Error> {
        let streams = self.client.streams();
        let text = result::cancelled().to_string();
        let message =
            PublishMessage::build().payload(text.into()).expected_last_subject_sequence(0);
        let stored = streams.store(&streams.subjects.result(&self.key), &message).await?;
        if stored == Stored::Already {
            return Ok(false);
        }
        // Out of the queue, if it is there. If this fails, a worker finds the result and drops the
        // job.
        let _ = streams.queue(&self.subject).purge().filter(&self.subject).await;
        let control = Control::Cancel { key: self.key.to_string() };
        control.send(streams, &self.lane).await;
        Ok(true)
    }

    /// Raises `KeyboardInterrupt` in the program, if a worker runs it now. The message may get lost.
    pub async fn interrupt(&self) {
        let control = Control::Interrupt { key: self.key.to_string() };
        control.send(self.client.streams(), &self.lane).await;
    }
}

impl IntoFuture for Ticket {
    type Output = Result<JobResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move { self.result().await })
    }
}
