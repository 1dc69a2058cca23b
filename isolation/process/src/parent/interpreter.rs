//! The pool's seam: an interpreter that is in a worker process.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use channel::{Error, MOST_DESCRIPTORS, Receiver};
use engine::{
    Afterwards, Cause, Image, Limits, Lineage, Mount, Outcome, ProgramMessage, SandboxFailure,
    ServedCalls, SessionError, SessionState, StartError, Verdict,
};
use parking_lot::Mutex;
use pool::{Interpreter, Readiness, Suspended, Task, WorkerProcess};

use crate::memory::Memory;
use crate::message::{Command, ControlMessage, Reply, WorkerMessage, WorkerStats};
use crate::parent::offloader::Movable;
use crate::parent::remote::{GLANCE, RunStopper, SILENCE, Worker};
use crate::parent::snapshot::{RemoteSnapshot, RemoteState, lent, settled};
use crate::states;

/// An interpreter in a worker process, as the pool sees it.
#[derive(Debug)]
pub(crate) struct ProcessInterpreter {
    image: Image,
    worker: Arc<Worker>,
    receiver: Receiver,
    stats: WorkerStats,
    /// Which layers of the wall stand around the worker.
    pub(crate) report: confine::Report,
    process: Option<Arc<dyn WorkerProcess>>,
    /// The last run was followed by no other command, and the worker resets itself after it.
    is_resetting: bool,
    /// The number of the copy that the worker makes by itself after the last run, until it has said
    /// so.
    is_keeping: Option<u64>,
    /// Whether the pool wanted a copy after the last turn of a session.
    wants_copies: bool,
    runs: u64,
    /// Those of the last run.
    limits: Option<Limits>,
    kept: u64,
    /// The folders that programs of its present state were lent, by their numbers.
    folders: Vec<Arc<Mount>>,
    /// What its present state is counted beside.
    lineage: Lineage,
    /// The copies that the worker keeps.
    copies: Vec<Weak<RemoteSnapshot>>,
}

impl ProcessInterpreter {
    /// Waits for a worker that was just forked.
    pub(crate) fn start(
        image: &Image,
        worker: Arc<Worker>,
        receiver: Receiver,
    ) -> Result<Self, StartError> {
        let mut started = Self {
            image: image.clone(),
            worker,
            receiver,
            stats: WorkerStats::default(),
            report: confine::Report::default(),
            process: None,
            is_resetting: false,
            is_keeping: None,
            wants_copies: true,
            runs: 0,
            limits: None,
            kept: 0,
            folders: Vec::new(),
            lineage: Lineage::default(),
            copies: Vec::new(),
        };
        let mut told = None;
        let finished = started.finish(
            || None,
            |up| match up {
                WorkerMessage::Confined(report) if told.is_none() => {
                    told = Some(report);
                    Ok(())
                }
                _ => Err("it sent a message before its first command"),
            },
        );
        let memory = started.worker.files.receive(1).ok().and_then(|mut files| files.pop());
        match (finished, told, memory) {
            (Ok(Reply::Ok), Some(report), Some(memory)) => {
                started.report = report;
                let life = Arc::clone(&started.worker.life);
                started.process = Some(Arc::new(Memory::new(memory, life)));
                Ok(started)
            }
            (Ok(Reply::Ok), ..) => {
                Err(started.failed(Err(started.worker.end("it didn't say how it is confined"))))
            }
            (other, ..) => Err(started.failed(other)),
        }
    }

    /// Gives a command that isn't a run, and waits until it was executed.
    fn command(&mut self, command: Command) -> Result<Reply, StartError> {
        let done = self
            .settle()
            .and_then(|()| self.worker.send_command(command))
            .and_then(|()| self.finish(|| None, |_| Err(NO_RUN)));
        match done {
            Ok(done @ (Reply::Ok | Reply::Snapshot { .. })) => Ok(done),
            other => Err(self.failed(other)),
        }
    }

    /// Waits until the worker has said what it does by itself after a run.
    fn settle(&mut self) -> Result<(), String> {
        self.is_resetting = false;
        let Some(number) = self.is_keeping.take() else { return Ok(()) };
        // The pool didn't want the copy.
        self.wants_copies = false;
        if let Reply::Snapshot { bytes } = self.finish(|| None, |_| Err(NO_RUN))? {
            self.worker.forget(number, bytes);
        }
        Ok(())
    }

