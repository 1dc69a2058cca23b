//! The queue of a thread's orders, and how the thread waits for the next one.

use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};

use super::message::Order;
use crate::look::Look;

/// How long a thread looks before it sleeps. A caller that sends one job after another has the next
/// one some 20 µs after it has the outcome.
const LONGEST_LOOK: Duration = Duration::from_micros(100);

/// The queue of a thread's orders.
#[derive(Debug)]
pub(crate) struct Orders {
    receiver: Receiver<Order>,
    look: Look,
}

/// Whether a thread had to wait for an order, so that no jobs were queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HadToWait(pub(super) bool);

impl Orders {
    pub(super) fn new(receiver: Receiver<Order>) -> Self {
        Self { receiver, look: Look::new(LONGEST_LOOK) }
    }

    /// Waits for the next order, and says whether it had to; `None` when no more will come.
    pub(super) fn next(&self) -> Option<(Order, HadToWait)> {
        match self.receiver.try_recv() {
            Ok(order) => Some((order, HadToWait(false))),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                let looked = self.look.until(|| self.receiver.try_recv().ok());
                let order = looked.or_else(|| self.receiver.recv().ok())?;
                Some((order, HadToWait(true)))
            }
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
        assert!(matches!(orders.next(), Some((Order::Dismiss, HadToWait(false)))));
        drop(sender);
        assert!(orders.next().is_none());
    }
}
