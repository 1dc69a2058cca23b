//! Time: how long a run took, and the watchdog that ends runs whose time is over.
//!
//! The only file of the engine that reads clocks, with `interrupt.rs`, whose sleeps wait on one,
//! and `host/clock.rs`, which serves them to guests.
//! One watchdog thread serves every interpreter of the process: a run registers its deadline and
//! takes it back, so a run that keeps its limit costs two short locks and no thread.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

use crate::interrupt::{InterruptHandle, RunId};
use crate::outcome::StopReason;

/// Measures one run on its thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the engine's clock file")]
    pub(crate) fn start() -> Self {
        Self { wall: Instant::now(), cpu: thread_cpu_time() }
    }

    pub(crate) fn wall(&self) -> Duration {
        self.wall.elapsed()
    }

    /// CPU time of this thread since the start. Call it on the thread that started the watch.
    pub(crate) fn cpu(&self) -> Duration {
        thread_cpu_time().saturating_sub(self.cpu)
    }

    /// Has the watchdog stop `run` once `wall_time` has passed since the start.
    pub(crate) fn deadline(
        &self,
        wall_time: Duration,
        run: RunId,
        interrupt: InterruptHandle,
    ) -> Deadline {
        // A limit beyond the clock's range never passes.
        let at = self.wall.checked_add(wall_time);
        Deadline { key: at.map(|at| WATCHDOG.register(at, run, interrupt)) }
    }
}

fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A registered deadline; dropping it takes it back.
#[derive(Debug)]
#[must_use = "dropping a deadline takes it back"]
pub(crate) struct Deadline {
    key: Option<Key>,
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            WATCHDOG.shared.state.lock().pending.remove(&key);
        }
    }
}

static WATCHDOG: LazyLock<Watchdog> = LazyLock::new(Watchdog::start);

/// Deadlines in order; the number tells equal instants apart.
type Key = (Instant, u64);

struct Watchdog {
    shared: Arc<WatchdogShared>,
}

#[derive(Default)]
struct WatchdogShared {
    state: Mutex<WatchdogState>,
    earlier: Condvar,
}

#[derive(Default)]
struct WatchdogState {
    pending: BTreeMap<Key, (RunId, InterruptHandle)>,
    registered: u64,
}

impl Watchdog {
    fn start() -> Self {
        let shared = Arc::new(WatchdogShared::default());
        let thread = std::thread::Builder::new().name("hatchery-watchdog".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.watch()
        });
        // Without a watchdog no limit on time can be kept, so nothing may run.
        thread.expect("the system gives this process one more thread");
        Self { shared }
    }

    fn register(&self, at: Instant, run: RunId, interrupt: InterruptHandle) -> Key {
        let mut state = self.shared.state.lock();
        state.registered += 1;
        let key = (at, state.registered);
        let is_first = state.pending.first_key_value().is_none_or(|(first, _)| key < *first);
        state.pending.insert(key, (run, interrupt));
        if is_first {
            self.shared.earlier.notify_one();
        }
        key
    }
}

impl WatchdogShared {
    #[expect(clippy::disallowed_methods, reason = "this is the engine's clock file")]
    fn watch(&self) {
        let mut state = self.state.lock();
        loop {
            let Some((&(at, _), _)) = state.pending.first_key_value() else {
                self.earlier.wait(&mut state);
                continue;
            };
            if Instant::now() < at {
                self.earlier.wait_until(&mut state, at);
                continue;
            }
            if let Some((_, (run, interrupt))) = state.pending.pop_first() {
                // Takes the lock of one gate and changes page protections: microseconds, or
                // milliseconds for a memory of a gigabyte.
                interrupt.stop(run, StopReason::WallTime);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::{Gate, Stopped};
    use crate::memory::{GuestMemory, WASM_PAGE_BYTES};

    fn gate() -> Arc<Gate> {
        let gate = Gate::new();
        gate.guard(Arc::new(GuestMemory::new(WASM_PAGE_BYTES).unwrap()));
        Arc::new(gate)
    }

    #[test]
    fn deadlines_end_runs_in_their_own_order() {
        let (early, late) = (gate(), gate());
        let watch = Stopwatch::start();
        let register = |gate: &Arc<Gate>, milliseconds| {
            let handle = InterruptHandle::new(Arc::clone(gate));
            watch.deadline(Duration::from_millis(milliseconds), gate.begin(), handle)
        };
        let late_deadline = register(&late, 60_000);
        let _early_deadline = register(&early, 20);
        assert_eq!(early.sleep(Duration::from_secs(30)), Err(Stopped));
        assert!(watch.wall() >= Duration::from_millis(20));
        assert_eq!(early.end(), Some(StopReason::WallTime));
        drop(late_deadline);
        assert_eq!(late.end(), None);
    }

    #[test]
    fn a_deadline_that_was_taken_back_never_fires() {
        let gate = gate();
        let run = gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        drop(Stopwatch::start().deadline(Duration::from_millis(5), run, handle));
        assert_eq!(gate.sleep(Duration::from_millis(30)), Ok(()));
        assert_eq!(gate.end(), None);
    }

    #[test]
    fn limits_beyond_the_clock_never_pass() {
        let gate = gate();
        let run = gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&gate));
        let deadline = Stopwatch::start().deadline(Duration::MAX, run, handle);
        assert!(deadline.key.is_none());
    }
}
