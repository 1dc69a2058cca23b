//! Where the state of a session is, as the scheduler and the workers' threads share it.
//!
//! The scheduler decides on which worker a session's next job runs; the state follows through this
//! cell. A thread that is to run it waits here until the one that holds it has parked it.
//!
//! P-1: who replaces or closes the session has the last word; a thread changes only what is still
//! its own.

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::interpreter::Parked;
use crate::task::{SessionId, WorkerId};

/// One session's state, wherever it is.
#[derive(Debug)]
pub struct SessionCell {
    session: SessionId,
    place: Mutex<Place>,
    moved: Condvar,
}

#[derive(Debug)]
enum Place {
    /// No interpreter has it. `None` is the state of a fresh interpreter.
    AtRest(Option<Parked>),
    /// The interpreter of this worker has it.
    On { worker: WorkerId, held: Held },
    /// It is gone, for this reason.
    Lost(String),
}

/// What is known of a state that an interpreter has.
#[derive(Debug)]
enum Held {
    /// It is still this one.
    Same(Option<Parked>),
    /// Only the interpreter knows it.
    Changed,
}

/// Where a session's state is, for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionPlace {
    /// Nowhere yet: nothing has run.
    Fresh,
    /// Put aside until the next job.
    Parked {
        /// The memory that it takes, in bytes.
        bytes: u64,
    },
    /// In the interpreter of this worker.
    OnWorker(WorkerId),
    /// Gone; the session's next job will say why.
    Lost,
}

/// Why a session's state is not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Away {
    /// This worker has to park it first.
    OnWorker(WorkerId),
    /// It is gone, for this reason.
    Lost(String),
}

/// What a thread finds that is to run a job of a session.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Its interpreter has the state.
    AlreadyHere,
    /// Its interpreter is to take this state, `None` being that of a fresh one.
    MoveIn(Option<Parked>),
    /// The state is gone, for this reason.
    Lost(String),
}

