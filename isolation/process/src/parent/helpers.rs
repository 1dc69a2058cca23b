//! A pool's helper, which is started again once it has ended.
//!
//! Any process may be killed at any time, by an out-of-memory killer for one. With a helper its workers
//! end. The thread that listens to it then starts the next one at once, and each worker of the pool
//! gets another process when it needs one. If no helper starts, every attempt to fork a worker tries
//! again, and fails for that reason: the pool waits between attempts, and in the end refuses jobs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::error::ProcessError;
use crate::parent::handle::{HelperHandle, Recipe, SpawnedWorker};

/// How often a helper or a worker that was killed while it started is started again at once.
pub(crate) const ATTEMPTS: u32 = 3;

/// The helper of a pool. Its process ends with this, unless it is just being started: then soon after.
#[derive(Debug)]
pub(crate) struct Helpers(Arc<HelpersShared>);

#[derive(Debug)]
struct HelpersShared {
    recipe: Arc<Recipe>,
    current: Mutex<Option<Arc<HelperHandle>>>,
    /// The number of the last worker.
    last: AtomicU64,
}

impl Helpers {
    /// Starts the helper. Blocks.
    pub(crate) fn start(recipe: Recipe) -> Result<Self, ProcessError> {
        let shared = HelpersShared {
            recipe: Arc::new(recipe),
            current: Mutex::default(),
            last: AtomicU64::new(0),
        };
        let helpers = Self(Arc::new(shared));
        helpers.0.current()?;
        Ok(helpers)
    }

    /// Forks a worker, and starts a helper before if the last one has ended. Blocks for milliseconds,
    /// or for as long as a helper starts.
    pub(crate) fn fork(&self) -> Result<(Arc<HelperHandle>, SpawnedWorker), ProcessError> {
        let helper = self.0.current()?;
        let born = helper.fork(self.0.last.fetch_add(1, Ordering::Relaxed) + 1)?;
        Ok((helper, born))
    }
}

impl HelpersShared {
    /// Returns the helper, which was alive a moment ago.
    fn current(self: &Arc<Self>) -> Result<Arc<HelperHandle>, ProcessError> {
        let mut current = self.current.lock();
        if let Some(helper) = current.as_ref().filter(|helper| !helper.has_ended()) {
            return Ok(Arc::clone(helper));
        }
        let mut attempt = 1;
        let helper = loop {
            let again = Arc::downgrade(self);
            match HelperHandle::start(&self.recipe, move |how| replace(&again, how)) {
                Err(ProcessError::HelperEnded { .. }) if attempt < ATTEMPTS => attempt += 1,
                started => break Arc::new(started?),
            }
        };
        Ok(Arc::clone(current.insert(helper)))
    }
}

/// Starts the next helper, if the pool still wants one.
fn replace(shared: &Weak<HelpersShared>, how: &str) {
    let Some(shared) = shared.upgrade() else { return };
    tracing::warn!(how, "the helper for worker processes has ended, and another one is started");
    if let Err(error) = shared.current() {
        let error = engine::chain(&error);
        tracing::error!(%error, "no helper for worker processes can be started");
    }
}
