//! Lists what a cache holds, and prunes it.

use std::path::Path;
use std::time::SystemTime;

use engine::{CacheDir, CacheEntry, Prune, Pruned};

use crate::error::Error;

/// Returns the entries of the cache, the most recently used first: Python builds, their compiled
/// modules, images and fetched packages. `cache_dir` is the directory of
/// [`Builder::cache_dir`](crate::Builder::cache_dir); `None` is the default one.
///
/// # Errors
/// The cache can't be used.
pub fn cache_entries(cache_dir: Option<&Path>) -> Result<Vec<CacheEntry>, Error> {
    Ok(engine::cache_entries(&CacheDir::open(cache_dir)?)?)
}

/// Removes from the cache what `prune` selects, except what a process is using. Removed entries are
/// made or fetched again when a start needs them.
///
/// # Errors
/// The cache can't be used, or an entry can't be removed; entries removed before that stay removed.
pub fn prune_cache(cache_dir: Option<&Path>, prune: &Prune) -> Result<Pruned, Error> {
    Ok(engine::prune_cache(&CacheDir::open(cache_dir)?, prune, SystemTime::now())?)
}
