//! Where the next job comes from: asks lanes for jobs, in the order that `policy.rs` says.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{AckKind, Message};
use futures_util::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::shared::WorkerConfig;
use crate::clock::{now, sleep};
use crate::error::{Cause, Error};
use crate::names::{Lane, encoded};
use crate::policy;
use crate::policy::{EMPTY, Shares};
use crate::stores::{one_of_each, stream};
use crate::streams::Streams;

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
    known: Mutex<KnownLanes>,
    /// Wakes the task that waits for jobs.
    woken: Notify,
    /// Wakes the task that looks for lanes.
    has_unknown: Notify,
}

/// Lanes with their consumers, and how they share, by the same indexes.
#[derive(Debug, Default)]
struct KnownLanes {
    lanes: Vec<(Lane, PullConsumer)>,
    shares: Shares,
}

impl KnownLanes {
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
        self.permits.give_back(true);
        let claimed = loop {
            let claimed = self.ask_all(count).await;
            if !claimed.is_empty() || *draining.borrow() {
                break claimed;
            }
            self.permits.give_back(true);
            let wait = self.known.lock().shares.wait(self.time());
            tokio::select! {
                _ = timeout(wait, self.woken.notified()) => {}
                _ = draining.changed() => {}
            }
        };
        self.permits.give_back(false);
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
                    asked.extend(self.put_off(&tenant.name));
                    tenant.is_wanted.notify_one();
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

    /// Looks for new lanes now and then, until it is dropped.
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

    /// Creates consumers of lanes again that the server has lost.
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
            // The most urgent is the first.
            known.shares.add(lane.priority as u8, self.config.weight(&lane));
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

// How many jobs are claimed, and waiting for room for more; `policy.rs` says how much there
// is.
//
// A job that was claimed ahead and finds no slot in time is given back.

/// Counts claims that haven't ended.
#[derive(Debug)]
pub(super) struct ClaimBudget {
    slots: usize,
    claimed: AtomicUsize,
    /// The mean time of a run, in microseconds; 0 if none has ended yet.
    mean_us: AtomicU64,
    freed: Notify,
}

impl ClaimBudget {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots,
            claimed: AtomicUsize::new(0),
            mean_us: AtomicU64::new(0),
            freed: Notify::new(),
        }
    }

    /// Waits until there is room for some jobs, and returns for how many. Cancel-safe.
    pub(super) async fn some(&self) -> usize {
        loop {
            let free = self.available();
            if free > 0 {
                return free;
            }
            // What frees room later than this check leaves a permit.
            self.freed.notified().await;
        }
    }

    fn available(&self) -> usize {
        let claimed = self.claimed.load(Ordering::Relaxed);
        policy::claim_budget(self.slots, claimed, self.mean_us.load(Ordering::Relaxed))
    }

    /// Returns how long the result of an ended program may wait for others, and whether it is the last.
    pub(super) fn held(&self) -> (Duration, bool) {
        let is_last = self.claimed.load(Ordering::Relaxed) == 0;
        (policy::held(self.mean_us.load(Ordering::Relaxed)), is_last)
    }

    /// Counts a claim.
    pub(super) fn take(&self) {
        self.claimed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a claim's use of a slot.
    pub(super) fn free(&self) {
        self.claimed.fetch_sub(1, Ordering::Relaxed);
        self.freed.notify_one();
    }

    /// Counts a run.
    pub(super) fn ran(&self, time: Duration) {
        let mean = self.mean_us.load(Ordering::Relaxed);
        // Another one that counts at the same time may be lost.
        self.mean_us.store(policy::mean_after(mean, time), Ordering::Relaxed);
    }
}

/// The most results that wait.
const MOST_HELD: usize = 64;

/// A gate at which results of short programs wait, so that the server gets many at once.
///
/// The last of the claimed jobs opens it for all. So does one that has waited for the time in
/// `policy.rs`. A job that is alone passes at once.
#[derive(Debug, Default)]
pub(super) struct ReplyBatcher {
    waiting: Mutex<usize>,
    /// Counts how often it has opened.
    opened: watch::Sender<u64>,
}

