//! Stows sessions, a few at a time, and drops old states, on threads for blocking work.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use engine::Cause;
use ractor::ActorRef;
use tokio::time::Instant;

use super::message::SupervisorMessage;
use crate::builds::Builds;
use crate::error::StowError;
use crate::event::{PoolEvent, PoolOwner};
use crate::interpreter::InterpreterSource;
use crate::metrics;
use crate::session::{Discarded, Rest, SessionCell, Stowage};
use crate::spill::Spill;
use crate::stowed::Stowed;

/// Sessions that are stowed concurrently. Stowing is done when memory is short and needs extra
/// memory meanwhile, and nobody waits for it.
const MOST_AT_ONCE: usize = 2;

/// The states that are being stowed or wait to be.
pub(super) struct Stowing {
    builds: Builds,
    owner: Arc<dyn PoolOwner>,
    spill: Arc<Spill>,
    under_way: usize,
    /// States to drop next, and whether a thread is dropping some.
    discarded: Vec<Discarded>,
    is_discarding: bool,
    waiting: VecDeque<(Arc<SessionCell>, Stowage)>,
}

impl Stowing {
    pub(super) fn new(builds: Builds, owner: Arc<dyn PoolOwner>, spill: Spill) -> Self {
        let (spill, waiting) = (Arc::new(spill), VecDeque::new());
        let (discarded, is_discarding) = (Vec::new(), false);
        Self { builds, owner, spill, under_way: 0, discarded, is_discarding, waiting }
    }

    /// Returns whether no state is being stowed or dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0 && !self.is_discarding
    }

    /// Queues a session to be stowed.
    pub(super) fn add(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        cell: Arc<SessionCell>,
        stowage: Stowage,
    ) {
        self.waiting.push_back((cell, stowage));
        self.start_next(myself);
    }

    /// Notes that a session has been stowed.
    pub(super) fn ended(&mut self, myself: &ActorRef<SupervisorMessage>) {
        self.under_way -= 1;
        self.start_next(myself);
    }

    /// Drops a state after those queued before it.
    pub(super) fn discard(&mut self, myself: &ActorRef<SupervisorMessage>, state: Discarded) {
        self.discarded.push(state);
        if !self.is_discarding {
            self.discard_all(myself);
        }
    }

    /// Notes that the thread has dropped its states.
    pub(super) fn discard_ended(&mut self, myself: &ActorRef<SupervisorMessage>) {
        self.is_discarding = false;
        if !self.discarded.is_empty() {
            self.discard_all(myself);
        }
    }

    fn discard_all(&mut self, myself: &ActorRef<SupervisorMessage>) {
        self.is_discarding = true;
        let (states, myself) = (std::mem::take(&mut self.discarded), myself.clone());
        // Completion is reported by `DiscardEnded`.
        drop(tokio::task::spawn_blocking(move || {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(states)));
            if dropped.is_err() {
                tracing::error!("dropping a session's state panicked");
            }
            let _ = myself.cast(SupervisorMessage::DiscardEnded);
        }));
    }

    /// Refuses the sessions that still wait.
    pub(super) fn close(&mut self) {
        for (cell, stowage) in self.waiting.drain(..) {
            tell(&*self.owner, &cell, stowage, Err(StowError::unchanged("the pool is closing")));
        }
    }

    fn start_next(&mut self, myself: &ActorRef<SupervisorMessage>) {
        while self.under_way < MOST_AT_ONCE
            && let Some((cell, stowage)) = self.waiting.pop_front()
        {
            self.under_way += 1;
            let (builds, spill) = (self.builds.clone(), Arc::clone(&self.spill));
            let (owner, myself) = (self.owner.clone(), myself.clone());
            // Completion is reported by `StowEnded`.
            drop(tokio::task::spawn_blocking(move || {
                let began = Instant::now();
                let stowed = || stow(&cell, stowage, builds.source(cell.build()), &spill);
                let stowed = catch_unwind(AssertUnwindSafe(stowed));
                let result = stowed.unwrap_or_else(|_| {
                    Err(StowError::unchanged("compressing or spilling it panicked"))
                });
                if result.is_ok() {
                    metrics::stowed(stowage, Instant::now().saturating_duration_since(began));
                }
                tell(&*owner, &cell, stowage, result);
                let _ = myself.cast(SupervisorMessage::StowEnded);
            }));
        }
    }
}

/// Compresses the state of a parked session or spills it to disk, unless the session moves on
/// meanwhile; nobody waits for this. Returns the bytes that it takes there.
///
/// # Errors
/// The state couldn't be stowed, for the reason given.
pub(crate) fn stow(
    cell: &SessionCell,
    stowage: Stowage,
    source: &dyn InterpreterSource,
    spill: &Spill,
) -> Result<u64, StowError> {
    let before = cell.at_rest().map_err(|away| StowError::Unchanged(Cause::new(away)))?;
    let compressed = match &before {
        Rest::Fresh => return Err(StowError::unchanged("nothing has run in it")),
        Rest::Parked(parked) => {
            let packed = source.pack(parked);
            Stowed::of(packed.map_err(|error| StowError::Unchanged(Cause::new(error)))?)
        }
        Rest::Stowed(stowed) => stowed.clone(),
    };
    let (stowed, not_written) = match stowage {
        Stowage::Compressed if compressed.is_on_disk() => {
            return Err(StowError::unchanged("it is on disk already"));
        }
        Stowage::Compressed => (compressed, None),
        Stowage::Disk => match compressed.spilled(spill) {
            Ok(spilled) => (spilled, None),
            // Keep the compressed state: the work is done, and the caller is short of memory.
            Err(error) => (compressed, Some(Cause::new(error))),
        },
    };
    let bytes = stowed.bytes();
    if !cell.exchange(&before, Rest::Stowed(stowed)) {
        return Err(StowError::unchanged("it has moved on"));
    }
    match not_written {
        None => Ok(bytes),
        Some(cause) => Err(StowError::NotWritten { cause, bytes }),
    }
}

/// Sends the owner the result of stowing a session.
pub(crate) fn tell(
    owner: &dyn PoolOwner,
    cell: &SessionCell,
    stowage: Stowage,
    result: Result<u64, StowError>,
) {
    owner.tell(PoolEvent::Stowed { session: cell.session(), stowage, result });
}
