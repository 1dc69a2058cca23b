//! Parent-side handle of a worker process: messages to it, the end of a run, and its end.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use channel::{Descriptors, Error, MOST_DESCRIPTORS, Sender};
use engine::{Cause, Limits, Program, StartError, StopReason, StopTarget};
use parking_lot::Mutex;

use crate::message::{
    Command, CommandFrame, ControlMessage, StateAsk, StopKind, StopRequest, write,
};
use crate::parent::control::{ControlChannel, SENDING};
use crate::parent::exit_state::ExitState;
use crate::parent::handle::HelperHandle;
use crate::states::{self, Arrived};
use crate::system::wait_readable;

/// How often a worker is looked at while nothing comes from it.
pub(crate) const GLANCE: Duration = Duration::from_millis(500);

/// How long a worker may be silent when it is asked for a sign of life.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// How fast a kept state comes at least, in bytes per second, once the worker has begun.
const FETCHING: u64 = 64 << 20;

/// What the embedding process has of a worker process. It is shared with the states that the worker
/// keeps.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: u64,
    pub(crate) helper: Arc<HelperHandle>,
    pub(crate) commands: Mutex<Sender>,
    pub(crate) control: ControlChannel,
    pub(crate) files: Descriptors,
    pub(crate) states: Mutex<(UnixStream, Descriptors)>,
    /// Copies that the worker may drop.
    pub(crate) dropped: Mutex<PendingFrees>,
    pub(crate) life: Arc<ExitState>,
    /// It was killed since it continued after a request to stop.
    pub(crate) was_stopped: AtomicBool,
}

impl Worker {
    /// Gives a command. The error says how the worker has ended.
    pub(crate) fn send_command(&self, command: Command) -> Result<(), String> {
        let given = CommandFrame { command, dropped: self.dropped.lock().take() };
        let sent = self.commands.lock().send(&given, Some(Instant::now() + SENDING));
        sent.map_err(|error| self.failed(&error))
    }

    /// Says something to a run. The error says how the worker has ended.
    pub(crate) fn send(&self, word: &ControlMessage) -> Result<(), String> {
        self.control.send(word).map_err(|error| self.failed(&error))
    }

    /// Returns how the worker has ended that can't be spoken to. Kills it if it hasn't.
    pub(crate) fn failed(&self, error: &Error) -> String {
        match error {
            Error::Closed => self.life.how(),
            error => self.end(&engine::chain(error).to_string()),
        }
    }

    /// Kills the worker for this reason, unless it has ended before, and returns why it ended.
    pub(crate) fn end(&self, why: &str) -> String {
        if !self.life.has_ended() {
            self.life.end(why.to_owned());
            self.helper.kill(self.number);
        }
        self.life.how()
    }

    /// Has the worker drop a copy of this length with its next command. If the copies that wait for
    /// that take much memory, it drops them now. Never waits: while a copy is being fetched, the
    /// worker hears of them afterwards.
    pub(crate) fn forget(&self, number: u64, bytes: u64) {
        self.dropped.lock().add(number, bytes);
        self.forget_many();
    }

    /// Has the worker drop the copies now that wait for its next command, if they take much memory.
    /// Not while states are requested; the requester calls this afterwards.
    fn forget_many(&self) {
        while self.dropped.lock().take_much()
            && let Some(mut states) = self.states.try_lock()
        {
            let numbers = self.dropped.lock().take();
            // If it can't be told, it has ended.
            let _ = self.ask(&mut states.0, &StateAsk::Forget(numbers));
        }
    }

    /// Asks for a kept state, or says what becomes of it. A worker that reads nothing is killed, since
    /// nobody waits for it.
    pub(crate) fn ask(&self, asks: &mut UnixStream, ask: &StateAsk) -> io::Result<()> {
        let asked = write(asks, ask);
        if matches!(&asked, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.end("it stopped reading requests for states");
        }
        asked
    }

    /// Returns a state of this length that the worker keeps.
    pub(crate) fn fetch(&self, number: u64, bytes: u64) -> Result<Arrived, StartError> {
        let fetched = self.fetch_now(number, bytes);
        self.forget_many();
        fetched
    }

