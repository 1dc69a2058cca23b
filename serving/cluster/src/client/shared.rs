//! What the tasks of a client share: its batch, and the jobs without a result.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::clock::sleep;
use crate::connect::Notice;
use crate::error::Error;
use crate::names::{BatchName, JobKey, Lane};
use crate::result::JobResult;
use crate::sessions::SessionKey;
use crate::streams::Streams;

use super::line::Waiting;

/// Between two attempts to reach the server.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// Attempts, after which somebody is told.
pub(super) const QUIET_ATTEMPTS: u32 = 10;

/// A submission of jobs.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(super) name: BatchName,
    /// Whether its jobs get the same keys again when they are submitted again.
    pub(super) is_repeatable: bool,
    /// Whether an earlier client may have submitted jobs of it.
    pub(super) is_resumed: bool,
}

impl Batch {
    /// A batch that nobody resumes.
    pub fn once() -> Self {
        Self { name: BatchName::random(), is_repeatable: false, is_resumed: false }
    }

    /// A new batch under this name, by which it can be resumed.
    pub fn begin(name: BatchName) -> Self {
        Self { name, is_repeatable: true, is_resumed: false }
    }

    /// A batch of which an earlier client has submitted some jobs. The same jobs get the same keys,
    /// and what has a result isn't run again.
    pub fn resume(name: BatchName) -> Self {
        Self { name, is_repeatable: true, is_resumed: true }
    }
}

/// What the client's tasks share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) streams: Streams,
    pub(super) batch: Batch,
    pub(super) state: Mutex<State>,
    pub(super) sending: Semaphore,
    /// Wakes the task that tells workers of jobs.
    pub(super) has_unannounced: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) pending: HashMap<JobKey, Pending>,
    /// How often each text was submitted. A resumed batch submits the same texts again, and has to
    /// give them the same keys. Keyed by digests, since batches are long.
    pub(super) repeats: HashMap<[u8; 16], u64>,
    /// The lanes whose consumers are there.
    pub(super) lanes: Vec<Lane>,
    /// The last turn of each session that is on its way to the server.
    pub(super) lines: HashMap<SessionKey, Waiting>,
    /// Lanes with jobs that no worker was told of.
    pub(super) unannounced: Vec<Lane>,
    /// Goes up with each result.
    pub(super) results: u64,
}

/// A job that has no result yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) subject: String,
    pub(super) message: PublishMessage,
    /// How often it was sent.
    pub(super) sent: u32,
    /// Whether the server has confirmed it.
    pub(super) is_stored: bool,
    pub(super) result: oneshot::Sender<JobResult>,
}

impl Inner {
    /// Makes sure that a lane has its consumer, from which workers know of it.
    pub(super) async fn ensure(&self, lane: &Lane) {
        let mut attempts = 0;
        while !self.state.lock().lanes.contains(lane) {
            match self.streams.consumer(lane).await {
                Ok(_) => {
                    let mut state = self.state.lock();
                    if !state.lanes.contains(lane) {
                        state.lanes.push(lane.clone());
                    }
                }
                Err(error) => {
                    attempts += 1;
                    if attempts == QUIET_ATTEMPTS {
                        let text = format!("can't make the consumer of the lane `{lane}`: {error}");
                        self.streams.link.tell(Notice::Trouble { text });
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Gives the result of a key to whoever waits for it.
    pub(super) fn deliver(&self, key: &JobKey, result: JobResult) {
        let mut state = self.state.lock();
        state.results += 1;
        if let Some(pending) = state.pending.remove(key) {
            // Nobody waits if the ticket was dropped.
            let _ = pending.result.send(result);
        }
    }

    /// Delivers the result of a key if the server has it. Returns whether it has.
    pub(super) async fn look_up(&self, key: &JobKey) -> bool {
        let subject = self.streams.subjects.result(key);
        let Ok(found) = self.streams.results.direct_get_last_for_subject(subject).await else {
            return false;
        };
        match self.streams.result(&found.payload, Some(&found.headers)).await {
            Ok(result) => {
                self.deliver(key, result);
                true
            }
            Err(error) => {
                tracing::info!("{error}");
                false
            }
        }
    }
}

impl Streams {
    /// Reads a result.
    ///
    /// # Errors
    /// Its text can't be had now.
    pub(super) async fn result(
        &self,
        payload: &Bytes,
        headers: Option<&HeaderMap>,
    ) -> Result<JobResult, Error> {
        match self.text(payload, headers).await {
            Ok(text) => Ok(JobResult::read(&text, headers)),
            Err(Error::Damaged { what }) => Ok(JobResult::damaged(&what)),
            Err(error) => Err(error),
        }
    }
}
