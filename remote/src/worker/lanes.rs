//! Where the next job comes from: asks lanes for jobs, in the order that `policy/lanes.rs` says.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use wire::Priority;

use crate::clock::{now, sleep};
use crate::names::Lane;
use crate::policy::{EMPTY, Shares};
use crate::streams::Streams;

use super::shared::WorkerConfig;

/// How long an answer may take, after which what has come is taken.
const ANSWER: Duration = Duration::from_secs(3);
/// How often the server is asked for lanes that no client has spoken of.
const REFRESH: Duration = Duration::from_secs(5);
/// The most lanes of a pool that are served: three for each tenant.
const MOST_LANES: usize = 3 * 1024;

/// The lanes of a pool, as far as this worker knows.
#[derive(Debug)]
pub(super) struct Lanes {
    streams: Streams,
    config: WorkerConfig,
    began: Instant,
    known: Mutex<Known>,
    /// Wakes whoever waits for jobs.
    woken: Arc<Notify>,
    /// Wakes the task that looks for lanes.
    has_unknown: Notify,
}

/// Lanes with their consumers, and how they share, by the same indexes.
#[derive(Debug, Default)]
struct Known {
    lanes: Vec<(Lane, PullConsumer)>,
    shares: Shares,
}

impl Lanes {
    pub(super) fn new(streams: &Streams, config: &WorkerConfig, woken: Arc<Notify>) -> Self {
        Self {
            streams: streams.clone(),
            config: config.clone(),
            began: now(),
            known: Mutex::default(),
            woken,
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

    /// Returns at least one job and at most `count`; none if the worker drains. Not cancel-safe: what
    /// is on its way would be claimed by nobody until its time is over.
    pub(super) async fn claim(
        &self,
        count: usize,
        draining: &mut watch::Receiver<bool>,
    ) -> Vec<Message> {
        loop {
            let mut messages = Vec::new();
            let mut asked = Vec::new();
            while messages.len() < count {
                let Some((index, consumer)) = self.next(&asked) else { break };
                let wanted = count - messages.len();
                let before = messages.len();
                let answer = timeout(ANSWER, fetch(&consumer, wanted, &mut messages)).await;
                let got = messages.len() - before;
                let is_empty = got < wanted;
                let empty_until = (is_empty && answer.is_ok()).then(|| self.time() + EMPTY);
                self.known.lock().shares.account(index, got, empty_until);
                asked.push(index);
            }
            if !messages.is_empty() || *draining.borrow() {
                return messages;
            }
            let wait = self.known.lock().shares.wait(self.time());
            tokio::select! {
                _ = timeout(wait, self.woken.notified()) => {}
                _ = draining.changed() => {}
            }
        }
    }

    /// Returns the time since this was created.
    fn time(&self) -> Duration {
        now() - self.began
    }

    /// Returns the lane to ask next, of those that weren't asked.
    fn next(&self, asked: &[usize]) -> Option<(usize, PullConsumer)> {
        let known = self.known.lock();
        let index = known.shares.next(asked, self.time())?;
        let (_, consumer) = known.lanes.get(index)?;
        Some((index, consumer.clone()))
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
            for lane in found {
                self.add(lane).await;
            }
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
            if let Err(error) = self.streams.consumer(lane, self.limit(lane)).await {
                tracing::info!("can't make the lane `{lane}` anew: {error}");
            }
        }
    }

    /// Returns how many jobs of a lane may be claimed at once, if that is limited.
    fn limit(&self, lane: &Lane) -> Option<u32> {
        lane.tenant().and_then(|name| self.config.most_claimed.get(&name).copied())
    }

    async fn add(&self, lane: Lane) {
        if self.known.lock().lanes.iter().any(|(known, _)| *known == lane) {
            return;
        }
        match self.streams.consumer(&lane, self.limit(&lane)).await {
            Ok(consumer) => {
                let weight = self.config.weight(&lane);
                let mut known = self.known.lock();
                known.shares.add(rank(lane.priority), weight);
                known.lanes.push((lane, consumer));
                self.woken.notify_one();
            }
            Err(error) => tracing::info!("can't use the lane `{lane}`: {error}"),
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
