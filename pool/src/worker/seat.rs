//! The seats that a worker offers.

use std::sync::Arc;

use super::desk::Desk;
use super::message::Order;
use crate::ids::{JobId, WorkerId};
use crate::session::SessionCell;
use crate::task::Task;

/// The right to give one worker one thing to do. It goes straight to the worker's thread.
///
/// A worker may end before it is used. That is no error: `Gone` follows, and settles what the seat
/// took.
#[derive(Debug)]
#[must_use = "a worker that offers a seat waits until it is used"]
pub struct Seat {
    desk: Arc<Desk>,
}

impl Seat {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { desk }
    }

    /// The worker that offers it.
    pub fn worker(&self) -> WorkerId {
        self.desk.worker()
    }

    /// Gives the worker a task. `Finished` or `Gone` follows.
    pub fn assign(self, task: Task) {
        self.desk.order(Order::Run(task));
    }

    /// Has the worker copy a session's state out, or unpack one that was stowed, to where its cell
    /// shows it, until somebody has it stowed again. It counts as a job. `Parked` or `Gone` follows.
    pub fn park(self, job: JobId, session: Arc<SessionCell>) {
        self.desk.order(Order::Park { job, session });
    }

    /// Has the worker put the session aside that is there. `Ready` or `Gone` follows, after
    /// `SessionParked` if there was one.
    pub fn vacate(self) {
        self.desk.order(Order::Vacate);
    }

    /// The same, and the worker goes on with another interpreter. If none can be started it ends.
    pub fn renew(self) {
        self.desk.order(Order::Renew);
    }

    /// Has the worker put the session aside that is there, and end. `Gone` follows; nobody takes its
    /// place.
    pub fn dismiss(self) {
        self.desk.order(Order::Dismiss);
    }
}
