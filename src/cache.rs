//! What a cache holds: Python builds, their compiled modules, images and fetched packages.
//!
//! ```
//! use std::time::Duration;
//!
//! use hatchery::cache::{self, Prune};
//!
//! # fn main() -> Result<(), hatchery::Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let cache_dir = Some(folder.path());
//! for entry in cache::entries(cache_dir)? {
//!     println!("{:?} {}: {} bytes", entry.kind, entry.name, entry.bytes);
//! }
//! // What wasn't used for 30 days.
//! let older_than = Some(Duration::from_secs(30 * 86_400));
//! let pruned = cache::prune(cache_dir, &Prune { older_than, ..Prune::default() })?;
//! println!("{} removed, {} kept", pruned.removed.len(), pruned.kept.len());
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::time::SystemTime;

#[doc(inline)]
pub use engine::{CacheDir, CacheEntry, CacheEntryKind, Prune, Pruned};

use crate::failure::Error;

/// Returns the entries of the cache, the most recently used first: Python builds, their compiled
/// modules, images and fetched packages. `cache_dir` is the directory of
/// [`Builder::cache_dir`](crate::Builder::cache_dir); `None` is the default one.
///
/// # Errors
/// The cache can't be used.
pub fn entries(cache_dir: Option<&Path>) -> Result<Vec<CacheEntry>, Error> {
    Ok(engine::cache_entries(&CacheDir::open(cache_dir)?)?)
}

/// Removes from the cache what `prune` selects, except what a process is using. Removed entries are
/// made or fetched again when a start needs them.
///
/// # Errors
/// The cache can't be used, or an entry can't be removed; entries removed before that stay removed.
pub fn prune(cache_dir: Option<&Path>, prune: &Prune) -> Result<Pruned, Error> {
    Ok(engine::prune_cache(&CacheDir::open(cache_dir)?, prune, SystemTime::now())?)
}
