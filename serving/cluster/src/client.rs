//! The side that submits: sends jobs into the queue, and receives their results.
//!
//! A client has one batch of jobs and one reader of its results. What it sent is kept until its
//! result is there, so that a job that the server lost can be sent again.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::clock::sleep;
use crate::connect::Connection;
use crate::error::Error;
use crate::event::EventStream;
use crate::headers::{NTH, SESSION, WANTS, WANTS_EVENTS, WANTS_FILES};
use crate::names::{BatchName, JobKey, Lane, PoolName};
use crate::publish::Stored;
use crate::sessions::SessionKey;
use crate::streams::{Settings, Streams};

use self::shared::{Inner, Pending};

pub(crate) use line::Place;
pub use shared::Batch;
pub use ticket::Ticket;

mod checks;
mod line;
mod results;
mod shared;
mod ticket;

/// Messages that are on their way to the server at once.
const MOST_SENDING: usize = 256;
/// The shortest time between two words to the workers that there are jobs, while many have no result.
const WAKE_EVERY: Duration = Duration::from_millis(10);
/// Workers are told of each job while at most this many have no result: whoever submits few waits for
/// them.
const FEW: usize = 4;

/// Submits jobs to the pools of one name. Cheap to clone; clones share one batch. When the last
/// clone and the last ticket are dropped, it stops receiving results; its jobs go on.
///
/// ```no_run
/// # async fn example() -> Result<(), cluster::Error> {
/// use cluster::{Client, Connection, PoolName};
///
/// let connection = Connection::new("nats://127.0.0.1:4222");
/// let client = Client::connect(&connection, PoolName::new("default")?).await?;
/// let ticket = client.submit(&wire::Job::code("6 * 7")).await?;
/// let result = ticket.await?;
/// assert_eq!(result.json()["value"], 42);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
    /// Ends when the last clone is dropped.
    _reading: Arc<Reading>,
}

/// The tasks of a client, which end with it.
#[derive(Debug)]
struct Reading(Vec<JoinHandle<()>>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// A job on its way to the server.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) subject: String,
    pub(crate) key: JobKey,
    /// How many of its text came before.
    pub(crate) nth: u64,
    pub(crate) lane: Lane,
    pub(crate) text: Vec<u8>,
    pub(crate) wants: Wants,
    /// The name of its session.
    pub(crate) session: Option<&'a str>,
}

/// What a submitter wants beside the result.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Wants {
    /// Events while the job runs, as [`Ticket::events`] reads them.
    pub events: bool,
    /// The contents of files that the program created or changed, in its result.
    pub files: bool,
}

impl Wants {
    /// Wants events.
    pub fn events(self) -> Self {
        Self { events: true, ..self }
    }

    /// Wants the contents of files.
    pub fn files(self) -> Self {
        Self { files: true, ..self }
    }

    fn header(self) -> Option<String> {
        let wanted = [(self.events, WANTS_EVENTS), (self.files, WANTS_FILES)];
        let names: Vec<&str> =
            wanted.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, name)| name).collect();
        (!names.is_empty()).then(|| names.join(","))
    }
}

impl Client {
    /// Connects to a server, with a batch of its own.
    ///
    /// # Errors
    /// There is no server, it refuses the credentials, or it can't keep a pool.
    pub async fn connect(connection: &Connection, pool: PoolName) -> Result<Self, Error> {
        Self::open(connection, pool, &Settings::default(), Batch::once()).await
    }

    /// Connects to a server to submit the jobs of this batch. The settings apply if the pool isn't on
    /// the server yet.
    ///
    /// # Errors
    /// As for [`Self::connect`].
    pub async fn open(
        connection: &Connection,
        pool: PoolName,
        settings: &Settings,
        batch: Batch,
    ) -> Result<Self, Error> {
        let link = connection.connect().await?;
        let streams = Streams::open(link, pool, settings).await?;
        let next = streams.results.cached_info().state.last_sequence + 1;
        let inner = Arc::new(Inner {
            streams,
            batch,
            state: Mutex::default(),
            sending: Semaphore::new(MOST_SENDING),
            has_unannounced: Notify::new(),
        });
        let tasks = vec![
            tokio::spawn(results::receive(Arc::clone(&inner), next)),
            tokio::spawn(checks::check(Arc::clone(&inner))),
            tokio::spawn(announce(Arc::clone(&inner))),
        ];
        Ok(Self { inner, _reading: Arc::new(Reading(tasks)) })
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.inner.streams
    }

    /// Takes the last place in the line of a session's turns.
    pub(crate) fn place(&self, session: SessionKey) -> Place {
        Place::take(&self.inner, session)
    }

    /// Returns the batch that this client's jobs belong to.
    pub fn batch(&self) -> &BatchName {
        &self.inner.batch.name
    }

    /// Submits a job. Returns when the server has it; a full queue or a server that is gone is
    /// waited for, and told to the connection's listener.
    ///
    /// # Errors
    /// The job names a file of this machine, or is too large.
    pub async fn submit(&self, job: &wire::Job) -> Result<Ticket, Error> {
        self.submit_wanting(job, Wants::default()).await
    }