    fn fetch_now(&self, number: u64, bytes: u64) -> Result<Arrived, StartError> {
        let mut states = self.states.lock();
        let (asks, files) = &mut *states;
        let gone = |how: String| {
            let what = format!("the process that kept this state has ended: {how}");
            StartError::Process(Cause::new(what))
        };
        self.ask(asks, &StateAsk::Send(number)).map_err(|_| gone(self.life.how()))?;
        let deadline = Instant::now() + SILENCE + Duration::from_secs(bytes / FETCHING);
        let next = || loop {
            match files.receive(MOST_DESCRIPTORS) {
                Err(Error::System(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received,
            }
            if Instant::now() >= deadline {
                self.end("it stopped responding");
            }
            if self.life.has_ended() {
                return Err(Error::Closed);
            }
            // An error is seen by the next look.
            let _ = wait_readable([files.as_fd()], Some(GLANCE));
        };
        states::receive(next).map_err(|error| gone(self.failed(&error)))
    }
}

/// The most memory that dropped copies take in a worker until its next command, in bytes.
const MOST_DROPPED: u64 = 8 << 20;

/// Copies that a worker may drop, and has not been told of.
#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    numbers: Vec<u64>,
    bytes: u64,
}

impl PendingFrees {
    /// Adds a copy of this length.
    pub(crate) fn add(&mut self, number: u64, bytes: u64) {
        self.numbers.push(number);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns whether together they take too much memory to wait for the worker's next command.
    pub(crate) fn take_much(&self) -> bool {
        self.bytes > MOST_DROPPED
    }

    /// Takes the numbers, for the worker to hear.
    pub(crate) fn take(&mut self) -> Vec<u64> {
        std::mem::take(self).numbers
    }
}

/// How long a worker may continue a run after it was asked to stop it.
const STOPPING: Duration = Duration::from_secs(2);

/// How long after the limit of wall time and its grace period the worker must have ended a run.
const LATE: Duration = Duration::from_secs(10);

/// Ends a run in a worker.
#[derive(Debug)]
pub(crate) struct RunStopper {
    worker: Arc<Worker>,
    run: u64,
    /// When the run must have ended, once a stop was requested.
    stopping: Mutex<Option<Instant>>,
    /// When the worker must have ended the run by its limit of wall time, with room to spare.
    latest: Option<Instant>,
}

impl RunStopper {
    pub(crate) fn new(worker: &Arc<Worker>, run: u64, program: &Program, limits: &Limits) -> Self {
        // Waiting for the host's own input takes no time of the run.
        let latest = program.stdin_function.is_none().then(|| {
            Instant::now() + limits.wall_time.saturating_add(limits.grace).saturating_add(LATE)
        });
        Self { worker: Arc::clone(worker), run, stopping: Mutex::default(), latest }
    }

    fn tell(&self, reason: StopReason, kind: StopKind) {
        self.worker.control.stop(StopRequest { run: self.run, reason, kind });
    }

    /// Returns why the worker may not continue. To be called now and then during the run: it
    /// tells the worker what it couldn't be told before.
    pub(crate) fn overdue(&self) -> Option<&'static str> {
        let takes_none = self.worker.control.send_stops();
        if self.stopping.lock().is_some_and(|until| Instant::now() >= until) {
            self.worker.was_stopped.store(true, Ordering::Relaxed);
            return Some("it continued after a request to stop");
        }
        if takes_none {
            return Some("it didn't read the request to end its run");
        }
        let is_late = self.latest.is_some_and(|until| Instant::now() >= until);
        is_late.then_some("it didn't end its run at the limit of wall time")
    }
}

impl StopTarget for RunStopper {
    fn interrupt(&self, reason: StopReason) {
        self.tell(reason, StopKind::Interrupt);
    }

    fn stop(&self, reason: StopReason) {
        self.stopping.lock().get_or_insert_with(|| Instant::now() + STOPPING);
        self.tell(reason, StopKind::Kill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_copies_wait_for_an_order_while_they_take_little() {
        let mut dropped = PendingFrees::default();
        let add = |dropped: &mut PendingFrees, number, bytes| {
            dropped.add(number, bytes);
            dropped.take_much()
        };
        assert!(!add(&mut dropped, 1, 100) && !add(&mut dropped, 2, MOST_DROPPED - 100));
        assert_eq!(dropped.take(), [1, 2]);
        assert!(!add(&mut dropped, 3, MOST_DROPPED), "what was taken counts no longer");
        assert!(add(&mut dropped, 4, 1) && add(&mut dropped, 5, u64::MAX));
        assert_eq!((dropped.take(), dropped.take_much()), (vec![3, 4, 5], false));
        assert_eq!(dropped.take(), [0; 0]);
    }
}