    /// Returns the number of the next copy that the worker keeps.
    fn next_copy(&mut self) -> u64 {
        self.kept += 1;
        self.kept
    }

    /// Carries out a command that has no result.
    fn execute(&mut self, command: Command) -> Result<(), StartError> {
        match self.command(command)? {
            Reply::Ok => Ok(()),
            other => Err(self.failed(Ok(other))),
        }
    }

    /// Returns the error for a command that didn't end well.
    fn failed(&self, ended: Result<Reply, String>) -> StartError {
        let why = match ended {
            Ok(Reply::Failed(why)) => why,
            Ok(_) => self.worker.end("it answered a different command"),
            Err(why) => why,
        };
        StartError::Process(Cause::new(why))
    }

    /// Receives until the command has ended. `handle` gets what comes before that. `overdue` says why
    /// the worker may not continue; it is asked at least every [`GLANCE`].
    ///
    /// The error says how the worker has ended, which it has then.
    fn finish(
        &mut self,
        overdue: impl Fn() -> Option<&'static str>,
        mut handle: impl FnMut(WorkerMessage) -> Result<(), &'static str>,
    ) -> Result<Reply, String> {
        loop {
            match self.next_message(&overdue)? {
                WorkerMessage::Alive => {}
                WorkerMessage::Reply(done, stats) => {
                    self.stats = stats.believed();
                    return Ok(done);
                }
                other => handle(other).map_err(|lie| self.worker.end(lie))?,
            }
        }
    }

    /// Receives what comes next, as [`Self::finish`] does.
    fn next_message(
        &mut self,
        overdue: impl Fn() -> Option<&'static str>,
    ) -> Result<WorkerMessage, String> {
        let mut silent_since: Option<Instant> = None;
        loop {
            if let Some(why) = overdue() {
                return Err(self.worker.end(why));
            }
            match self.receiver.receive::<WorkerMessage>(Some(Instant::now() + GLANCE)) {
                Ok(message) => return Ok(message),
                Err(Error::TimedOut) => {
                    let deadline = *silent_since.get_or_insert_with(|| Instant::now() + SILENCE);
                    if Instant::now() >= deadline {
                        return Err(self.worker.end("it stopped responding"));
                    }
                    self.worker.send(&ControlMessage::Ping)?;
                }
                Err(error) => return Err(self.worker.failed(&error)),
            }
        }
    }

    /// Makes the command of the next run.
    fn run_command(&mut self, task: &Task, is_last: bool, keep: Option<u64>) -> Command {
        let Task { program, limits, .. } = task;
        self.runs += 1;
        let folders = &mut self.folders;
        let sent = ProgramMessage::new(program, |mount| number_of(folders, mount));
        let is_news = self.limits.as_ref() != Some(limits);
        let sent_limits = is_news.then(|| Box::new(limits.clone()));
        if is_news {
            self.limits = Some(limits.clone());
        }
        let (run, program) = (self.runs, Box::new(sent));
        Command::Run { run, program, limits: sent_limits, is_last, keep }
    }

