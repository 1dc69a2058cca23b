//! The knobs of the scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ConfigError;

mod machine;

/// The knobs of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Jobs that may run at once, isolated ones and those of sessions together.
    ///
    /// Default: the number of CPUs. It should equal the largest number of workers: with fewer,
    /// warm interpreters idle; more can't be used, and is refused.
    pub concurrent: usize,
    /// How many workers there are.
    ///
    /// Default: as many as CPUs, always.
    pub workers: WorkersConfig,
    /// Jobs that may wait, of all tenants. Further ones are refused with `QueueFull`.
    ///
    /// Default: 10,000. Zero refuses whatever can't run at once. A job for which another worker is
    /// started is taken even so, and waits for that. Each waiting job holds its source, values
    /// and input files in memory, which `queued_bytes` bounds.
    pub queued_count: usize,
    /// Bytes that waiting jobs may hold: source, arguments, environment, standard input and files.
    /// Further jobs are refused with `QueueBytes`.
    ///
    /// Default: 256 MiB. A job that is larger by itself is only taken when it can run at once, or
    /// another worker is started for it.
    pub queued_bytes: usize,
    /// What each tenant may have that `tenants` doesn't name.
    ///
    /// Default: weight 1, and no bounds but those of all tenants.
    pub tenant: TenantConfig,
    /// What single tenants may have, by name.
    ///
    /// Default: none. Names that never submit a job cost nothing.
    pub tenants: BTreeMap<String, TenantConfig>,
    /// How much earlier a job of high priority counts as submitted than a normal one, and a normal
    /// one than a job of low priority, within one tenant.
    ///
    /// Default: 30 s. It is also how long a job can be held up by jobs of the next higher priority
    /// that come after it; at zero priorities mean nothing, and a very long step starves the low.
    pub priority_step: Duration,
    /// How often a job that the sandbox failed is tried again, if it is idempotent.
    ///
    /// Default: 2. At zero every failure of the sandbox is told at once; a program that kills its
    /// workers costs one more of them for each retry.
    pub retries: u32,
    /// What becomes of sessions that rest.
    pub sessions: SessionsConfig,
    /// Memory for everything: the image, the compiled build, slots, parked sessions, waiting jobs, and
    /// the input, output and growth of running ones, in bytes. Near its end sessions that rest are
    /// compressed, then spilled to disk; at its end nothing is taken that would need more.
    ///
    /// A job starts when all that its limits let it grow by is free (`Limits::memory_bytes` and
    /// `Limits::file_bytes`), and keeps it until it ends. So jobs never take memory from each other,
    /// and lower limits let more of them run at once. One that runs alone is cut to what is there;
    /// what it is refused because of that has reached `LimitKind::PoolMemory`.
    ///
    /// Default: four fifths of what the control group allows, or of the machine's memory. More
    /// than there is lets the system end the process.
    pub memory_bytes: u64,
    /// A slot is made anew after a job that had more guest memory than this, in bytes.
    ///
    /// Default: 512 MiB. A reset gives memory back as well; this is for what it can't reach. At
    /// zero every job costs a start of an interpreter, 5 ms.
    pub retire_above_bytes: u64,
}

/// How many workers there are. Each is a thread with a warm interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkersConfig {
    /// So many there are at least.
    ///
    /// Default: the number of CPUs. At zero the first job after a rest waits for a start.
    pub min: usize,
    /// So many there are at most; between the two their number follows the load.
    ///
    /// Default: the number of CPUs. More than the CPUs only helps programs that wait.
    pub max: usize,
    /// So many idle ones are kept beyond those that run, up to `max`.
    ///
    /// Default: 0. Each takes the memory of an interpreter, and saves a job its start.
    pub spares: usize,
    /// A worker beyond `min` and `spares` that was idle for so long ends.
    ///
    /// Default: 60 s. A short time makes bursts pay for starts.
    pub shrink_after: Duration,
    /// A place whose workers could not start time after time, and which was given up, is tried
    /// again after so long. Until then there is one worker less; where none is left, jobs are
    /// refused with `NoWorker`.
    ///
    /// Default: 30 s. At zero a machine that can't run any is busy with trying.
    pub retry_after: Duration,
}

/// What one tenant may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantConfig {
    /// Its share of the CPU time while others want it too, against their weights.
    ///
    /// Default: 1. At least 1: a tenant with weight 2 gets twice the CPU time of one with weight 1.
    pub weight: u32,
    /// Its jobs that may run at once.
    ///
    /// Default: no bound. At least 1.
    pub concurrent: usize,
    /// Its jobs that may wait. Further ones are refused with `TenantQueueFull`.
    ///
    /// Default: no bound but that of all tenants.
    pub queued_count: usize,
    /// Bytes that its waiting jobs may hold.
    ///
    /// Default: no bound but that of all tenants.
    pub queued_bytes: usize,
}

