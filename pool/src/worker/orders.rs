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

/// Whether other threads go first once a job has ended: if the thread had to wait for it, so that no
/// jobs were queued, and no thread with much to do would keep the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LetsOthersGo(pub(super) bool);

impl Orders {
    pub(super) fn new(receiver: Receiver<Order>) -> Self {
        Self { receiver, look: Look::new(LONGEST_LOOK) }
    }

    /// Waits for the next order, and says whether others go before what follows it; `None` when no more
    /// will come.
    pub(super) fn next(&self) -> Option<(Order, LetsOthersGo)> {
        match self.receiver.try_recv() {
            Ok(order) => Some((order, LetsOthersGo(false))),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                let looked = self.look.until(|| self.receiver.try_recv().ok());
                let order = looked.or_else(|| self.receiver.recv().ok())?;
                Some((order, LetsOthersGo(self.look.pays())))
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
        assert!(matches!(orders.next(), Some((Order::Dismiss, LetsOthersGo(false)))));
        drop(sender);
        assert!(orders.next().is_none());
    }
}
