//! The threads of a guest besides its main one: how they pass the gate, are held, and end.
//!
//! ```text
//!              admit                      guest
//!   (the host) -----> on the host's side <-----> on the guest's side
//!                          |    ^   host
//!                    waits |    | what it waits for, unless the threads are held
//!                          v    |
//!                         blocked
//! ```
//!
//! Between runs all of them are held. Each is blocked in a wait, or at its next crossing to the
//! guest. So they don't touch the guest's memory or its host until the next run begins. Threads
//! that must end fail at their next crossing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, MutexGuard};
use scopeguard::guard;

use super::turn::LEAST_TURN;
use super::words::OwnWords;
use super::{Gate, GateState, Side, Stopped, Woken, deadline, wait_on};
use crate::interrupt::futex::{MAIN, ThreadNumber};
use crate::memory::tunables::{Expected, Waited, Waits};

/// The other threads, as the gate knows them.
#[derive(Debug, Default)]
pub(super) struct GuestThreads {
    threads: Vec<(ThreadNumber, Arc<Condvar>)>,
    in_guest: usize,
    /// Waiting on the host's side.
    blocked: usize,
    is_held: bool,
    /// Somebody waits until all are blocked.
    is_awaited: bool,
    /// They are to end.
    ends: bool,
}

impl GuestThreads {
    pub(super) fn are_in_guest(&self) -> bool {
        self.in_guest > 0
    }

    pub(super) fn wake(&self, thread: ThreadNumber) {
        for (number, wake) in &self.threads {
            if *number == thread {
                wake.notify_all();
            }
        }
    }

    pub(super) fn wake_all(&self) {
        for (_, wake) in &self.threads {
            wake.notify_all();
        }
    }

    pub(super) fn release(&mut self) {
        self.is_held = false;
        self.wake_all();
    }

    fn are_all_blocked(&self) -> bool {
        self.blocked == self.threads.len()
    }
}

impl Gate {
    /// Returns the number of threads besides the main one.
    pub(crate) fn others(&self) -> usize {
        self.state.lock().others.threads.len()
    }

    /// Lets another thread in, unless there are `most` or the run has ended. The thread has left
    /// when what this returns is dropped.
    ///
    /// `words` are its own, if the threads run one at a time.
    pub(crate) fn admit(
        self: &Arc<Self>,
        most: usize,
        words: Option<OwnWords>,
    ) -> Option<ThreadGate> {
        let mut state = self.state.lock();
        let has_ended = state.has_ended();
        let others = &mut state.others;
        if has_ended || others.ends || others.threads.len() >= most {
            return None;
        }
        let is_taken = |number: &ThreadNumber| others.threads.iter().any(|(one, _)| one == number);
        let number = (MAIN + 1..).find(|number| !is_taken(number))?;
        let wake = Arc::new(Condvar::new());
        others.threads.push((number, Arc::clone(&wake)));
        if let Some(words) = words {
            state.turn.add(number, words);
        }
        let own = Some(GuestThread { number, wake, in_guest: AtomicBool::new(false) });
        Some(ThreadGate { gate: Arc::clone(self), own })
    }

    /// Holds the other threads, until the next run begins. Returns whether all are held within
    /// `patience`. On the host's side.
    ///
    /// A thread that was joined still has to leave, so those that aren't waiting get `a_moment`.
    pub(crate) fn hold_others(&self, a_moment: Duration, patience: Duration) -> bool {
        let mut state = self.state.lock();
        self.leave_turn(&mut state, MAIN);
        state.others.is_awaited = true;
        self.wait_for_others(&mut state, a_moment, GuestThreads::are_all_blocked);
        state.others.is_held = true;
        let are_held = self.wait_for_others(&mut state, patience, GuestThreads::are_all_blocked);
        state.others.is_awaited = false;
        are_held
    }

    /// Ends the other threads: those in the guest at their next crossing, or by taking the memory
    /// away after `patience`. Returns whether all have left; one that hasn't hangs in the host.
    pub(crate) fn end_others(&self, patience: Duration, longest: Duration) -> bool {
        let mut state = self.state.lock();
        self.leave_turn(&mut state, MAIN);
        state.others.ends = true;
        state.others.wake_all();
        let have_left = |others: &GuestThreads| others.threads.is_empty();
        let mut all = self.wait_for_others(&mut state, patience, have_left);
        if !all {
            state.is_over = true;
            self.take_memory(&state);
            all = self.wait_for_others(&mut state, longest, have_left);
        }
        state.others.ends = !all;
        all
    }

