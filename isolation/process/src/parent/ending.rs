//! The end of a run in a worker: the messages, and how long it may continue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::{Limits, Program, StopReason, StopTarget};
use parking_lot::Mutex;

use crate::message::{StopKind, StopRequest};
use crate::parent::remote::Worker;

/// How long a worker may continue a run after it was asked to stop it.
const STOPPING: Duration = Duration::from_secs(2);

/// How long after the limit of wall time and its grace period the worker, which holds both, must have
/// ended a run.
const LATE: Duration = Duration::from_secs(10);

/// Ends a run in a worker.
#[derive(Debug)]
pub(crate) struct RunStopper {
    worker: Arc<Worker>,
    run: u64,
    /// When the run must have ended, once a stop was requested.
    stopping: Mutex<Option<Instant>>,
    /// When the worker must have ended the run by its limit of wall time, with room to spare.
    latest: Option<Instant>,
}

impl RunStopper {
    pub(crate) fn new(worker: &Arc<Worker>, run: u64, program: &Program, limits: &Limits) -> Self {
        // Waiting for the host's own input takes no time of the run.
        let latest = program.stdin_function.is_none().then(|| {
            Instant::now() + limits.wall_time.saturating_add(limits.grace).saturating_add(LATE)
        });
        Self { worker: Arc::clone(worker), run, stopping: Mutex::default(), latest }
    }

    fn tell(&self, reason: StopReason, kind: StopKind) {
        self.worker.control.stop(StopRequest { run: self.run, reason, kind });
    }

    /// Returns why the worker may not continue. To be called now and then during the run: it
    /// tells the worker what it couldn't be told before.
    pub(crate) fn overdue(&self) -> Option<&'static str> {
        let takes_none = self.worker.control.send_stops();
        if self.stopping.lock().is_some_and(|until| Instant::now() >= until) {
            self.worker.was_stopped.store(true, Ordering::Relaxed);
            return Some("it continued after a request to stop");
        }
        if takes_none {
            return Some("it didn't read the request to end its run");
        }
        let is_late = self.latest.is_some_and(|until| Instant::now() >= until);
        is_late.then_some("it didn't end its run at the limit of wall time")
    }
}

impl StopTarget for RunStopper {
    fn interrupt(&self, reason: StopReason) {
        self.tell(reason, StopKind::Interrupt);
    }

    fn stop(&self, reason: StopReason) {
        self.stopping.lock().get_or_insert_with(|| Instant::now() + STOPPING);
        self.tell(reason, StopKind::Kill);
    }
}
