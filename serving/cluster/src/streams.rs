//! What the server keeps for a pool: queued jobs, results, dead letters, counts of starts,
//! heartbeats, and large payloads.
//!
//! | name | what it holds |
//! |---|---|
//! | `hatchery-POOL-jobs` | a work queue: each job until it is acknowledged |
//! | `hatchery-POOL-results` | the result of each key, at most one |
//! | `hatchery-POOL-dead` | jobs that were given up, with their history |
//! | `hatchery-POOL-starts` | of jobs that were claimed more than once, who started them |
//! | `hatchery-POOL-permits` | as many permits of each limited tenant as it may have jobs at once |
//! | `hatchery-POOL-workers` | the heartbeats of workers, with their figures |
//! | `hatchery-POOL-payloads` | jobs and results too large for a message, by digest |
//!
//! `sessions.rs` has what is kept of sessions.
//!
//! The first worker or client creates them with its settings; those that all must share are kept
//! with the jobs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy, Stream};
use async_nats::jetstream::{self, Context, kv};
use tokio::sync::OnceCell;

use crate::connect::Link;
use crate::error::{Cause, Error};
use crate::names::{Lane, PoolName, Subjects};
use crate::sessions::Sessions;
use crate::stores::{Objects, bucket, found, one_of_each, stream};

/// The name of the setting in the metadata of the jobs' stream.
const CLAIM_TIME: &str = "hatchery-claim-ms";
/// The shortest and the longest time of a claim: workers renew it three times in it.
const CLAIM_TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(600)..=Duration::from_secs(3600);
/// The time of a claim, divided by how long a worker counts as alive without a heartbeat.
const LIVES: u32 = 2;
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Claims of one lane that aren't acknowledged. What a tenant may have at once is counted otherwise,
/// since it is for all its lanes.
const MOST_CLAIMED: i64 = 100_000;
/// The largest entry about starts or a worker. Ours are far smaller.
const MOST_ENTRY_BYTES: i32 = 64 << 10;

/// How a pool is kept on the server. The first to set the pool up decides; later settings don't
/// change it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// On how many servers of a cluster everything is kept, from 1 to 5. With 1, what the one server
    /// loses is lost; with 3, one of them may be lost. Default: 1.
    pub replicas: usize,
    /// After which time without a sign of life of its worker a job is given to another one. Shorter
    /// times find dead workers sooner, and take stalled ones for dead. Default: 30 s.
    pub claim_time: Duration,
    /// The most jobs in the queue; further ones wait with their submitters. Default: 1,000,000.
    pub queue: u64,
    /// The most bytes of jobs in the queue. The server reserves them. Default: no limit but the
    /// server's.
    pub queue_bytes: Option<u64>,
    /// How long results, dead letters and large payloads are kept. Default: 7 days.
    pub keep: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            replicas: 1,
            claim_time: Duration::from_secs(30),
            queue: 1_000_000,
            queue_bytes: None,
            keep: Duration::from_secs(7 * 86_400),
        }
    }
}

/// The streams and buckets of one pool.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    pub(crate) client: Client,
    pub(crate) link: Arc<Link>,
    pub(crate) context: Context,
    pub(crate) subjects: Subjects,
    pub(crate) jobs: Stream,
    pub(crate) results: Stream,
    pub(crate) dead: Stream,
    pub(crate) starts: kv::Store,
    pub(crate) workers: kv::Store,
    pub(crate) payloads: Objects,
    /// As the pool's settings have it.
    pub(crate) claim_time: Duration,
    /// Set up when they are needed.
    pub(crate) sessions: Arc<OnceCell<Arc<Sessions>>>,
}

impl Streams {
    /// Opens what the pool has on the server, which isn't created.
    pub(crate) async fn find(
        connection: (Client, Arc<Link>),
        pool: PoolName,
    ) -> Result<Self, Error> {
        let context = jetstream::new(connection.0.clone());
        let name = Subjects(pool.clone()).store("jobs");
        match found(&context, &name).await {
            Ok(Some(_)) => Self::open(connection, pool, &Settings::default()).await,
            Ok(None) => Err(Error::NoPool(pool.to_string())),
            Err(error) => Err(Error::setup(name, error)),
        }
    }