    /// Ends the run from inside of the guest: a thread has ended the program, or has failed.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        self.take_memory(&state);
    }

    fn wait_for_others(
        &self,
        state: &mut MutexGuard<'_, GateState>,
        patience: Duration,
        holds: impl Fn(&GuestThreads) -> bool,
    ) -> bool {
        let deadline = deadline(Some(patience));
        while !holds(&state.others) {
            if wait_on(&self.settled, state, deadline) {
                return holds(&state.others);
            }
        }
        true
    }
}

/// One thread's way through the gate. Only that thread uses it.
#[derive(Debug)]
pub(crate) struct ThreadGate {
    gate: Arc<Gate>,
    /// Of a thread besides the main one.
    own: Option<GuestThread>,
}

#[derive(Debug)]
struct GuestThread {
    number: ThreadNumber,
    wake: Arc<Condvar>,
    /// Changed under the gate's lock, like the count.
    in_guest: AtomicBool,
}

impl ThreadGate {
    pub(crate) fn of_main(gate: Arc<Gate>) -> Self {
        Self { gate, own: None }
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Whether a signal of this thread to this number is one to itself. The C library may have a
    /// number of its own for the main thread.
    pub(crate) fn is_own(&self, number: ThreadNumber) -> bool {
        let state = self.gate.state.lock();
        let is_others = || state.others.threads.iter().any(|(other, _)| *other == number);
        number == self.number() || (self.own.is_none() && !is_others())
    }

    /// Returns the thread's number; the main thread's is 1.
    pub(crate) fn number(&self) -> ThreadNumber {
        self.own.as_ref().map_or(MAIN, |own| own.number)
    }

    /// As [`Gate::guest`], on this thread.
    pub(crate) fn guest<T>(&self, call: impl FnOnce() -> T) -> Result<T, Stopped> {
        let Some(own) = &self.own else { return self.gate.guest(call) };
        own.enter(&self.gate)?;
        let _back = guard((), |()| own.leave(&self.gate));
        Ok(call())
    }

    /// As [`Gate::host`], on this thread.
    pub(crate) fn host<T>(&self, work: impl FnOnce() -> T) -> Result<T, Stopped> {
        let Some(own) = &self.own else { return self.gate.host(work) };
        own.leave(&self.gate);
        if self.gate.state.lock().must_end() {
            return Err(Stopped);
        }
        // After a panic the thread is unwound through the guest, which it enters no more.
        let result = work();
        own.enter(&self.gate)?;
        Ok(result)
    }

    /// As [`Gate::wait`], on this thread.
    pub(crate) fn wait(&self, duration: Option<Duration>, is_ready: impl Fn() -> bool) -> Woken {
        let Some(own) = &self.own else { return self.gate.wait(duration, is_ready) };
        let mut state = self.gate.state.lock();
        own.wait_until(&self.gate, &mut state, deadline(duration), |_| is_ready())
    }

    /// Waits on the host's side until another thread has changed what this one waits for.
    /// Interrupts don't end this wait, since a C library would wait again. Returns false if there
    /// is no other thread, or the run has ended.
    pub(crate) fn wait_for_change(&self, has_changed: impl Fn() -> bool) -> bool {
        let mut state = self.gate.state.lock();
        let woken = match &self.own {
            None => self.gate.wait_until(&mut state, None, false, |state| {
                state.others.threads.is_empty() || has_changed()
            }),
            Some(own) => own.wait_until(&self.gate, &mut state, None, |_| has_changed()),
        };
        woken == Woken::Ready && has_changed()
    }

    /// Waits on the host's side while a word has the expected value. Another thread ends the wait,
    /// or `timeout` is over. An interrupt ends a wait that has a timeout, as if that were over. One
    /// without is never over for a C library, which would wait again, so only a stop ends it.
    pub(crate) fn wait_for_word(
        &self,
        at: u32,
        expected: Expected,
        timeout: Option<Duration>,
    ) -> Waited {
        let (gate, number) = (&self.gate, self.number());
        let mut state = gate.state.lock();
        // A thread that changes the word takes the lock afterwards, so that no change is missed.
        if !gate.is_as_expected(at, expected) {
            return Waited::Changed;
        }
        state.futexes.begin(number, at);
        let is_over = |state: &GateState| state.futexes.is_over(number);
        let (heeds, until) = (timeout.is_some(), deadline(timeout));
        let woken = match &self.own {
            None => gate.wait_until(&mut state, until, heeds, is_over),
            Some(own) => own.wait_until(gate, &mut state, until, is_over),
        };
        match (state.futexes.end(number), woken) {
            _ if state.has_ended() => Waited::Stopped,
            (true, _) | (_, Woken::Ready) => Waited::Notified,
            (false, Woken::Asked) if self.own.is_some() => Waited::Stopped,
            (false, Woken::TimeOver | Woken::Asked) => Waited::TimeOver,
        }
    }
}

impl Drop for ThreadGate {
    fn drop(&mut self) {
        let Some(own) = &self.own else { return };
        let mut state = self.gate.state.lock();
        own.move_to(&mut state, Side::Host);
        state.futexes.end(own.number);
        state.others.threads.retain(|(number, _)| *number != own.number);
        self.gate.end_turns_of(&mut state, own.number);
        self.gate.settled.notify_all();
        // A thread that waited for another one may now be alone.
        self.gate.wake_all(&state);
    }
}

impl Waits for ThreadGate {
    fn wait(&self, at: u32, expected: Expected, timeout: Option<Duration>) -> Waited {
        self.host(|| self.wait_for_word(at, expected, timeout)).unwrap_or(Waited::Stopped)
    }

