//! Where a session's state is, shared by the scheduler and the worker threads.
//!
//! The scheduler decides on which worker a session's next job runs; the state follows through this
//! cell. A thread that needs the state waits here until the thread that has it has suspended it.
//!
//! ```text
//!          claim                        captured, leave
//! Fresh --------> on a worker: same --------------------> Suspended -compress-> Compressed --> OnDisk
//!                    | begin_run    ^                       ^                  |            |
//!                    v              | captured              +---- unpacked ----+------------+
//!                 on a worker:      |                             (claim unpacks, too)
//!                 changing ------> changed
//!                           end_run
//! ```
//!
//! P-6: a worker may leave during a run, by a forced stop or its death. The session then returns to
//! the copy from before it, if there is one.
//!
//! P-1: replacing or closing a session overrides the threads. A thread changes the place only while
//! its worker has the state.

use std::sync::Arc;

use engine::Cause;
use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::Serialize;

use crate::ids::{BuildId, SessionId, WorkerId};
use crate::interpreter::suspended::Suspended;
use crate::packed::Packed;

#[cfg(test)]
mod tests;

/// The cell of one session, which knows where its state is.
#[derive(Debug)]
pub struct SessionCell {
    session: SessionId,
    build: BuildId,
    place: Mutex<CellState>,
    moved: Condvar,
}

#[derive(Debug)]
enum CellState {
    /// No interpreter has it.
    Stored(StoredState),
    /// The interpreter of this worker has it.
    On { worker: WorkerId, held: HeldState },
    /// It is lost, for this reason.
    Lost(Cause),
}

/// An immutable state. Clones share it.
#[derive(Debug, Clone)]
pub(crate) enum StoredState {
    /// That of a fresh interpreter.
    Fresh,
    /// As its interpreter left it.
    Suspended(Suspended),
    /// The same, packed.
    Packed(Arc<Packed>),
}

/// What is known about a state that an interpreter has.
#[derive(Debug)]
enum HeldState {
    /// It is still this state.
    Same(StoredState),
    /// A run that began with this state is changing it; `None` if only the interpreter knew that
    /// state.
    Changing(Option<StoredState>),
    /// Only the interpreter knows it.
    Changed,
}

/// How the state of a session at rest is offloaded, so that it takes less memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Tier {
    /// It stays in memory, compressed.
    Compressed,
    /// It is written to disk, compressed.
    Disk,
}

/// Where a session's state is, for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "place", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionPlace {
    /// Nowhere yet: nothing has run.
    Fresh,
    /// Suspended in memory.
    Suspended {
        /// The memory that it takes, in bytes.
        bytes: u64,
    },
    /// Suspended in memory, compressed.
    Compressed {
        /// The memory that it takes, in bytes.
        bytes: u64,
    },
    /// Offloaded to disk, compressed.
    OnDisk {
        /// The disk space that it takes, in bytes.
        bytes: u64,
    },
    /// In the interpreter of a worker.
    OnWorker {
        /// The worker.
        worker: WorkerId,
    },
    /// Lost; the outcome of the session's next job says why.
    Lost,
}

/// Why a session's state is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Away {
    /// This worker has to suspend it first.
    OnWorker(WorkerId),
    /// It is offloaded; any worker can unpack it by [`Command::Suspend`](crate::Command::Suspend).
    Packed,
    /// It is lost, for this reason.
    Lost(Cause),
}

/// Why a state isn't at rest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStored {
    #[error("it is on {0}")]
    On(WorkerId),
    #[error("it is lost")]
    Lost(#[source] Cause),
}

/// A state that no session has any more. Dropping it may take a while: it may be large, or on disk.
/// [`Pool::discard`](crate::Pool::discard) drops it without blocking the caller.
#[derive(Debug)]
#[must_use = "dropping it here may block for a while"]
pub struct Discarded(CellState);

/// What a thread finds when it claims a session's state for a job.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Its interpreter has the state.
    AlreadyHere,
    /// Its interpreter has to resume this state.
    Resume(StoredState),
    /// The state is lost, for this reason.
    Lost(Cause),
}

