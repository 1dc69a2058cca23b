//! The current run of this thread, for host code that gets only the guest's arguments.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::interrupt::gate::{Gate, Stopped, Woken};
use crate::interrupt::watchdog::StopRequester;

/// How often a wait looks whether it is over.
const GLANCE: Duration = Duration::from_millis(10);

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

#[derive(Debug, Clone)]
struct Here {
    gate: Arc<Gate>,
    requester: StopRequester,
}

/// Says that a run goes on on this thread, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the run on this thread"]
pub(crate) struct RunsHere {
    before: Option<Here>,
}

impl RunsHere {
    pub(crate) fn begin(gate: &Arc<Gate>, requester: StopRequester) -> Self {
        let here = Here { gate: Arc::clone(gate), requester };
        Self { before: HERE.replace(Some(here)) }
    }
}

impl Drop for RunsHere {
    fn drop(&mut self) {
        HERE.set(self.before.take());
    }
}

/// Waits, called from within the guest, until `is_ready` holds. The run's wall time stands still,
/// and interrupts wait too.
///
/// # Errors
/// The run was stopped; the guest must be unwound.
pub(crate) fn wait(is_ready: impl Fn() -> bool) -> Result<(), Stopped> {
    let Some(Here { gate, requester }) = HERE.with_borrow(Clone::clone) else {
        while !is_ready() {
            thread::park_timeout(GLANCE);
        }
        return Ok(());
    };
    let _pause = requester.pause();
    gate.host(|| while gate.wait_aside(GLANCE, &is_ready) == Woken::TimeOver {})
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::interrupt::gate::tests::gate;
    use crate::interrupt::reason::StopReason;
    use crate::interrupt::watchdog::Stopwatch;
    use crate::limits::Limits;

    fn ends_at_the_third_look() -> bool {
        let looks = AtomicUsize::new(0);
        let waited = wait(|| looks.fetch_add(1, Ordering::Relaxed) == 2);
        waited.is_ok() && looks.into_inner() == 3
    }

    #[test]
    fn a_wait_ends_when_it_is_over_within_a_run_and_without_one() {
        assert!(ends_at_the_third_look());
        let gate = gate();
        let (run, interrupt) = (gate.begin(), Arc::clone(&gate));
        let limits = Limits { wall_time: Duration::ZERO, ..Limits::default() };
        let watch = Stopwatch::start().guard(&limits, run, interrupt, None);
        let _here = RunsHere::begin(&gate, watch.stop_requester());
        assert_eq!(gate.guest(ends_at_the_third_look), Ok(true));
    }

    #[test]
    fn a_stop_ends_a_wait() {
        let gate = gate();
        let (run, interrupt) = (gate.begin(), Arc::clone(&gate));
        let watch = Stopwatch::start().guard(&Limits::default(), run, interrupt.clone(), None);
        let _here = RunsHere::begin(&gate, watch.stop_requester());
        let ended = gate.guest(|| {
            wait(|| {
                interrupt.stop(run, StopReason::Cancelled);
                false
            })
        });
        assert_eq!(ended, Ok(Err(Stopped)));
    }
}
