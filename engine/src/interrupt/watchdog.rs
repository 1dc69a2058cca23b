//! Time: how long a run took, and the watchdog that ends runs whose time is over.
//!
//! This is the engine's clock file. Besides it, only `interrupt/gate.rs` waits on a clock, for
//! sleeping guests, and `host/wasi/clock.rs` serves clocks to guests.
//!
//! One watchdog thread serves every interpreter of a process. A run within its limits costs two
//! short locks and no thread. When a run's time is over, the watchdog interrupts it, and stops it
//! after the grace period. If even that doesn't end the run, the watchdog reports it as overdue.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::interrupt::gate::{Gate, GateRun};
use crate::interrupt::reason::{OVERDUE_AFTER, OverdueHook, StopReason};
use crate::limits::Limits;
use crate::owner::OwnerProcess;
use cpu::ThreadCpuClock;

mod cpu;

/// Wait before the first reminder of an interrupt; each further wait is twice as long.
const FIRST_REMINDER: Duration = Duration::from_millis(1);
/// The longest wait between two reminders.
const LONGEST_REMINDER: Duration = Duration::from_millis(50);
/// The shortest wait between two checks of a run's CPU clock.
const SHORTEST_CPU_WAIT: Duration = Duration::from_millis(2);

/// Measures one run on its thread, and on the other threads of its guest.
#[derive(Debug, Clone)]
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu_clock: ThreadCpuClock,
    cpu: Duration,
    /// The other threads' clocks, and what they showed.
    others: Option<(Arc<CpuClocks>, Duration)>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let cpu_clock = ThreadCpuClock::of_this_thread();
        Self { wall: Instant::now(), cpu_clock, cpu: cpu_clock.now(), others: None }
    }

    /// Counts the CPU time of these threads too, from now on.
    pub(crate) fn with(self, clocks: Arc<CpuClocks>) -> Self {
        let (shown, _) = clocks.total();
        Self { others: Some((clocks, shown)), ..self }
    }

    pub(crate) fn wall(&self) -> Duration {
        self.wall.elapsed()
    }

    /// Returns the CPU time of the thread that started the watch, and of the other threads, since
    /// then.
    pub(crate) fn cpu(&self) -> Duration {
        self.cpu_of_threads().0
    }

    fn cpu_of_threads(&self) -> (Duration, u32) {
        let own = self.cpu_clock.now().saturating_sub(self.cpu);
        let Some((clocks, shown)) = &self.others else { return (own, 1) };
        let (total, count) = clocks.total();
        (own + total.saturating_sub(*shown), count.saturating_add(1))
    }

    /// Lets the watchdog watch `run`, which is on this thread, until the guard is dropped.
    pub(crate) fn guard(
        &self,
        limits: &Limits,
        run: GateRun,
        gate: Arc<Gate>,
        overdue: Option<OverdueHook>,
    ) -> WatchGuard {
        let cpu_time = limits.cpu_time.unwrap_or(Duration::MAX);
        let watched = WatchedRun {
            run,
            gate,
            overdue,
            watch: self.clone(),
            cpu_time,
            grace: limits.grace,
            wall: Wall::Endless,
            alarm: None,
            is_ending: false,
            is_stopped: false,
        };
        let id = Watchdog::current().change(|state| {
            state.last += 1;
            let id = WatchId(state.last);
            state.watched.insert(id, watched);
            // A limit beyond the clock's range never passes.
            state.end_wall_at(id, self.wall.checked_add(limits.wall_time));
            if let Some(at) = self.wall.checked_add(cpu_time) {
                state.schedule(at, id, Due::Cpu);
            }
            id
        });
        WatchGuard { id }
    }
}

/// A run that the watchdog watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct WatchId(u64);

/// Keeps a run watched by the watchdog as long as it lives.
#[derive(Debug)]
#[must_use = "dropping a guard ends the watch"]
pub(crate) struct WatchGuard {
    id: WatchId,
}

impl WatchGuard {
    /// Returns what asks the run to end early.
    pub(crate) fn stop_requester(&self) -> StopRequester {
        StopRequester { id: self.id }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        Watchdog::current().change(|state| {
            state.watched.remove(&self.id);
            state.pending.retain(|_, (id, _)| *id != self.id);
        });
    }
}

/// Asks a run to end: by an interrupt, and after the grace period by a stop. Does nothing once the
/// run has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopRequester {
    id: WatchId,
}

impl StopRequester {
    pub(crate) fn request(&self, reason: StopReason) {
        Watchdog::current().change(|state| state.request(self.id, reason, Instant::now()));
    }

    /// Sets when the interpreter collects garbage, in place of what was set before.
    pub(crate) fn set_alarm(&self, after: Option<Duration>) {
        Watchdog::current().change(|state| state.set_alarm(self.id, after, FIRST_REMINDER));
    }

