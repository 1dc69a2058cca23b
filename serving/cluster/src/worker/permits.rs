//! How many jobs a tenant may have at once, in the whole cluster: whoever claims a job of a limited
//! tenant holds one of its permits until the program has ended.
//!
//! A permit is a message in a stream of its own, which has as many of them as the tenant may have
//! jobs. One consumer for each tenant gives them out: nobody else has a permit that somebody holds,
//! and one that isn't renewed comes back after the time of a claim, as the job of whoever died with
//! it. So the limit is for all priorities and workers, while each priority keeps a queue of its own,
//! in which urgent jobs overtake. A limit of the jobs' consumers could have only one of both: it is
//! for one consumer, and one consumer has one order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use async_nats::jetstream::{AckKind, Message};
use futures_util::TryStreamExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::clock::sleep;
use crate::error::{Cause, Error};
use crate::names::{Lane, permits_consumer};
use crate::open::{opened, patiently};
use crate::streams::Streams;

use super::shared::WorkerConfig;

/// The most permits of a tenant. A higher limit counts as this one.
const MOST_PERMITS: u32 = 10_000;
/// How long the answer to a request for permits may take.
const ANSWER: Duration = Duration::from_secs(3);
/// How long one request for a permit is open while the tenant has none left.
const OPEN: Duration = Duration::from_secs(5);
/// After a request that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The right to have a job of a limited tenant. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Permit(Message);

impl Permit {
    /// Holds it for the time of another claim.
    pub(super) async fn show_life(&self) {
        let _ = self.0.ack_with(AckKind::Progress).await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let message = self.0.clone();
        // Without a runtime the process ends, and the permit's time runs out.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ = message.ack_with(AckKind::Nak(None)).await;
            });
        }
    }
}

/// The permits of all limited tenants.
#[derive(Debug, Default)]
pub(super) struct Permits(HashMap<String, Arc<Tenant>>);

/// The permits of one tenant, as far as this worker has any.
#[derive(Debug)]
pub(super) struct Tenant {
    streams: Streams,
    replicas: usize,
    name: String,
    limit: u32,
    consumer: Mutex<Option<PullConsumer>>,
    /// Permits that nothing has been claimed with; `None` while no jobs are wanted.
    spare: Mutex<Option<Vec<Permit>>>,
    is_wanted: Notify,
}

impl Permits {
    /// Makes sure that the server has the permits of the limited tenants.
    pub(super) async fn open(streams: &Streams, config: &WorkerConfig) -> Result<Self, Error> {
        let mut tenants = HashMap::new();
        for (name, limit) in &config.most_claimed {
            let tenant = Tenant {
                streams: streams.clone(),
                replicas: config.settings.replicas,
                name: name.clone(),
                limit: (*limit).min(MOST_PERMITS),
                consumer: Mutex::default(),
                spare: Mutex::default(),
                is_wanted: Notify::new(),
            };
            tenant.open(true).await?;
            tenants.insert(name.clone(), Arc::new(tenant));
        }
        Ok(Self(tenants))
    }

    /// Returns the permits that jobs of a lane need; `None` if they need none.
    pub(super) fn of(&self, lane: &Lane) -> Option<&Arc<Tenant>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&lane.tenant()?)
    }

    /// Returns those of each limited tenant.
    pub(super) fn tenants(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.0.values()
    }

    /// Keeps permits from now on until they are claimed with.
    pub(super) fn begin(&self) {
        for tenant in self.tenants() {
            tenant.spare.lock().get_or_insert_default();
        }
    }

    /// Gives back what nothing was claimed with.
    pub(super) fn give_back(&self) {
        for tenant in self.tenants() {
            if let Some(spare) = tenant.spare.lock().as_mut() {
                spare.clear();
            }
        }
    }

    /// Gives back what nothing was claimed with, and what comes from now on.
    pub(super) fn end(&self) {
        for tenant in self.tenants() {
            *tenant.spare.lock() = None;
        }
    }
}

