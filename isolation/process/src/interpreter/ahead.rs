//! Runs that are given ahead: the worker goes from one to the next by itself, and this process learns
//! of several at once.
//!
//! To hand over an outcome and the next order, each process sleeps and is woken, which takes as much CPU
//! time as half of a short run. So a worker gets the orders of several short runs. While another order
//! is in its ring, it lets this process sleep. This process wakes up by itself when the run that goes on
//! takes longer than [`PATIENCE`], and takes the orders back that the worker hasn't taken, so that no
//! run waits behind a long one, and no outcome for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use channel::Error;
use engine::{Afterwards, Outcome};
use pool::{EachRun, Ended, Interpreter, Task};

use super::{ANOTHER_RUN, INVALID, NOTHING_TAKEN_BACK, ProcessInterpreter};
use crate::clock::{after, has_come};
use crate::ending::EndsRun;
use crate::message::{Done, Up, Word};
use crate::remote::SILENCE;

/// How long a run may take while others wait behind it, and how long an outcome may lie in the ring.
const PATIENCE: Duration = Duration::from_micros(500);

/// How long a worker may go on that doesn't say which runs it gives back. One that says nothing at all
/// is found to be silent before.
const ANSWERING: Duration = SILENCE.saturating_mul(2);

/// Whether runs were asked back. That happens once at most: those that are left then have begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// The worker must answer until then.
    Until(Instant),
    Answered,
}

/// The runs that a worker has.
struct Ahead<'a> {
    tasks: &'a [Task],
    endings: Vec<Arc<EndsRun>>,
    /// The number of the first one.
    first: u64,
    /// How many have ended.
    ended: usize,
    /// How many are the worker's: the others were taken back.
    given: usize,
    asked: Asked,
    /// When the others are asked back.
    deadline: Instant,
    /// Whether the transcript says that the run that goes on has begun.
    has_begun: bool,
}

impl Ahead<'_> {
    /// Returns the task of the run that goes on or is next.
    fn now(&self) -> Option<&Task> {
        self.tasks[..self.given].get(self.ended)
    }

    /// Whether runs were asked back, and the worker hasn't answered.
    fn is_asked(&self) -> bool {
        matches!(self.asked, Asked::Until(_))
    }

    /// Returns why the worker may go on no longer.
    fn overdue(&self) -> Option<&'static str> {
        if let Asked::Until(instant) = self.asked
            && has_come(instant)
        {
            return Some("it didn't say which runs it gives back");
        }
        self.endings.get(self.ended)?.overdue()
    }

    /// Leaves the tasks from this one on to the caller, who may give them to others at once.
    fn leave(&mut self, from: usize, tell: &mut dyn FnMut(EachRun)) {
        if from < self.given {
            self.tasks[from..self.given].iter().for_each(|task| task.stop.detach());
            self.given = from;
            tell(EachRun::Left(from));
        }
    }

    /// Notes that it has begun: it will not be taken back.
    fn begins(&mut self) {
        if !self.has_begun
            && let Some(task) = self.now()
        {
            task.transcript.begin(&task.limits);
            self.has_begun = true;
        }
    }
}

impl ProcessInterpreter {
    /// Runs programs as [`Interpreter::run_each`] says.
    pub(super) fn run_ahead(&mut self, tasks: &[Task], tell: &mut dyn FnMut(EachRun)) {
        let mut ahead = Ahead {
            tasks,
            endings: Vec::with_capacity(tasks.len()),
            first: self.runs + 1,
            ended: 0,
            given: tasks.len(),
            asked: Asked::No,
            deadline: after(PATIENCE),
            has_begun: false,
        };
        self.receiver.sleep_at_once(true);
        let ran = self.give(&mut ahead).and_then(|()| self.follow(&mut ahead, tell));
        self.receiver.sleep_at_once(false);
        if let Err(how) = ran {
            self.is_resetting = false;
            if ahead.ended < ahead.given {
                self.conclude(&mut ahead, self.died(how), true, tell);
            }
        }
        // Nothing runs any more.
        ahead.leave(ahead.ended, tell);
    }