    /// Says that the run was stopped; it is overdue if it goes on.
    pub(crate) fn expect_end(&self) {
        Watchdog::current().change(|state| state.expect_end(self.id, Instant::now()));
    }

    /// Pauses the run's wall time until the guard is dropped.
    pub(crate) fn pause(&self) -> Pause {
        Watchdog::current().change(|state| state.pause_wall(self.id, Instant::now()));
        Pause { id: self.id }
    }
}

/// Pauses the wall time of a run as long as it lives.
#[derive(Debug)]
#[must_use = "dropping it lets the time go on"]
pub(crate) struct Pause {
    id: WatchId,
}

impl Drop for Pause {
    fn drop(&mut self) {
        Watchdog::current().change(|state| state.resume_wall(self.id, Instant::now()));
    }
}

/// The first watchdog. A forked child process has a copy of it without its thread, so it starts
/// the next.
static WATCHDOG: LazyLock<Watchdog> = LazyLock::new(Watchdog::start);

/// Makes sure that this process has a watchdog. To be called before anything runs here.
pub(crate) fn be_watched() {
    let current = Watchdog::current();
    if !current.owner.is_current() {
        current.next.get_or_init(|| Box::new(Watchdog::start()));
    }
}

/// When something is due; the number tells equal instants apart.
type DueTime = (Instant, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Its wall time is over.
    Wall,
    /// Its CPU time may be over.
    Cpu,
    /// It may not have noticed its interrupt; how long the last wait was.
    Remind(Duration),
    /// Its alarm is due; how long to wait for the interpreter, which clears the alarm.
    Alarm(Duration),
    /// Its grace period is over.
    Stop(StopReason),
    /// It was stopped `OVERDUE_AFTER` ago.
    Overdue,
}

#[derive(Debug)]
struct WatchedRun {
    run: GateRun,
    gate: Arc<Gate>,
    overdue: Option<OverdueHook>,
    watch: Stopwatch,
    cpu_time: Duration,
    grace: Duration,
    wall: Wall,
    /// When its alarm is due.
    alarm: Option<DueTime>,
    /// It was interrupted or stopped.
    is_ending: bool,
    /// It was stopped, and is overdue if it doesn't end.
    is_stopped: bool,
}

/// The state of a run's wall time.
#[derive(Debug, Clone, Copy)]
enum Wall {
    /// It never ends.
    Endless,
    /// It ends then.
    Due(DueTime),
    /// It stands still, with this much left.
    Paused(Duration),
}

struct Watchdog {
    state: Arc<Mutex<WatchdogState>>,
    /// Parked between deadlines. Not on a `parking_lot::Condvar`. Its queues are global and link to
    /// the waiting threads' own memory. The child of a fork gives that to other threads.
    thread: Thread,
    owner: OwnerProcess,
    /// That of a forked child process.
    next: OnceLock<Box<Watchdog>>,
}

#[derive(Default)]
struct WatchdogState {
    pending: BTreeMap<DueTime, (WatchId, Due)>,
    watched: HashMap<WatchId, WatchedRun>,
    /// When the watchdog wakes by itself at the latest. That may be for a run that has ended. It
    /// then computes the next time, so that runs that follow each other don't have to wake it.
    wakes: Option<Instant>,
    /// Something is due before that.
    is_early: bool,
    scheduled: u64,
    last: u64,
}

impl Watchdog {
    fn start() -> Self {
        let state = Arc::<Mutex<WatchdogState>>::default();
        let thread = thread::Builder::new().name("hatchery-watchdog".to_owned()).spawn({
            let state = Arc::clone(&state);
            move || watch(&state)
        });
        // Without a watchdog nobody enforces the limits on time, so nothing may run.
        let thread = thread.expect("the system gives this process one more thread");
        Self {
            state,
            thread: thread.thread().clone(),
            owner: OwnerProcess::current(),
            next: OnceLock::new(),
        }
    }

    /// Returns the watchdog of this process, if anything runs here.
    fn current() -> &'static Self {
        let mut current = &*WATCHDOG;
        while let Some(next) = current.next.get() {
            current = next;
        }
        current
    }

    /// Changes the state, and wakes the watchdog if something is due before it wakes by itself.
    fn change<T>(&self, change: impl FnOnce(&mut WatchdogState) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let is_early = mem::take(&mut state.is_early);
        drop(state);
        if is_early {
            self.thread.unpark();
        }
        result
    }
}

impl WatchdogState {
    /// Schedules what is due for a run.
    fn schedule(&mut self, at: Instant, id: WatchId, due: Due) {
        self.scheduled += 1;
        self.pending.insert((at, self.scheduled), (id, due));
        self.is_early |= self.wakes.is_none_or(|wakes| at < wakes);
    }

