//! What a submitter holds of a job: its key, its events, and its result to come.

use std::future::IntoFuture;
use std::pin::Pin;

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use wire::{Problem, ProblemKind};

use crate::control::Control;
use crate::error::Error;
use crate::event::EventStream;
use crate::names::{JobKey, Lane};
use crate::publish::Stored;
use crate::result;

use super::Client;

/// Which worker stored a result.
pub(crate) const WORKER: &str = "Hatchery-Worker";

/// The result of a job, as `Outcome::to_tool_json` has it: the same as of a local pool.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobResult {
    json: Map<String, Value>,
    worker: Option<String>,
}

impl JobResult {
    /// Returns the result.
    pub fn json(&self) -> &Map<String, Value> {
        &self.json
    }

    /// Returns the result.
    pub fn into_json(self) -> Value {
        self.json.into()
    }

    /// Returns whether the program succeeded.
    pub fn is_success(&self) -> bool {
        self.json.get("success") == Some(&Value::Bool(true))
    }

    /// Returns whether the job is a dead letter: it was started again and again, and whoever ran it
    /// died. The `history` of the result's error says who.
    pub fn is_dead_letter(&self) -> bool {
        let error = self.json.get("error").and_then(|error| error.get("reason"));
        error.and_then(Value::as_str) == Some(result::DEAD_LETTER)
    }

    /// Returns the name of the worker that stored it; `None` if nobody ran the job.
    pub fn worker(&self) -> Option<&str> {
        self.worker.as_deref()
    }

    pub(super) fn read(text: &[u8], headers: Option<&HeaderMap>) -> Self {
        let worker = headers.and_then(|headers| headers.get(WORKER)).map(|name| name.to_string());
        match serde_json::from_slice(text) {
            Ok(Value::Object(json)) => Self { json, worker },
            _ => Self::damaged("a result"),
        }
    }

    /// Returns the result of a job whose result can't be read.
    pub(super) fn damaged(what: &str) -> Self {
        let error = Error::Damaged { what: what.to_owned() };
        let problem = Problem::new(ProblemKind::Sandbox, error.to_string());
        match result::failed(&problem.with_reason("damaged")) {
            Value::Object(json) => Self { json, worker: None },
            _ => Self { json: Map::new(), worker: None },
        }
    }
}

/// A submitter's claim on the result of one job. Awaiting it returns the result. Dropping it drops
/// the result, but doesn't cancel the job.
#[derive(Debug)]
#[must_use = "it has the result of the job"]
pub struct Ticket {
    key: JobKey,
    receiver: oneshot::Receiver<JobResult>,
    events: Option<EventStream>,
    lane: Lane,
    client: Client,
}

impl Ticket {
    pub(super) fn new(
        key: JobKey,
        receiver: oneshot::Receiver<JobResult>,
        events: Option<EventStream>,
        lane: Lane,
        client: Client,
    ) -> Self {
        Self { key, receiver, events, lane, client }
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
    /// stopped soon. Returns whether the job is cancelled.
    ///
    /// # Errors
    /// The server doesn't take the result.
    pub async fn cancel(&self) -> Result<bool, Error> {
        let streams = &self.client.inner.streams;
        let text = result::cancelled().to_string();
        let message =
            PublishMessage::build().payload(text.into()).expected_last_subject_sequence(0);
        let stored = streams.store(&streams.subjects.result(&self.key), &message).await?;
        if stored == Stored::Already {
            return Ok(false);
        }
        // Out of the queue, if it is there. If this fails, a worker finds the result and drops the
        // job.
        let _ = streams.jobs.purge().filter(streams.subjects.job(&self.lane, &self.key)).await;
        let control = Control::Cancel { key: self.key.to_string() };
        control.send(streams).await;
        Ok(true)
    }

    /// Raises `KeyboardInterrupt` in the program, if a worker runs it now. The message may get lost.
    pub async fn interrupt(&self) {
        let control = Control::Interrupt { key: self.key.to_string() };
        control.send(&self.client.inner.streams).await;
    }
}

impl IntoFuture for Ticket {
    type Output = Result<JobResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move { self.result().await })
    }
}
