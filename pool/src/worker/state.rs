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
    /// Its thread is done.
    Ended,
}

/// What happens to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The thread has an interpreter.
    Started,
    /// Its seat was used.
    Assigned(JobId),
    /// The thread's task has ended; `keeps` if the interpreter takes another.
    Finished { keeps: bool },
    /// The thread is done.
    Ended,
}

/// What the actor does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// Tells the owner that a task can be taken.
    OfferSeat,
    /// Hands the task to the thread.
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
            (Self::Starting, Input::Started) => (Self::Ready, Step::OfferSeat),
            (Self::Ready, Input::Assigned(job)) => (Self::Running(job), Step::Run),
            (Self::Running(_), Input::Finished { keeps: true }) => (Self::Ready, Step::OfferSeat),
            (Self::Running(_), Input::Finished { keeps: false }) => (Self::Starting, Step::Wait),
            (Self::Starting | Self::Ready | Self::Running(_) | Self::Ended, Input::Ended) => {
                (Self::Ended, Step::Wait)
            }
            // A task can overtake the end of the thread that was to run it, and what the thread
            // said before its end can come after a task that it will not take.
            (Self::Ended, Input::Started | Input::Assigned(_) | Input::Finished { .. }) => {
                (self, Step::Ignore)
            }
            // A seat takes one task, and the thread starts once and finishes what it was given.
            (Self::Starting, Input::Assigned(_) | Input::Finished { .. })
            | (Self::Ready, Input::Started | Input::Finished { .. })
            | (Self::Running(_), Input::Started | Input::Assigned(_)) => (self, Step::Ignore),
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
        let (kept, lost) = (Input::Finished { keeps: true }, Input::Finished { keeps: false });
        let table = [
            (Phase::Starting, Input::Started, Phase::Ready, Step::OfferSeat),
            (Phase::Starting, assigned, Phase::Starting, Step::Ignore),
            (Phase::Starting, kept, Phase::Starting, Step::Ignore),
            (Phase::Starting, lost, Phase::Starting, Step::Ignore),
            (Phase::Starting, Input::Ended, Phase::Ended, Step::Wait),
            (Phase::Ready, Input::Started, Phase::Ready, Step::Ignore),
            (Phase::Ready, assigned, running, Step::Run),
            (Phase::Ready, kept, Phase::Ready, Step::Ignore),
            (Phase::Ready, lost, Phase::Ready, Step::Ignore),
            (Phase::Ready, Input::Ended, Phase::Ended, Step::Wait),
            (running, Input::Started, running, Step::Ignore),
            (running, assigned, running, Step::Ignore),
            (running, kept, Phase::Ready, Step::OfferSeat),
            (running, lost, Phase::Starting, Step::Wait),
            (running, Input::Ended, Phase::Ended, Step::Wait),
            (Phase::Ended, Input::Started, Phase::Ended, Step::Ignore),
            (Phase::Ended, assigned, Phase::Ended, Step::Ignore),
            (Phase::Ended, kept, Phase::Ended, Step::Ignore),
            (Phase::Ended, lost, Phase::Ended, Step::Ignore),
            (Phase::Ended, Input::Ended, Phase::Ended, Step::Wait),
        ];
        for (phase, input, next, step) in table {
            assert_eq!(phase.next(input), (next, step), "{phase:?} {input:?}");
        }
    }
}