    /// Sets when the wall time of a run ends, if ever.
    fn end_wall_at(&mut self, id: WatchId, at: Option<Instant>) {
        let Some(at) = at else { return };
        self.schedule(at, id, Due::Wall);
        if let Some(watched) = self.watched.get_mut(&id) {
            watched.wall = Wall::Due((at, self.scheduled));
        }
    }

    fn pause_wall(&mut self, id: WatchId, now: Instant) {
        let Some(watched) = self.watched.get_mut(&id) else { return };
        if let Wall::Due(key) = watched.wall {
            self.pending.remove(&key);
            watched.wall = Wall::Paused(key.0.saturating_duration_since(now));
        }
    }

    fn resume_wall(&mut self, id: WatchId, now: Instant) {
        if let Some(Wall::Paused(left)) = self.watched.get(&id).map(|watched| watched.wall) {
            self.end_wall_at(id, now.checked_add(left));
        }
    }

    /// Sets when a run's alarm is due, and how long it then waits until it is due again.
    fn set_alarm(&mut self, id: WatchId, after: Option<Duration>, next: Duration) {
        let at = after.and_then(|after| Instant::now().checked_add(after));
        let Some(watched) = self.watched.get_mut(&id) else { return };
        let before = watched.alarm.take();
        watched.alarm = at.map(|at| (at, self.scheduled + 1));
        if let Some(before) = before {
            self.pending.remove(&before);
        }
        if let Some(at) = at {
            self.schedule(at, id, Due::Alarm(next));
        }
    }

    /// Interrupts a run, or stops it at once if it has no grace period.
    fn request(&mut self, id: WatchId, reason: StopReason, now: Instant) {
        let Some(watched) = self.watched.get_mut(&id).filter(|watched| !watched.is_ending) else {
            return;
        };
        watched.is_ending = true;
        let grace = watched.grace;
        if grace.is_zero() {
            return self.stop(id, reason, now);
        }
        watched.gate.interrupt(watched.run, reason);
        self.schedule(now + FIRST_REMINDER, id, Due::Remind(FIRST_REMINDER));
        if let Some(at) = now.checked_add(grace) {
            self.schedule(at, id, Due::Stop(reason));
        }
    }

    fn stop(&mut self, id: WatchId, reason: StopReason, now: Instant) {
        let Some(watched) = self.watched.get(&id) else { return };
        // Locks one gate and changes page protections: microseconds, or milliseconds for a memory
        // of a gigabyte.
        watched.gate.stop(watched.run, reason);
        self.expect_end(id, now);
    }

    /// Notes that a run was stopped.
    fn expect_end(&mut self, id: WatchId, now: Instant) {
        let watched = self.watched.get_mut(&id);
        if watched.is_some_and(|watched| !mem::replace(&mut watched.is_stopped, true)) {
            self.schedule(now + OVERDUE_AFTER, id, Due::Overdue);
        }
    }

    /// Does what is due for a run. If it is overdue, returns the hook to call without the lock.
    fn act(&mut self, id: WatchId, due: Due, now: Instant) -> Option<OverdueHook> {
        let watched = self.watched.get(&id)?;
        match due {
            Due::Wall => self.request(id, StopReason::WallTime, now),
            Due::Cpu => {
                let (cpu, threads) = watched.watch.cpu_of_threads();
                let left = watched.cpu_time.saturating_sub(cpu);
                if left.is_zero() {
                    self.request(id, StopReason::CpuTime, now);
                } else {
                    // Several threads may use it up sooner.
                    let left = left / threads;
                    self.schedule(now + left.max(SHORTEST_CPU_WAIT), id, Due::Cpu);
                }
            }
            Due::Remind(after) => {
                if watched.gate.remind(watched.run) {
                    let next = (after * 2).min(LONGEST_REMINDER);
                    self.schedule(now + next, id, Due::Remind(next));
                }
            }
            Due::Alarm(after) => {
                watched.gate.collect(watched.run);
                self.set_alarm(id, Some(after), (after * 2).min(LONGEST_REMINDER));
            }
            Due::Stop(reason) => self.stop(id, reason, now),
            Due::Overdue => {
                tracing::error!("a run continues long after its stop");
                return watched.overdue.clone();
            }
        }
        None
    }
}