impl CellState {
    /// Returns what is known about the state, if `worker` has it.
    fn held_by(&self, worker: WorkerId) -> Option<&HeldState> {
        match self {
            Self::On { worker: on, held } if *on == worker => Some(held),
            Self::Stored(_) | Self::On { .. } | Self::Lost(_) => None,
        }
    }
}

impl StoredState {
    fn of(state: Option<Suspended>) -> Self {
        state.map_or(Self::Fresh, Self::Suspended)
    }

    fn place(&self) -> SessionPlace {
        match self {
            Self::Fresh => SessionPlace::Fresh,
            Self::Suspended(suspended) => SessionPlace::Suspended { bytes: suspended.bytes() },
            Self::Packed(offloaded) if offloaded.is_on_disk() => {
                SessionPlace::OnDisk { bytes: offloaded.bytes() }
            }
            Self::Packed(offloaded) => SessionPlace::Compressed { bytes: offloaded.bytes() },
        }
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self.place() {
            SessionPlace::Suspended { bytes } | SessionPlace::Compressed { bytes } => bytes,
            _ => 0,
        }
    }

    fn at_hand(&self) -> Result<Option<Suspended>, Away> {
        match self {
            Self::Fresh => Ok(None),
            Self::Suspended(suspended) => Ok(Some(suspended.clone())),
            Self::Packed(_) => Err(Away::Packed),
        }
    }

