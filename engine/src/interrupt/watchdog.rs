//! Time: how long a run took, and the watchdog that ends runs whose time is over.
//!
//! The only file of the engine that reads clocks, with `interrupt.rs`, whose sleeps wait on one,
//! and `host/wasi/clock.rs`, which serves them to guests.
//! One watchdog thread serves every interpreter of the process. A run that keeps its limits costs
//! two short locks and no thread. One whose time is over is interrupted; if it goes on for the
//! grace period, it is stopped; and if even that doesn't end it, whoever waits for it is told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::interrupt::gate::{InterruptHandle, RunId};
use crate::interrupt::reason::StopReason;
use crate::interrupt::stop::OverdueHook;
use crate::limits::Limits;
use cpu::ThreadCpuClock;

#[cfg(target_os = "linux")]
mod cpu;
#[cfg(not(target_os = "linux"))]
#[path = "watchdog/cpu_disabled.rs"]
mod cpu;

/// After this the interpreter is told again that it is interrupted, then at twice the distance.
const FIRST_REMINDER: Duration = Duration::from_millis(1);
const LONGEST_REMINDER: Duration = Duration::from_millis(50);
/// A run that goes on for so long after a stop is overdue. Stops take effect within milliseconds;
/// the rest is for machines that are short of CPU time, or whose disk answers a mount late.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// CPU clocks are not looked at more often.
const SHORTEST_CPU_WAIT: Duration = Duration::from_millis(2);

/// Measures one run on its thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu_clock: ThreadCpuClock,
    cpu: Duration,
}

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the engine's clock file")]
    pub(crate) fn start() -> Self {
        let cpu_clock = ThreadCpuClock::of_this_thread();
        Self { wall: Instant::now(), cpu_clock, cpu: cpu_clock.now() }
    }

    pub(crate) fn wall(&self) -> Duration {
        self.wall.elapsed()
    }

    /// CPU time of the thread that started the watch, since then.
    pub(crate) fn cpu(&self) -> Duration {
        self.cpu_clock.now().saturating_sub(self.cpu)
    }

    /// Has the watchdog look after `run` until the guard is dropped, on this thread.
    pub(crate) fn guard(
        &self,
        limits: &Limits,
        run: RunId,
        interrupt: InterruptHandle,
        overdue: Option<OverdueHook>,
    ) -> WatchGuard {
        let cpu_time = limits.cpu_time.unwrap_or(Duration::MAX);
        let watched = Watched {
            run,
            interrupt,
            overdue,
            watch: *self,
            cpu_time,
            grace: limits.grace,
            wall: Wall::Endless,
            is_ending: false,
            is_stopped: false,
        };
        let id = WATCHDOG.change(|state, wake| {
            state.last += 1;
            let id = WatchId(state.last);
            state.watched.insert(id, watched);
            // A limit beyond the clock's range never passes.
            *wake |= state.end_wall_at(id, self.wall.checked_add(limits.wall_time));
            if let Some(at) = self.wall.checked_add(cpu_time) {
                *wake |= state.schedule(at, id, Due::Cpu);
            }
            id
        });
        WatchGuard { id }
    }
}

/// One run that the watchdog looks after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct WatchId(u64);

/// Keeps a run under the watchdog's eyes.
#[derive(Debug)]
#[must_use = "dropping a guard ends the watch"]
pub(crate) struct WatchGuard {
    id: WatchId,
}

impl WatchGuard {
    /// What asks the run to end early.
    pub(crate) fn asker(&self) -> Asker {
        Asker { id: self.id }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        WATCHDOG.change(|state, _| {
            state.watched.remove(&self.id);
            state.pending.retain(|_, (id, _)| *id != self.id);
        });
    }
}

/// Asks a run to end: by an interrupt, and after the grace period by a stop. Does nothing once the
/// run has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    id: WatchId,
}

impl Asker {
    #[expect(clippy::disallowed_methods, reason = "this is the engine's clock file")]
    pub(crate) fn ask(&self, reason: StopReason) {
        WATCHDOG.change(|state, wake| *wake |= state.ask(self.id, reason, Instant::now()));
    }

