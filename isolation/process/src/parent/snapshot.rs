//! Session snapshots that stay in the worker process until fetched.

use std::sync::Arc;

use engine::{Cause, Image, Lineage, Mount, SessionState, StartError};
use parking_lot::Mutex;
use pool::{Suspended, SuspendedState};

use crate::parent::offloader::Movable;
use crate::parent::remote::Worker;
use crate::states::GoneState;

/// A state that a worker keeps beside the one it has, until it is fetched.
#[derive(Debug)]
pub(crate) struct RemoteSnapshot {
    pub(crate) image: Image,
    pub(crate) worker: Arc<Worker>,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// The folders that it was lent, by their numbers.
    pub(crate) folders: Vec<Arc<Mount>>,
    /// What the state is counted beside.
    pub(crate) lineage: Lineage,
    /// The state, once it was fetched. The worker has it no longer then.
    pub(crate) fetched: Mutex<Option<SessionState>>,
}

impl RemoteSnapshot {
    pub(crate) fn fetch(&self) -> Result<SessionState, StartError> {
        let mut fetched = self.fetched.lock();
        if let Some(state) = &*fetched {
            return Ok(state.clone());
        }
        let state = self.worker.fetch(self.number, self.bytes)?;
        let state = state.state(&self.image, |number, _| lent(&self.folders, number))?;
        let state = state.with_lineage(&self.lineage);
        self.forget();
        Ok(fetched.insert(state).clone())
    }

    /// Has the worker drop it.
    fn forget(&self) {
        self.worker.forget(self.number, self.bytes);
    }
}

impl Movable for RemoteSnapshot {
    fn move_here(&self) {
        if let Err(error) = self.fetch() {
            tracing::debug!(error = %engine::chain(&error), "a copy of a session's state stays in its worker");
        }
    }
}

impl Drop for RemoteSnapshot {
    fn drop(&mut self) {
        if self.fetched.get_mut().is_none() {
            self.forget();
        }
    }
}

pub(crate) struct RemoteState(pub(crate) Arc<RemoteSnapshot>);

impl SuspendedState for RemoteState {
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn fork(&self) -> Suspended {
        match self.0.fetch() {
            Ok(state) => Suspended::new(state.fork()),
            Err(error) => Suspended::new(GoneState(Cause::new(error))),
        }
    }

    fn compact(&self) -> Option<Suspended> {
        let state = self.0.fetch().ok()?;
        Some(Suspended::new(state.compact().unwrap_or(state)))
    }

    fn is_gone(&self) -> bool {
        self.0.worker.life.has_ended() && self.0.fetched.lock().is_none()
    }
}

/// Returns a state that depends on no process.
pub(crate) fn settled(suspended: &Suspended) -> Result<Suspended, StartError> {
    if let Some(kept) = suspended.downcast_ref::<RemoteState>() {
        return kept.0.fetch().map(Suspended::new);
    }
    match suspended.downcast_ref::<GoneState>() {
        Some(GoneState(cause)) => Err(StartError::Process(cause.clone())),
        None => Ok(suspended.clone()),
    }
}

/// Returns the folder of a number, which may be a lie.
pub(crate) fn lent(folders: &[Arc<Mount>], number: u64) -> Option<Arc<Mount>> {
    folders.get(usize::try_from(number).ok()?).cloned()
}
