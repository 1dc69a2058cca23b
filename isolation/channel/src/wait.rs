//! Waiting for the other process: spins briefly, then sleeps on a futex in the shared memory.
//!
//! The sleeper sets its bell to `ASLEEP`, checks once more, and sleeps if the bell is unchanged.
//! The other process publishes its position, then checks the bell, and rings if that is `ASLEEP`.
//! Both have a sequentially consistent fence between their store and their load. So at least one
//! sees the other's store: the sleeper the position, or the other process the bell. A bell that is
//! rung in between makes the kernel refuse the sleep.
//!
//! The other process may also write nonsense to the bell. That can only suppress rings or cause
//! needless ones: this end counts wake-ups without bytes, and [`Gate::close`] and deadlines don't
//! use shared words. An end that doesn't trust the other sleeps on two words at once, the bell and
//! its own gate (`futex_waitv`, Linux 5.16). Where the kernel lacks that call, it wakes up now and
//! then to check the gate.
//!
//! Round trips, measured on two cores of a virtual machine: an eventfd takes as long as a futex,
//! 3.6 and 3.9 µs on one core. On two it takes about 24 µs, mostly to wake an idle core.
//! `futex_waitv` takes 0.4 µs longer. A futex needs no descriptor, and a system call only while a
//! process sleeps. Spinning for 20 µs before sleeping makes it 0.4 µs on two cores; see
//! `benches/round_trip.rs`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::thread::futex::{Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::{Error, Lie};
use crate::layout::Places;
use crate::memory::Memory;
use crate::spin::SpinWait;

/// What a bell says while nobody sleeps on it.
const AWAKE: u32 = 0;

/// What a bell says while its sleeper sleeps, or is about to.
const ASLEEP: u32 = 1;

/// Wake-ups in a row after which the other position is where it was. An honest process causes two at
/// most: one for a ring that came late, one for a bell that changed before the sleep.
const MOST_WAKES: u32 = 10_000;

/// How often an end looks at its gate where it can't sleep on two words.
const LOOK: Duration = Duration::from_millis(20);

/// Set while the kernel is believed to have `futex_waitv`.
static CAN_WAIT_FOR_TWO: AtomicBool = AtomicBool::new(true);

/// Rings the bell if somebody sleeps on it. Call it after what the sleeper waits for is stored.
pub(crate) fn ring(bell: &AtomicU32) {
    // Orders the position that was just stored before the look at the bell; `Waiter::sleep` has the
    // other one.
    fence(Ordering::SeqCst);
    if bell.load(Ordering::Relaxed) != AWAKE {
        bell.store(AWAKE, Ordering::Relaxed);
        // It can fail only if the word weren't mapped.
        let _ = futex::wake(bell, Flags::empty(), 1);
    }
}

/// Whether one end is closed. It is in memory of this process alone.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicU32,
}

impl Gate {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    /// Ends the waits of this end, of which `bells` are those that it sleeps on.
    pub(crate) fn close(&self, bells: [&AtomicU32; 2]) {
        self.closed.store(1, Ordering::SeqCst);
        let _ = futex::wake(&self.closed, Flags::PRIVATE, i32::MAX as u32);
        // For sleepers on the bell alone. They have looked at the gate after they set the bell.
        bells.into_iter().for_each(ring);
    }
}

/// Waits for one thing again and again.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Whether the other process may lie.
    is_guarded: bool,
    spin: SpinWait,
}

impl Waiter {
    /// Returns one that spins for at most this long before it sleeps.
    pub(crate) fn new(is_guarded: bool, spin: Duration) -> Self {
        Self { is_guarded, spin: SpinWait::new(spin) }
    }

    /// Waits until there are as many bytes as needed, the gate is closed, or the deadline has passed.
    /// `bytes` looks how many there are.
    pub(crate) fn wait(
        &mut self,
        bell: &AtomicU32,
        gate: &Gate,
        deadline: Option<Instant>,
        needed: usize,
        mut bytes: impl FnMut() -> Result<usize, Lie>,
    ) -> Result<(), Error> {
        let mut before = bytes()?;
        if before >= needed {
            return Ok(());
        }
        if !has_passed(deadline) {
            let arrived = || bytes().map(|found| (found >= needed).then_some(())).transpose();
            if let Some(arrived) = self.spin.until(arrived) {
                return Ok(arrived?);
            }
        }
        let mut wakes = 0;
        loop {
            bell.store(ASLEEP, Ordering::Relaxed);
            // Orders the bell before the look at the position; `ring` has the other one.
            fence(Ordering::SeqCst);
            let found = bytes()?;
            let is_over = found >= needed;
            if is_over || gate.is_closed() || has_passed(deadline) {
                bell.store(AWAKE, Ordering::Relaxed);
                return match () {
                    () if is_over => Ok(()),
                    () if gate.is_closed() => Err(Error::Closed),
                    () => Err(Error::TimedOut),
                };
            }
            if found != before {
                (before, wakes) = (found, 0);
            }
            if self.sleep(bell, gate, deadline)? {
                wakes += 1;
                if wakes > MOST_WAKES {
                    return Err(Lie::Wakes.into());
                }
            }
        }
    }

