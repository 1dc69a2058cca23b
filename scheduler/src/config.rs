//! The configuration of the scheduler.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::error::ConfigError;

/// The configuration of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// How many jobs may run at once, in sessions and outside of them.
    ///
    /// Default: the number of CPUs. It should equal the largest number of workers. With fewer, warm
    /// interpreters idle; with more, the start fails.
    pub concurrent: usize,
    /// How many workers there are.
    ///
    /// Default: always as many as CPUs.
    pub workers: WorkersConfig,
    /// How many jobs of all tenants may be queued. Further ones are refused with `QueueFull`.
    ///
    /// Default: 10,000. Zero refuses every job that can't run at once, except one for which another
    /// worker is started. Each queued job holds its source, values and input files in memory, which
    /// `queued_bytes` bounds.
    pub queued_count: usize,
    /// Bytes that queued jobs may hold: source, arguments, environment, standard input and files.
    /// Further jobs are refused with `QueueBytes`.
    ///
    /// Default: 256 MiB. A larger job is only admitted if it can run at once, or if another worker
    /// starts for it.
    pub queued_bytes: usize,
    /// The configuration of each tenant that `tenants` doesn't name.
    ///
    /// Default: weight 1, and only the bounds that all tenants share.
    pub tenant: TenantConfig,
    /// The configuration of single tenants, by name.
    ///
    /// Default: none. Tenants that never submit a job cost nothing.
    pub tenants: BTreeMap<String, TenantConfig>,
    /// How much earlier a job counts as submitted than one of the next lower priority of its
    /// tenant.
    ///
    /// Default: 30 s. This is also how long later jobs of the next higher priority can delay a job.
    /// At zero, priorities have no effect; a very long step starves low priority.
    pub priority_step: Duration,
    /// How often an idempotent job is retried after the sandbox failed.
    ///
    /// Default: 2. At zero, every sandbox failure is reported at once. A program that kills its
    /// workers kills one more for each retry.
    pub retries: u32,
    /// What happens to idle sessions.
    pub sessions: SessionsConfig,
    /// Memory for everything, in bytes: image, compiled build, slots, suspended sessions, and
    /// queued jobs. The input, output and growth of running jobs count, too. Near the limit, idle
    /// sessions are compressed, then offloaded to disk. At the limit, requests for more are
    /// refused.
    ///
    /// A job starts when all the growth that its limits allow is free (`Limits::memory_bytes`,
    /// `Limits::file_bytes`). It reserves that until it ends. So jobs never take memory from each
    /// other, and lower limits let more of them run at once. A job that runs alone has its limits
    /// cut to the free memory. At the cut limits it reaches `LimitKind::PoolMemory`.
    ///
    /// Default: four fifths of what the control group allows, or of the machine's memory. With more
    /// than exists, the system may kill the process.
    pub memory_bytes: u64,
    /// A slot gets a new interpreter after a job whose peak guest memory exceeded this, in bytes.
    ///
    /// Default: 512 MiB. A reset also returns memory; this is for what it can't return. At zero,
    /// every job costs a start of an interpreter, 5 ms.
    pub retire_above_bytes: u64,
}

/// How many workers there are. Each is a thread with a warm interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkersConfig {
    /// The least number of workers.
    ///
    /// Default: the number of CPUs. At zero, the first job after an idle time waits for a start.
    pub min: usize,
    /// The largest number of workers; between the two, their number follows the load.
    ///
    /// Default: the number of CPUs. More than that only helps programs that wait.
    pub max: usize,
    /// How many idle workers are kept beyond those that run, up to `max`.
    ///
    /// Default: 0. Each takes the memory of an interpreter, and saves a job the start.
    pub spares: usize,
    /// How long a worker beyond `min` and `spares` idles before it ends.
    ///
    /// Default: 60 s. With a short time, bursts pay for starts.
    pub shrink_after: Duration,
    /// How long a worker place stays given up after its workers have failed to start again and
    /// again. Until then there is one worker less; if none is left, jobs are refused with
    /// `NoWorker`.
    ///
    /// Default: 30 s. At zero, a machine that can't start any keeps trying at full speed.
    pub retry_after: Duration,
}

/// What one tenant may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantConfig {
    /// Its share of CPU time under contention, relative to the other weights.
    ///
    /// Default: 1. At least 1: a tenant with weight 2 gets twice the CPU time of one with weight 1.
    pub weight: u32,
    /// How many of its jobs may run at once.
    ///
    /// Default: no bound. At least 1.
    pub concurrent: usize,
    /// How many of its jobs may be queued. Further ones are refused with `QueueFull`.
    ///
    /// Default: no bound but that of all tenants.
    pub queued_count: usize,
    /// Bytes that its queued jobs may hold.
    ///
    /// Default: no bound but that of all tenants.
    pub queued_bytes: usize,
    /// How many of its sessions may be open, forks included. Further ones are refused with
    /// `TenantSessions`.
    ///
    /// Default: no bound but that of all tenants.
    pub sessions: usize,
    /// Bytes that the states of its sessions may take: on a worker, that of the last copy. What
    /// forks share counts once. Beyond that, no more are opened: `TenantSessionBytes`. Open ones go
    /// on, within the limits of their jobs.
    ///
    /// Default: no bound but the pool's memory.
    pub session_bytes: u64,
}