    /// The run was stopped, and is overdue if it goes on.
    #[expect(clippy::disallowed_methods, reason = "this is the engine's clock file")]
    pub(crate) fn expect_end(&self) {
        WATCHDOG.change(|state, wake| *wake |= state.expect_end(self.id, Instant::now()));
    }

    /// Has the wall time of the run stand still until the guard is dropped.
    #[expect(clippy::disallowed_methods, reason = "this is the engine's clock file")]
    pub(crate) fn pause(&self) -> Pause {
        WATCHDOG.change(|state, _| state.pause_wall(self.id, Instant::now()));
        Pause { id: self.id }
    }
}

/// Keeps the wall time of a run from going on.
#[derive(Debug)]
#[must_use = "dropping it has the time go on"]
pub(crate) struct Pause {
    id: WatchId,
}

impl Drop for Pause {
    #[expect(clippy::disallowed_methods, reason = "this is the engine's clock file")]
    fn drop(&mut self) {
        WATCHDOG.change(|state, wake| *wake |= state.resume_wall(self.id, Instant::now()));
    }
}

static WATCHDOG: LazyLock<Watchdog> = LazyLock::new(Watchdog::start);

/// Instants in order; the number tells equal ones apart.
type Key = (Instant, u64);

/// What is to be done to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Its wall time is over.
    Wall,
    /// Its CPU time may be over.
    Cpu,
    /// It may not have noticed its interrupt; how long it was given this time.
    Remind(Duration),
    /// Its grace period is over.
    Stop(StopReason),
    /// It was stopped long ago.
    Overdue,
}

#[derive(Debug)]
struct Watched {
    run: RunId,
    interrupt: InterruptHandle,
    overdue: Option<OverdueHook>,
    watch: Stopwatch,
    cpu_time: Duration,
    grace: Duration,
    wall: Wall,
    /// It was interrupted or stopped.
    is_ending: bool,
    /// It was stopped, and its end is awaited.
    is_stopped: bool,
}

/// Where the wall time of a run is.
#[derive(Debug, Clone, Copy)]
enum Wall {
    /// It never passes.
    Endless,
    /// It passes then.
    Due(Key),
    /// It stands still, with so much left.
    Paused(Duration),
}

struct Watchdog {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    earlier: Condvar,
}

#[derive(Default)]
struct State {
    pending: BTreeMap<Key, (WatchId, Due)>,
    watched: HashMap<WatchId, Watched>,
    /// When the watchdog wakes by itself. It may be for a run that has ended: then it looks again,
    /// and runs that follow each other don't wake it.
    wakes: Option<Instant>,
    scheduled: u64,
    last: u64,
}

impl Watchdog {
    fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("hatchery-watchdog".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.watch()
        });
        // Without a watchdog no limit on time can be kept, so nothing may run.
        thread.expect("the system gives this process one more thread");
        Self { shared }
    }

    /// Changes what is watched; wakes the watchdog if `change` says so.
    fn change<T>(&self, change: impl FnOnce(&mut State, &mut bool) -> T) -> T {
        let mut wake = false;
        let result = change(&mut self.shared.state.lock(), &mut wake);
        if wake {
            self.shared.earlier.notify_one();
        }
        result
    }
}

impl State {
    /// Returns whether the watchdog has to be woken for this.
    fn schedule(&mut self, at: Instant, id: WatchId, due: Due) -> bool {
        self.scheduled += 1;
        self.pending.insert((at, self.scheduled), (id, due));
        self.wakes.is_none_or(|wakes| at < wakes)
    }

    /// Has the wall time of a run pass then, if ever.
    fn end_wall_at(&mut self, id: WatchId, at: Option<Instant>) -> bool {
        let Some(at) = at else { return false };
        let wakes = self.schedule(at, id, Due::Wall);
        if let Some(watched) = self.watched.get_mut(&id) {
            watched.wall = Wall::Due((at, self.scheduled));
        }
        wakes
    }

