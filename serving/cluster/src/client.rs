//! The submitting side: sends jobs into the queue, and receives their results.
//!
//! A client has one batch of jobs and one reader of its results. It keeps each job until its result
//! is there, so that it can send a lost job again.

use std::collections::{HashMap, HashSet};
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, oneshot};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::timeout;

use crate::clock::sleep;
use crate::connect::Connection;
use crate::error::{Cause, Error};
use crate::names::{BatchName, JobKey, Lane, PoolName};
use crate::payload::{
    Command, Control, LARGEST_INLINE, NTH, SESSION, Stored, WANTS, WANTS_EVENTS, WANTS_FILES,
};
use crate::result::{self, EventStream, JobResult};
use crate::sessions::SessionKey;
use crate::streams::{Settings, Streams};

/// Messages that are on their way to the server at once.
const MOST_SENDING: usize = 256;
/// The shortest time between two words to the workers that there are jobs, while many have no result.
const WAKE_EVERY: Duration = Duration::from_millis(10);
/// Workers are notified of each job while at most this many have no result. A submitter of few jobs
/// waits for them.
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
    inner: Arc<ClientShared>,
    /// They end when the last clone is dropped.
    _tasks: Arc<JoinSet<()>>,
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
        let streams = Streams::open(connection.connect().await?, pool, settings).await?;
        let next = streams.results.cached_info().state.last_sequence + 1;
        let inner = Arc::new(ClientShared {
            streams,
            batch,
            state: Mutex::default(),
            sending: Semaphore::new(MOST_SENDING),
            has_unannounced: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(receive(Arc::clone(&inner), next));
        tasks.spawn(check(Arc::clone(&inner)));
        tasks.spawn(announce(Arc::clone(&inner)));
        Ok(Self { inner, _tasks: Arc::new(tasks) })
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.inner.streams
    }

    /// Takes the last place in the line of a session's turns, at once. The future ends when those
    /// before have left the line. Those after wait until its guard is dropped, or it is itself.
    pub(crate) fn place(
        &self,
        session: SessionKey,
    ) -> impl Future<Output = OwnedMutexGuard<()>> + Send + use<> {
        let mut state = self.inner.state.lock();
        // The others are empty.
        state.lines.retain(|_, line| Arc::strong_count(line) > 1);
        let line = Arc::clone(state.lines.entry(session).or_default());
        // Once polled, it is in the line, unless the task has used up its budget.
        let mut locking = Box::pin(unconstrained(line.lock_owned()));
        let locked = (&mut locking).now_or_never();
        async move {
            match locked {
                Some(guard) => guard,
                None => locking.await,
            }
        }
    }

    /// Submits a job. Returns when the server has it. A full queue or a server that is gone is
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
        let ticket = self.send(job, wants, None).await?;
        let mut state = self.inner.state.lock();
        if !state.unannounced.contains(&ticket.lane) {
            state.unannounced.push(ticket.lane.clone());
            self.inner.has_unannounced.notify_one();
        }
        Ok(ticket)
    }

    /// Stores a job on its subject, unless its result is there. Returns when the server has it. A turn
    /// has a session with its name.
    pub(crate) async fn send(
        &self,
        job: &wire::Job,
        wants: Wants,
        session: Option<(&SessionKey, &str)>,
    ) -> Result<Ticket, Error> {
        let inner = &self.inner;
        let lane = Lane::of(job)?;
        // Strings, numbers and maps with strings as keys can always be written.
        let text = serde_json::to_vec(job).unwrap_or_default();
        let digest = blake3::hash(&text);
        // The same text may be a turn of several sessions.
        let digest = session.map_or(digest, |(session, _)| session.text(&digest));
        let (key, nth) = self.key(&lane, &digest);
        // Subscribed before the job can start.
        let events = match wants.events {
            true => Some(EventStream::open(&inner.streams, &key).await?),
            false => None,
        };
        let subject = match session {
            Some((session, _)) => inner.streams.subjects.turn(session, &lane, &key),
            None => {
                inner.ensure(&lane).await;
                inner.streams.subjects.job(&lane, &key)
            }
        };
        let (sender, receiver) = oneshot::channel();
        let payload = inner.streams.payload(text, LARGEST_INLINE).await?;
        let mut headers = HeaderMap::new();
        payload.add_to(&mut headers);
        headers.insert(NTH, nth.to_string());
        if let Some(wants) = wants.header() {
            headers.insert(WANTS, wants.as_str());
        }
        if let Some((_, name)) = session {
            headers.insert(SESSION, name);
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
        let (client, of) = (self.clone(), subject.clone());
        let ticket = Ticket { key: key.clone(), receiver, events, lane, subject: of, client };
        // After it is pending: a result that comes from now on finds it.
        if inner.batch.is_resumed && inner.look_up(&key).await {
            return Ok(ticket);
        }
        let stored = {
            let _permit = inner.sending.acquire().await.map_err(|_| Error::Closed)?;
            inner.streams.store(&subject, &message).await
        };
        if let Err(error) = stored {
            inner.state.lock().pending.remove(&key);
            return Err(error);
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
        purged.map(drop).map_err(|error| Error::server("forget results", error))
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
async fn announce(inner: Arc<ClientShared>) {
    loop {
        inner.has_unannounced.notified().await;
        let lanes = std::mem::take(&mut inner.state.lock().unannounced);
        for lane in lanes {
            let subject = inner.streams.subjects.wake();
            let _ = inner.streams.client.publish(subject, lane.to_string().into()).await;
        }
        if inner.state.lock().pending.len() > FEW {
            sleep(WAKE_EVERY).await;
        }
    }
}

/// How long no result may come before jobs are looked after.
const QUIET: Duration = Duration::from_secs(10);
/// Jobs that are looked after in one go.
const MOST_CHECKED: usize = 256;

/// Checks until it is dropped.
async fn check(inner: Arc<ClientShared>) {
    let mut results = 0;
    loop {
        sleep(QUIET).await;
        let (now, keys) = {
            let state = inner.state.lock();
            let stored = state.pending.iter().filter(|(_, pending)| pending.is_stored);
            let keys: Vec<JobKey> = stored.map(|(key, _)| key.clone()).take(MOST_CHECKED).collect();
            (state.results, keys)
        };
        if std::mem::replace(&mut results, now) != now {
            continue;
        }
        for key in keys {
            look_after(&inner, &key).await;
        }
    }
}

async fn look_after(inner: &ClientShared, key: &JobKey) {
    let subject = match inner.state.lock().pending.get(key) {
        Some(pending) => pending.subject.clone(),
        None => return,
    };
    // In this order: a job's result is stored before the job leaves the queue.
    let queued = inner.streams.queue(&subject).direct_get_last_for_subject(subject.clone()).await;
    let is_missing = queued.is_err_and(|error| {
        error.kind() == async_nats::jetstream::stream::DirectGetErrorKind::NotFound
    });
    if inner.look_up(key).await || !is_missing {
        return;
    }
    let message = {
        let mut state = inner.state.lock();
        let Some(pending) = state.pending.get_mut(key) else { return };
        pending.sent += 1;
        // The server remembers the id of the lost one.
        pending.message.clone().message_id(format!("{key}.{}", pending.sent))
    };
    tracing::warn!("the NATS server has lost the job `{key}`, which is sent again");
    if let Err(error) = inner.streams.store(&subject, &message).await {
        tracing::warn!("{error}");
    }
}

// Receives the results of a batch, in the order in which they were stored.
//
// The reader on the server may vanish with the server, and messages with a connection. So the client
// counts what it has received. A new reader begins where the old one has left a gap.

/// Results in one answer to a request for more.
const MOST_RESULTS: usize = 256;
/// Bytes of them.
const MOST_BYTES: usize = 32 << 20;
/// How long one request for more is open.
const OPEN: Duration = Duration::from_secs(5);
/// How long a request that the server has forgotten is waited for.
const SILENCE: Duration = Duration::from_secs(7);
/// How long the server keeps a reader that asks for nothing.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Delivers the results with at least this sequence number in the stream, until it is dropped.
async fn receive(inner: Arc<ClientShared>, mut next: u64) {
    loop {
        // A reader doesn't outlive the connection: what was on its way is lost.
        let reading = read(&inner, &mut next);
        if let Some(Err(error)) = inner.streams.link.unless_renewed(reading).await {
            tracing::info!("recreating the reader of results: {error}");
            sleep(PAUSE).await;
        }
    }
}

/// Reads until something is missing.
async fn read(inner: &Arc<ClientShared>, next: &mut u64) -> Result<(), Cause> {
    // A server that lost power may have lost the end of the stream, and counts on from before it.
    let state = inner.streams.results.get_info().await?.state;
    *next = (*next).min(state.last_sequence + 1);
    let config = pull::Config {
        filter_subject: inner.streams.subjects.results_of(&inner.batch.name),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: *next },
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: FORGOTTEN,
        ..pull::Config::default()
    };
    let consumer: PullConsumer = inner.streams.results.create_consumer(config).await?;
    let mut expected = 1;
    loop {
        let builder = consumer.batch().max_messages(MOST_RESULTS).max_bytes(MOST_BYTES);
        let mut messages = builder.expires(OPEN).messages().await?;
        while let Some(message) = timeout(SILENCE, messages.next()).await? {
            let message = match message {
                Ok(message) => message,
                // The answer would be too large; the next one may have the rest.
                Err(error) if error.to_string().contains("409") => break,
                Err(error) => return Err(error),
            };
            let info = message.info()?;
            if info.consumer_sequence != expected {
                return Err("results were lost in transit".into());
            }
            let sequence = info.stream_sequence;
            take(inner, message).await;
            expected += 1;
            *next = sequence + 1;
        }
    }
}

async fn take(inner: &Arc<ClientShared>, message: Message) {
    let key = inner.streams.subjects.rest(&message.subject, "results").and_then(JobKey::parse);
    let Some(key) = key else { return };
    let read = || inner.streams.result(&message.payload, message.headers.as_ref());
    let result = inner.streams.link.insist("read a result", QUICKLY, read).await;
    inner.deliver(&key, result);
}

/// Between two attempts to reach the server.
const PAUSE: Duration = Duration::from_millis(200);
/// Attempts, after which a notice is sent, and the pause between them.
const QUICKLY: (u32, Duration) = (10, PAUSE);

/// A submission of jobs.
#[derive(Debug, Clone)]
pub struct Batch {
    name: BatchName,
    /// Whether its jobs get the same keys again when they are submitted again.
    is_repeatable: bool,
    /// Whether an earlier client may have submitted jobs of it.
    is_resumed: bool,
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
struct ClientShared {
    streams: Streams,
    batch: Batch,
    state: Mutex<ClientState>,
    sending: Semaphore,
    /// Wakes the task that tells workers of jobs.
    has_unannounced: Notify,
}

#[derive(Debug, Default)]
struct ClientState {
    pending: HashMap<JobKey, Pending>,
    /// How often each text was submitted. A resumed batch submits the same texts again, and has to
    /// give them the same keys. Keyed by digests, since batches are long.
    repeats: HashMap<[u8; 16], u64>,
    /// The lanes whose consumers are there.
    lanes: HashSet<Lane>,
    /// Held by the turn of each session that is on its way to the server.
    lines: HashMap<SessionKey, Arc<tokio::sync::Mutex<()>>>,
    /// Lanes with jobs of which no worker was notified.
    unannounced: Vec<Lane>,
    /// Goes up with each result.
    results: u64,
}

/// A job that has no result yet.
#[derive(Debug)]
struct Pending {
    subject: String,
    message: PublishMessage,
    /// How often it was sent.
    sent: u32,
    /// Whether the server has confirmed it.
    is_stored: bool,
    result: oneshot::Sender<JobResult>,
}

impl ClientShared {
    /// Makes sure that a lane has its consumer, from which workers know of it.
    async fn ensure(&self, lane: &Lane) {
        if self.state.lock().lanes.contains(lane) {
            return;
        }
        let what = format!("make the consumer of the lane `{lane}`");
        self.streams.link.insist(&what, QUICKLY, || self.streams.consumer(lane)).await;
        self.state.lock().lanes.insert(lane.clone());
    }

    /// Gives the result of a key to its waiter.
    fn deliver(&self, key: &JobKey, result: JobResult) {
        let mut state = self.state.lock();
        state.results += 1;
        if let Some(pending) = state.pending.remove(key) {
            // Nobody waits if the ticket was dropped.
            let _ = pending.result.send(result);
        }
    }

    /// Delivers the result of a key if the server has it. Returns whether it has.
    async fn look_up(&self, key: &JobKey) -> bool {
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
    async fn result(
        &self,
        payload: &Bytes,
        headers: Option<&HeaderMap>,
    ) -> Result<JobResult, Error> {
        match self.text(payload, headers).await {
            Ok(text) => Ok(JobResult::read(&text, headers)),
            Err(Error::Damaged(what)) => Ok(JobResult::damaged(&what)),
            Err(error) => Err(error),
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
    /// Of the job, or of the turn.
    subject: String,
    client: Client,
}

impl Ticket {
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
        self.tell(Command::Cancel).await;
        Ok(true)
    }

    /// Raises `KeyboardInterrupt` in the program, if a worker runs it now. The message may get lost.
    pub async fn interrupt(&self) {
        self.tell(Command::Interrupt).await;
    }

    async fn tell(&self, command: Command) {
        let control = Control { command, key: self.key.to_string() };
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
