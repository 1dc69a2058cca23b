//! What a cache holds, and making it smaller.

use std::path::Path;
use std::time::SystemTime;

use engine::{CacheDir, CacheEntry, Prune, Pruned};

use crate::error::Error;

/// What the cache holds, what was used last first: Python builds, their compiled forms, images and
/// fetched packages. The cache is the one that
/// [`Builder::cache_dir`](crate::Builder::cache_dir) names, or the default one.
///
/// # Errors
/// The cache can't be used.
pub fn cache_entries(cache_dir: Option<&Path>) -> Result<Vec<CacheEntry>, Error> {
    Ok(engine::cache_entries(&CacheDir::open(cache_dir)?)?)
}

/// Removes from the cache what `prune` says, and nothing that a process uses. What was removed is
/// made or fetched again when a start needs it.
///
/// # Errors
/// The cache can't be used, or something can't be removed; what was removed before is gone.
pub fn prune_cache(cache_dir: Option<&Path>, prune: &Prune) -> Result<Pruned, Error> {
    Ok(engine::prune_cache(&CacheDir::open(cache_dir)?, prune, SystemTime::now())?)
}
