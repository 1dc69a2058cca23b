//! What the tasks of a worker share: its configuration, its counts, and the jobs that run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hatchery::{Hatchery, TenantConfig};
use parking_lot::Mutex;
use tokio::sync::{RwLock, Semaphore, mpsc, watch};

use crate::names::{JobKey, Lane};
use crate::streams::{Settings, Streams};

use super::gate::Gate;
use super::room::Room;
use super::server_clock::ServerClock;

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
    /// The most jobs of a tenant that run or wait for a slot at once in the whole cluster, over all
    /// priorities and workers; at most 10,000. Set the same for every worker of the pool.
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
pub(super) struct Shared {
    pub(super) streams: Streams,
    pub(super) pool: Hatchery,
    pub(super) config: WorkerConfig,
    /// Tells this process from every other one, also from later ones of the same name.
    pub(super) instance: String,
    /// Free slots.
    pub(super) slots: Semaphore,
    /// How many jobs to claim.
    pub(super) room: Room,
    /// Jobs that may be claimed without being stored.
    pub(super) unstored: Arc<Semaphore>,
    /// Held for reading by every run, and for writing by one that runs alone.
    pub(super) alone: RwLock<()>,
    /// Claimed jobs that have no result yet, with their lanes, and how to tell them something.
    pub(super) running: Mutex<HashMap<JobKey, (Lane, mpsc::Sender<Command>)>>,
    pub(super) tally: Mutex<Tally>,
    pub(super) server_clock: ServerClock,
    /// Where results wait for each other.
    pub(super) gate: Gate,
    /// Set when nothing more is started.
    pub(super) is_draining: watch::Sender<bool>,
    /// Set when running jobs are given back.
    pub(super) is_over: watch::Sender<bool>,
}

/// What a running job is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Cancel,
    Interrupt,
}

/// Returns the machine's name and the process's id.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "worker" } else { host };
    format!("{host}-{}", std::process::id())
}
