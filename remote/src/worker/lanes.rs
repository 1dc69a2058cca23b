//! Where the next job comes from: the most urgent lane that has one; among lanes of one priority,
//! that whose tenant has had the least for its weight.

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
use crate::streams::Streams;

use super::shared::WorkerConfig;

/// How long a lane that was empty isn't asked again, unless a client says that it has jobs. Jobs that
/// others give back, or that the dead have claimed, wait up to this long.
const EMPTY: Duration = Duration::from_secs(1);
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
    known: Mutex<Vec<Known>>,
    /// Wakes whoever waits for jobs.
    woken: Arc<Notify>,
    /// Wakes the task that looks for lanes.
    has_unknown: Notify,
}

#[derive(Debug)]
struct Known {
    lane: Lane,
    consumer: PullConsumer,
    weight: f64,
    /// Jobs claimed so far, divided by the weight.
    claimed: f64,
    /// Until when it isn't asked.
    empty_until: Option<Instant>,
}

impl Lanes {
    pub(super) fn new(streams: &Streams, config: &WorkerConfig, woken: Arc<Notify>) -> Self {
        Self {
            streams: streams.clone(),
            config: config.clone(),
            known: Mutex::default(),
            woken,
            has_unknown: Notify::new(),
        }
    }

    /// Hears that a lane has jobs.
    pub(super) fn wake(&self, lane: &Lane) {
        let mut known = self.known.lock();
        match known.iter_mut().find(|known| known.lane == *lane) {
            Some(known) => {
                known.empty_until = None;
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
            let mut asked: Vec<Lane> = Vec::new();
            while messages.len() < count {
                let Some((lane, consumer)) = self.next(&asked, now()) else { break };
                let wanted = count - messages.len();
                let before = messages.len();
                let answer = timeout(ANSWER, fetch(&consumer, wanted, &mut messages)).await;
                let got = messages.len() - before;
                let is_empty = got < wanted;
                self.account(&lane, got, (is_empty && answer.is_ok()).then(|| now() + EMPTY));
                asked.push(lane);
            }
            if !messages.is_empty() || *draining.borrow() {
                return messages;
            }
            let wait = self.wait(now());
            tokio::select! {
                _ = timeout(wait, self.woken.notified()) => {}
                _ = draining.changed() => {}
            }
        }
    }

    /// Returns the lane to ask next, of those that weren't asked.
    fn next(&self, asked: &[Lane], now: Instant) -> Option<(Lane, PullConsumer)> {
        let known = self.known.lock();
        let may_have = |known: &&Known| known.empty_until.is_none_or(|until| until <= now);
        let left = known.iter().filter(may_have).filter(|known| !asked.contains(&known.lane));
        let next = left.min_by(|one, other| {
            let rank = |known: &Known| rank(known.lane.priority);
            rank(one).cmp(&rank(other)).then(one.claimed.total_cmp(&other.claimed))
        })?;
        Some((next.lane.clone(), next.consumer.clone()))
    }

    fn account(&self, lane: &Lane, got: usize, empty_until: Option<Instant>) {
        let mut known = self.known.lock();
        // Whoever had nothing for long gets no credit for it.
        let least = known
            .iter()
            .filter(|known| known.lane != *lane && known.empty_until.is_none())
            .map(|known| known.claimed)
            .fold(f64::INFINITY, f64::min);
        let Some(known) = known.iter_mut().find(|known| known.lane == *lane) else { return };
        if got > 0 && known.empty_until.is_some() && least.is_finite() {
            known.claimed = known.claimed.max(least);
        }
        known.claimed += got as f64 / known.weight;
        known.empty_until = empty_until;
    }

    /// Returns how long no lane is to be asked.
    fn wait(&self, now: Instant) -> Duration {
        let known = self.known.lock();
        let waits = known.iter().map(|known| match known.empty_until {
            Some(until) => until.saturating_duration_since(now),
            // It didn't answer.
            None => EMPTY,
        });
        waits.min().unwrap_or(EMPTY).max(Duration::from_millis(1))
    }

    /// Looks for lanes now and then, for ever.
    pub(super) async fn refresh(self: Arc<Self>) {
        loop {
            let mut found = Vec::new();
            let mut consumers = self.streams.jobs.consumers();
            while let Some(Ok(info)) = consumers.next().await {
                found.extend(self.streams.subjects.parse_lane(&info.config.filter_subject));
                if found.len() >= MOST_LANES {
                    break;
                }
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

    async fn add(&self, lane: Lane) {
        if self.known.lock().iter().any(|known| known.lane == lane) {
            return;
        }
        let limit = lane.tenant().and_then(|name| self.config.most_claimed.get(&name).copied());
        match self.streams.consumer(&lane, limit).await {
            Ok(consumer) => {
                let weight = self.config.weight(&lane);
                let mut known = self.known.lock();
                let claimed = known.iter().map(|known| known.claimed).fold(f64::INFINITY, f64::min);
                let claimed = if claimed.is_finite() { claimed } else { 0.0 };
                known.push(Known { lane, consumer, weight, claimed, empty_until: None });
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
