//! The side that runs jobs: a pool of this machine that takes them from the queue.
//!
//! `room.rs` says how many jobs to claim, `lanes.rs` where the next one comes from, `job.rs` is the
//! way of one job, `starts.rs` counts who died of it, and `presence.rs` says that this worker lives.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use hatchery::{Hatchery, TenantConfig};
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::clock::sleep;
use crate::connect::Connection;
use crate::control::Control;
use crate::error::Error;
use crate::names::{JobKey, Lane, PoolName};
use crate::streams::{Settings, Streams};

use self::lanes::Lanes;
use self::room::Room;

pub use presence::Presence;

mod events;
mod job;
mod lanes;
mod presence;
mod room;
mod starts;

/// Jobs per slot whose results aren't stored yet, the running one included. While the server is
/// gone, no more is claimed than this.
const UNSTORED: usize = 16;
/// How long jobs that weren't started may take to be given back when the worker ends.
const GIVING_BACK: Duration = Duration::from_secs(10);
/// Commands to one job that may wait. Further ones would change nothing.
const MOST_COMMANDS: usize = 4;

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
    /// The most jobs of a tenant that are claimed at once in the whole cluster, of each priority.
    pub most_claimed: HashMap<String, u32>,
    /// How the pool is kept on the server, if it isn't there yet.
    pub settings: Settings,
}

impl WorkerConfig {
    /// Runs this many jobs at once.
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            name: presence::default_name(),
            trusts_jobs: false,
            drain_time: Duration::from_secs(10),
            weights: HashMap::new(),
            most_claimed: HashMap::new(),
            settings: Settings::default(),
        }
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
}

/// A pool that takes its jobs from a queue on a server.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
}

/// What the tasks of a worker share.
#[derive(Debug)]
struct Shared {
    streams: Streams,
    pool: Hatchery,
    config: WorkerConfig,
    /// Tells this process from every other one, also from later ones of the same name.
    instance: String,
    /// Free slots.
    slots: Semaphore,
    /// How many jobs to claim.
    room: Room,
    /// Jobs that may be claimed without being stored.
    unstored: Arc<Semaphore>,
    /// Held for reading by every run, and for writing by one that runs alone.
    alone: RwLock<()>,
    running: Mutex<HashMap<JobKey, mpsc::Sender<Command>>>,
    tally: Mutex<Tally>,
    /// Set when nothing more is started.
    is_draining: watch::Sender<bool>,
    /// Set when running jobs are given back.
    is_over: watch::Sender<bool>,
}

/// What a running job is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Cancel,
    Interrupt,
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
        let link = connection.connect().await?;
        let streams = Streams::open(link, name, &config.settings).await?;
        let slots = config.slots.max(1);
        Ok(Self {
            shared: Arc::new(Shared {
                streams,
                pool,
                instance: crate::BatchName::random().as_str().to_owned(),
                slots: Semaphore::new(slots),
                room: Room::new(slots),
                unstored: Arc::new(Semaphore::new(slots * UNSTORED)),
                alone: RwLock::new(()),
                running: Mutex::default(),
                tally: Mutex::default(),
                is_draining: watch::Sender::new(false),
                is_over: watch::Sender::new(false),
                config,
            }),
        })
    }

    /// Takes and runs jobs until `stop` is ready; then gives back what hasn't started, and waits for
    /// what has, for as long as the configuration says. The pool is left as it is. Returns what it
    /// has done.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Tally {
        let shared = self.shared;
        let wake = Arc::new(Notify::new());
        let lanes = Arc::new(Lanes::new(&shared.streams, &shared.config, Arc::clone(&wake)));
        let mut tasks = JoinSet::new();
        tasks.spawn(presence::show(Arc::clone(&shared)));
        tasks.spawn(listen(Arc::clone(&shared), Arc::clone(&lanes)));
        tasks.spawn(Arc::clone(&lanes).refresh());
        let mut jobs = JoinSet::new();
        tokio::pin!(stop);
        tokio::select! {
            () = &mut stop => {}
            () = shared.claim(&lanes, &mut jobs) => {}
        }
        shared.is_draining.send_replace(true);
        let ended = async { while jobs.join_next().await.is_some() {} };
        tokio::pin!(ended);
        tokio::select! {
            () = &mut ended => {}
            () = sleep(shared.config.drain_time) => {
                shared.is_over.send_replace(true);
                let _ = tokio::time::timeout(GIVING_BACK, &mut ended).await;
            }
        }
        tasks.shutdown().await;
        shared.leave().await;
        *shared.tally.lock()
    }
}

impl Shared {
    /// Claims jobs for which there is room, for ever.
    async fn claim(self: &Arc<Self>, lanes: &Arc<Lanes>, jobs: &mut JoinSet<()>) {
        loop {
            while jobs.try_join_next().is_some() {}
            // It is never closed.
            let Ok(first) = Arc::clone(&self.unstored).acquire_owned().await else { return };
            let mut free = vec![first];
            let room = self.room.some().await;
            while free.len() < room
                && let Ok(another) = Arc::clone(&self.unstored).try_acquire_owned()
            {
                free.push(another);
            }
            for message in lanes.claim(free.len()).await {
                // No more come than were asked for.
                let Some(unstored) = free.pop() else { break };
                let shared = Arc::clone(self);
                shared.room.take();
                jobs.spawn(async move {
                    job::handle(&shared, message).await;
                    drop(unstored);
                });
            }
        }
    }

    /// Tells others that this worker is gone.
    async fn leave(&self) {
        let left = self.streams.workers.purge(&self.instance);
        let _ = tokio::time::timeout(GIVING_BACK, left).await;
        let _ = tokio::time::timeout(GIVING_BACK, self.streams.link.client().flush()).await;
    }

    fn weight(config: &WorkerConfig, lane: &Lane) -> f64 {
        let weight = lane.tenant().and_then(|name| config.weights.get(&name).copied());
        f64::from(weight.unwrap_or(TenantConfig::default().weight).max(1))
    }
}

/// Hears of new jobs, and of jobs that are to end.
async fn listen(shared: Arc<Shared>, lanes: Arc<Lanes>) {
    let client = shared.streams.link.client();
    let subjects = &shared.streams.subjects;
    let (Ok(mut wakes), Ok(mut controls)) =
        (client.subscribe(subjects.wake()).await, client.subscribe(subjects.control()).await)
    else {
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
                let Some(control) = Control::read(&message.payload) else { continue };
                let Some(key) = control.key() else { continue };
                let command = match control {
                    Control::Cancel { .. } => Command::Cancel,
                    Control::Interrupt { .. } => Command::Interrupt,
                };
                if let Some(job) = shared.running.lock().get(&key) {
                    // Full if it was told often enough.
                    let _ = job.try_send(command);
                }
            }
            else => return,
        }
    }
}