    /// Submits a job, and asks for more than its result.
    ///
    /// # Errors
    /// As for [`Self::submit`].
    pub async fn submit_wanting(&self, job: &wire::Job, wants: Wants) -> Result<Ticket, Error> {
        if job.file.is_some() {
            return Err(Error::File);
        }
        let lane = Lane::of(job)?;
        let text = text_of(job);
        let (key, nth) = self.key(&lane, &blake3::hash(&text));
        // Subscribed before the job can start.
        let events = match wants.events {
            true => Some(EventStream::open(&self.inner.streams, &key).await?),
            false => None,
        };
        self.inner.ensure(&lane).await;
        let subject = self.inner.streams.subjects.job(&lane, &key);
        let of = lane.clone();
        let outgoing = Outgoing { subject, key, nth, lane: of, text, wants, session: None };
        let ticket = self.send(outgoing, events).await?;
        let mut state = self.inner.state.lock();
        if !state.unannounced.contains(&lane) {
            state.unannounced.push(lane);
            self.inner.has_unannounced.notify_one();
        }
        Ok(ticket)
    }

    /// Stores a job on its subject, unless its result is there. Returns when the server has it.
    pub(crate) async fn send(
        &self,
        outgoing: Outgoing<'_>,
        events: Option<EventStream>,
    ) -> Result<Ticket, Error> {
        let Outgoing { subject, key, nth, lane, text, wants, session } = outgoing;
        let (sender, receiver) = oneshot::channel();
        let inner = &self.inner;
        let payload = inner.streams.payload(text).await?;
        let mut headers = HeaderMap::new();
        payload.add_to(&mut headers);
        headers.insert(NTH, nth.to_string());
        if let Some(wants) = wants.header() {
            headers.insert(WANTS, wants.as_str());
        }
        if let Some(session) = session {
            headers.insert(SESSION, session);
        }
        let message = PublishMessage::build()
            .payload(payload.inline)
            .headers(headers)
            .message_id(key.to_string());
        let pending = Pending {
            subject: subject.clone(),
            message: message.clone(),
            sent: 1,
            is_stored: false,
            result: sender,
        };
        inner.state.lock().pending.insert(key.clone(), pending);
        let of = subject.clone();
        let ticket = Ticket::new(key.clone(), receiver, events, lane, of, self.clone());
        // After it is pending: a result that comes from now on finds it.
        if inner.batch.is_resumed && inner.look_up(&key).await {
            return Ok(ticket);
        }
        let stored = {
            let _permit = inner.sending.acquire().await.map_err(|_| Error::Closed)?;
            inner.streams.store(&subject, &message).await
        };
        match stored {
            Ok(Stored::New | Stored::Already) => {}
            Err(error) => {
                inner.state.lock().pending.remove(&key);
                return Err(error);
            }
        }
        if let Some(pending) = inner.state.lock().pending.get_mut(&key) {
            pending.is_stored = true;
        }
        Ok(ticket)
    }

    /// Forgets the results of this batch, which the server otherwise keeps for days. For a batch
    /// whose results are all received.
    ///
    /// # Errors
    /// The server doesn't answer, or refuses.
    pub async fn forget_results(&self) -> Result<(), Error> {
        let streams = &self.inner.streams;
        let purge =
            streams.results.purge().filter(streams.subjects.results_of(&self.inner.batch.name));
        let purged = purge.await;
        purged.map(drop).map_err(|error| Error::Server {
            what: "forget results",
            source: error.to_string().into(),
        })
    }

    /// Returns the key of the next job whose text has this digest, and how many of the text came
    /// before.
    pub(crate) fn key(&self, lane: &Lane, text: &blake3::Hash) -> (JobKey, u64) {
        let mut digest = [0; 16];
        digest.copy_from_slice(&text.as_bytes()[..16]);
        let mut state = self.inner.state.lock();
        // A batch that nobody resumes counts all its jobs, and so has nothing to remember of each.
        let digest = if self.inner.batch.is_repeatable { digest } else { [0; 16] };
        let count = state.repeats.entry(digest).or_default();
        let nth = *count;
        *count += 1;
        (JobKey::of(&self.inner.batch.name, lane, text, nth), nth)
    }
}

/// Tells workers of jobs, so that idle ones needn't ask all the time. What gets lost is made up for
/// by their asking now and then.
async fn announce(inner: Arc<Inner>) {
    loop {
        inner.has_unannounced.notified().await;
        let lanes = std::mem::take(&mut inner.state.lock().unannounced);
        for lane in lanes {
            let subject = inner.streams.subjects.wake();
            let _ = inner.streams.link.client().publish(subject, lane.to_string().into()).await;
        }
        if inner.state.lock().pending.len() > FEW {
            sleep(WAKE_EVERY).await;
        }
    }
}

pub(crate) fn text_of(job: &wire::Job) -> Vec<u8> {
    // Strings, numbers and maps with strings as keys can always be written.
    serde_json::to_vec(job).unwrap_or_else(|_| Value::Null.to_string().into_bytes())
}
