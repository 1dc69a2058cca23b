//! Ends a run that may not have begun: the caller's end of interrupts and cancellation.
//!
//! A `StopHandle` is made with its job, long before a thread takes the job up. A request from
//! before the run takes effect as it begins; one from after the run does nothing.

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::interrupt::gate::{Gate, GateRun};
use crate::interrupt::reason::{Overdue, OverdueHook, StopReason};
use crate::interrupt::watchdog::StopRequester;

/// Ends one run, from any thread, before or during the run.
#[derive(Debug, Clone, Default)]
pub struct StopHandle {
    state: Arc<Mutex<StopState>>,
}

#[derive(Debug, Default)]
struct StopState {
    requested: Option<(StopReason, StopKind)>,
    /// The run, while it goes on.
    run: Option<Arc<dyn StopTarget>>,
    overdue: Option<OverdueHook>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopKind {
    /// By an interrupt, and a stop after the grace period.
    Interrupt,
    /// By a stop.
    Kill,
}

/// Ends a run that goes on. Requests come one at a time, and repeat. Neither method may wait for
/// the run: its caller may be holding others up.
pub trait StopTarget: Debug + Send + Sync {
    /// Raises `KeyboardInterrupt` in the program, and stops the run after the grace period.
    fn interrupt(&self, reason: StopReason);

    /// Stops the run at once.
    fn stop(&self, reason: StopReason);
}

/// A run of an interpreter in this process.
#[derive(Debug)]
struct LocalRun {
    gate: Arc<Gate>,
    run: GateRun,
    requester: StopRequester,
}

impl StopHandle {
    /// Stops the run at once; its interpreter is lost. The first reason wins.
    pub fn stop(&self, reason: StopReason) {
        self.end(reason, StopKind::Kill);
    }

    /// Raises `KeyboardInterrupt` in the program. If it goes on for `Limits::grace`, stops the run
    /// as `stop` does.
    pub fn interrupt(&self, reason: StopReason) {
        self.end(reason, StopKind::Interrupt);
    }

    fn end(&self, reason: StopReason, kind: StopKind) {
        let mut state = self.state.lock();
        let (reason, asked) = state.requested.get_or_insert((reason, kind));
        let reason = *reason;
        if kind == StopKind::Kill {
            *asked = kind;
        }
        if let Some(target) = &state.run {
            kind.end(&**target, reason);
        }
    }

    /// Returns why the run was asked to end, if it was.
    pub fn requested(&self) -> Option<StopReason> {
        self.state.lock().requested.map(|(reason, _)| reason)
    }

    /// Notifies `listener`, with `number`, if the run continues long after a stop. To be called
    /// before the run begins.
    pub fn when_overdue(&self, listener: Weak<dyn Overdue>, number: u64) {
        self.state.lock().overdue = Some(OverdueHook::new(listener, number));
    }

    /// Returns the hook to call if the run is overdue.
    pub(crate) fn overdue_hook(&self) -> Option<OverdueHook> {
        self.state.lock().overdue.clone()
    }

    /// Reports the run as overdue, as the watchdog does. For interpreters that have no watchdog.
    pub fn report_overdue(&self) {
        if let Some(hook) = self.overdue_hook() {
            hook.call();
        }
    }

    /// Begins the run: earlier requests take effect, later ones go to the run at once.
    pub(crate) fn attach(&self, gate: Arc<Gate>, run: GateRun, requester: StopRequester) {
        self.begin(Arc::new(LocalRun { gate, run, requester }));
    }

    /// Begins a run that `ending` ends, as [`Interpreter::run`](crate::Interpreter::run) does for
    /// runs of this process.
    pub fn begin(&self, ending: Arc<dyn StopTarget>) {
        let mut state = self.state.lock();
        if let Some((reason, kind)) = state.requested {
            kind.end(&*ending, reason);
        }
        state.run = Some(ending);
    }

    /// Ends the run: later requests do nothing.
    pub fn detach(&self) {
        self.state.lock().run = None;
    }
}

impl StopKind {
    fn end(self, run: &dyn StopTarget, reason: StopReason) {
        match self {
            Self::Interrupt => run.interrupt(reason),
            Self::Kill => run.stop(reason),
        }
    }
}

impl StopTarget for LocalRun {
    fn interrupt(&self, reason: StopReason) {
        self.requester.request(reason);
    }

    fn stop(&self, reason: StopReason) {
        self.gate.stop(self.run, reason);
        self.requester.expect_end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::gate::Gate;
    use crate::interrupt::gate::tests::gate;
    use crate::interrupt::watchdog::{Stopwatch, WatchGuard};
    use crate::limits::Limits;

    fn begin(stop: &StopHandle, gate: &Arc<Gate>) -> WatchGuard {
        let (run, held) = (gate.begin(), Arc::clone(gate));
        let limits = Limits::default();
        let guard = Stopwatch::start().guard(&limits, run, held.clone(), None);
        stop.attach(held, run, guard.stop_requester());
        guard
    }

    #[test]
    fn a_stop_before_the_run_takes_effect_as_it_begins() {
        let (stop, gate) = (StopHandle::default(), gate());
        stop.stop(StopReason::Cancelled);
        let _guard = begin(&stop, &gate);
        assert!(gate.guest(|| ()).is_err());
        assert_eq!(gate.end().stop, Some(StopReason::Cancelled));
    }

    #[test]
    fn a_stop_after_an_interrupt_is_at_once() {
        let (stop, gate) = (StopHandle::default(), gate());
        let _guard = begin(&stop, &gate);
        stop.interrupt(StopReason::Interrupted);
        assert_eq!(gate.stop_requested(), None);
        stop.stop(StopReason::Cancelled);
        assert_eq!(gate.end().stop, Some(StopReason::Interrupted));
    }

    #[test]
    fn a_stop_after_an_interrupt_is_at_once_also_before_the_run() {
        let (stop, gate) = (StopHandle::default(), gate());
        stop.interrupt(StopReason::Interrupted);
        stop.stop(StopReason::Cancelled);
        let _guard = begin(&stop, &gate);
        assert_eq!(gate.end().stop, Some(StopReason::Interrupted));
    }

    #[test]
    fn a_stop_after_the_run_does_nothing() {
        let (stop, gate) = (StopHandle::default(), gate());
        drop(begin(&stop, &gate));
        stop.detach();
        gate.end();
        gate.begin();
        stop.stop(StopReason::Cancelled);
        stop.interrupt(StopReason::Cancelled);
        assert_eq!(gate.end().stop, None);
    }
}