/// What happens to idle sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsConfig {
    /// How many sessions may be open, including closed ones whose jobs still run. Further ones are
    /// refused with `TooManySessions`.
    ///
    /// Default: 10,000. Zero allows only jobs without sessions.
    pub open: usize,
    /// How many sessions may be in memory, on workers or suspended. Beyond that, the longest idle ones
    /// are offloaded to disk.
    ///
    /// Default: 2,000. It must cover the jobs that run at once; otherwise running sessions would
    /// have to be offloaded.
    pub in_memory: usize,
    /// Bytes that offloaded sessions may take on disk, compressed.
    ///
    /// Default: 8 GiB. Zero offloads nothing: sessions that don't fit in memory are refused. If the
    /// disk fills up before that, sessions stay in memory.
    pub disk_bytes: u64,
    /// How long a session idles on its worker before it is suspended. The worker's next job then
    /// needn't wait for that.
    ///
    /// Default: 10 s. At zero, every turn pays for resuming its state again, 1 to 3 ms.
    pub suspend_after: Duration,
    /// How long a session idles before it is offloaded to disk.
    ///
    /// Default: 10 min. A short time makes the disk work for sessions that are about to be used.
    pub offload_after: Duration,
    /// How long a session idles before it is closed and its state dropped; `None` is never.
    ///
    /// Default: never.
    pub close_after: Option<Duration>,
    /// How many forks may lie between a session and one that isn't a fork. Deeper ones are refused
    /// with `TooDeep`.
    ///
    /// Default: 1,000. Each session that was forked keeps the pages in which it differs from the
    /// one before it, for as long as one of its forks is open.
    pub depth: usize,
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
            memory_bytes: memory_bytes(),
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
    /// Returns a fixed number of workers.
    pub fn fixed(count: usize) -> Self {
        Self { min: count, max: count, ..Self::default() }
    }
}

impl Default for TenantConfig {
    fn default() -> Self {
        let none = usize::MAX;
        Self {
            weight: 1,
            concurrent: none,
            queued_count: none,
            queued_bytes: none,
            sessions: none,
            session_bytes: u64::MAX,
        }
    }
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            open: 10_000,
            in_memory: 2_000,
            disk_bytes: 8 << 30,
            suspend_after: Duration::from_secs(10),
            offload_after: Duration::from_secs(600),
            close_after: None,
            depth: 1_000,
        }
    }
}

/// Returns how many CPUs this process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl SchedulerConfig {
    /// The configuration of `tenant`.
    pub(crate) fn of_tenant(&self, tenant: &str) -> &TenantConfig {
        self.tenants.get(tenant).unwrap_or(&self.tenant)
    }

    /// Checks that the values are consistent.
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
        let at_most = |small, small_value, large, large_value| match small_value <= large_value {
            true => Ok(()),
            false => Err(ConfigError::Contradiction { small, small_value, large, large_value }),
        };
        at_most("workers.min", workers.min, "workers.max", workers.max)?;
        at_most("workers.spares", workers.spares, "workers.max", workers.max)?;
        at_most("concurrent", *concurrent, "workers.max", workers.max)?;
        // With room for fewer, running sessions would be evicted.
        let in_sessions = (*concurrent).min(sessions.open);
        at_most("concurrent", in_sessions, "sessions.in_memory", sessions.in_memory)?;
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

/// What is assumed where the system doesn't say.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Four fifths of what the control group allows, or of the machine's memory if that is less.
fn memory_bytes() -> u64 {
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_limit(&text));
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let bytes = group.into_iter().chain(machine).min().unwrap_or(UNKNOWN_BYTES);
    bytes / 5 * 4
}

/// Returns the tightest limit of this process's control groups and their ancestors. It is
/// `memory.max` in version 2 and `memory.limit_in_bytes` in version 1.
fn group_limit(cgroup: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let text = fs::read_to_string(Path::new(root).join(group).join(file));
            limits.extend(text.ok().and_then(|text| text.trim().parse::<u64>().ok()));
        }
    }
    limits.into_iter().min()
}

/// Parses `MemTotal` of `/proc/meminfo`, which is in KiB.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_how_much_it_has() {
        assert_eq!(total("MemFree: 3 kB\nMemTotal:       2048 kB\n"), None.or(Some(2 << 20)));
        assert_eq!(total("nothing"), None);
        assert!(memory_bytes() > 0);
    }

    #[test]
    fn groups_without_a_limit_have_none() {
        assert_eq!(group_limit("0::/there-is-no-such-group\n3:cpu:/\n"), group_limit("0::/\n"));
        assert_eq!(group_limit("nothing"), None);
    }
}
