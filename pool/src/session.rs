//! Where the state of a session is, as the scheduler and the workers' threads share it.
//!
//! The scheduler decides on which worker a session's next job runs; the state follows through this
//! cell. A thread that is to run it waits here until the one that holds it has parked it.
//!
//! ```text
//!          claim                        captured, leave
//! Fresh --------> on a worker: same --------------------> Parked --stow--> Compressed --> OnDisk
//!                    | begins       ^                       ^                  |            |
//!                    v              | captured              +---- unpacked ----+------------+
//!                 on a worker:      |                             (claim unpacks, too)
//!                 changing ------> changed
//!                            ends
//! ```
//!
//! P-6: who leaves while a run changes the state, whether the run was ended by force or the worker
//! died, leaves the state of before the run, if that is known.
//!
//! P-1: who replaces or closes the session has the last word; a thread changes only what is still
//! its own.

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::ids::{SessionId, WorkerId};
use crate::interpreter::parked::Parked;
use crate::stowed::Stowed;

#[cfg(test)]
mod tests;

/// One session's state, wherever it is.
#[derive(Debug)]
pub struct SessionCell {
    session: SessionId,
    place: Mutex<Place>,
    moved: Condvar,
}

#[derive(Debug)]
enum Place {
    /// No interpreter has it.
    AtRest(Rest),
    /// The interpreter of this worker has it.
    On { worker: WorkerId, held: Held },
    /// It is gone, for this reason.
    Lost(String),
}

/// A state that nothing changes. Clones share it.
#[derive(Debug, Clone)]
pub(crate) enum Rest {
    /// That of a fresh interpreter.
    Fresh,
    /// As its interpreter left it.
    Parked(Parked),
    /// The same, packed.
    Stowed(Stowed),
}

/// What is known of a state that an interpreter has.
#[derive(Debug)]
enum Held {
    /// It is still this one.
    Same(Rest),
    /// A run changes it, which began with this one; `None` if only the interpreter knew it then.
    Changing(Option<Rest>),
    /// Only the interpreter knows it.
    Changed,
}

/// Where the state of a session that rests is put, to take less memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stowage {
    /// It stays in memory, compressed.
    Compressed,
    /// It is written to disk, compressed.
    Disk,
}

/// Where a session's state is, for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum SessionPlace {
    /// Nowhere yet: nothing has run.
    Fresh,
    /// Put aside until the next job.
    Parked {
        /// The memory that it takes, in bytes.
        bytes: u64,
    },
    /// Put aside in memory, compressed.
    Compressed {
        /// The memory that it takes, in bytes.
        bytes: u64,
    },
    /// Put aside on disk, compressed.
    OnDisk {
        /// What it takes there, in bytes.
        bytes: u64,
    },
    /// In the interpreter of this worker.
    OnWorker(#[serde(serialize_with = "with_worker")] WorkerId),
    /// Gone; the session's next job will say why.
    Lost,
}

/// Why a session's state is not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Away {
    /// This worker has to park it first.
    OnWorker(WorkerId),
    /// It was stowed; any worker can unpack it by [`Seat::park`](crate::Seat::park).
    Packed,
    /// It is gone, for this reason.
    Lost(String),
}

/// A state that no session has any more. To drop it may take a while: it may be large, or on disk.
/// [`Pool::discard`](crate::Pool::discard) does it where nobody waits for that.
#[derive(Debug)]
#[must_use = "whoever drops it here waits for that"]
pub struct Discarded(Place);

/// What a thread finds that is to run a job of a session.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Its interpreter has the state.
    AlreadyHere,
    /// Its interpreter is to take this state.
    MoveIn(Rest),
    /// The state is gone, for this reason.
    Lost(String),
}

/// A tag has room beside fields only.
fn with_worker<S: Serializer>(worker: &WorkerId, serializer: S) -> Result<S::Ok, S::Error> {
    let mut place = serializer.serialize_struct("OnWorker", 1)?;
    place.serialize_field("worker", worker)?;
    place.end()
}

impl Rest {
    fn of(state: Option<Parked>) -> Self {
        state.map_or(Self::Fresh, Self::Parked)
    }

    fn place(&self) -> SessionPlace {
        match self {
            Self::Fresh => SessionPlace::Fresh,
            Self::Parked(parked) => SessionPlace::Parked { bytes: parked.bytes() },
            Self::Stowed(stowed) if stowed.is_on_disk() => {
                SessionPlace::OnDisk { bytes: stowed.bytes() }
            }
            Self::Stowed(stowed) => SessionPlace::Compressed { bytes: stowed.bytes() },
        }
    }

    /// The memory that it takes, in bytes.
    fn bytes(&self) -> u64 {
        match self.place() {
            SessionPlace::Parked { bytes } | SessionPlace::Compressed { bytes } => bytes,
            SessionPlace::Fresh
            | SessionPlace::OnDisk { .. }
            | SessionPlace::OnWorker(_)
            | SessionPlace::Lost => 0,
        }
    }

