//! Offloads sessions and drops old states, one after another, on a thread for blocking work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use engine::Cause;
use ractor::ActorRef;
use tokio::time::Instant;

use super::{SupervisorMessage, SupervisorState};
use crate::event::{OffloadError, PoolEvent, PoolOwner};
use crate::interpreter::InterpreterSource;
use crate::metrics;
use crate::offload::OffloadFile;
use crate::packed::Packed;
use crate::session::{Discarded, SessionCell, StoredState, Tier};

/// States that took so much are freed before the allocator has to return its free memory. It keeps
/// what lies between blocks in use, which may be most of what 50,000 forks took.
const RETURN_ABOVE_BYTES: u64 = 64 << 20;

/// Work on states that nobody waits for.
#[derive(Debug)]
pub(crate) enum Chore {
    /// Offload a session's state. `PoolEvent::Offloaded` follows.
    Offload(Arc<SessionCell>, Tier),
    /// Drop a state.
    Drop(Discarded),
}

impl SupervisorState {
    /// Refuses to offload the sessions that still wait.
    pub(super) fn close_chores(&mut self) {
        let is_offload = |chore: &mut Chore| matches!(chore, Chore::Offload(..));
        for chore in self.chores.extract_if(.., is_offload) {
            if let Chore::Offload(cell, tier) = chore {
                let closing = Err(OffloadError::unchanged("the pool is closing"));
                tell(&*self.owner, &cell, tier, closing);
            }
        }
    }

    /// Starts a thread for the chores that wait, unless one is at work.
    pub(super) fn start_chores(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if self.is_doing_chores || self.chores.is_empty() {
            return;
        }
        self.is_doing_chores = true;
        let (chores, myself) = (std::mem::take(&mut self.chores), myself.clone());
        let (builds, owner, disk) =
            (self.builds.clone(), Arc::clone(&self.owner), Arc::clone(&self.disk));
        let mut freed_bytes = self.freed_bytes;
        // Completion is reported by `ChoresDone`.
        drop(tokio::task::spawn_blocking(move || {
            for chore in chores {
                match chore {
                    Chore::Offload(cell, tier) => {
                        freed_bytes += cell.stored().map_or(0, |state| state.bytes());
                        let source = builds.source(cell.build());
                        let result = offload_guarded(&cell, tier, source, &disk);
                        tell(&*owner, &cell, tier, result);
                    }
                    Chore::Drop(state) => {
                        freed_bytes += state.bytes();
                        if catch_unwind(AssertUnwindSafe(|| drop(state))).is_err() {
                            tracing::error!("dropping a session's state panicked");
                        }
                    }
                }
            }
            if freed_bytes >= RETURN_ABOVE_BYTES {
                freed_bytes = 0;
                engine::return_free_memory();
            }
            let _ = myself.cast(SupervisorMessage::ChoresDone { freed_bytes });
        }));
    }
}

fn offload_guarded(
    cell: &SessionCell,
    tier: Tier,
    source: &dyn InterpreterSource,
    disk: &OffloadFile,
) -> Result<u64, OffloadError> {
    let began = Instant::now();
    let offloaded = catch_unwind(AssertUnwindSafe(|| offload(cell, tier, source, disk)));
    let panicked = |_| Err(OffloadError::unchanged("compressing or offloading it panicked"));
    let result = offloaded.unwrap_or_else(panicked);
    if result.is_ok() {
        metrics::offloaded(tier, began.elapsed());
    }
    result
}

/// Compresses the state of a suspended session or offloads it to disk, unless the session moves on
/// meanwhile. Nobody waits for this. Returns the bytes that it takes there.
///
/// # Errors
/// The state couldn't be offloaded, for the reason given.
pub(crate) fn offload(
    cell: &SessionCell,
    tier: Tier,
    source: &dyn InterpreterSource,
    disk: &OffloadFile,
) -> Result<u64, OffloadError> {
    let before = cell.stored().map_err(|away| OffloadError::Unchanged(Cause::new(away)))?;
    let compressed = match &before {
        StoredState::Fresh => return Err(OffloadError::unchanged("nothing has run in it")),
        StoredState::Suspended(suspended) => {
            let packed = source.pack(suspended);
            Arc::new(Packed::of(
                packed.map_err(|error| OffloadError::Unchanged(Cause::new(error)))?,
            ))
        }
        StoredState::Packed(offloaded) => offloaded.clone(),
    };
    let (offloaded, not_written) = match tier {
        Tier::Compressed if compressed.is_on_disk() => {
            return Err(OffloadError::unchanged("it is on disk already"));
        }
        Tier::Compressed => (compressed, None),
        Tier::Disk => match compressed.offloaded(disk) {
            Ok(offloaded) => (offloaded.map_or(compressed, Arc::new), None),
            // Keep the compressed state: the work is done, and the caller is short of memory.
            Err(error) => (compressed, Some(Cause::new(error))),
        },
    };
    let bytes = offloaded.bytes();
    if !cell.exchange(&before, StoredState::Packed(offloaded)) {
        return Err(OffloadError::unchanged("it has moved on"));
    }
    match not_written {
        None => Ok(bytes),
        Some(cause) => Err(OffloadError::NotWritten { cause, bytes }),
    }
}

/// Sends the owner the result of offloading a session.
pub(crate) fn tell(
    owner: &dyn PoolOwner,
    cell: &SessionCell,
    tier: Tier,
    result: Result<u64, OffloadError>,
) {
    owner.tell(PoolEvent::Offloaded { session: cell.session(), tier, result });
}
