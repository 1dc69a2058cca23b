//! How the states of sessions move between their cells and a slot's interpreter.

use std::sync::Arc;

use engine::{Cause, SandboxFailure, StartError};

use super::{Slot, failed_start};
use crate::interpreter::{Interpreter, Parked};
use crate::packed::Packed;
use crate::session::{Claim, SessionCell, StoredState};

impl Slot<'_> {
    /// Attaches a session's state. If that fails, the session still has its state, unless it was
    /// lost before or can't be unpacked.
    pub(super) fn attach_session(
        &mut self,
        session: &Arc<SessionCell>,
    ) -> Result<(), SandboxFailure> {
        self.vacate_for(session);
        let mut claim = session.claim(self.worker());
        if matches!(claim, Claim::AlreadyHere) && self.has_ended() {
            // Its process died between two turns: the session goes on from the copy of its state.
            let ended = "the process that kept its state has ended";
            let reason = self.not_copied.take().map(|error| Cause::because(ended, error));
            self.control.give_up_session(session, reason.unwrap_or_else(|| ended.into()));
            claim = session.claim(self.worker());
        }
        // From here on a panic gives the session back.
        self.session = Some(Arc::clone(session));
        self.change_to(session.build());
        let moved = match claim {
            Claim::AlreadyHere => Ok(()),
            Claim::Attach(StoredState::Fresh) => self.make_pristine().map_err(failed_start),
            Claim::Attach(StoredState::Parked(parked)) => self.attach_parked(&parked),
            Claim::Attach(StoredState::Packed(offloaded)) => {
                let unpacked =
                    self.unpack(session, &offloaded).map_err(SandboxFailure::SessionLost);
                unpacked.and_then(|parked| {
                    // This drops the offloaded form, which takes memory or disk space.
                    session.captured(self.worker(), parked.clone());
                    self.attach_parked(&parked)
                })
            }
            Claim::Lost(reason) => Err(SandboxFailure::SessionLost(reason)),
        };
        if moved.is_err() {
            self.leave(session, "it never ran here");
            self.session = None;
        }
        moved
    }

    fn attach_parked(&mut self, parked: &Parked) -> Result<(), SandboxFailure> {
        self.drop_ended();
        self.is_pristine = false;
        let attached = self.interpreter().and_then(|interpreter| interpreter.attach(parked));
        attached.map_err(failed_start)
    }

    /// Unpacks a offloaded state. If that fails, the session has lost it.
    fn unpack(&self, session: &SessionCell, offloaded: &Packed) -> Result<Parked, Cause> {
        let packed = offloaded.packed().map_err(Cause::new);
        let unpacked = packed.and_then(|packed| {
            self.control.builds().source(session.build()).unpack(&packed).map_err(Cause::new)
        });
        unpacked.map_err(|error| {
            let reason = Cause::because("its state could not be unpacked", error);
            session.mark_damaged(
                self.worker(),
                &StoredState::Packed(offloaded.clone()),
                reason.clone(),
            );
            reason
        })
    }

    /// Puts a copy of a session's state into its cell. On error there is no copy, and the session
    /// still has its state.
    pub(super) fn make_available(&mut self, session: &Arc<SessionCell>) -> Result<(), StartError> {
        self.vacate_for(session);
        session.wait_until_settled(self.worker());
        // Another thread may spill it meanwhile; then it has to be unpacked from disk.
        while let Ok(before @ StoredState::Packed(_)) = session.stored()
            && let StoredState::Packed(offloaded) = &before
        {
            let Ok(parked) = self.unpack(session, offloaded) else { continue };
            let bytes = parked.bytes();
            if session.exchange(&before, StoredState::Parked(parked)) {
                self.control.session_parked(session, bytes);
            }
        }
        self.copy_out(session, |interpreter| interpreter.park())
    }

    /// Parks the session that is here, unless it is `session`.
    ///
    /// P-2: this comes before any wait for another worker, so that no two workers wait for each
    /// other.
    fn vacate_for(&mut self, session: &Arc<SessionCell>) {
        if !self.session.as_ref().is_some_and(|here| Arc::ptr_eq(here, session)) {
            self.vacate();
        }
    }

    /// Copies a state out to its cell by `copy`, if only this interpreter has it.
    pub(super) fn copy_out(
        &mut self,
        session: &SessionCell,
        copy: impl FnOnce(&mut dyn Interpreter) -> Result<Parked, StartError>,
    ) -> Result<(), StartError> {
        if session.is_changed_on(self.worker()) {
            let parked = copy(&mut **self.interpreter()?)?;
            session.captured(self.worker(), parked);
        }
        Ok(())
    }

    /// Gives up a session's state. If the session is at rest because of that, notifies the owner
    /// and returns true.
    pub(super) fn leave(&self, session: &SessionCell, reason: impl Into<Cause>) -> bool {
        let rests = self.control.give_up_session(session, reason);
        if let Some(bytes) = rests {
            self.control.session_parked(session, bytes);
        }
        rests.is_some()
    }
}