    /// Runs a program; the error says how the worker has ended.
    fn run_task(&mut self, task: &Task, is_last: bool) -> Result<(Outcome, bool), String> {
        self.settle()?;
        let Task { program, limits, transcript, stop, .. } = task;
        let keep = (!is_last && self.wants_copies).then(|| self.next_copy());
        let command = self.run_command(task, is_last, keep);
        let run = self.runs;
        self.worker.send_command(command)?;
        let ending = Arc::new(RunStopper::new(&self.worker, run, program, limits));
        stop.begin(Arc::clone(&ending) as _);
        let (functions, egress) = (program.functions.clone(), program.egress.clone());
        let awaits_answers = !functions.is_empty() || egress.is_some();
        let calls = ServedCalls::new(functions, egress, limits);
        let worker = Arc::clone(&self.worker);
        let folders = self.folders.clone();
        let done = std::thread::scope(|scope| {
            if awaits_answers {
                // It ends with the calls.
                scope.spawn(|| {
                    while let Some(served) = calls.wait(None) {
                        if !served.is_empty()
                            && worker.send(&ControlMessage::Answers { run, served }).is_err()
                        {
                            return;
                        }
                    }
                });
            }
            let handle = |up| {
                match up {
                    WorkerMessage::Added(addition) => addition.add_to(transcript),
                    WorkerMessage::Called { number, name, arguments } => {
                        let arguments = serde_json::from_str(&arguments)
                            .map_err(|_| "it called a function with invalid arguments")?;
                        calls.begin(number, &name, &arguments);
                    }
                    WorkerMessage::Operates { number, frame } => {
                        let answer = calls.operate(number, &frame);
                        worker
                            .send(&ControlMessage::Operated { run, number, answer })
                            .map_err(|_| "it stopped reading answers")?;
                    }
                    WorkerMessage::Cancelled { number } => calls.cancel(number),
                    WorkerMessage::Folder { number, ask } => {
                        let folder = lent(&folders, number)
                            .ok_or("it requested a folder that it doesn't have")?;
                        let (answer, file) = folder.serve(&ask);
                        if let Some(file) = &file {
                            worker
                                .files
                                .send(&[file.as_fd()])
                                .map_err(|_| "it stopped reading the files of a folder")?;
                        }
                        let has_file = file.is_some();
                        worker
                            .send(&ControlMessage::Folder { answer, has_file })
                            .map_err(|_| "it stopped reading answers")?;
                    }
                    WorkerMessage::Confined(_) => return Err("it was confined twice"),
                    WorkerMessage::Alive | WorkerMessage::Reply(..) => {}
                }
                Ok(())
            };
            let done = self.finish(|| ending.overdue(), handle);
            (done, calls.close())
        });
        let (done, met) = done;
        stop.detach();
        match done? {
            Reply::Ran { run: other, .. } if other != run => Err(self.worker.end(ANOTHER_RUN)),
            Reply::Ran { outcome, is_lost, .. } => match outcome.outcome() {
                Ok(mut outcome) => {
                    // A call that was refused here ended for the worker as any other.
                    outcome.limits_met.extend(met);
                    self.is_keeping = keep.filter(|_| !is_lost);
                    Ok((outcome, is_lost))
                }
                Err(lie) => Err(self.worker.end(&lie.to_string())),
            },
            Reply::Failed(why) => Err(self.worker.end(&why)),
            Reply::Ok | Reply::Snapshot { .. } => {
                Err(self.worker.end("it answered another command"))
            }
        }
    }
}

/// What a worker has done wrong that ends a run which isn't the present one.
const ANOTHER_RUN: &str = "it ended a run that it wasn't running";

/// What a worker has done wrong that reports something of a run between runs.
const NO_RUN: &str = "it reported on a run when there was none";

/// Returns the number of a folder, which is its place; the same folder keeps its number.
fn number_of(folders: &mut Vec<Arc<Mount>>, mount: &Arc<Mount>) -> u64 {
    let known = folders.iter().position(|one| Arc::ptr_eq(one, mount));
    let place = known.unwrap_or_else(|| {
        folders.push(Arc::clone(mount));
        folders.len() - 1
    });
    place as u64
}

impl ProcessInterpreter {
    /// Returns the outcome of a run whose worker has ended in this way.
    fn died(&self, how: String) -> Outcome {
        let verdict = if self.worker.was_stopped.load(Ordering::Relaxed) {
            Verdict::Cancelled
        } else {
            Verdict::SandboxFailed(SandboxFailure::WorkerDied(Cause::new(how)))
        };
        Outcome::not_run(verdict)
    }
}

