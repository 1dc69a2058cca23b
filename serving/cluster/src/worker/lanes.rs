//! Where the next job comes from: asks lanes for jobs, in the order that `policy/lanes.rs` says.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use wire::Priority;

use crate::clock::{now, sleep};
use crate::names::Lane;
use crate::policy::{EMPTY, Shares};
use crate::streams::Streams;

use super::permits::{Permit, Permits};
use super::shared::WorkerConfig;

/// How long an answer may take, after which what has come is taken.
const ANSWER: Duration = Duration::from_secs(3);
/// How often the server is asked for lanes that no client has spoken of.
const REFRESH: Duration = Duration::from_secs(5);
/// The most lanes of a pool that are served: three for each tenant.
const MOST_LANES: usize = 3 * 1024;

/// A job that this worker has claimed.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) message: Message,
    /// What the job's tenant may have at once, if that is limited.
    pub(super) permit: Option<Permit>,
}

/// The lanes of a pool, as far as this worker knows.
#[derive(Debug)]
pub(super) struct Lanes {
    streams: Streams,
    config: WorkerConfig,
    permits: Permits,
    began: Instant,
    known: Mutex<Known>,
    /// Wakes whoever waits for jobs.
    woken: Notify,
    /// Wakes the task that looks for lanes.
    has_unknown: Notify,
}

/// Lanes with their consumers, and how they share, by the same indexes.
#[derive(Debug, Default)]
struct Known {
    lanes: Vec<(Lane, PullConsumer)>,
    shares: Shares,
}

impl Known {
    /// Returns the indexes of a tenant's lanes.
    fn of_tenant(&self, tenant: &str) -> Vec<usize> {
        let lanes = self.lanes.iter().enumerate();
        let own = lanes.filter(|(_, (lane, _))| lane.tenant().as_deref() == Some(tenant));
        own.map(|(index, _)| index).collect()
    }
}

impl Lanes {
    pub(super) fn new(streams: &Streams, config: &WorkerConfig, permits: Permits) -> Self {
        Self {
            streams: streams.clone(),
            config: config.clone(),
            permits,
            began: now(),
            known: Mutex::default(),
            woken: Notify::new(),
            has_unknown: Notify::new(),
        }
    }

    /// Hears that a lane has jobs.
    pub(super) fn wake(&self, lane: &Lane) {
        let mut known = self.known.lock();
        match known.lanes.iter().position(|(known, _)| known == lane) {
            Some(index) => {
                known.shares.wake(index);
                self.woken.notify_one();
            }
            None => self.has_unknown.notify_one(),
        }
    }

    /// Hears that a limited tenant may have another job.
    pub(super) fn wake_tenant(&self, tenant: &str) {
        let mut known = self.known.lock();
        for index in known.of_tenant(tenant) {
            known.shares.wake(index);
        }
        self.woken.notify_one();
    }

    /// Gets permits for limited tenants, in tasks.
    pub(super) fn supply(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        for tenant in self.permits.tenants() {
            let lanes = Arc::clone(self);
            tasks.spawn(Arc::clone(tenant).supply(move |name| lanes.wake_tenant(name)));
        }
    }

    /// Returns at least one job and at most `count`; none if the worker drains. Not cancel-safe: what
    /// is on its way would be claimed by nobody until its time is over.
    pub(super) async fn claim(
        &self,
        count: usize,
        draining: &mut watch::Receiver<bool>,
    ) -> Vec<Claimed> {
        self.permits.begin();
        let claimed = loop {
            let claimed = self.ask_all(count).await;
            if !claimed.is_empty() || *draining.borrow() {
                break claimed;
            }
            self.permits.give_back();
            let wait = self.known.lock().shares.wait(self.time());
            tokio::select! {
                _ = timeout(wait, self.woken.notified()) => {}
                _ = draining.changed() => {}
            }
        };
        self.permits.end();
        claimed
    }

