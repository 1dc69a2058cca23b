//! What commands with a pool share: its tenants, its start, its metrics.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::{io, thread};

use anyhow::Context;
use hatchery::{Builder, Error, Hatchery, TenantConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serve::monitor::{Monitor, MonitorError};

use crate::exit::UsageError;
use crate::terminal;

/// Gives the tenants of `--tenant` their weights.
pub(crate) fn weighted(
    mut builder: Builder,
    tenants: &[(String, u32)],
) -> Result<Builder, UsageError> {
    let mut names = BTreeSet::new();
    for (name, weight) in tenants {
        if !names.insert(name) {
            return Err(UsageError(format!("tenant `{name}` is given twice")));
        }
        let tenant = TenantConfig { weight: *weight, ..TenantConfig::default() };
        builder = builder.tenant(name.as_str(), tenant);
    }
    Ok(builder)
}

/// Starts the pool. Notes which layers of the wall around worker processes this system lacks.
pub(crate) async fn start_pool(builder: Builder) -> Result<Hatchery, Error> {
    let pool = builder.start().await?;
    for layer in &pool.status().isolation.missing {
        terminal::note(format_args!("worker processes lack a layer of their confinement: {layer}"));
    }
    Ok(pool)
}

/// Threads per CPU: for tokio, for hashing and compiling, and for workers.
const EACH_CPU: usize = 3;
/// Further threads: the watchdog, and those that read, write and load.
const OTHERS: usize = 8;
/// Small, since the threads end at once.
const STACK_BYTES: usize = 64 << 10;

/// Returns how many CPUs this process may use.
pub(crate) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Starts as many threads as a command may need at once, and ends them. Fails if the system refuses
/// one.
pub(crate) fn check_threads() -> anyhow::Result<()> {
    let needed = cpus() * EACH_CPU + OTHERS;
    let Some((started, error)) = refused(needed) else { return Ok(()) };
    Err(error).with_context(|| {
        format!(
            "this process can start only {started} threads, and it may need {needed} (raise the \
             limit on processes, `ulimit -u`, or that of the container)"
        )
    })
}

/// Returns how many threads could be started and the error of the next one; `None` if all could.
fn refused(count: usize) -> Option<(usize, io::Error)> {
    // All threads wait for this until the last one was started.
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        let wait = || drop(gate.lock());
        let start =
            || thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, wait).err();
        let refusal = (0..count).find_map(|started| Some((started, start()?)));
        drop(closed);
        refusal
    })
}

/// Serves at the address, if there is one, from now on. Records the metrics of pools that start later;
/// a pool of a queue has a name.
pub(crate) async fn start_metrics(
    address: Option<&str>,
    pool: Option<&str>,
) -> anyhow::Result<Option<Monitor>> {
    let Some(address) = address else { return Ok(None) };
    let monitor = Monitor::start(address, pool).await.map_err(|error| match &error {
        MonitorError::Address(_, source) => {
            anyhow::Error::msg(source.to_string()).context(UsageError(error.to_string()))
        }
        _ => error.into(),
    })?;
    terminal::note(format_args!("metrics at http://{}/metrics", monitor.address()));
    Ok(Some(monitor))
}

/// What the pool, its cache and the listeners have open beside connections.
const OTHER_DESCRIPTORS: u64 = 256;

/// Raises the limit, as far as this process may, so that so many connections fit. Returns how many
/// do.
pub(crate) fn room_for(connections: usize) -> usize {
    let needed = connections as u64 + OTHER_DESCRIPTORS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = maximum.map_or(needed, |most| most.min(needed));
    let mut current = current.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(raised), maximum };
    if current < raised && setrlimit(Resource::Nofile, limit).is_ok() {
        current = raised;
    }
    let room = current.saturating_sub(OTHER_DESCRIPTORS).max(1);
    usize::try_from(room).map_or(connections, |room| room.min(connections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_that_gives_threads_gives_all_of_them() {
        assert!(refused(20).is_none());
        assert!(check_threads().is_ok());
    }
}
