//! Stopping a run that may not have begun: the caller's end of cancellation.
//!
//! Made with the job, long before a thread takes it up. A stop that comes before the run begins
//! takes effect as it begins; one that comes after it ended does nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::interrupt::{InterruptHandle, RunId};
use crate::outcome::StopReason;

/// Stops one run, from any thread, before or while it goes.
#[derive(Debug, Clone, Default)]
pub struct StopHandle {
    state: Arc<Mutex<StopState>>,
}

#[derive(Debug, Default)]
struct StopState {
    requested: Option<StopReason>,
    run: Option<(InterruptHandle, RunId)>,
}

impl StopHandle {
    /// Asks for the run to end. The first reason wins.
    pub fn stop(&self, reason: StopReason) {
        let mut state = self.state.lock();
        let reason = *state.requested.get_or_insert(reason);
        if let Some((interrupt, run)) = &state.run {
            interrupt.stop(*run, reason);
        }
    }

    /// Whether the run was asked to end.
    pub fn requested(&self) -> Option<StopReason> {
        self.state.lock().requested
    }

    /// The run goes now.
    pub(crate) fn attach(&self, interrupt: InterruptHandle, run: RunId) {
        let mut state = self.state.lock();
        if let Some(reason) = state.requested {
            interrupt.stop(run, reason);
        }
        state.run = Some((interrupt, run));
    }

    /// The run is over.
    pub(crate) fn detach(&self) {
        self.state.lock().run = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Gate;
    use crate::memory::{GuestMemory, WASM_PAGE_BYTES};

    fn gate() -> Arc<Gate> {
        let gate = Gate::new();
        gate.guard(Arc::new(GuestMemory::new(WASM_PAGE_BYTES).unwrap()));
        Arc::new(gate)
    }

    #[test]
    fn a_stop_before_the_run_takes_effect_as_it_begins() {
        let (stop, gate) = (StopHandle::default(), gate());
        stop.stop(StopReason::Cancelled);
        stop.attach(InterruptHandle::new(Arc::clone(&gate)), gate.begin());
        assert!(gate.guest(|| ()).is_err());
        assert_eq!(gate.end(), Some(StopReason::Cancelled));
    }

    #[test]
    fn a_stop_after_the_run_hits_nobody() {
        let (stop, gate) = (StopHandle::default(), gate());
        stop.attach(InterruptHandle::new(Arc::clone(&gate)), gate.begin());
        stop.detach();
        gate.end();
        gate.begin();
        stop.stop(StopReason::Cancelled);
        assert_eq!(gate.end(), None);
    }
}