impl ReplyBatcher {
    /// Waits for others for at most this long. `is_last` says that none is to come.
    pub(super) async fn pass(&self, longest: Duration, is_last: bool) {
        let mut opened = {
            let mut waiting = self.waiting.lock();
            *waiting += 1;
            if is_last || longest.is_zero() || *waiting >= MOST_HELD {
                return self.open(&mut waiting);
            }
            // Within the lock: what opens later is seen.
            self.opened.subscribe()
        };
        // The sender is in `self`.
        if timeout(longest, opened.changed()).await.is_err() {
            self.open(&mut self.waiting.lock());
        }
    }

    fn open(&self, waiting: &mut usize) {
        *waiting = 0;
        self.opened.send_modify(|opened| *opened += 1);
    }
}

// How many jobs a tenant may have at once, in the whole cluster. The worker of a limited
// tenant's job holds one of the tenant's permits until the program has ended.
//
// A permit is a message in a separate stream, which has one for each job that the tenant may have.
// One consumer for each tenant hands them out, each to one worker. A permit that isn't renewed comes
// back after the time of a claim, as a dead worker's job does. So the limit holds for all
// priorities and workers, and urgent jobs still overtake others. A limit of the jobs' consumers could
// do only one of both, since each consumer has one order.

/// The most permits of a tenant. A higher limit counts as this one.
const MOST_PERMITS: u32 = 10_000;
/// How long the answer to a request for permits may take.
const PERMIT_ANSWER: Duration = Duration::from_secs(3);
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

    /// Gives back what nothing was claimed with. Keeps permits that come from now on if jobs are
    /// wanted.
    pub(super) fn give_back(&self, is_wanted: bool) {
        for tenant in self.tenants() {
            *tenant.spare.lock() = is_wanted.then(Vec::new);
        }
    }
}

