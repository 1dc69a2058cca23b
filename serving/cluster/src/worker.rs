//! The running side: a pool of this machine that takes jobs from the queue.
//!
//! `lanes.rs` says how many jobs to claim, where the next one comes from, and how many a tenant may
//! have. `job.rs` is the way of one job, `owners.rs` has the sessions whose turns run here. `shared.rs`
//! checks messages, counts starts and says that this worker lives.

pub use shared::{Presence, Tally, WorkerConfig};

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use hatchery::Hatchery;
use parking_lot::Mutex;
use tokio::sync::{RwLock, Semaphore, watch};
use tokio::task::JoinSet;

use self::lanes::Lanes;
use self::shared::WorkerShared;
use crate::clock::sleep;
use crate::connect::Connection;
use crate::error::Error;
use crate::names::{BatchName, JobKey, Lane, PoolName};
use crate::payload::Control;
use crate::policy::MOST_AHEAD;
use crate::streams::Streams;
use lanes::{ClaimBudget, Permits, ReplyBatcher};
use shared::ServerClock;

mod job;
mod lanes;
mod owners;
mod shared;

/// Jobs per slot whose results aren't stored yet, those that run or wait included. While the server is
/// gone, no more is claimed than this.
const UNSTORED: usize = 2 * MOST_AHEAD;
/// Characters of a worker's name.
const MOST_NAME: usize = 128;
/// How long jobs that weren't started may take to be given back when the worker ends.
const GIVING_BACK: Duration = Duration::from_secs(10);

/// A pool that takes its jobs from a queue on a server.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<WorkerShared>,
    permits: Permits,
}

impl Worker {
    /// Connects a pool to the queue of this name.
    ///
    /// # Errors
    /// There is no server, it refuses the credentials, or it can't keep a pool.
    pub async fn connect(
        connection: &Connection,
        name: PoolName,
        pool: Hatchery,
        config: WorkerConfig,
    ) -> Result<Self, Error> {
        let streams = Streams::open(connection.connect().await?, name, &config.settings).await?;
        let slots = config.slots.max(1);
        // It goes into headers.
        let name = config.name.chars().filter(|character| !character.is_control());
        let config = WorkerConfig { name: name.take(MOST_NAME).collect(), ..config };
        let permits = Permits::open(&streams, &config).await?;
        let worker = Self {
            permits,
            shared: Arc::new(WorkerShared {
                streams,
                pool,
                instance: BatchName::random().as_str().to_owned(),
                slots: Semaphore::new(slots),
                budget: ClaimBudget::new(slots),
                unstored: Arc::new(Semaphore::new(slots * UNSTORED)),
                alone: RwLock::new(()),
                running: Mutex::default(),
                tally: Mutex::default(),
                is_draining: watch::Sender::new(false),
                is_over: watch::Sender::new(false),
                server_clock: ServerClock::default(),
                replies: ReplyBatcher::default(),
                config,
            }),
        };
        // Before the first job: its deadline counts from when the server got it.
        let shown = worker.shared.show().await;
        shown.map_err(|error| Error::server("store a heartbeat", error))?;
        Ok(worker)
    }

    /// Takes and runs jobs until `stop` is ready. Then it returns unstarted jobs to the queue, and
    /// waits for running ones, within the configured time. It doesn't end the pool. Returns counts
    /// of its jobs.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Tally {
        let shared = self.shared;
        let lanes = Arc::new(Lanes::new(&shared.streams, &shared.config, self.permits));
        let mut tasks = JoinSet::new();
        lanes.supply(&mut tasks);
        tasks.spawn(shared::show(Arc::clone(&shared)));
        tasks.spawn(listen(Arc::clone(&shared), Arc::clone(&lanes)));
        tasks.spawn(Arc::clone(&lanes).refresh());
        let mut turns = JoinSet::new();
        turns.spawn(owners::serve(Arc::clone(&shared)));
        // A separate task: a caller that isn't a task has another thread, which each claim would have
        // to wake.
        let mut claiming = JoinSet::new();
        let claims = Arc::clone(&shared);
        claiming.spawn(async move { claims.claim(&lanes).await });
        stop.await;
        shared.is_draining.send_replace(true);
        let mut jobs = match claiming.join_next().await {
            Some(Ok(jobs)) => jobs,
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => JoinSet::new(),
        };
        let ended = async {
            while jobs.join_next().await.is_some() {}
            while turns.join_next().await.is_some() {}
        };
        tokio::pin!(ended);
        tokio::select! {
            () = &mut ended => {}
            () = sleep(shared.config.drain_time) => {
                shared.is_over.send_replace(true);
                let _ = tokio::time::timeout(GIVING_BACK, &mut ended).await;
            }
        }
        tasks.shutdown().await;
        // Others learn that this worker is gone.
        let left = shared.streams.workers.purge(&shared.instance);
        let _ = tokio::time::timeout(GIVING_BACK, left).await;
        let _ = tokio::time::timeout(GIVING_BACK, shared.streams.client.flush()).await;
        *shared.tally.lock()
    }
}

impl WorkerShared {
    /// Claims jobs for which there is room, until this worker drains. Returns those that haven't
    /// ended.
    async fn claim(self: &Arc<Self>, lanes: &Lanes) -> JoinSet<()> {
        let mut jobs = JoinSet::new();
        let mut draining = self.is_draining.subscribe();
        loop {
            while jobs.try_join_next().is_some() {}
            let ready = async {
                let first = Arc::clone(&self.unstored).acquire_owned().await;
                (first, self.budget.some().await)
            };
            let (first, room) = tokio::select! {
                biased;
                // The sender is in `self`.
                _ = draining.wait_for(|draining| *draining) => return jobs,
                ready = ready => ready,
            };
            // It is never closed.
            let Ok(first) = first else { return jobs };
            let mut free = vec![first];
            while free.len() < room
                && let Ok(another) = Arc::clone(&self.unstored).try_acquire_owned()
            {
                free.push(another);
            }
            // What is on its way when this worker drains is given back.
            for claimed in lanes.claim(free.len(), &mut draining).await {
                // No more come than were asked for.
                let Some(unstored) = free.pop() else { break };
                let shared = Arc::clone(self);
                shared.budget.take();
                jobs.spawn(async move {
                    job::handle(&shared, claimed).await;
                    drop(unstored);
                });
            }
        }
    }
}

/// Hears of new jobs, and of jobs that are to end.
async fn listen(shared: Arc<WorkerShared>, lanes: Arc<Lanes>) {
    let client = &shared.streams.client;
    let subjects = &shared.streams.subjects;
    let (Ok(mut wakes), Ok(mut controls)) = (
        client.subscribe(subjects.wake()).await,
        client.subscribe(subjects.of("control", ">")).await,
    ) else {
        return;
    };
    loop {
        tokio::select! {
            Some(message) = wakes.next() => {
                if let Some(lane) = std::str::from_utf8(&message.payload).ok().and_then(Lane::parse) {
                    lanes.wake(&lane);
                }
            }
            Some(message) = controls.next() => {
                let lane = subjects.rest(&message.subject, "control").and_then(Lane::parse);
                let Some(lane) = lane else { continue };
                let Some(control) = Control::read(&message.payload) else { continue };
                let Some(key) = JobKey::parse(&control.key) else { continue };
                if let Some((own, job)) = shared.running.lock().get(&key)
                    && *own == lane
                {
                    // Full if it was told often enough.
                    let _ = job.try_send(control.command);
                }
            }
            else => return,
        }
    }
}