    /// Opens what the pool has on the server, and creates what is missing.
    pub(crate) async fn open(
        (client, link): (Client, Arc<Link>),
        pool: PoolName,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER);
        let subjects = Subjects(pool);
        let claim_time = settings.claim_time.clamp(*CLAIM_TIMES.start(), *CLAIM_TIMES.end());
        let named = |what: &str| subjects.store(what);
        let of_keys = |kind| one_of_each(&subjects, kind, settings.replicas);
        let jobs = Config {
            retention: RetentionPolicy::WorkQueue,
            max_messages: i64::try_from(settings.queue).unwrap_or(i64::MAX),
            max_bytes: settings.queue_bytes.map_or(-1, |most| most.try_into().unwrap_or(i64::MAX)),
            metadata: HashMap::from([(CLAIM_TIME.to_owned(), claim_time.as_millis().to_string())]),
            ..of_keys("jobs")
        };
        let jobs = stream(&context, jobs).await?;
        // The creator of the stream decided.
        let decided = jobs.cached_info().config.metadata.get(CLAIM_TIME);
        let decided = decided.and_then(|text| text.parse().ok()).map(Duration::from_millis);
        let claim_time =
            decided.unwrap_or(claim_time).clamp(*CLAIM_TIMES.start(), *CLAIM_TIMES.end());
        let (keep, replicas) = (settings.keep, settings.replicas);
        let results = Config { max_age: keep, ..of_keys("results") };
        let dead = Config { max_age: keep, ..of_keys("dead") };
        let (results, dead) = (stream(&context, results).await?, stream(&context, dead).await?);
        let entries = |what, age| bucket(&context, named(what), age, MOST_ENTRY_BYTES, replicas);
        let starts = entries("starts", keep).await?;
        let workers = entries("workers", claim_time / LIVES).await?;
        let payloads = Objects::open(&context, named("payloads"), keep * 2, replicas).await?;
        Ok(Self {
            client,
            link,
            context,
            subjects,
            jobs,
            results,
            dead,
            starts,
            workers,
            payloads,
            claim_time,
            sessions: Arc::default(),
        })
    }

    /// Returns the pool's sessions, which the first call sets up.
    ///
    /// # Errors
    /// The server can't keep them.
    pub(crate) async fn sessions(&self) -> Result<&Arc<Sessions>, Error> {
        let (context, subjects) = (&self.context, &self.subjects);
        let open = async {
            let opened =
                Sessions::open(context, subjects, &self.jobs, &self.results, self.claim_time).await;
            opened.map(Arc::new)
        };
        self.sessions.get_or_try_init(|| open).await
    }

    /// Returns whether somebody has set up sessions; then [`Self::sessions`] opens them.
    pub(crate) async fn has_sessions(&self) -> bool {
        self.sessions.initialized()
            || self.context.get_stream(self.subjects.store("turns")).await.is_ok()
    }

    /// Returns the stream of a job or a turn, by its subject.
    pub(crate) fn queue(&self, subject: &str) -> &Stream {
        match self.sessions.get() {
            Some(sessions) if subject.starts_with("hatchery.turns.") => &sessions.turns,
            _ => &self.jobs,
        }
    }

    /// Returns how long a worker counts as alive after it last said so. Shorter than a claim, so that
    /// the next worker that claims its job knows that it is dead.
    pub(crate) fn life(&self) -> Duration {
        self.claim_time / LIVES
    }

    /// Returns the consumer of a lane, and creates it if it is missing.
    pub(crate) async fn consumer(&self, lane: &Lane) -> Result<PullConsumer, Cause> {
        let name = lane.consumer();
        let config =
            pull::Config { filter_subject: self.subjects.lane(lane), ..self.claims(name.clone()) };
        Ok(self.jobs.get_or_create_consumer(&name, config).await?)
    }

    /// Returns what consumers have in common whose messages are claimed for a time.
    pub(crate) fn claims(&self, name: String) -> pull::Config {
        pull::Config {
            durable_name: Some(name),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.claim_time,
            // Given up by the count of starts instead, which tells who is at fault.
            max_deliver: -1,
            max_ack_pending: MOST_CLAIMED,
            ..pull::Config::default()
        }
    }
}