impl Tenant {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes up to this many permits, as many as nobody holds.
    pub(super) async fn take(&self, count: usize) -> Vec<Permit> {
        let spare = self.take_spare(count);
        if !spare.is_empty() {
            return spare;
        }
        match timeout(ANSWER, self.fetch(count)).await {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(error)) => {
                self.failed(&error);
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    fn take_spare(&self, count: usize) -> Vec<Permit> {
        let mut spare = self.spare.lock();
        let Some(spare) = spare.as_mut() else { return Vec::new() };
        spare.split_off(spare.len().saturating_sub(count))
    }

    /// Takes permits back for other lanes of the tenant.
    pub(super) fn put(&self, permits: impl Iterator<Item = Permit>) {
        if let Some(spare) = self.spare.lock().as_mut() {
            spare.extend(permits);
        }
    }

    /// Asks to be woken when somebody gives a permit back.
    pub(super) fn ask(&self) {
        self.is_wanted.notify_one();
    }

    /// Waits for a permit whenever one is asked for, for ever. `wake` is called when there is one.
    pub(super) async fn supply(self: Arc<Self>, wake: impl Fn(&str)) {
        loop {
            self.is_wanted.notified().await;
            match self.wait().await {
                Ok(got) if got.is_empty() => {}
                Ok(got) => {
                    // If no jobs are wanted now, it is given back, and there when some are.
                    self.put(got.into_iter());
                    wake(&self.name);
                }
                Err(error) => {
                    self.failed(&error);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn failed(&self, error: &Cause) {
        tracing::info!("can't get permits of the tenant `{}`: {error}", self.name);
        *self.consumer.lock() = None;
    }

    /// Returns up to this many permits that nobody holds.
    async fn fetch(&self, count: usize) -> Result<Vec<Permit>, Cause> {
        let consumer = self.consumer().await?;
        let batch = consumer.fetch().max_messages(count).messages().await?;
        let got: Vec<Message> = batch.try_collect().await?;
        Ok(got.into_iter().map(Permit).collect())
    }

    /// Waits a while for one permit.
    async fn wait(&self) -> Result<Vec<Permit>, Cause> {
        let consumer = self.consumer().await?;
        let batch = consumer.batch().max_messages(1).expires(OPEN).messages().await?;
        let got: Vec<Message> = batch.try_collect().await?;
        if got.is_empty() {
            // All are held, or the server has lost them.
            self.open(false).await?;
        }
        Ok(got.into_iter().map(Permit).collect())
    }

    async fn consumer(&self) -> Result<PullConsumer, Cause> {
        let known = self.consumer.lock().clone();
        match known {
            Some(consumer) => Ok(consumer),
            None => Ok(self.open(false).await?),
        }
    }

    fn stream(&self) -> String {
        self.streams.subjects.store("permits")
    }

    /// Makes sure that the server has the tenant's permits. When a worker starts, their number becomes
    /// its limit; later only if none is left, so that workers with different limits don't quarrel.
    async fn open(&self, is_start: bool) -> Result<PullConsumer, Error> {
        let subjects = &self.streams.subjects;
        let config = Config {
            name: self.stream(),
            subjects: vec![subjects.permits()],
            num_replicas: self.replicas,
            discard: DiscardPolicy::New,
            max_messages_per_subject: 1,
            discard_new_per_subject: true,
            ..Config::default()
        };
        let stream = patiently(self.stream(), &self.streams.context, opened(config)).await?;
        let failed = |source: Cause| Error::Setup { name: self.stream(), source };
        let listed = stream.info_with_subjects(subjects.permits_of(&self.name)).await;
        let listed = listed.map_err(|error| failed(error.to_string().into()))?;
        let subjects_there = listed.map_ok(|(subject, _)| subject).try_collect();
        let mut there: HashSet<String> =
            subjects_there.await.map_err(|error| failed(error.to_string().into()))?;
        if is_start || there.is_empty() {
            for number in 0..self.limit {
                let subject = subjects.permit(&self.name, number);
                if !there.remove(&subject) {
                    self.streams.store(&subject, &PublishMessage::build()).await?;
                }
            }
            // The limit was higher.
            for surplus in there {
                let purged = stream.purge().filter(surplus).await;
                purged.map_err(|error| failed(error.to_string().into()))?;
            }
        }
        let name = permits_consumer(&self.name);
        let filter_subject = subjects.permits_of(&self.name);
        let config = pull::Config { filter_subject, ..self.streams.claims(name.clone()) };
        let made = stream.get_or_create_consumer(&name, config).await;
        let consumer = made.map_err(|error| failed(error.to_string().into()))?;
        *self.consumer.lock() = Some(consumer.clone());
        Ok(consumer)
    }
}