/// What becomes of sessions that rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsConfig {
    /// Sessions that may be open, closed ones whose jobs still run included, wherever they are.
    /// Further ones are refused with `TooManySessions`.
    ///
    /// Default: 10,000. Zero leaves isolated jobs alone.
    pub open: usize,
    /// Sessions whose state may be in memory, on workers or parked. Beyond it, those that rested
    /// longest are spilled to disk.
    ///
    /// Default: 2,000. At least as many as jobs that run at once, or sessions that run would have
    /// to be spilled.
    pub in_memory: usize,
    /// Bytes of spilled sessions on disk, compressed as they are there.
    ///
    /// Default: 8 GiB. Zero spills nothing: a session that finds no room in memory is refused. If
    /// the disk itself is full before, sessions stay in memory.
    pub disk_bytes: u64,
    /// A session that rested on its worker for so long is parked, so that the worker's next job
    /// needn't wait for that.
    ///
    /// Default: 10 s. At zero every turn pays for taking its state up again, 1 to 3 ms.
    pub park_after: Duration,
    /// A session that rested for so long is spilled to disk.
    ///
    /// Default: 10 min. A short time has disks work for sessions that are about to go on.
    pub spill_after: Duration,
    /// A session that rested for so long is closed, and its state dropped; `None` never does that.
    ///
    /// Default: never.
    pub close_after: Option<Duration>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            concurrent: cpus(),
            workers: WorkersConfig::default(),
            queued_count: 10_000,
            queued_bytes: 256 << 20,
            tenant: TenantConfig::default(),
            tenants: BTreeMap::new(),
            priority_step: Duration::from_secs(30),
            retries: 2,
            sessions: SessionsConfig::default(),
            memory_bytes: machine::memory_bytes(),
            retire_above_bytes: 512 << 20,
        }
    }
}

impl Default for WorkersConfig {
    fn default() -> Self {
        Self {
            min: cpus(),
            max: cpus(),
            spares: 0,
            shrink_after: Duration::from_secs(60),
            retry_after: Duration::from_secs(30),
        }
    }
}

impl WorkersConfig {
    /// This many, always.
    pub fn fixed(count: usize) -> Self {
        Self { min: count, max: count, ..Self::default() }
    }
}

impl Default for TenantConfig {
    fn default() -> Self {
        let none = usize::MAX;
        Self { weight: 1, concurrent: none, queued_count: none, queued_bytes: none }
    }
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            open: 10_000,
            in_memory: 2_000,
            disk_bytes: 8 << 30,
            park_after: Duration::from_secs(10),
            spill_after: Duration::from_secs(600),
            close_after: None,
        }
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl SchedulerConfig {
    /// What `tenant` may have.
    pub(crate) fn of_tenant(&self, tenant: &str) -> &TenantConfig {
        self.tenants.get(tenant).unwrap_or(&self.tenant)
    }

    /// Checks that the values make sense together.
    ///
    /// # Errors
    /// A value with which no job could ever run, or two that contradict each other.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { concurrent, workers, sessions, .. } = self;
        if *concurrent == 0 {
            return Err(ConfigError::NothingRuns);
        }
        if workers.max == 0 {
            return Err(ConfigError::NoWorkers);
        }
        let contradiction = |small, small_value, large, large_value| {
            let bad = ConfigError::Contradiction { small, small_value, large, large_value };
            (small_value > large_value).then_some(bad)
        };
        let found = [
            contradiction("workers.min", workers.min, "workers.max", workers.max),
            contradiction("workers.spares", workers.spares, "workers.max", workers.max),
            contradiction("concurrent", *concurrent, "workers.max", workers.max),
            // With room for fewer, sessions that run would be evicted.
            (sessions.open > 0)
                .then(|| {
                    contradiction(
                        "concurrent",
                        (*concurrent).min(sessions.open),
                        "sessions.in_memory",
                        sessions.in_memory,
                    )
                })
                .flatten(),
        ];
        if let Some(bad) = found.into_iter().flatten().next() {
            return Err(bad);
        }
        let named = self.tenants.iter().map(|(name, config)| (Some(name), config));
        for (name, config) in named.chain([(None, &self.tenant)]) {
            for (field, value) in
                [("weight", config.weight as usize), ("concurrent", config.concurrent)]
            {
                if value == 0 {
                    let tenant = name.cloned();
                    return Err(ConfigError::TenantNeverRuns { tenant, field });
                }
            }
        }
        Ok(())
    }
}