    /// Asks each lane that may have jobs once, or until there are enough.
    async fn ask_all(&self, count: usize) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        let mut asked = Vec::new();
        while claimed.len() < count {
            let Some((index, lane, consumer)) = self.next(&asked) else { break };
            let mut wanted = count - claimed.len();
            let mut permits = Vec::new();
            if let Some(tenant) = self.permits.of(&lane) {
                permits = tenant.take(wanted).await;
                wanted = permits.len();
                if permits.is_empty() {
                    // All its lanes wait: a permit that comes now is for the most urgent.
                    asked.extend(self.put_off(tenant.name()));
                    tenant.ask();
                    continue;
                }
            }
            let mut messages = Vec::new();
            let answer = timeout(ANSWER, fetch(&consumer, wanted, &mut messages)).await;
            let got = messages.len();
            let is_empty = got < wanted;
            let empty_until = (is_empty && answer.is_ok()).then(|| self.time() + EMPTY);
            self.known.lock().shares.account(index, got, empty_until);
            asked.push(index);
            let mut permits = permits.into_iter();
            claimed.extend(messages.into_iter().map(|message| {
                // No more come than were asked for.
                Claimed { message, permit: permits.next() }
            }));
            if let Some(tenant) = self.permits.of(&lane) {
                tenant.put(permits);
            }
        }
        claimed
    }

    /// Leaves the lanes of a tenant alone for a while, and returns them.
    fn put_off(&self, tenant: &str) -> Vec<usize> {
        let until = self.time() + EMPTY;
        let mut known = self.known.lock();
        let indexes = known.of_tenant(tenant);
        for index in &indexes {
            known.shares.account(*index, 0, Some(until));
        }
        indexes
    }

    /// Returns the time since this was created.
    fn time(&self) -> Duration {
        now() - self.began
    }

    /// Returns the lane to ask next, of those that weren't asked.
    fn next(&self, asked: &[usize]) -> Option<(usize, Lane, PullConsumer)> {
        let known = self.known.lock();
        let index = known.shares.next(asked, self.time())?;
        let (lane, consumer) = known.lanes.get(index)?;
        Some((index, lane.clone(), consumer.clone()))
    }

    /// Looks for lanes now and then, for ever.
    pub(super) async fn refresh(self: Arc<Self>) {
        loop {
            let mut found = Vec::new();
            let mut consumers = self.streams.jobs.consumers();
            let mut is_whole = true;
            while let Some(info) = consumers.next().await {
                let Ok(info) = info else {
                    is_whole = false;
                    break;
                };
                found.extend(self.streams.subjects.parse_lane(&info.config.filter_subject));
                if found.len() >= MOST_LANES {
                    is_whole = false;
                    break;
                }
            }
            if is_whole {
                self.restore(&found).await;
            }
            self.add(found).await;
            tokio::select! {
                () = sleep(REFRESH) => {}
                () = self.has_unknown.notified() => {}
            }
        }
    }

    /// Makes the consumers of lanes anew that the server has lost.
    async fn restore(&self, found: &[Lane]) {
        let known: Vec<Lane> =
            self.known.lock().lanes.iter().map(|(lane, _)| lane.clone()).collect();
        for lane in known.iter().filter(|lane| !found.contains(lane)) {
            if let Err(error) = self.streams.consumer(lane).await {
                tracing::info!("can't recreate the lane `{lane}`: {error}");
            }
        }
    }

    /// Adds those lanes that aren't known, at once: the most urgent are asked first.
    async fn add(&self, lanes: Vec<Lane>) {
        let mut added = Vec::new();
        for lane in lanes {
            if self.known.lock().lanes.iter().any(|(known, _)| *known == lane) {
                continue;
            }
            match self.streams.consumer(&lane).await {
                Ok(consumer) => added.push((lane, consumer)),
                Err(error) => tracing::info!("can't use the lane `{lane}`: {error}"),
            }
        }
        let mut known = self.known.lock();
        for (lane, consumer) in added {
            known.shares.add(rank(lane.priority), self.config.weight(&lane));
            known.lanes.push((lane, consumer));
            self.woken.notify_one();
        }
    }
}

/// Adds up to this many messages, as many as there are.
async fn fetch(consumer: &PullConsumer, count: usize, messages: &mut Vec<Message>) {
    let mut batch = match consumer.fetch().max_messages(count).messages().await {
        Ok(batch) => batch,
        Err(error) => return tracing::info!("can't ask for jobs: {error}"),
    };
    while let Some(message) = batch.next().await {
        match message {
            Ok(message) => messages.push(message),
            Err(error) => return tracing::info!("can't get jobs: {error}"),
        }
    }
}

fn rank(priority: Priority) -> u8 {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}
