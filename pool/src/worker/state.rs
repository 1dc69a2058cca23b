//! What may follow what in a worker's life. Pure.

use crate::task::JobId;

/// Where a worker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its interpreter is being started.
    Starting,
    /// It has offered a seat.
    Ready,
    /// Its thread has this job.
    Running(JobId),
    /// Its job has ended, and its thread is not yet ready for another.
    Resetting,
    /// Its thread is done.
    Ended,
}

/// What happens to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The thread waits for an order.
    Idle,
    /// Its seat was used.
    Assigned(JobId),
    /// The thread's job has ended.
    Finished,
    /// The thread is done.
    Ended,
}

/// What the actor does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// Tells the owner that a task can be taken.
    OfferSeat,
    /// Hands the order to the thread.
    Run,
    /// Nothing.
    Wait,
    /// Drops what came: it can't be served, and the worker's end will say so.
    Ignore,
}

impl Phase {
    /// The phase after `input`, and what to do.
    pub(crate) fn next(self, input: Input) -> (Self, Step) {
        match (self, input) {
            (Self::Starting | Self::Resetting, Input::Idle) => (Self::Ready, Step::OfferSeat),
            (Self::Ready, Input::Assigned(job)) => (Self::Running(job), Step::Run),
            (Self::Running(_), Input::Finished) => (Self::Resetting, Step::Wait),
            (
                Self::Starting | Self::Ready | Self::Running(_) | Self::Resetting | Self::Ended,
                Input::Ended,
            ) => (Self::Ended, Step::Wait),
            // An order can overtake the end of the thread that was to follow it, and what the
            // thread said before its end can come after an order that it will not take.
            (Self::Ended, Input::Idle | Input::Assigned(_) | Input::Finished) => {
                (self, Step::Ignore)
            }
            // A seat takes one order, and the thread finishes what it was given before it asks.
            (Self::Starting | Self::Resetting, Input::Assigned(_) | Input::Finished)
            | (Self::Ready, Input::Idle | Input::Finished)
            | (Self::Running(_), Input::Idle | Input::Assigned(_)) => (self, Step::Ignore),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair() {
        let job = JobId(1);
        let (running, assigned) = (Phase::Running(job), Input::Assigned(job));
        let table = [
            (Phase::Starting, Input::Idle, Phase::Ready, Step::OfferSeat),
            (Phase::Starting, assigned, Phase::Starting, Step::Ignore),
            (Phase::Starting, Input::Finished, Phase::Starting, Step::Ignore),
            (Phase::Starting, Input::Ended, Phase::Ended, Step::Wait),
            (Phase::Ready, Input::Idle, Phase::Ready, Step::Ignore),
            (Phase::Ready, assigned, running, Step::Run),
            (Phase::Ready, Input::Finished, Phase::Ready, Step::Ignore),
            (Phase::Ready, Input::Ended, Phase::Ended, Step::Wait),
            (running, Input::Idle, running, Step::Ignore),
            (running, assigned, running, Step::Ignore),
            (running, Input::Finished, Phase::Resetting, Step::Wait),
            (running, Input::Ended, Phase::Ended, Step::Wait),
            (Phase::Resetting, Input::Idle, Phase::Ready, Step::OfferSeat),
            (Phase::Resetting, assigned, Phase::Resetting, Step::Ignore),
            (Phase::Resetting, Input::Finished, Phase::Resetting, Step::Ignore),
            (Phase::Resetting, Input::Ended, Phase::Ended, Step::Wait),
            (Phase::Ended, Input::Idle, Phase::Ended, Step::Ignore),
            (Phase::Ended, assigned, Phase::Ended, Step::Ignore),
            (Phase::Ended, Input::Finished, Phase::Ended, Step::Ignore),
            (Phase::Ended, Input::Ended, Phase::Ended, Step::Wait),
        ];
        for (phase, input, next, step) in table {
            assert_eq!(phase.next(input), (next, step), "{phase:?} {input:?}");
        }
    }
}