    fn pause_wall(&mut self, id: WatchId, now: Instant) {
        let Some(watched) = self.watched.get_mut(&id) else { return };
        if let Wall::Due(key) = watched.wall {
            self.pending.remove(&key);
            watched.wall = Wall::Paused(key.0.saturating_duration_since(now));
        }
    }

    fn resume_wall(&mut self, id: WatchId, now: Instant) -> bool {
        match self.watched.get(&id).map(|watched| watched.wall) {
            Some(Wall::Paused(left)) => self.end_wall_at(id, now.checked_add(left)),
            _ => false,
        }
    }

    /// Interrupts a run, or stops it at once if it has no grace. Returns whether the watchdog has
    /// to be woken.
    fn ask(&mut self, id: WatchId, reason: StopReason, now: Instant) -> bool {
        let Some(watched) = self.watched.get_mut(&id).filter(|watched| !watched.is_ending) else {
            return false;
        };
        watched.is_ending = true;
        let grace = watched.grace;
        if grace.is_zero() {
            return self.stop(id, reason, now);
        }
        watched.interrupt.interrupt(watched.run, reason);
        let reminds = self.schedule(now + FIRST_REMINDER, id, Due::Remind(FIRST_REMINDER));
        let stops = now.checked_add(grace);
        reminds | stops.is_some_and(|at| self.schedule(at, id, Due::Stop(reason)))
    }

    /// Stops a run. Returns whether the watchdog has to be woken.
    fn stop(&mut self, id: WatchId, reason: StopReason, now: Instant) -> bool {
        let Some(watched) = self.watched.get(&id) else { return false };
        // Takes the lock of one gate and changes page protections: microseconds, or milliseconds
        // for a memory of a gigabyte.
        watched.interrupt.stop(watched.run, reason);
        self.expect_end(id, now)
    }

    /// A run was stopped. Returns whether the watchdog has to be woken.
    fn expect_end(&mut self, id: WatchId, now: Instant) -> bool {
        let is_first = self
            .watched
            .get_mut(&id)
            .is_some_and(|watched| !std::mem::replace(&mut watched.is_stopped, true));
        is_first && self.schedule(now + OVERDUE_AFTER, id, Due::Overdue)
    }

    /// Does what is due to a run. Gives who is to be told that it is overdue, without the lock.
    fn act(&mut self, id: WatchId, due: Due, now: Instant) -> Option<OverdueHook> {
        let watched = self.watched.get(&id)?;
        match due {
            Due::Wall => drop(self.ask(id, StopReason::WallTime, now)),
            Due::Cpu => {
                let left = watched.cpu_time.saturating_sub(watched.watch.cpu());
                if left.is_zero() {
                    self.ask(id, StopReason::CpuTime, now);
                } else {
                    self.schedule(now + left.max(SHORTEST_CPU_WAIT), id, Due::Cpu);
                }
            }
            Due::Remind(after) => {
                if watched.interrupt.remind(watched.run) {
                    let next = (after * 2).min(LONGEST_REMINDER);
                    self.schedule(now + next, id, Due::Remind(next));
                }
            }
            Due::Stop(reason) => drop(self.stop(id, reason, now)),
            Due::Overdue => {
                tracing::error!("a run goes on long after it was stopped");
                return watched.overdue.clone();
            }
        }
        None
    }
}