impl Tenant {
    /// Takes up to this many permits, as many as nobody holds.
    pub(super) async fn take(&self, count: usize) -> Vec<Permit> {
        let spare = self
            .spare
            .lock()
            .as_mut()
            .map(|spare| spare.split_off(spare.len().saturating_sub(count)));
        if let Some(spare) = spare.filter(|spare| !spare.is_empty()) {
            return spare;
        }
        match timeout(PERMIT_ANSWER, self.fetch(count)).await {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(error)) => {
                self.failed(&error);
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Takes permits back for other lanes of the tenant.
    pub(super) fn put(&self, permits: impl Iterator<Item = Permit>) {
        if let Some(spare) = self.spare.lock().as_mut() {
            spare.extend(permits);
        }
    }

    /// Waits for a permit whenever one is asked for, until it is dropped. `wake` is called when there is one.
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
        batch.map_ok(Permit).try_collect().await
    }

    /// Waits a while for one permit.
    async fn wait(&self) -> Result<Vec<Permit>, Cause> {
        let consumer = self.consumer().await?;
        let batch = consumer.batch().max_messages(1).expires(OPEN).messages().await?;
        let got: Vec<Permit> = batch.map_ok(Permit).try_collect().await?;
        if got.is_empty() {
            // All are held, or the server has lost them.
            self.open(false).await?;
        }
        Ok(got)
    }

    async fn consumer(&self) -> Result<PullConsumer, Cause> {
        let known = self.consumer.lock().clone();
        match known {
            Some(consumer) => Ok(consumer),
            None => Ok(self.open(false).await?),
        }
    }

    /// Makes sure that the server has the tenant's permits. Their number becomes this worker's limit when
    /// it starts. Later it does so only if none is left, since other workers may have other limits.
    async fn open(&self, is_start: bool) -> Result<PullConsumer, Error> {
        let subjects = &self.streams.subjects;
        let name = subjects.store("permits");
        let failed = |answer: &dyn Display| Error::setup(name.clone(), answer);
        let config = one_of_each(subjects, "permits", self.replicas);
        let stream = stream(&self.streams.context, config).await?;
        let listed = stream.info_with_subjects(subjects.permits_of(&self.name, "*")).await;
        let listed = listed.map_err(|error| failed(&error))?.map_ok(|(subject, _)| subject);
        let listed = listed.try_collect().await;
        let mut there: HashSet<String> = listed.map_err(|error| failed(&error))?;
        if is_start || there.is_empty() {
            for number in 0..self.limit {
                let subject = subjects.permits_of(&self.name, number);
                if !there.remove(&subject) {
                    self.streams.store(&subject, &PublishMessage::build()).await?;
                }
            }
            // The limit was higher.
            for surplus in there {
                let purged = stream.purge().filter(surplus).await;
                purged.map_err(|error| failed(&error))?;
            }
        }
        let consumer = encoded(&self.name);
        let filter_subject = subjects.permits_of(&self.name, "*");
        let config = pull::Config { filter_subject, ..self.streams.claims(consumer.clone()) };
        let made = stream.get_or_create_consumer(&consumer, config).await;
        let consumer = made.map_err(|error| failed(&error))?;
        *self.consumer.lock() = Some(consumer.clone());
        Ok(consumer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_claimed_as_slots_are_free() {
        let claim_budget = ClaimBudget::new(3);
        assert_eq!(claim_budget.available(), 3);
        claim_budget.take();
        assert_eq!(claim_budget.available(), 2);
        claim_budget.ran(Duration::from_millis(50));
        (0..2).for_each(|_| claim_budget.take());
        assert_eq!(claim_budget.available(), 0);
        claim_budget.free();
        assert_eq!(claim_budget.available(), 1);
    }

    #[test]
    fn short_jobs_are_claimed_ahead_until_a_long_one_comes() {
        let claim_budget = ClaimBudget::new(2);
        claim_budget.ran(Duration::from_millis(4));
        assert_eq!(claim_budget.available(), 2 + 16);
        (0..8).for_each(|_| claim_budget.take());
        // In few requests.
        assert_eq!(claim_budget.available(), 10);
        claim_budget.take();
        claim_budget.take();
        assert_eq!(claim_budget.available(), 0);
        claim_budget.ran(Duration::from_millis(50));
        (0..9).for_each(|_| claim_budget.free());
        assert_eq!(claim_budget.available(), 1);
        (0..50).for_each(|_| claim_budget.ran(Duration::from_millis(4)));
        assert!(claim_budget.available() > 8);
    }

    #[tokio::test]
    async fn waiting_for_room_ends_when_some_is_freed() {
        let claim_budget = ClaimBudget::new(1);
        claim_budget.take();
        let (found, ()) = tokio::join!(claim_budget.some(), async { claim_budget.free() });
        assert_eq!(found, 1);
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_result_that_is_alone_or_long_passes_at_once() {
        let (batcher, begin): (ReplyBatcher, Instant) = (ReplyBatcher::default(), now());
        batcher.pass(LONG, true).await;
        batcher.pass(Duration::ZERO, false).await;
        assert_eq!(now(), begin);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_one_opens_for_all() {
        let (batcher, begin) = (ReplyBatcher::default(), now());
        tokio::join!(
            batcher.pass(LONG, false),
            batcher.pass(LONG, false),
            batcher.pass(LONG, true)
        );
        assert_eq!(now(), begin);
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_that_has_waited_long_enough_opens_for_all() {
        let (batcher, begin) = (ReplyBatcher::default(), now());
        tokio::join!(batcher.pass(LONG, false), batcher.pass(LONG / 2, false));
        assert_eq!(now() - begin, LONG / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn many_do_not_wait_for_more() {
        let (batcher, begin) = (ReplyBatcher::default(), now());
        futures_util::future::join_all((0..MOST_HELD).map(|_| batcher.pass(LONG, false))).await;
        assert_eq!(now(), begin);
    }
}