/// Does what is due, and sleeps until something is.
fn watch(shared: &Mutex<WatchdogState>) {
    loop {
        let mut state = shared.lock();
        let now = Instant::now();
        match state.pending.first_key_value().map(|(&(at, _), _)| at) {
            Some(at) if at <= now => {
                if let Some((_, (id, due))) = state.pending.pop_first()
                    && let Some(overdue) = state.act(id, due, now)
                {
                    drop(state);
                    overdue.call();
                }
            }
            next => {
                // The time that is set stays, even if its run has ended: see `wakes`.
                let set = state.wakes.filter(|at| now < *at);
                state.wakes = set.into_iter().chain(next).min();
                state.is_early = false;
                let wakes = state.wakes;
                drop(state);
                // What is scheduled meanwhile unparks it.
                match wakes {
                    Some(at) => thread::park_timeout(at.saturating_duration_since(now)),
                    None => thread::park(),
                }
            }
        }
    }
}

/// Adds up the CPU time of threads that come and go.
#[derive(Debug, Default)]
pub(crate) struct CpuClocks {
    state: Mutex<ThreadTimes>,
}

#[derive(Debug, Default)]
struct ThreadTimes {
    /// The CPU time of threads that have ended.
    ended: Duration,
    living: Vec<(u64, ThreadCpuClock)>,
    last: u64,
}

/// Counts the CPU time of its thread as long as it lives, and keeps what it has counted.
#[derive(Debug)]
pub(crate) struct Counted {
    clocks: Arc<CpuClocks>,
    number: u64,
}

impl CpuClocks {
    pub(crate) fn count_this_thread(self: &Arc<Self>) -> Counted {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.living.push((number, ThreadCpuClock::of_this_thread()));
        Counted { clocks: Arc::clone(self), number }
    }

    /// Returns the CPU time of all threads so far, and the number of those that live.
    pub(crate) fn total(&self) -> (Duration, u32) {
        let state = self.state.lock();
        let living: Duration = state.living.iter().map(|(_, clock)| clock.now()).sum();
        (state.ended + living, u32::try_from(state.living.len()).unwrap_or(u32::MAX))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.clocks.state.lock();
        let Some(place) = state.living.iter().position(|(number, _)| *number == self.number) else {
            return;
        };
        let (_, clock) = state.living.swap_remove(place);
        state.ended += clock.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::gate::Gate;
    use crate::interrupt::gate::tests::gate;

    fn guard(gate: &Arc<Gate>, limits: &Limits) -> WatchGuard {
        let handle = Arc::clone(gate);
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
    fn an_ignored_interrupt_becomes_a_stop_after_the_grace_period() {
        let gate = gate();
        let watch = Stopwatch::start();
        let _guard = guard(&gate, &limits(20, 30));
        // There is no program here, so the interrupt wakes nobody.
        gate.sleep(Duration::from_secs(30));
        assert!(watch.wall() >= Duration::from_millis(50));
        assert_eq!(gate.end().stop, Some(StopReason::WallTime));
    }

    #[test]
    fn a_run_can_be_asked_to_end_early() {
        let gate = gate();
        let guard = guard(&gate, &limits(60_000, 10));
        guard.stop_requester().request(StopReason::Interrupted);
        guard.stop_requester().request(StopReason::Cancelled);
        gate.sleep(Duration::from_secs(30));
        assert_eq!(gate.end().stop, Some(StopReason::Interrupted));
    }

    #[test]
    fn an_alarm_replaces_the_last_and_is_due_again_until_it_is_cleared() {
        let gate = gate();
        let guard = guard(&gate, &limits(60_000, 0));
        let is_alarm =
            |(id, due): &&(WatchId, Due)| *id == guard.id && matches!(due, Due::Alarm(_));
        let count = |state: &WatchdogState| state.pending.values().filter(is_alarm).count();
        Watchdog::current().change(|state| {
            for seconds in [9, 5] {
                state.set_alarm(guard.id, Some(Duration::from_secs(seconds)), FIRST_REMINDER);
            }
            assert_eq!(count(state), 1);
            assert!(state.act(guard.id, Due::Alarm(LONGEST_REMINDER), Instant::now()).is_none());
            assert_eq!(count(state), 1);
            state.set_alarm(guard.id, None, FIRST_REMINDER);
            assert_eq!(count(state), 0);
        });
    }

    #[test]
    fn a_run_that_has_ended_is_left_alone() {
        let gate = gate();
        let guard = guard(&gate, &limits(5, 0));
        let requester = guard.stop_requester();
        drop(guard);
        requester.request(StopReason::Cancelled);
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
        let handle = Arc::clone(&gate);
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
        let pause = guard.stop_requester().pause();
        gate.sleep(Duration::from_millis(120));
        assert_eq!(gate.stop_requested(), None);
        let watch = Stopwatch::start();
        drop(pause);
        gate.sleep(Duration::from_secs(30));
        assert!(watch.wall() < Duration::from_secs(20), "only the time that was left passes");
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
        guard.stop_requester().request(StopReason::Interrupted);
        gate.sleep(Duration::from_millis(5));
        assert_eq!(gate.end().stop, None);
    }
}
