//! Stows sessions, a few at a time, and drops old states, on threads for blocking work.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use engine::Cause;
use ractor::ActorRef;
use tokio::time::Instant;

use super::SupervisorMessage;
use crate::builds::Builds;
use crate::error::OffloadError;
use crate::event::{PoolEvent, PoolOwner};
use crate::interpreter::InterpreterSource;
use crate::metrics;
use crate::packed::Packed;
use crate::session::{Discarded, SessionCell, StoredState, Tier};
use crate::spill::Spill;

/// Sessions that are offloaded concurrently. Offloading is done when memory is short and needs extra
/// memory meanwhile, and nobody waits for it.
const MOST_AT_ONCE: usize = 2;

/// The states that are being offloaded or wait to be.
pub(super) struct Offloading {
    builds: Builds,
    owner: Arc<dyn PoolOwner>,
    spill: Arc<Spill>,
    under_way: usize,
    /// States to drop next, and whether a thread is dropping some.
    discarded: Vec<Discarded>,
    is_discarding: bool,
    waiting: VecDeque<(Arc<SessionCell>, Tier)>,
}

impl Offloading {
    pub(super) fn new(builds: Builds, owner: Arc<dyn PoolOwner>, spill: Spill) -> Self {
        let (spill, waiting) = (Arc::new(spill), VecDeque::new());
        let (discarded, is_discarding) = (Vec::new(), false);
        Self { builds, owner, spill, under_way: 0, discarded, is_discarding, waiting }
    }

    /// Returns whether no state is being offloaded or dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0 && !self.is_discarding
    }

    /// Queues a session to be offloaded.
    pub(super) fn add(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        cell: Arc<SessionCell>,
        tier: Tier,
    ) {
        self.waiting.push_back((cell, tier));
        self.start_next(myself);
    }

    /// Notes that a session has been offloaded.
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
        for (cell, tier) in self.waiting.drain(..) {
            tell(&*self.owner, &cell, tier, Err(OffloadError::unchanged("the pool is closing")));
        }
    }

    fn start_next(&mut self, myself: &ActorRef<SupervisorMessage>) {
        while self.under_way < MOST_AT_ONCE
            && let Some((cell, tier)) = self.waiting.pop_front()
        {
            self.under_way += 1;
            let (builds, spill) = (self.builds.clone(), Arc::clone(&self.spill));
            let (owner, myself) = (self.owner.clone(), myself.clone());
            // Completion is reported by `StowEnded`.
            drop(tokio::task::spawn_blocking(move || {
                let began = Instant::now();
                let offloaded = || offload(&cell, tier, builds.source(cell.build()), &spill);
                let offloaded = catch_unwind(AssertUnwindSafe(offloaded));
                let result = offloaded.unwrap_or_else(|_| {
                    Err(OffloadError::unchanged("compressing or spilling it panicked"))
                });
                if result.is_ok() {
                    metrics::offloaded(tier, Instant::now().saturating_duration_since(began));
                }
                tell(&*owner, &cell, tier, result);
                let _ = myself.cast(SupervisorMessage::StowEnded);
            }));
        }
    }
}

/// Compresses the state of a parked session or spills it to disk, unless the session moves on
/// meanwhile; nobody waits for this. Returns the bytes that it takes there.
///
/// # Errors
/// The state couldn't be offloaded, for the reason given.
pub(crate) fn offload(
    cell: &SessionCell,
    tier: Tier,
    source: &dyn InterpreterSource,
    spill: &Spill,
) -> Result<u64, OffloadError> {
    let before = cell.stored().map_err(|away| OffloadError::Unchanged(Cause::new(away)))?;
    let compressed = match &before {
        StoredState::Fresh => return Err(OffloadError::unchanged("nothing has run in it")),
        StoredState::Parked(parked) => {
            let packed = source.pack(parked);
            Packed::of(packed.map_err(|error| OffloadError::Unchanged(Cause::new(error)))?)
        }
        StoredState::Packed(offloaded) => offloaded.clone(),
    };
    let (offloaded, not_written) = match tier {
        Tier::Compressed if compressed.is_on_disk() => {
            return Err(OffloadError::unchanged("it is on disk already"));
        }
        Tier::Compressed => (compressed, None),
        Tier::Disk => match compressed.spilled(spill) {
            Ok(spilled) => (spilled, None),
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
    owner.tell(PoolEvent::Packed { session: cell.session(), tier, result });
}