    /// Returns whether both are clones of the same state.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fresh, Self::Fresh) => true,
            (Self::Suspended(one), Self::Suspended(other)) => one.is_same(other),
            (Self::Packed(one), Self::Packed(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Discarded {
    /// Returns whether dropping it takes no time.
    pub(crate) fn is_light(&self) -> bool {
        self.stored().is_none_or(|stored| matches!(stored, StoredState::Fresh))
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.stored().map_or(0, StoredState::bytes)
    }

    fn stored(&self) -> Option<&StoredState> {
        match &self.0 {
            CellState::Stored(stored)
            | CellState::On {
                held: HeldState::Same(stored) | HeldState::Changing(Some(stored)),
                ..
            } => Some(stored),
            _ => None,
        }
    }
}

impl SessionCell {
    /// Returns the cell of a session with this state; `None` is the state of a fresh interpreter.
    pub fn new(session: SessionId, state: Option<Suspended>) -> Self {
        let place = Mutex::new(CellState::Stored(StoredState::of(state)));
        Self { session, build: BuildId::default(), place, moved: Condvar::new() }
    }

    /// Returns the cell of a new session on this build instead of the default one. A state that it
    /// has is one of that build.
    #[must_use]
    pub fn on(self, build: BuildId) -> Self {
        Self { build, ..self }
    }

    /// Returns the session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the build of the session's interpreters.
    pub fn build(&self) -> BuildId {
        self.build
    }

    /// Returns where the state is now.
    pub fn place(&self) -> SessionPlace {
        match &*self.place.lock() {
            CellState::Stored(rest) => rest.place(),
            CellState::On { worker, .. } => SessionPlace::OnWorker { worker: *worker },
            CellState::Lost(_) => SessionPlace::Lost,
        }
    }

    /// Returns the state if no worker is needed for that; `None` is the state of a fresh
    /// interpreter.
    ///
    /// # Errors
    /// An interpreter has changed the state since the last copy, or it is offloaded or lost.
    pub fn at_hand(&self) -> Result<Option<Suspended>, Away> {
        match &*self.place.lock() {
            CellState::Stored(rest) | CellState::On { held: HeldState::Same(rest), .. } => {
                rest.at_hand()
            }
            CellState::On { worker, held: HeldState::Changing(_) | HeldState::Changed } => {
                Err(Away::OnWorker(*worker))
            }
            CellState::Lost(reason) => Err(Away::Lost(reason.clone())),
        }
    }

    /// Puts `now`, the same state in another form, in the place of `before`, if that is still the
    /// session's state. Returns whether it was.
    pub fn exchange_copy(&self, before: &Suspended, now: &Suspended) -> bool {
        let mut place = self.place.lock();
        let copy = match &mut *place {
            CellState::Stored(StoredState::Suspended(copy))
            | CellState::On { held: HeldState::Same(StoredState::Suspended(copy)), .. } => copy,
            _ => return false,
        };
        if !copy.is_same(before) {
            return false;
        }
        let before = std::mem::replace(copy, now.clone());
        drop(place);
        drop(before);
        true
    }

    /// Returns the memory that its state takes beside its interpreter, in bytes, as last copied.
    pub fn bytes(&self) -> u64 {
        match &*self.place.lock() {
            CellState::Stored(rest)
            | CellState::On {
                held: HeldState::Same(rest) | HeldState::Changing(Some(rest)), ..
            } => rest.bytes(),
            _ => 0,
        }
    }

    /// Gives the session another state; `None` is the state of a fresh interpreter. An interpreter
    /// that has the present one drops it. Must be called only while no job of the session runs.
    pub fn replace(&self, state: Option<Suspended>) -> Discarded {
        Discarded(self.put(self.place.lock(), CellState::Stored(StoredState::of(state))))
    }

    /// Gives up the state, so that no worker suspends it needlessly.
    pub fn lose(&self, reason: impl Into<Cause>) -> Discarded {
        Discarded(self.put(self.place.lock(), CellState::Lost(reason.into())))
    }

    /// Makes `worker` the holder of the state. Blocks while another worker has it.
    ///
    /// That worker has been given another job; otherwise the scheduler would have sent this job
    /// there. It suspends the state before it waits for anything, so no two workers wait for each
    /// other.
    pub(crate) fn claim(&self, worker: WorkerId) -> Claim {
        let mut place = self.lock_settled(worker);
        match &*place {
            CellState::On { .. } => Claim::AlreadyHere,
            CellState::Lost(reason) => Claim::Lost(reason.clone()),
            CellState::Stored(state) => {
                let state = state.clone();
                *place = CellState::On { worker, held: HeldState::Same(state.clone()) };
                Claim::Resume(state)
            }
        }
    }

    /// Blocks while another worker has the state, as `claim` does.
    pub(crate) fn wait_until_settled(&self, worker: WorkerId) {
        drop(self.lock_settled(worker));
    }

    /// Returns whether `worker` has the state.
    pub(crate) fn is_on(&self, worker: WorkerId) -> bool {
        self.place.lock().held_by(worker).is_some()
    }

    /// Returns the size of the copy of a state that an interpreter has, in bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        match &*self.place.lock() {
            CellState::On { held: HeldState::Same(rest), .. } => rest.bytes(),
            _ => 0,
        }
    }

    /// Returns the copy of the state that is on `worker`, if there is one in memory.
    pub(crate) fn copy_on(&self, worker: WorkerId) -> Option<Suspended> {
        match self.place.lock().held_by(worker)? {
            HeldState::Same(StoredState::Suspended(suspended)) => Some(suspended.clone()),
            HeldState::Same(_) | HeldState::Changing(_) | HeldState::Changed => None,
        }
    }

    /// Returns whether only `worker` knows the state.
    pub(crate) fn is_changed_on(&self, worker: WorkerId) -> bool {
        matches!(self.place.lock().held_by(worker), Some(HeldState::Changed))
    }

    /// Returns the state, if no interpreter has it.
    ///
    /// # Errors
    /// Where it is instead.
    pub(crate) fn stored(&self) -> Result<StoredState, NotStored> {
        match &*self.place.lock() {
            CellState::Stored(rest) => Ok(rest.clone()),
            CellState::On { worker, .. } => Err(NotStored::On(*worker)),
            CellState::Lost(reason) => Err(NotStored::Lost(reason.clone())),
        }
    }

    /// Replaces `before` by `now`, another form of the same state, if `before` is still at rest
    /// here. Returns whether it was.
    pub(crate) fn exchange(&self, before: &StoredState, now: StoredState) -> bool {
        let place = self.place.lock();
        let is_here = matches!(&*place, CellState::Stored(rest) if rest.is_same(before));
        if is_here {
            drop(self.put(place, CellState::Stored(now)));
        }
        is_here
    }

    /// Marks the session as lost because `before`, which is at rest here or claimed by `worker`,
    /// can't be unpacked.
    pub(crate) fn mark_damaged(
        &self,
        worker: WorkerId,
        before: &StoredState,
        reason: impl Into<Cause>,
    ) {
        let place = self.place.lock();
        let current = match (&*place, place.held_by(worker)) {
            (CellState::Stored(rest), _) | (_, Some(HeldState::Same(rest))) => Some(rest),
            _ => None,
        };
        if current.is_some_and(|current| current.is_same(before)) {
            drop(self.put(place, CellState::Lost(reason.into())));
        }
    }

    /// Notes that a run on `worker` begins to change the state. The state before the run is kept
    /// until the run ends, if it takes at most `most_bytes` of memory.
    pub(crate) fn begin_run(&self, worker: WorkerId, most_bytes: u64) {
        self.update_held(worker, |held| match std::mem::replace(held, HeldState::Changing(None)) {
            HeldState::Same(rest) if most_bytes > 0 && rest.bytes() <= most_bytes => {
                std::mem::replace(held, HeldState::Changing(Some(rest)))
            }
            before => before,
        });
    }

    /// Notes that a run on `worker` was cut short: the state is again the one before the run.
    /// Random numbers drawn from it differ from those of the run, unless the session is
    /// deterministic.
    pub(crate) fn roll_back(&self, worker: WorkerId) {
        let before = match self.place.lock().held_by(worker) {
            Some(HeldState::Changing(Some(StoredState::Suspended(before)))) => before.clone(),
            _ => return,
        };
        // Not under the lock: a copy that another process keeps is fetched from there.
        let forked = HeldState::Same(StoredState::Suspended(before.fork()));
        self.update_held(worker, |held| match held {
            HeldState::Changing(Some(_)) => std::mem::replace(held, forked),
            HeldState::Changing(None) | HeldState::Same(_) | HeldState::Changed => forked,
        });
    }

    /// Notes that the run on `worker` has ended and the state is what it left.
    pub(crate) fn end_run(&self, worker: WorkerId) {
        self.update_held(worker, |held| std::mem::replace(held, HeldState::Changed));
    }

    /// Notes that `worker` has copied the state and still has it.
    pub(crate) fn captured(&self, worker: WorkerId, suspended: Suspended) {
        let copy = HeldState::Same(StoredState::Suspended(suspended));
        self.update_held(worker, |held| std::mem::replace(held, copy));
    }

    /// Notes that `worker` no longer has the state. If only that worker knew it, the session is
    /// lost for this reason. So it is if the copy from before went with its process. Otherwise the
    /// session is at rest, with the state before a run that was changing it. Returns the bytes that
    /// it takes then; `None` if the session isn't at rest because of this call.
    pub(crate) fn leave(&self, worker: WorkerId, reason: impl Into<Cause>) -> Option<u64> {
        let reason = reason.into();
        let place = self.place.lock();
        let (next, bytes) = match place.held_by(worker)? {
            HeldState::Same(StoredState::Suspended(copy))
            | HeldState::Changing(Some(StoredState::Suspended(copy)))
                if copy.is_gone() =>
            {
                let went = "the process that kept this state has ended";
                (CellState::Lost(Cause::because(went, reason)), None)
            }
            HeldState::Same(rest) | HeldState::Changing(Some(rest)) => {
                (CellState::Stored(rest.clone()), Some(rest.bytes()))
            }
            HeldState::Changing(None) | HeldState::Changed => (CellState::Lost(reason), None),
        };
        drop(self.put(place, next));
        bytes
    }

    /// Lets `change` replace what is known about the state on `worker`. The previous value is
    /// dropped after the lock has been released.
    fn update_held(&self, worker: WorkerId, change: impl FnOnce(&mut HeldState) -> HeldState) {
        let before = match &mut *self.place.lock() {
            CellState::On { worker: on, held } if *on == worker => Some(change(held)),
            CellState::Stored(_) | CellState::On { .. } | CellState::Lost(_) => None,
        };
        drop(before);
    }

    /// Sets the place and returns the previous one, to be dropped without the lock. It may be
    /// large, or on disk.
    fn put(&self, mut place: MutexGuard<'_, CellState>, next: CellState) -> CellState {
        let before = std::mem::replace(&mut *place, next);
        self.moved.notify_all();
        before
    }

    /// Locks the place once no worker other than `worker` has the state.
    fn lock_settled(&self, worker: WorkerId) -> MutexGuard<'_, CellState> {
        let mut place = self.place.lock();
        self.moved.wait_while(
            &mut place,
            |place| matches!(place, CellState::On { worker: on, .. } if *on != worker),
        );
        place
    }
}