    fn notify(&self, at: u32, most: u32) -> u32 {
        self.gate.wake_at(at, most)
    }
}

impl GuestThread {
    /// Moves to the guest's side, when the threads aren't held any more.
    fn enter(&self, gate: &Gate) -> Result<(), Stopped> {
        let mut state = gate.state.lock();
        self.wait_for_turn(gate, &mut state);
        if state.must_end() {
            return Err(Stopped);
        }
        self.move_to(&mut state, Side::Guest);
        Ok(())
    }

    /// Waits until the threads aren't held, and for the turn if they run one at a time.
    fn wait_for_turn(&self, gate: &Gate, state: &mut MutexGuard<'_, GateState>) {
        while !state.must_end() {
            if state.others.is_held {
                gate.leave_turn(state, self.number);
                self.block(gate, state, None);
            } else if gate.take_turn(state, self.number) {
                break;
            } else if self.block(gate, state, Some(Instant::now() + LEAST_TURN)) {
                gate.ask_for_turn(state);
            }
        }
    }

    fn leave(&self, gate: &Gate) {
        self.move_to(&mut gate.state.lock(), Side::Host);
    }

    fn move_to(&self, state: &mut GateState, side: Side) {
        let is_in_guest = side == Side::Guest;
        match (self.in_guest.swap(is_in_guest, Ordering::Relaxed), is_in_guest) {
            (false, true) => state.others.in_guest += 1,
            (true, false) => state.others.in_guest -= 1,
            _ => {}
        }
    }

    /// Waits until `is_ready` holds or the deadline is over, and the threads aren't held.
    fn wait_until(
        &self,
        gate: &Gate,
        state: &mut MutexGuard<'_, GateState>,
        deadline: Option<Instant>,
        is_ready: impl Fn(&GateState) -> bool,
    ) -> Woken {
        gate.leave_turn(state, self.number);
        let woken = self.wait_without_turn(gate, state, deadline, is_ready);
        self.wait_for_turn(gate, state);
        woken
    }

    fn wait_without_turn(
        &self,
        gate: &Gate,
        state: &mut MutexGuard<'_, GateState>,
        deadline: Option<Instant>,
        is_ready: impl Fn(&GateState) -> bool,
    ) -> Woken {
        let mut deadline = deadline;
        let mut is_late = false;
        while !state.must_end() {
            if !state.others.is_held {
                if is_ready(state) {
                    return Woken::Ready;
                }
                if is_late {
                    return Woken::TimeOver;
                }
            }
            if self.block(gate, state, deadline) {
                (is_late, deadline) = (true, None);
            }
        }
        Woken::Asked
    }

    /// Waits to be woken. Returns whether the deadline is over.
    fn block(
        &self,
        gate: &Gate,
        state: &mut MutexGuard<'_, GateState>,
        deadline: Option<Instant>,
    ) -> bool {
        state.others.blocked += 1;
        if state.others.is_awaited && state.others.are_all_blocked() {
            gate.settled.notify_all();
        }
        let is_over = wait_on(&self.wake, state, deadline);
        state.others.blocked -= 1;
        is_over
    }
}

impl GateState {
    /// Whether threads besides the main one have to end.
    fn must_end(&self) -> bool {
        self.has_ended() || self.others.ends
    }
}
