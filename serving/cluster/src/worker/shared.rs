//! What the tasks of a worker share: its configuration, its counts, and the jobs that run.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use hatchery::event::{self, Events};
use hatchery::{Hatchery, TenantConfig};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{RwLock, Semaphore, mpsc, watch};
use tokio::time::Instant;

use super::lanes::{ClaimBudget, ReplyBatcher};
use crate::clock::{now, sleep};
use crate::error::{Cause, Error};
use crate::names::{JobKey, Lane};
use crate::payload::{Command, NTH, OBJECT};
use crate::policy::JobHistory;
use crate::result::{Event, EventKind, MOST_BYTES};
use crate::sessions::SessionKey;
use crate::stores::keys;
use crate::streams::{Settings, Streams};

/// How a worker takes jobs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerConfig {
    /// Jobs that are claimed and run at once: the most workers of the pool.
    pub slots: usize,
    /// The name by which users know this worker. Default: the machine's name and the process's id.
    pub name: String,
    /// Whether limits of jobs replace those of the pool, as in a batch. Otherwise they apply where
    /// they are lower. Default: false.
    pub trusts_jobs: bool,
    /// How long running jobs may take to end when the worker ends; then they are given back.
    /// Default: 10 s.
    pub drain_time: Duration,
    /// Weights of tenants, by which lanes of one priority are served; 1 without one. Set the same
    /// for the pool.
    pub weights: HashMap<String, u32>,
    /// The most jobs of a tenant that run or wait for a slot in the whole cluster, whatever their
    /// priorities. At most 10,000. Set the same for every worker of the pool.
    pub most_claimed: HashMap<String, u32>,
    /// How the pool is kept on the server, if it isn't there yet.
    pub settings: Settings,
}

impl WorkerConfig {
    /// Runs this many jobs at once.
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            name: default_name(),
            trusts_jobs: false,
            drain_time: Duration::from_secs(10),
            weights: HashMap::new(),
            most_claimed: HashMap::new(),
            settings: Settings::default(),
        }
    }

    /// Returns the weight of a lane among those of its priority.
    pub(super) fn weight(&self, lane: &Lane) -> f64 {
        let weight = lane.tenant().and_then(|name| self.weights.get(&name).copied());
        f64::from(weight.unwrap_or(TenantConfig::default().weight).max(1))
    }
}

/// How many jobs a worker has taken, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Whose result this worker has stored.
    pub done: u64,
    /// That had a result already.
    pub repeats: u64,
    /// That were given back to the queue.
    pub given_back: u64,
    /// That were given up.
    pub dead_letters: u64,
    /// Messages that were dropped: they weren't the jobs that their keys stand for.
    pub refused: u64,
}

/// What the tasks of a worker share.
#[derive(Debug)]
pub(super) struct WorkerShared {
    pub(super) streams: Streams,
    pub(super) pool: Hatchery,
    pub(super) config: WorkerConfig,
    /// Tells this process from every other one, also from later ones of the same name.
    pub(super) instance: String,
    /// Free slots.
    pub(super) slots: Semaphore,
    /// How many jobs to claim.
    pub(super) budget: ClaimBudget,
    /// Jobs that may be claimed without being stored.
    pub(super) unstored: Arc<Semaphore>,
    /// Held for reading by every run, and for writing by one that runs alone.
    pub(super) alone: RwLock<()>,
    /// Claimed jobs that have no result yet, with their lanes, and how to tell them something.
    pub(super) running: Mutex<HashMap<JobKey, (Lane, mpsc::Sender<Command>)>>,
    pub(super) tally: Mutex<Tally>,
    pub(super) server_clock: ServerClock,
    /// Where results wait for each other.
    pub(super) replies: ReplyBatcher,
    /// Set when nothing more is started.
    pub(super) is_draining: watch::Sender<bool>,
    /// Set when running jobs are given back.
    pub(super) is_over: watch::Sender<bool>,
}

/// Returns the machine's name and the process's id.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "worker" } else { host };
    format!("{host}-{}", std::process::id())
}

/// Attempts to write a record that somebody else writes at the same time.
const ATTEMPTS: usize = 5;

impl Streams {
    /// Returns the record of a job.
    pub(super) async fn record(&self, key: &JobKey) -> Result<JobHistory, Cause> {
        let entry = self.starts.get(key.to_string()).await?;
        // A damaged record counts as none: the job is tried again.
        Ok(entry.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default())
    }

