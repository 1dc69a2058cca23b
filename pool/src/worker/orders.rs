//! The queue of a thread's orders, and how the thread waits for the next one.

use std::time::Duration;

use channel::SpinWait;
use crossbeam_channel::{Receiver, TryRecvError};

use super::message::Order;

/// How long a thread spins before it blocks. A caller that sends one job after another has the next one
/// 20 µs after it has the outcome.
const LONGEST_SPIN: Duration = Duration::from_micros(100);

/// The queue of a thread's orders.
#[derive(Debug)]
pub(crate) struct Orders {
    receiver: Receiver<Order>,
    spin: SpinWait,
}

impl Orders {
    pub(super) fn new(receiver: Receiver<Order>) -> Self {
        Self { receiver, spin: SpinWait::new(LONGEST_SPIN) }
    }

    /// Waits for the next order; `None` when no more will come.
    pub(super) fn next(&self) -> Option<Order> {
        match self.receiver.try_recv() {
            Err(TryRecvError::Empty) => {
                let spun = self.spin.until(|| self.receiver.try_recv().ok());
                spun.or_else(|| self.receiver.recv().ok())
            }
            received => received.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_end_with_their_sender() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let orders = Orders::new(receiver);
        sender.send(Order::Dismiss).unwrap();
        assert!(matches!(orders.next(), Some(Order::Dismiss)));
        drop(sender);
        assert!(orders.next().is_none());
    }
}