    /// Gives the worker all orders.
    fn give(&mut self, ahead: &mut Ahead<'_>) -> Result<(), String> {
        self.settle()?;
        self.is_resetting = true;
        let tasks = ahead.tasks;
        for (index, task) in tasks.iter().enumerate() {
            let order = self.run_order(task, true, None);
            self.worker.order(order, index + 1 < tasks.len())?;
            let ending =
                Arc::new(EndsRun::new(&self.worker, self.runs, &task.program, &task.limits));
            task.stop.begin(Arc::clone(&ending) as _);
            ahead.endings.push(ending);
        }
        ahead.begins();
        Ok(())
    }

    /// Hears of the runs until the worker has none left. The error says how it has ended.
    fn follow(
        &mut self,
        ahead: &mut Ahead<'_>,
        tell: &mut dyn FnMut(EachRun),
    ) -> Result<(), String> {
        while ahead.ended < ahead.given || ahead.is_asked() {
            let others_wait = ahead.asked == Asked::No && ahead.given - ahead.ended > 1;
            let up = if others_wait {
                if has_come(ahead.deadline) {
                    self.take_back(ahead)?;
                    continue;
                }
                match self.receiver.receive::<Up>(Some(ahead.deadline)) {
                    Ok(frame) => frame.message,
                    Err(Error::TimedOut) => continue,
                    Err(error) => return Err(self.worker.failed(&error)),
                }
            } else {
                if !ahead.is_asked() {
                    ahead.begins();
                }
                self.hear(|| ahead.overdue())?
            };
            match up {
                Up::Alive => {}
                Up::Added(addition) if ahead.now().is_some() => {
                    ahead.begins();
                    let added = ahead.now().map(|task| addition.add_to(&task.transcript));
                    if let Some(Err(_)) = added {
                        return Err(self.worker.end(INVALID));
                    }
                }
                Up::TakenBack { from } if ahead.is_asked() => {
                    ahead.asked = Asked::Answered;
                    // It may have ended more runs before it heard that.
                    let left = from.checked_sub(ahead.first).and_then(|left| left.try_into().ok());
                    let left = left.filter(|left| (ahead.ended..=ahead.given).contains(left));
                    let left = left.ok_or_else(|| self.worker.end(NOTHING_TAKEN_BACK))?;
                    ahead.leave(left, tell);
                }
                Up::Done(Done::Ran { run, .. }, _) if run != ahead.first + ahead.ended as u64 => {
                    return Err(self.worker.end(ANOTHER_RUN));
                }
                Up::Done(Done::Ran { outcome, is_lost, .. }, facts) if ahead.now().is_some() => {
                    self.facts = facts.believed();
                    let outcome =
                        outcome.outcome().map_err(|lie| self.worker.end(&lie.to_string()))?;
                    self.conclude(ahead, outcome, is_lost, tell);
                    if is_lost {
                        // It takes none of the others.
                        self.is_resetting = false;
                        return Ok(());
                    }
                    ahead.deadline = after(PATIENCE);
                }
                Up::Done(Done::Failed(why), _) => return Err(self.worker.end(&why)),
                _ => {
                    return Err(self.worker.end("it reported something that it was not asked for"));
                }
            }
        }
        Ok(())
    }

    /// Asks for the runs back that the worker hasn't begun.
    fn take_back(&mut self, ahead: &mut Ahead<'_>) -> Result<(), String> {
        let from = ahead.first + ahead.ended as u64 + 1;
        let to = ahead.first + ahead.given as u64 - 1;
        ahead.asked = Asked::Until(after(ANSWERING));
        self.worker.say(&Word::TakeBack { runs: from..=to })
    }

    /// Tells how the run has ended that was the next to end.
    fn conclude(
        &self,
        ahead: &mut Ahead<'_>,
        outcome: Outcome,
        is_lost: bool,
        tell: &mut dyn FnMut(EachRun),
    ) {
        ahead.begins();
        let (index, task) = (ahead.ended, &ahead.tasks[ahead.ended]);
        task.stop.detach();
        ahead.ended += 1;
        ahead.has_begun = false;
        let afterwards = if is_lost { Afterwards::Lost } else { Afterwards::Usable };
        let outcome = outcome.with_output(&task.transcript);
        let (memory_bytes, had_code) = (self.memory_bytes(), self.had_code());
        tell(EachRun::Ended(index, Ended { outcome, afterwards, memory_bytes, had_code }));
    }
}
