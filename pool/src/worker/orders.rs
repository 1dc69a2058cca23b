//! The queue of a thread's orders, and how the thread waits for the next one.
//!
//! A caller that sends one job after another has the next one some 20 µs after it has the outcome; to
//! sleep and be woken takes about as long. So a thread looks for a while before it sleeps, if that has
//! paid before, and lets other threads go first meanwhile. `channel/src/wait.rs` has the same rule for
//! positions in shared memory, by the clock; here rounds are counted, since looking costs a call.

use std::thread;

use crossbeam_channel::{Receiver, TryRecvError};

use super::message::Order;

/// The most rounds of looking before a sleep: some 100 µs.
const MOST_ROUNDS: u32 = 64;
/// The pauses of the processor in one round.
const PAUSES: u32 = 16;
/// Waits that sleep at once, after those that looked in vain, before one looks again.
const TRY_AGAIN: u32 = 64;

/// The queue of a thread's orders.
#[derive(Debug)]
pub(crate) struct Orders {
    receiver: Receiver<Order>,
    /// How often the next wait looks before it sleeps.
    rounds: u32,
    /// Waits that slept at once since the last look.
    slept: u32,
}

impl Orders {
    pub(super) fn new(receiver: Receiver<Order>) -> Self {
        Self { receiver, rounds: MOST_ROUNDS, slept: 0 }
    }

    /// Waits for the next order; `None` when no more will come.
    pub(super) fn next(&mut self) -> Option<Order> {
        match self.receiver.try_recv() {
            Ok(order) => Some(order),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => self.look().or_else(|| self.receiver.recv().ok()),
        }
    }

    /// Looks without sleeping. Each success doubles how long the next wait looks, each failure halves
    /// it, so a thread whose jobs come rarely spends no time on it.
    fn look(&mut self) -> Option<Order> {
        let rounds = match self.rounds {
            0 if self.slept < TRY_AGAIN => {
                self.slept += 1;
                return None;
            }
            0 => MOST_ROUNDS,
            rounds => rounds,
        };
        self.slept = 0;
        for _ in 0..rounds {
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
            thread::yield_now();
            if let Ok(order) = self.receiver.try_recv() {
                self.rounds = (2 * rounds).min(MOST_ROUNDS);
                return Some(order);
            }
        }
        self.rounds /= 2;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_looks_only_while_that_pays() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let mut orders = Orders::new(receiver);
        while orders.rounds > 0 {
            assert!(orders.look().is_none());
        }
        sender.send(Order::Vacate).unwrap();
        for _ in 0..TRY_AGAIN {
            assert!(orders.look().is_none());
        }
        assert!(orders.look().is_some());
        assert_eq!(orders.rounds, MOST_ROUNDS);
        sender.send(Order::Dismiss).unwrap();
        assert!(orders.next().is_some());
        drop(sender);
        assert!(orders.next().is_none());
    }
}
