//! Ending a run that may not have begun: the caller's end of interrupts and cancellation.
//!
//! Made with the job, long before a thread takes it up. What comes before the run begins takes
//! effect as it begins; what comes after it ended does nothing.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::interrupt::gate::{InterruptHandle, RunId};
use crate::interrupt::reason::StopReason;
use crate::interrupt::watchdog::Asker;

/// Hears of a run that a stop doesn't end.
///
/// A stop takes effect within milliseconds, wherever the guest is. If the run goes on for
/// [`OVERDUE_AFTER`](crate::OVERDUE_AFTER) all the same, its thread hangs in the host, or something
/// is wrong that nobody knows of, and whoever waits for the thread had better not.
pub trait Overdue: Send + Sync {
    /// The run that was given this number still goes on. Called on the watchdog's thread, once a
    /// run, and must not wait.
    fn overdue(&self, number: u64);
}

/// Who hears of a run that is overdue, and the number that they gave it.
#[derive(Clone)]
pub(crate) struct OverdueHook {
    hears: Weak<dyn Overdue>,
    number: u64,
}

impl OverdueHook {
    pub(crate) fn call(&self) {
        if let Some(hears) = self.hears.upgrade() {
            hears.overdue(self.number);
        }
    }
}

impl fmt::Debug for OverdueHook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OverdueHook").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Ends one run, from any thread, before or while it goes.
#[derive(Debug, Clone, Default)]
pub struct StopHandle {
    state: Arc<Mutex<StopState>>,
}

#[derive(Debug, Default)]
struct StopState {
    requested: Option<(StopReason, Way)>,
    run: Option<Target>,
    overdue: Option<OverdueHook>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// An interrupt; after the grace period a stop.
    Gently,
    AtOnce,
}

#[derive(Debug)]
struct Target {
    interrupt: InterruptHandle,
    run: RunId,
    asker: Asker,
}

impl StopHandle {
    /// Ends the run at once, and its interpreter with it. The first reason wins.
    pub fn stop(&self, reason: StopReason) {
        self.end(reason, Way::AtOnce);
    }

    /// Raises `KeyboardInterrupt` in the program. If it goes on for `Limits::grace`, the run is
    /// ended as by `stop`.
    pub fn interrupt(&self, reason: StopReason) {
        self.end(reason, Way::Gently);
    }

    fn end(&self, reason: StopReason, way: Way) {
        let mut state = self.state.lock();
        let (reason, asked) = state.requested.get_or_insert((reason, way));
        let reason = *reason;
        if way == Way::AtOnce {
            *asked = way;
        }
        if let Some(target) = &state.run {
            target.end(reason, way);
        }
    }

    /// Why the run was asked to end, if it was.
    pub fn requested(&self) -> Option<StopReason> {
        self.state.lock().requested.map(|(reason, _)| reason)
    }

    /// Has `hears` told if the run goes on long after it was stopped, with this number. To be
    /// called before the run begins.
    pub fn when_overdue(&self, hears: Weak<dyn Overdue>, number: u64) {
        self.state.lock().overdue = Some(OverdueHook { hears, number });
    }

    /// Who is told.
    pub(crate) fn overdue_hook(&self) -> Option<OverdueHook> {
        self.state.lock().overdue.clone()
    }

    /// Says that the run is overdue, as the watchdog does. For interpreters that have no watchdog.
    pub fn report_overdue(&self) {
        if let Some(hook) = self.overdue_hook() {
            hook.call();
        }
    }

    /// The run goes now.
    pub(crate) fn attach(&self, interrupt: InterruptHandle, run: RunId, asker: Asker) {
        let mut state = self.state.lock();
        let target = Target { interrupt, run, asker };
        if let Some((reason, way)) = state.requested {
            target.end(reason, way);
        }
        state.run = Some(target);
    }

    /// The run is over.
    pub(crate) fn detach(&self) {
        self.state.lock().run = None;
    }
}

impl Target {
    fn end(&self, reason: StopReason, way: Way) {
        match way {
            Way::Gently => self.asker.ask(reason),
            Way::AtOnce => {
                self.interrupt.stop(self.run, reason);
                self.asker.expect_end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::gate::Gate;
    use crate::interrupt::watchdog::{Stopwatch, WatchGuard};
    use crate::limits::Limits;
    use crate::memory::{GuestMemory, WASM_PAGE_BYTES};

    fn gate() -> Arc<Gate> {
        let gate = Gate::new();
        gate.guard(Arc::new(GuestMemory::new(WASM_PAGE_BYTES).unwrap()));
        Arc::new(gate)
    }

    fn begin(stop: &StopHandle, gate: &Arc<Gate>) -> WatchGuard {
        let (run, interrupt) = (gate.begin(), InterruptHandle::new(Arc::clone(gate)));
        let limits = Limits::default();
        let guard = Stopwatch::start().guard(&limits, run, interrupt.clone(), None);
        stop.attach(interrupt, run, guard.asker());
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
    fn a_stop_after_the_run_hits_nobody() {
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