impl Interpreter for ProcessInterpreter {
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards) {
        task.transcript.begin(&task.limits);
        let ran = self.run_task(task, last);
        if ran.is_ok() && self.stats.had_code {
            pool::metrics::had_code();
        }
        let (outcome, is_lost) = ran.unwrap_or_else(|how| (self.died(how), true));
        self.is_resetting = last && !is_lost;
        let afterwards = if is_lost { Afterwards::Lost } else { Afterwards::Usable };
        (outcome.with_output(&task.transcript), afterwards)
    }

    fn reset(&mut self) -> Result<(), StartError> {
        self.folders.clear();
        self.lineage = Lineage::default();
        // What it has to compile is awaited here, so that no program has to wait for that.
        if std::mem::take(&mut self.is_resetting) && !self.stats.has_to_compile {
            self.stats.memory_bytes = self.stats.reset_bytes;
            return Ok(());
        }
        self.execute(Command::Reset)
    }

    fn readiness(&self, is_last: bool) -> Readiness {
        match is_last {
            true if self.is_resetting && !self.stats.has_to_compile => {
                Readiness::Soon { memory_bytes: self.stats.reset_bytes }
            }
            false if self.stats.has_threads => Readiness::Stays,
            _ => Readiness::Later,
        }
    }

    fn suspend(&mut self) -> Result<Suspended, StartError> {
        self.execute(Command::Suspend)?;
        let state = states::receive(|| self.worker.files.receive(MOST_DESCRIPTORS))
            .map_err(|error| self.failed(Err(self.worker.failed(&error))))?;
        let state = state.state(&self.image, |number, _| lent(&self.folders, number))?;
        Ok(Suspended::new(state.with_lineage(&self.lineage)))
    }

    fn snapshot(&mut self) -> Result<Suspended, StartError> {
        self.wants_copies = true;
        let (number, done) = match self.is_keeping.take() {
            Some(number) => match self.finish(|| None, |_| Err(NO_RUN)) {
                Ok(done @ Reply::Snapshot { .. }) => (number, done),
                other => return Err(self.failed(other)),
            },
            None => {
                let number = self.next_copy();
                (number, self.command(Command::Keep(number))?)
            }
        };
        match done {
            Reply::Snapshot { bytes } => {
                let bytes = bytes.min(states::LONGEST);
                let (image, worker) = (self.image.clone(), Arc::clone(&self.worker));
                let (folders, lineage) = (self.folders.clone(), self.lineage.clone());
                let fetched = Mutex::default();
                let kept =
                    RemoteSnapshot { image, worker, number, bytes, folders, lineage, fetched };
                let kept = Arc::new(kept);
                let copy: Weak<dyn Movable> = Arc::<RemoteSnapshot>::downgrade(&kept);
                self.worker.helper.copies().add(self.worker.number, copy, bytes);
                self.copies.retain(|copy| copy.strong_count() > 0);
                self.copies.push(Arc::downgrade(&kept));
                Ok(Suspended::new(RemoteState(kept)))
            }
            other => Err(self.failed(Ok(other))),
        }
    }

    fn resume(&mut self, suspended: &Suspended) -> Result<(), StartError> {
        self.folders.clear();
        if let Some(kept) = suspended.downcast_ref::<RemoteState>()
            && Arc::ptr_eq(&kept.0.worker, &self.worker)
        {
            // Nobody fetches it meanwhile.
            let fetched = kept.0.fetched.lock();
            if fetched.is_none() {
                self.folders.clone_from(&kept.0.folders);
                self.lineage.clone_from(&kept.0.lineage);
                return self.execute(Command::ResumeKept(kept.0.number));
            }
        }
        let settled = settled(suspended)?;
        let state: &SessionState = settled.downcast_ref().ok_or(SessionError::NotSuspendable)?;
        self.lineage = state.lineage();
        let folders = &mut self.folders;
        let sent = states::send(&self.worker.files, state, |mount| Some(number_of(folders, mount)));
        sent.map_err(|error| self.failed(Err(self.worker.failed(&error))))?;
        self.execute(Command::Resume)
    }

    fn memory_bytes(&self) -> u64 {
        self.stats.memory_bytes
    }

    fn process(&self) -> Option<&Arc<dyn WorkerProcess>> {
        self.process.as_ref()
    }
}

impl Drop for ProcessInterpreter {
    fn drop(&mut self) {
        // A session that rolls back needs its copy, which would be gone with the process.
        for kept in self.copies.drain(..).filter_map(|copy| copy.upgrade()) {
            if let Err(error) = kept.fetch() {
                tracing::debug!(%error, "a copy of a session's state is lost with its process");
            }
        }
        self.worker.end("it was dismissed");
    }
}
