//! What commands do alike that have a pool: its size, its tenants, its start.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use hatchery::{Builder, Error, Hatchery, TenantConfig};

use crate::exit::UsageError;
use crate::terminal;

/// Gives a pool the workers and the queue that options ask for; what isn't given stays.
pub(crate) fn sized(
    mut builder: Builder,
    workers: Option<&RangeInclusive<usize>>,
    queue: Option<usize>,
) -> Builder {
    if let Some(workers) = workers {
        builder = builder.workers_between(workers.clone());
    }
    if let Some(count) = queue {
        builder = builder.queue_limit(count);
    }
    builder
}

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
        terminal::note(format_args!("worker processes go without a layer of their wall: {layer}"));
    }
    Ok(pool)
}