    fn at_hand(&self) -> Result<Option<Parked>, Away> {
        match self {
            Self::Fresh => Ok(None),
            Self::Parked(parked) => Ok(Some(parked.clone())),
            Self::Stowed(_) => Err(Away::Packed),
        }
    }

    /// Whether both are clones of one.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fresh, Self::Fresh) => true,
            (Self::Parked(one), Self::Parked(other)) => one.is_same(other),
            (Self::Stowed(one), Self::Stowed(other)) => one.is_same(other),
            (Self::Fresh | Self::Parked(_) | Self::Stowed(_), _) => false,
        }
    }
}

impl Discarded {
    /// Whether dropping it takes no time.
    pub(crate) fn is_light(&self) -> bool {
        match &self.0 {
            Place::AtRest(rest)
            | Place::On { held: Held::Same(rest) | Held::Changing(Some(rest)), .. } => {
                matches!(rest, Rest::Fresh)
            }
            Place::On { held: Held::Changing(None) | Held::Changed, .. } | Place::Lost(_) => true,
        }
    }
}

impl SessionCell {
    /// A session with this state, `None` being that of a fresh interpreter.
    pub fn new(session: SessionId, state: Option<Parked>) -> Self {
        let place = Mutex::new(Place::AtRest(Rest::of(state)));
        Self { session, place, moved: Condvar::new() }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Where the state is now.
    pub fn place(&self) -> SessionPlace {
        match &*self.place.lock() {
            Place::AtRest(rest) => rest.place(),
            Place::On { worker, .. } => SessionPlace::OnWorker(*worker),
            Place::Lost(_) => SessionPlace::Lost,
        }
    }

    /// The state, `None` being that of a fresh interpreter, if it can be had without a worker.
    ///
    /// # Errors
    /// An interpreter has changed it since it was last copied, it was stowed, or it is gone.
    pub fn at_hand(&self) -> Result<Option<Parked>, Away> {
        match &*self.place.lock() {
            Place::AtRest(rest) | Place::On { held: Held::Same(rest), .. } => rest.at_hand(),
            Place::On { worker, held: Held::Changing(_) | Held::Changed } => {
                Err(Away::OnWorker(*worker))
            }
            Place::Lost(reason) => Err(Away::Lost(reason.clone())),
        }
    }

    /// Gives the session another state, `None` being that of a fresh interpreter. An interpreter
    /// that has the present one drops it. To be used while no job of the session runs.
    pub fn replace(&self, state: Option<Parked>) -> Discarded {
        Discarded(self.put(self.place.lock(), Place::AtRest(Rest::of(state))))
    }

    /// Gives the state up, so that nobody parks it in vain.
    pub fn lose(&self, reason: &str) -> Discarded {
        Discarded(self.put(self.place.lock(), Place::Lost(reason.to_owned())))
    }

    /// Makes `worker` the one that has the state. Waits while another has it.
    ///
    /// That other has been given another job, or the scheduler would have sent this one there. It
    /// parks what it has before it waits for anything, so no two wait for each other.
    pub(crate) fn claim(&self, worker: WorkerId) -> Claim {
        let mut place = self.settled(worker);
        match &*place {
            Place::On { .. } => Claim::AlreadyHere,
            Place::Lost(reason) => Claim::Lost(reason.clone()),
            Place::AtRest(state) => {
                let state = state.clone();
                *place = Place::On { worker, held: Held::Same(state.clone()) };
                Claim::MoveIn(state)
            }
        }
    }

    /// Waits while another worker than `worker` has the state, as `claim` does.
    pub(crate) fn settle(&self, worker: WorkerId) {
        drop(self.settled(worker));
    }

    /// Whether `worker` has the state.
    pub(crate) fn is_on(&self, worker: WorkerId) -> bool {
        matches!(&*self.place.lock(), Place::On { worker: on, .. } if *on == worker)
    }

    /// What the copy takes of a state that an interpreter has, in bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        match &*self.place.lock() {
            Place::On { held: Held::Same(rest), .. } => rest.bytes(),
            Place::On { held: Held::Changing(_) | Held::Changed, .. }
            | Place::AtRest(_)
            | Place::Lost(_) => 0,
        }
    }

    /// Whether `worker` alone knows the state.
    pub(crate) fn is_changed_on(&self, worker: WorkerId) -> bool {
        let place = self.place.lock();
        matches!(&*place, Place::On { worker: on, held: Held::Changed } if *on == worker)
    }

    /// The state, if no interpreter has it.
    ///
    /// # Errors
    /// Where it is instead, as a sentence.
    pub(crate) fn at_rest(&self) -> Result<Rest, String> {
        match &*self.place.lock() {
            Place::AtRest(rest) => Ok(rest.clone()),
            Place::On { worker, .. } => Err(format!("it is on {worker}")),
            Place::Lost(reason) => Err(format!("it is lost: {reason}")),
        }
    }

    /// Puts `now` in place of `before`, which holds the same, if that still rests here; says
    /// whether it did.
    pub(crate) fn exchange(&self, before: &Rest, now: Rest) -> bool {
        let place = self.place.lock();
        let is_here = matches!(&*place, Place::AtRest(rest) if rest.is_same(before));
        if is_here {
            drop(self.put(place, Place::AtRest(now)));
        }
        is_here
    }

    /// `before`, which rests here or was claimed by `worker`, can't be unpacked, for this reason.
    pub(crate) fn spoil(&self, worker: WorkerId, before: &Rest, reason: &str) {
        let place = self.place.lock();
        let is_it = match &*place {
            Place::AtRest(rest) => rest.is_same(before),
            Place::On { worker: on, held: Held::Same(rest) } => {
                *on == worker && rest.is_same(before)
            }
            Place::On { held: Held::Changing(_) | Held::Changed, .. } | Place::Lost(_) => false,
        };
        if is_it {
            drop(self.put(place, Place::Lost(reason.to_owned())));
        }
    }

    /// A run on `worker` begins to change the state. What it was is kept until the run ends, if
    /// that takes no more than `most_bytes` of memory.
    pub(crate) fn begins(&self, worker: WorkerId, most_bytes: u64) {
        self.hold(worker, |held| match std::mem::replace(held, Held::Changing(None)) {
            Held::Same(rest) if most_bytes > 0 && rest.bytes() <= most_bytes => {
                std::mem::replace(held, Held::Changing(Some(rest)))
            }
            before => before,
        });
    }

    /// A run on `worker` will never end: the state is that of before again, and draws other
    /// random numbers than the run did, unless it is deterministic.
    pub(crate) fn rolls_back(&self, worker: WorkerId) {
        self.hold(worker, |held| match held {
            Held::Changing(Some(Rest::Parked(parked))) => {
                let parked = parked.fork();
                std::mem::replace(held, Held::Same(Rest::Parked(parked)))
            }
            Held::Changing(_) | Held::Same(_) | Held::Changed => Held::Changed,
        });
    }

    /// The run on `worker` has ended, and what it made of the state is the state.
    pub(crate) fn ends(&self, worker: WorkerId) {
        self.hold(worker, |held| std::mem::replace(held, Held::Changed));
    }

    /// `worker` has copied the state, and keeps it.
    pub(crate) fn captured(&self, worker: WorkerId, parked: Parked) {
        let copy = Held::Same(Rest::Parked(parked));
        self.hold(worker, |held| std::mem::replace(held, copy));
    }

    /// `worker` no longer has the state. If it alone knew it, it is lost for this reason. Else it
    /// rests, that of before the run if one changes it, and takes so many bytes; `None` if nothing
    /// rests because of this.
    pub(crate) fn leave(&self, worker: WorkerId, reason: &str) -> Option<u64> {
        let place = self.place.lock();
        let (next, bytes) = match &*place {
            Place::On { worker: on, held: Held::Same(rest) | Held::Changing(Some(rest)) }
                if *on == worker =>
            {
                (Place::AtRest(rest.clone()), Some(rest.bytes()))
            }
            Place::On { worker: on, held: Held::Changing(None) | Held::Changed }
                if *on == worker =>
            {
                (Place::Lost(reason.to_owned()), None)
            }
            Place::AtRest(_) | Place::On { .. } | Place::Lost(_) => return None,
        };
        drop(self.put(place, next));
        bytes
    }

    /// Lets `change` put something in place of what is known of the state on `worker`. What was
    /// there before is dropped when nobody waits for the lock.
    fn hold(&self, worker: WorkerId, change: impl FnOnce(&mut Held) -> Held) {
        let before = match &mut *self.place.lock() {
            Place::On { worker: on, held } if *on == worker => Some(change(held)),
            Place::AtRest(_) | Place::On { .. } | Place::Lost(_) => None,
        };
        drop(before);
    }

    /// Gives what was there before, so that it is dropped when nobody waits for the lock: it may be
    /// large, or on disk.
    fn put(&self, mut place: MutexGuard<'_, Place>, next: Place) -> Place {
        let before = std::mem::replace(&mut *place, next);
        self.moved.notify_all();
        before
    }

    /// The place, once no other worker than `worker` has the state.
    fn settled(&self, worker: WorkerId) -> MutexGuard<'_, Place> {
        let mut place = self.place.lock();
        self.moved.wait_while(
            &mut place,
            |place| matches!(place, Place::On { worker: on, .. } if *on != worker),
        );
        place
    }
}