    /// Changes the record of a job.
    pub(super) async fn change_record(
        &self,
        key: &JobKey,
        change: impl Fn(&mut JobHistory),
    ) -> Result<(), Cause> {
        let name = key.to_string();
        let mut last: Option<Cause> = None;
        for _ in 0..ATTEMPTS {
            let entry = self.starts.entry(name.clone()).await?;
            let mut record: JobHistory = entry
                .as_ref()
                .and_then(|entry| serde_json::from_slice(&entry.value).ok())
                .unwrap_or_default();
            change(&mut record);
            let text = serde_json::to_vec(&record)?.into();
            let revision = entry.map_or(0, |entry| entry.revision);
            match self.starts.update(&name, text, revision).await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error.into()),
            }
        }
        Err(last.unwrap_or_else(|| "no attempt was made".into()))
    }

    /// Returns whether a worker's process has lately said that it lives. Without an answer it counts
    /// as alive.
    pub(super) async fn lives(&self, instance: &str) -> bool {
        !matches!(self.workers.get(instance).await, Ok(None))
    }
}

/// Sends a job's events until its end.
pub(super) async fn forward(shared: &WorkerShared, key: &JobKey, mut events: Events) {
    let client = &shared.streams.client;
    let subject = shared.streams.subjects.of("events", key);
    while let Some(event) = events.next().await {
        let Some(kind) = kind_of(event.kind) else { continue };
        let event = Event { worker: shared.config.name.clone(), sequence: event.sequence, kind };
        let Ok(text) = serde_json::to_vec(&event) else { continue };
        if text.len() <= MOST_BYTES {
            // Lost if nobody listens, or while the server is gone.
            let _ = client.publish(subject.clone(), text.into()).await;
        }
    }
}

fn kind_of(kind: event::EventKind) -> Option<EventKind> {
    Some(match kind {
        event::EventKind::Started => EventKind::Started,
        event::EventKind::Output { stream, bytes } => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            EventKind::Output { stream: stream.name().to_owned(), text }
        }
        event::EventKind::Display(bundle) => EventKind::Display { bundle: json!(bundle) },
        event::EventKind::Retried => EventKind::Retried,
        // The result says so.
        _ => return None,
    })
}

/// The server's clock, as it was seen last.
#[derive(Debug, Default)]
pub(super) struct ServerClock(
    /// When, and its nanoseconds since 1970.
    Mutex<Option<(Instant, i128)>>,
);

impl ServerClock {
    /// Notes that the server's clock showed this time, in nanoseconds since 1970, between the two
    /// instants.
    pub(super) fn saw(&self, time: i128, from: Instant, to: Instant) {
        *self.0.lock() = Some((from + (to - from) / 2, time));
    }

    /// Returns how long ago the server's clock showed this time, in nanoseconds since 1970. Zero if
    /// that clock was never seen.
    pub(super) fn since(&self, time: i128, now: Instant) -> Duration {
        let since = self.time(now).map_or(0, |shown| shown.saturating_sub(time).max(0));
        Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Returns what the server's clock shows, in nanoseconds since 1970; `None` if it was never seen.
    pub(super) fn time(&self, now: Instant) -> Option<i128> {
        let (at, time) = (*self.0.lock())?;
        let passed = (now - at).as_nanos().try_into().unwrap_or(i128::MAX);
        Some(time.saturating_add(passed))
    }
}

/// Keys of jobs in what a worker says. Those of more jobs are left out.
const MOST_KEYS: usize = 64;

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Presence {
    /// Its name.
    pub name: String,
    /// The version of Hatchery.
    pub version: String,
    /// Jobs that it runs at once.
    pub slots: usize,
    /// Those that run now.
    pub running: usize,
    /// The keys of the first 64 jobs that run or wait for a slot.
    pub keys: Vec<String>,
    /// Jobs whose results it has stored.
    pub done: u64,
    /// Jobs that it gave back to the queue.
    pub given_back: u64,
    /// Whether it takes no more jobs.
    pub is_draining: bool,
    /// When it said so, in milliseconds since 1970 by the server's clock.
    #[serde(default)]
    pub at_ms: u64,
}

/// Says that this worker lives, until it doesn't.
pub(super) async fn show(shared: Arc<WorkerShared>) {
    let every = shared.streams.life() / 3;
    loop {
        // Later ones make up for one that fails.
        if let Ok(Err(error)) = tokio::time::timeout(every, shared.show()).await {
            tracing::info!("can't send this worker's heartbeat: {error}");
        }
        sleep(every).await;
    }
}

impl WorkerShared {
    /// Says once that this worker lives, and looks at the server's clock, which has stamped that.
    pub(super) async fn show(&self) -> Result<(), Cause> {
        let text = serde_json::to_vec(&self.presence())?;
        let begin = now();
        self.streams.workers.put(&self.instance, text.into()).await?;
        let end = now();
        if let Some(stamped) = self.streams.workers.entry(&self.instance).await? {
            self.server_clock.saw(stamped.created.unix_timestamp_nanos(), begin, end);
        }
        Ok(())
    }

