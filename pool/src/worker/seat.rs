//! The seat that a worker offers.

use std::sync::Arc;

use super::desk::Desk;
use super::message::Order;
use crate::ids::{JobId, WorkerId};
use crate::session::SessionCell;
use crate::task::Task;

/// The right to give a worker one order, which goes straight to its thread.
///
/// A worker may end before its seat is used. That is no error: `Gone` follows and settles the
/// order.
#[derive(Debug)]
#[must_use = "a worker that offers a seat waits until it is used"]
pub struct Seat {
    desk: Arc<Desk>,
}

impl Seat {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { desk }
    }

    /// Returns the worker that offers it.
    pub fn worker(&self) -> WorkerId {
        self.desk.worker()
    }

    /// Gives the worker a task. `Finished` or `Gone` follows.
    pub fn assign(self, task: Task) {
        self.desk.order(Order::Run(task));
    }

    /// Makes the worker copy a session's state out, or unpack a stowed one, to the session's cell,
    /// where it stays until it is stowed again. It counts as a job. `Parked` or `Gone` follows.
    pub fn park(self, job: JobId, session: Arc<SessionCell>) {
        self.desk.order(Order::Park { job, session });
    }

    /// Makes the worker park the session that it holds. `Ready` or `Gone` follows, after
    /// `SessionParked` if there was one.
    pub fn vacate(self) {
        self.desk.order(Order::Vacate);
    }

    /// Makes the worker park its session and start a new interpreter. If none can be started the
    /// worker ends.
    pub fn renew(self) {
        self.desk.order(Order::Renew);
    }

    /// Makes the worker park its session and end. `Gone` follows; the worker isn't replaced.
    pub fn dismiss(self) {
        self.desk.order(Order::Dismiss);
    }
}