impl Shared {
    #[expect(clippy::disallowed_methods, reason = "this is the engine's clock file")]
    fn watch(&self) {
        let mut state: MutexGuard<'_, State> = self.state.lock();
        loop {
            let Some((&(at, _), _)) = state.pending.first_key_value() else {
                state.wakes = None;
                self.earlier.wait(&mut state);
                continue;
            };
            let now = Instant::now();
            if now < at {
                state.wakes = Some(at);
                self.earlier.wait_until(&mut state, at);
            } else if let Some((_, (id, due))) = state.pending.pop_first()
                && let Some(overdue) = state.act(id, due, now)
            {
                MutexGuard::unlocked(&mut state, || overdue.call());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::gate::Gate;
    use crate::memory::{GuestMemory, WASM_PAGE_BYTES};

    fn gate() -> Arc<Gate> {
        let gate = Gate::new();
        gate.guard(Arc::new(GuestMemory::new(WASM_PAGE_BYTES).unwrap()));
        Arc::new(gate)
    }

    fn guard(gate: &Arc<Gate>, limits: &Limits) -> WatchGuard {
        let handle = InterruptHandle::new(Arc::clone(gate));
        Stopwatch::start().guard(limits, gate.begin(), handle, None)
    }

    fn limits(wall: u64, grace: u64) -> Limits {
        Limits {
            wall_time: Duration::from_millis(wall),
            grace: Duration::from_millis(grace),
            ..Limits::default()
        }
    }

    #[test]
    fn runs_end_at_their_own_deadlines() {
        let (early, late) = (gate(), gate());
        let watch = Stopwatch::start();
        let late_guard = guard(&late, &limits(60_000, 0));
        let _early_guard = guard(&early, &limits(20, 0));
        early.sleep(Duration::from_secs(30));
        assert!(watch.wall() >= Duration::from_millis(20));
        assert_eq!(early.end().stop, Some(StopReason::WallTime));
        drop(late_guard);
        assert_eq!(late.end().stop, None);
    }

    #[test]
    fn an_interrupt_that_is_ignored_becomes_a_stop_after_the_grace() {
        let gate = gate();
        let watch = Stopwatch::start();
        let _guard = guard(&gate, &limits(20, 30));
        // Nothing here is a program, so the interrupt wakes nobody.
        gate.sleep(Duration::from_secs(30));
        assert!(watch.wall() >= Duration::from_millis(50));
        assert_eq!(gate.end().stop, Some(StopReason::WallTime));
    }

    #[test]
    fn a_run_can_be_asked_to_end_early() {
        let gate = gate();
        let guard = guard(&gate, &limits(60_000, 10));
        guard.asker().ask(StopReason::Interrupted);
        guard.asker().ask(StopReason::Cancelled);
        gate.sleep(Duration::from_secs(30));
        assert_eq!(gate.end().stop, Some(StopReason::Interrupted));
    }

    #[test]
    fn a_run_that_has_ended_is_left_alone() {
        let gate = gate();
        let guard = guard(&gate, &limits(5, 0));
        let asker = guard.asker();
        drop(guard);
        asker.ask(StopReason::Cancelled);
        gate.sleep(Duration::from_millis(30));
        assert_eq!(gate.end().stop, None);
    }

    #[test]
    fn waiting_takes_no_cpu_time() {
        let gate = gate();
        let limits = Limits { cpu_time: Some(Duration::from_millis(20)), ..limits(60_000, 0) };
        let guard = guard(&gate, &limits);
        gate.sleep(Duration::from_millis(60));
        assert_eq!(gate.end().stop, None);
        drop(guard);
        let handle = InterruptHandle::new(Arc::clone(&gate));
        let watch = Stopwatch::start();
        let _guard = watch.guard(&limits, gate.begin(), handle, None);
        while gate.stop_requested().is_none() {
            std::hint::spin_loop();
        }
        assert!(watch.cpu() >= Duration::from_millis(20));
        assert_eq!(gate.end().stop, Some(StopReason::CpuTime));
    }

    #[test]
    fn a_pause_takes_no_wall_time() {
        let gate = gate();
        let guard = guard(&gate, &limits(60, 0));
        let pause = guard.asker().pause();
        gate.sleep(Duration::from_millis(120));
        assert_eq!(gate.stop_requested(), None);
        let watch = Stopwatch::start();
        drop(pause);
        gate.sleep(Duration::from_secs(30));
        assert!(watch.wall() < Duration::from_secs(20), "what was left of it passes");
        assert_eq!(gate.end().stop, Some(StopReason::WallTime));
    }

    #[test]
    fn limits_beyond_the_clock_never_pass() {
        let limits = Limits {
            wall_time: Duration::MAX,
            cpu_time: None,
            grace: Duration::MAX,
            ..Limits::default()
        };
        let gate = gate();
        let guard = guard(&gate, &limits);
        guard.asker().ask(StopReason::Interrupted);
        gate.sleep(Duration::from_millis(5));
        assert_eq!(gate.end().stop, None);
    }
}
