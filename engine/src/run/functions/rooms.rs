//! The share of the run's limits that calls occupy: a place each, and the memory of their
//! arguments.
//!
//! A call occupies its share while the program waits for it, and while the host works on it. A
//! closure that has begun continues even if its result is no longer needed, and keeps its
//! arguments.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::interrupt::gate::Gate;

/// The room that the calls of a run occupy.
#[derive(Debug)]
pub(super) struct Rooms {
    taken: Mutex<Taken>,
    /// Where a call waits for room. Weak, since the host's work may outlive the interpreter and
    /// must not keep its memory.
    gate: Weak<Gate>,
}

#[derive(Debug, Default)]
struct Taken {
    uses: BTreeMap<u32, Use>,
    /// The sum over calls that the program waits for; only the program's actions change it.
    wanted: Sum,
    /// The sum over other calls, which the host still works on.
    left: Sum,
}

/// What one call occupies while either flag is set.
#[derive(Debug, Clone, Copy)]
struct Use {
    bytes: usize,
    is_wanted: bool,
    is_worked_on: bool,
}

/// A number of calls, and the bytes of their arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) calls: usize,
    pub(super) bytes: usize,
}

impl Sum {
    fn add(&mut self, bytes: usize) {
        self.calls += 1;
        self.bytes += bytes;
    }

    fn take_off(&mut self, bytes: usize) {
        self.calls -= 1;
        self.bytes -= bytes;
    }
}

impl Rooms {
    pub(super) fn new(gate: &Arc<Gate>) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), gate: Arc::downgrade(gate) })
    }

    /// Returns what the calls occupy that the program waits for.
    pub(super) fn wanted(&self) -> Sum {
        self.taken.lock().wanted
    }

    /// Returns what all calls occupy, including those that the program has given up.
    pub(super) fn all(&self) -> Sum {
        let Taken { wanted, left, .. } = &*self.taken.lock();
        Sum { calls: wanted.calls + left.calls, bytes: wanted.bytes.saturating_add(left.bytes) }
    }

    /// Occupies room for a new call. The program waits for it from now on, and the owner of the
    /// room works on it.
    pub(super) fn take(self: &Arc<Self>, ticket: u32, bytes: usize) -> Room {
        let mut taken = self.taken.lock();
        taken.uses.insert(ticket, Use { bytes, is_wanted: true, is_worked_on: true });
        taken.wanted.add(bytes);
        Room { rooms: Arc::clone(self), ticket }
    }

    /// Notes that the program has received the answer to a call, or gave the call up.
    pub(super) fn unwanted(&self, ticket: u32) {
        let taken = &mut *self.taken.lock();
        let Some(one) = taken.uses.get_mut(&ticket).filter(|one| one.is_wanted) else { return };
        one.is_wanted = false;
        taken.wanted.take_off(one.bytes);
        if one.is_worked_on {
            taken.left.add(one.bytes);
        } else {
            taken.uses.remove(&ticket);
        }
    }

    /// Whether the host still works on a call, which the program may have given up.
    pub(super) fn is_worked_on(&self, ticket: u32) -> bool {
        self.taken.lock().uses.get(&ticket).is_some_and(|one| one.is_worked_on)
    }

    /// Notes that nothing works on a call any more.
    fn ended(&self, ticket: u32) {
        let mut lock = self.taken.lock();
        let taken = &mut *lock;
        let Some(one) = taken.uses.get_mut(&ticket) else { return };
        one.is_worked_on = false;
        if one.is_wanted {
            return;
        }
        taken.left.take_off(one.bytes);
        taken.uses.remove(&ticket);
        // Before the gate is locked: a waiter there holds the gate's lock while it takes this one.
        drop(lock);
        if let Some(gate) = self.gate.upgrade() {
            gate.wake();
        }
    }
}

/// A call's share of the limits of its run. It is a place among the calls in flight, and the memory
/// of its arguments. Dropping it frees both.
///
/// Whatever works on the call keeps it until it has ended, even if the call is cancelled.
#[derive(derive_more::Debug)]
#[debug("Room({ticket})")]
#[must_use = "the call counts as ended once this is dropped"]
pub struct Room {
    rooms: Arc<Rooms>,
    ticket: u32,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.rooms.ended(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::gate::Woken;

    fn sum(calls: usize, bytes: usize) -> Sum {
        Sum { calls, bytes }
    }

    #[test]
    fn room_is_taken_until_the_call_is_neither_wanted_nor_worked_on() {
        let rooms = Rooms::new(&Arc::new(Gate::new()));
        let (first, second) = (rooms.take(1, 10), rooms.take(2, 5));
        assert_eq!((rooms.wanted(), rooms.all()), (sum(2, 15), sum(2, 15)));
        drop(first);
        assert_eq!(rooms.all(), sum(2, 15), "the program doesn't know that it has ended");
        rooms.unwanted(1);
        assert_eq!((rooms.wanted(), rooms.all()), (sum(1, 5), sum(1, 5)));
        rooms.unwanted(2);
        rooms.unwanted(2);
        assert_eq!((rooms.wanted(), rooms.all()), (sum(0, 0), sum(1, 5)));
        drop(second);
        assert_eq!(rooms.all(), sum(0, 0));
        assert!(rooms.taken.lock().uses.is_empty());
        rooms.unwanted(3);
    }

    #[test]
    fn the_end_of_work_wakes_a_call_that_waits_for_room() {
        let gate = Arc::new(Gate::new());
        let rooms = Rooms::new(&gate);
        let room = rooms.take(1, 1);
        rooms.unwanted(1);
        let work = std::thread::spawn(move || drop(room));
        assert_eq!(gate.wait(None, || rooms.all().calls == 0), Woken::Ready);
        work.join().unwrap();
    }

    #[test]
    fn work_that_goes_on_keeps_no_interpreter() {
        let gate = Arc::new(Gate::new());
        let rooms = Rooms::new(&gate);
        let room = rooms.take(1, 1);
        rooms.unwanted(1);
        assert_eq!(Arc::strong_count(&gate), 1);
        drop(gate);
        drop(room);
        assert_eq!(rooms.all(), sum(0, 0));
    }
}