impl SessionCell {
    /// A session with this state, `None` being that of a fresh interpreter.
    pub fn new(session: SessionId, state: Option<Parked>) -> Self {
        Self { session, place: Mutex::new(Place::AtRest(state)), moved: Condvar::new() }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Where the state is now.
    pub fn place(&self) -> SessionPlace {
        match &*self.place.lock() {
            Place::AtRest(None) => SessionPlace::Fresh,
            Place::AtRest(Some(parked)) => SessionPlace::Parked { bytes: parked.bytes() },
            Place::On { worker, .. } => SessionPlace::OnWorker(*worker),
            Place::Lost(_) => SessionPlace::Lost,
        }
    }

    /// The state, `None` being that of a fresh interpreter, if it can be had without a worker.
    ///
    /// # Errors
    /// An interpreter has changed it since it was last copied, or it is gone.
    pub fn at_hand(&self) -> Result<Option<Parked>, Away> {
        match &*self.place.lock() {
            Place::AtRest(state) | Place::On { held: Held::Same(state), .. } => Ok(state.clone()),
            Place::On { worker, held: Held::Changed } => Err(Away::OnWorker(*worker)),
            Place::Lost(reason) => Err(Away::Lost(reason.clone())),
        }
    }

    /// Gives the session another state, `None` being that of a fresh interpreter. Whoever has the
    /// present one drops it. To be used while no job of the session runs.
    pub fn replace(&self, state: Option<Parked>) {
        self.put(&mut self.place.lock(), Place::AtRest(state));
    }

    /// Gives the state up, so that nobody parks it in vain.
    pub fn lose(&self, reason: &str) {
        self.put(&mut self.place.lock(), Place::Lost(reason.to_owned()));
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
        self.place() == SessionPlace::OnWorker(worker)
    }

    /// Whether `worker` alone knows the state.
    pub(crate) fn is_changed_on(&self, worker: WorkerId) -> bool {
        self.at_hand().is_err_and(|away| away == Away::OnWorker(worker))
    }

    /// `worker` begins to change the state.
    pub(crate) fn changes(&self, worker: WorkerId) {
        self.hold(worker, Held::Changed);
    }

    /// `worker` has copied the state, and keeps it.
    pub(crate) fn captured(&self, worker: WorkerId, parked: Parked) {
        self.hold(worker, Held::Same(Some(parked)));
    }

    /// `worker` no longer has the state. If it alone knew it, it is lost for this reason.
    pub(crate) fn leave(&self, worker: WorkerId, reason: &str) {
        let mut place = self.place.lock();
        let next = match &*place {
            Place::On { worker: on, held: Held::Same(state) } if *on == worker => {
                Place::AtRest(state.clone())
            }
            Place::On { worker: on, held: Held::Changed } if *on == worker => {
                Place::Lost(reason.to_owned())
            }
            Place::AtRest(_) | Place::On { .. } | Place::Lost(_) => return,
        };
        self.put(&mut place, next);
    }

    fn hold(&self, worker: WorkerId, now: Held) {
        if let Place::On { worker: on, held } = &mut *self.place.lock()
            && *on == worker
        {
            *held = now;
        }
    }

    fn put(&self, place: &mut Place, next: Place) {
        *place = next;
        self.moved.notify_all();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const FIRST: WorkerId = WorkerId(1);
    const SECOND: WorkerId = WorkerId(2);

    fn cell() -> SessionCell {
        SessionCell::new(SessionId(1), None)
    }

    fn parked(state: u64) -> Parked {
        Parked::new(Arc::new(state), 8)
    }

    /// The number in a parked state.
    fn number(state: Option<&Parked>) -> Option<u64> {
        state.and_then(|parked| parked.downcast_ref().copied())
    }

    fn lost(reason: &str) -> Option<Away> {
        Some(Away::Lost(reason.to_owned()))
    }

    #[test]
    fn a_state_goes_from_worker_to_worker() {
        let cell = cell();
        assert_eq!(cell.place(), SessionPlace::Fresh);
        assert!(matches!(cell.claim(FIRST), Claim::MoveIn(None)));
        cell.changes(FIRST);
        assert_eq!(cell.at_hand().err(), Some(Away::OnWorker(FIRST)));
        assert!(matches!(cell.claim(FIRST), Claim::AlreadyHere));
        cell.captured(FIRST, parked(7));
        assert_eq!(cell.place(), SessionPlace::OnWorker(FIRST));
        assert_eq!(number(cell.at_hand().unwrap().as_ref()), Some(7));
        cell.leave(FIRST, "unused");
        assert_eq!(cell.place(), SessionPlace::Parked { bytes: 8 });
        let Claim::MoveIn(state) = cell.claim(SECOND) else { panic!("{cell:?}") };
        assert_eq!(number(state.as_ref()), Some(7));
        assert!(cell.is_on(SECOND) && !cell.is_on(FIRST));
    }

    #[test]
    fn what_only_a_worker_knew_is_lost_with_it() {
        let cell = cell();
        let _ = cell.claim(FIRST);
        cell.changes(FIRST);
        cell.leave(FIRST, "it died");
        assert_eq!(cell.at_hand().err(), lost("it died"));
        assert!(matches!(cell.claim(SECOND), Claim::Lost(reason) if reason == "it died"));
    }

    #[test]
    fn what_was_never_changed_outlives_its_worker() {
        let cell = SessionCell::new(SessionId(1), Some(parked(3)));
        let _ = cell.claim(FIRST);
        cell.leave(FIRST, "unused");
        assert_eq!(number(cell.at_hand().unwrap().as_ref()), Some(3));
    }

    #[test]
    fn who_replaces_or_closes_a_session_has_the_last_word() {
        let cell = cell();
        let _ = cell.claim(FIRST);
        cell.changes(FIRST);
        cell.replace(Some(parked(5)));
        cell.captured(FIRST, parked(9));
        cell.leave(FIRST, "unused");
        assert_eq!(number(cell.at_hand().unwrap().as_ref()), Some(5));
        let _ = cell.claim(FIRST);
        cell.lose("closed");
        cell.captured(FIRST, parked(9));
        assert_eq!(cell.at_hand().err(), lost("closed"));
    }

    #[test]
    fn a_claim_waits_for_the_worker_that_has_the_state() {
        let cell = Arc::new(cell());
        let _ = cell.claim(FIRST);
        cell.changes(FIRST);
        let claiming = std::thread::spawn({
            let cell = Arc::clone(&cell);
            move || cell.claim(SECOND)
        });
        cell.captured(FIRST, parked(4));
        cell.leave(FIRST, "unused");
        let Claim::MoveIn(state) = claiming.join().unwrap() else { panic!("{cell:?}") };
        assert_eq!(number(state.as_ref()), Some(4));
    }
}