    fn presence(&self) -> Presence {
        let running = self.running.lock();
        let tally = *self.tally.lock();
        Presence {
            name: self.config.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            slots: self.config.slots,
            running: self.config.slots.saturating_sub(self.slots.available_permits()),
            keys: running.keys().take(MOST_KEYS).map(ToString::to_string).collect(),
            done: tally.done,
            given_back: tally.given_back,
            is_draining: *self.is_draining.borrow(),
            // A reader sees the server's stamp of time.
            at_ms: 0,
        }
    }
}

impl Streams {
    /// Returns what each worker of the pool says of itself, in the order of their names.
    pub(crate) async fn presences(&self) -> Result<Vec<Presence>, Error> {
        let failed = |answer: &dyn Display| Error::server("list the workers", answer);
        let keys = keys(&self.workers).await.map_err(|error| failed(&error))?;
        let mut presences = Vec::with_capacity(keys.len());
        for key in keys {
            let entry = self.workers.entry(key).await.map_err(|error| failed(&error))?;
            // It may have left meanwhile.
            let Some(entry) = entry else { continue };
            let Ok(presence) = serde_json::from_slice::<Presence>(&entry.value) else { continue };
            let at_ms = entry.created.unix_timestamp_nanos() / 1_000_000;
            presences.push(Presence { at_ms: at_ms.try_into().unwrap_or_default(), ..presence });
        }
        presences.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(presences)
    }
}

/// Returns whether the key of a job is made of this message, or that of a turn of this session. The
/// text of an object is checked against its digest when it is read.
pub(super) fn is_of_key(
    message: &Message,
    lane: &Lane,
    key: &JobKey,
    session: Option<&SessionKey>,
) -> bool {
    let header = |name| message.headers.as_ref()?.get(name).map(|value| value.as_str());
    let text = match header(OBJECT) {
        Some(digest) => blake3::Hash::from_hex(digest).ok(),
        None => Some(blake3::hash(&message.payload)),
    };
    let nth = header(NTH).and_then(|number| number.parse().ok());
    let (Some(text), Some(nth)) = (text, nth) else { return false };
    let text = session.map_or(text, |session| session.text(&text));
    JobKey::of(&key.batch, lane, &text, nth) == *key
}

impl Streams {
    /// Drops a message from the queue for good. The server tells operators the reason, as an
    /// advisory. There is no result, since that would be the one of another job.
    pub(super) async fn refuse(&self, message: &Message, reason: &str) {
        tracing::warn!("a message in the queue isn't a job (`{reason}`): `{}`", message.subject);
        let Some(reply) = message.reply.clone() else { return };
        // If it gets lost, the message comes again.
        let _ = self.client.publish(reply, format!("+TERM {reason}").into()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    const SECOND: Duration = Duration::from_secs(1);
    /// Some time of the server, far from what this machine has.
    const NOON: i128 = 43_200 * 1_000_000_000;

    #[test]
    fn times_are_counted_from_what_the_server_showed() {
        let (clock, begin) = (ServerClock::default(), now());
        assert_eq!(clock.since(NOON, begin), Duration::ZERO);
        clock.saw(NOON, begin, begin + 2 * SECOND);
        assert_eq!(clock.time(begin + SECOND), Some(NOON));
        // Seen in the middle of the question.
        assert_eq!(clock.since(NOON, begin + 3 * SECOND), 2 * SECOND);
        assert_eq!(clock.since(NOON + 1_000_000_000, begin + 3 * SECOND), SECOND);
        // A message that the server got after that.
        assert_eq!(clock.since(2 * NOON, begin + 3 * SECOND), Duration::ZERO);
    }

    #[test]
    fn a_server_whose_clock_is_set_is_followed() {
        let (clock, begin) = (ServerClock::default(), now());
        clock.saw(2 * NOON, begin, begin);
        clock.saw(NOON, begin + SECOND, begin + SECOND);
        assert_eq!(clock.since(NOON, begin + 3 * SECOND), 2 * SECOND);
    }
}