    /// Sleeps until the bell rings, the gate is closed or the deadline passes; or until a signal, for
    /// which it says `false`.
    fn sleep(
        &self,
        bell: &AtomicU32,
        gate: &Gate,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slept = if self.is_guarded && CAN_WAIT_FOR_TWO.load(Ordering::Relaxed) {
            match sleep_on_two(bell, &gate.closed, left) {
                Err(Errno::NOSYS | Errno::PERM) => {
                    CAN_WAIT_FOR_TWO.store(false, Ordering::Relaxed);
                    return Ok(false);
                }
                slept => slept,
            }
        } else {
            let left = match self.is_guarded {
                true => Some(left.unwrap_or(LOOK).min(LOOK)),
                false => left,
            };
            let timeout = left.and_then(|left| left.try_into().ok());
            match futex::wait(bell, Flags::empty(), ASLEEP, timeout.as_ref()) {
                // To check the gate.
                Err(Errno::TIMEDOUT) => return Ok(false),
                slept => slept,
            }
        };
        match slept {
            // `AGAIN`: one of the words had changed already.
            Ok(()) | Err(Errno::AGAIN) => Ok(true),
            Err(Errno::INTR | Errno::TIMEDOUT) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

pub(crate) fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Sleeps while the bell says `ASLEEP` and the gate is open.
fn sleep_on_two(bell: &AtomicU32, closed: &AtomicU32, left: Option<Duration>) -> Result<(), Errno> {
    let wait = |word: &AtomicU32, value: u32, flags: WaitFlags| {
        let mut wait = Wait::new();
        wait.val = value.into();
        wait.uaddr = WaitPtr::new(word.as_ptr().cast());
        wait.flags = WaitFlags::SIZE_U32 | flags;
        wait
    };
    let words = [wait(bell, ASLEEP, WaitFlags::empty()), wait(closed, 0, WaitFlags::PRIVATE)];
    // A wait that is too long for the clock has no end.
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let until = left.and_then(|left| clock_gettime(ClockId::Monotonic).checked_add(left));
    futex::waitv(&words, WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic).map(drop)
}

/// The mapping and the gate of one end.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    pub(crate) memory: Memory,
    pub(crate) gate: Gate,
}

/// Closes an end from any thread, as when the other process has died.
#[derive(Debug, Clone)]
pub struct Closer {
    shared: Arc<SharedMapping>,
    /// The bells on which this end sleeps.
    bells: [usize; 2],
}

impl Closer {
    pub(crate) fn new(shared: Arc<SharedMapping>, send: &Places, receive: &Places) -> Self {
        Self { shared, bells: [send.for_space, receive.for_bytes] }
    }

    /// Ends all waits of this end. Nothing more can be sent; frames that had arrived as a whole can
    /// still be received.
    pub fn close(&self) {
        self.shared.gate.close(self.bells.map(|bell| self.shared.memory.bell(bell)));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Closes while somebody waits, whom a liar lets seem awake, and returns how long that took to be
    /// seen.
    fn closing(is_guarded: bool) -> Duration {
        let (bell, gate) = (AtomicU32::new(AWAKE), Gate::default());
        let deadline = Some(Instant::now() + Duration::from_secs(30));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut waiter = Waiter::new(is_guarded, Duration::from_micros(10));
                waiter.wait(&bell, &gate, deadline, 1, || Ok(0))
            });
            while bell.load(Ordering::Relaxed) == AWAKE {
                thread::yield_now();
            }
            let asleep = Instant::now() + Duration::from_millis(50);
            while Instant::now() < asleep {
                thread::park_timeout(Duration::from_millis(10));
            }
            if is_guarded {
                bell.store(AWAKE, Ordering::Relaxed);
            }
            let start = Instant::now();
            gate.close([&bell, &AtomicU32::new(AWAKE)]);
            let ended = waiting.join().unwrap();
            assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
            start.elapsed()
        })
    }

    #[test]
    fn closing_ends_a_wait_whether_or_not_the_kernel_can_wait_for_two_words() {
        for (is_guarded, can_wait_for_two) in [(true, true), (true, false), (false, true)] {
            CAN_WAIT_FOR_TWO.store(can_wait_for_two, Ordering::Relaxed);
            let took = closing(is_guarded);
            assert!(took < Duration::from_secs(2), "{is_guarded}, {can_wait_for_two}: {took:?}");
        }
    }
}
