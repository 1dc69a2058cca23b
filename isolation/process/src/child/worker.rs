//! A worker process: it owns one interpreter, and gets everything else from the embedding process.
//!
//! Its main thread takes and executes commands; `hatchery-control` receives messages to the current
//! run; `hatchery-states` sends snapshots. If a channel ends, so does the process.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::{fmt, panic, thread};

use channel::{Descriptors, MOST_DESCRIPTORS, Receiver, Sender};
use engine::{
    Afterwards, Answer, Callee, Cause, FolderAnswer, FolderAsk, FolderServer, HostCall, Image,
    Interpreter, Limits, Mount, NetworkAnswer, NetworkEffects, NetworkPeer, NetworkReply, Outcome,
    OutcomeMessage, ProgramMessage, ProxiedFolder, Proxies, Room, SandboxFailure, Served,
    SessionState, StartError, StopHandle, StopReason, Transcript, Verdict, chain,
};
use parking_lot::{Condvar, Mutex};

use crate::child::test_hook;
use crate::message::{
    Command, CommandFrame, ControlMessage, Reply, StateAsk, StopKind, StopRequest, WorkerMessage,
    WorkerStats, commands_config, control_config, read,
};
use crate::parent::groups;
use crate::states::Arrived;
use crate::system::end;
use crate::{memory, states};

pub(crate) use outside::{Outside, THREADS};

mod outside;

/// What the threads of a worker share.
struct WorkerShared {
    sender: Mutex<Sender>,
    files: Descriptors,
    runs: Mutex<Runs>,
    /// The answer to the one question about a folder that is open.
    answer: Mutex<Option<(FolderAnswer, Option<OwnedFd>)>>,
    answered: Condvar,
    kept: Mutex<HashMap<u64, SessionState>>,
}

/// A worker's ends of what connects it with the embedding process.
#[derive(Debug)]
pub(crate) struct WorkerEnds {
    pub(crate) ring: OwnedFd,
    pub(crate) control: OwnedFd,
    pub(crate) files: Descriptors,
    pub(crate) asks: UnixStream,
    pub(crate) states: Descriptors,
    /// The entrance of its control group.
    pub(crate) group: Option<OwnedFd>,
}

/// Runs a worker in a process that was forked for it.
pub(crate) fn run(image: &Image, ends: WorkerEnds, outside: &Outside<'_>) -> ! {
    // A panic must not unwind into the helper's code, which this process has a copy of.
    let ran = panic::catch_unwind(AssertUnwindSafe(|| work(image, ends, outside)));
    end(if ran.is_ok() { 0 } else { 8 })
}

/// Works until the channel ends.
fn work(image: &Image, ends: WorkerEnds, outside: &Outside<'_>) {
    // The default hook opens files for its trace.
    panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a worker process panicked")));
    let WorkerEnds { ring, control, files, mut asks, states, group } = ends;
    let Ok(mut channel) = channel::attach(&ring, &commands_config()) else { end(2) };
    let Ok(control) = channel::attach(&control, &control_config()) else { end(2) };
    let mut fail = |why: String| -> ! {
        let failed = WorkerMessage::Reply(Reply::Failed(why), WorkerStats::default());
        // If nobody can be told, nobody waits.
        let _ = channel.sender.send(&failed, None);
        end(0)
    };
    // Whatever it maps from here on counts there.
    if let Some(Err(error)) = group.map(groups::enter) {
        fail(format!("it can't enter its control group: {error}"));
    }
    let mut interpreter = match Image::start(image) {
        Ok(interpreter) => interpreter,
        Err(error) => fail(chain(&error).to_string()),
    };
    interpreter.open_ahead();
    // It is kept, as all open files are.
    let memory = memory::open();
    let report = match outside.confine([files.as_fd(), asks.as_fd(), states.as_fd()]) {
        Ok(report) => report,
        Err(error) => fail(error),
    };
    let shared = Arc::new(WorkerShared {
        sender: Mutex::new(channel.sender),
        files,
        runs: Mutex::default(),
        answer: Mutex::default(),
        answered: Condvar::new(),
        kept: Mutex::default(),
    });
    let its = Arc::clone(&shared);
    let began = thread::Builder::new()
        .name("hatchery-control".to_owned())
        .spawn(move || its.hear(control.receiver))
        .and_then(|_| {
            let its = Arc::clone(&shared);
            thread::Builder::new().name("hatchery-states".to_owned()).spawn(move || {
                while let Ok(Some(ask)) = read(&mut asks) {
                    its.hand_out(ask, &states);
                }
            })
        });
    if began.is_err() {
        end(3);
    }
    let sent = memory.map(|memory| shared.files.send(&[memory.as_fd()]));
    if !matches!(sent, Ok(Ok(()))) {
        end(9);
    }
    shared.send(&WorkerMessage::Confined(report));
    let mut reset_bytes = interpreter.private_bytes();
    let (mut failed, mut limits) = (None, Limits::default());
    shared.done(Reply::Ok, stats(&interpreter, reset_bytes));
    while let Ok(frame) = channel.receiver.receive::<CommandFrame>(None) {
        let CommandFrame { mut command, dropped } = frame;
        let mut cancelled = None;
        if let Command::Run { run, limits: new, .. } = &mut command {
            if let Some(new) = new.take() {
                limits = *new;
            }
            cancelled = Some(*run).filter(|run| shared.runs.lock().is_cancelled(*run));
        }
        // What it does by itself afterwards.
        let (resets, keeps) = match &command {
            Command::Run { is_last, keep, .. } => (*is_last, *keep),
            _ => (false, None),
        };
        let done = match (failed.take(), cancelled) {
            (Some(error), _) => Err(error),
            (None, None) => shared.execute(&mut interpreter, &limits, command),
            (None, Some(run)) => {
                let outcome = Box::new(OutcomeMessage::new(Outcome::not_run(Verdict::Cancelled)));
                Ok(Reply::Ran { run, outcome, is_lost: false })
            }
        };
        let done = done.unwrap_or_else(|error| Reply::Failed(chain(&error).to_string()));
        let is_usable = matches!(done, Reply::Ran { is_lost: false, .. });
        shared.done(done, stats(&interpreter, reset_bytes));
        shared.forget(&dropped);
        if is_usable && resets {
            failed = interpreter.reset().err();
            reset_bytes = interpreter.private_bytes();
        } else if is_usable && let Some(number) = keeps {
            let kept = shared.keep(&mut interpreter, number);
            let kept = kept.unwrap_or_else(|error| Reply::Failed(chain(&error).to_string()));
            shared.done(kept, stats(&interpreter, reset_bytes));
        }
    }
    end(0)
}

fn stats(interpreter: &Interpreter, reset_bytes: u64) -> WorkerStats {
    WorkerStats {
        memory_bytes: interpreter.private_bytes(),
        reset_bytes,
        has_to_compile: interpreter.has_to_compile(),
        has_threads: interpreter.threads() > 0,
        had_code: interpreter.had_code(),
    }
}

impl WorkerShared {
    fn execute(
        self: &Arc<Self>,
        interpreter: &mut Interpreter,
        limits: &Limits,
        command: Command,
    ) -> Result<Reply, StartError> {
        match command {
            Command::Run { run, program, is_last, .. } => {
                return Ok(self.run(interpreter, run, *program, limits, is_last));
            }
            Command::Reset => {
                interpreter.reset()?;
                interpreter.compile_ahead()?;
            }
            Command::Suspend => {
                let sent =
                    states::send(&self.files, &interpreter.suspend()?, |mount| mount.lent_number());
                if sent.is_err() {
                    end(4);
                }
            }
            Command::Keep(number) => return self.keep(interpreter, number),
            Command::Resume => {
                let state = self.state();
                let image = interpreter.image().expect("it was started on one").clone();
                let server: Arc<dyn FolderServer> = ParentProxies(Arc::clone(self)).folders();
                let state = state.state(&image, |number, identity| {
                    let folder = ProxiedFolder::new(number, identity, Arc::clone(&server));
                    Some(Arc::new(Mount::proxied(folder)))
                })?;
                interpreter.resume(&state)?;
            }
            Command::ResumeKept(number) => {
                let state = self.kept.lock().get(&number).cloned();
                let state = state.ok_or(engine::SessionError::NotSuspendable)?;
                interpreter.resume(&state)?;
            }
        }
        Ok(Reply::Ok)
    }

    /// Keeps a copy of the interpreter's state under this number.
    fn keep(&self, interpreter: &mut Interpreter, number: u64) -> Result<Reply, StartError> {
        let state = interpreter.snapshot()?;
        let bytes = state.bytes();
        self.kept.lock().insert(number, state);
        Ok(Reply::Snapshot { bytes })
    }

    fn run(
        self: &Arc<Self>,
        interpreter: &mut Interpreter,
        number: u64,
        program: ProgramMessage,
        limits: &Limits,
        is_last: bool,
    ) -> Reply {
        let mut program = match program.program(&ParentProxies(Arc::clone(self))) {
            Ok(program) => program,
            Err(error) => {
                let failure = SandboxFailure::Start(Cause::new(error));
                let outcome = Outcome::not_run(Verdict::SandboxFailed(failure));
                let outcome = Box::new(OutcomeMessage::new(outcome));
                return Reply::Ran { run: number, outcome, is_lost: false };
            }
        };
        let stop = StopHandle::default();
        let early = self.runs.lock().begin(number, stop.clone());
        if let Some(end) = early {
            end.of(&stop);
        }
        test_hook::pass(&mut program.source);
        let transcript = Arc::<Transcript>::default();
        let its = Arc::clone(self);
        transcript.copy_to(move |addition| its.send(&WorkerMessage::Added(addition)));
        let (outcome, afterwards) = interpreter.run(&program, limits, &transcript, &stop, is_last);
        // Calls that go on end with the run; their replies do nothing any more.
        let ended = self.runs.lock().now.take();
        drop(ended);
        let outcome = Box::new(OutcomeMessage::new(outcome));
        Reply::Ran { run: number, outcome, is_lost: afterwards == Afterwards::Lost }
    }

    /// Hears what the embedding process says of runs.
    fn hear(&self, mut receiver: Receiver) {
        loop {
            let Ok(message) = receiver.receive::<ControlMessage>(None) else { end(0) };
            match message {
                ControlMessage::End(end) => self.end_run(end),
                ControlMessage::Operated { run, number, answer } => {
                    let begun = self.of_run(run, |run| match answer {
                        Some(_) => run.operations.remove(&number).map(|(begun, _)| begun),
                        None => run.operations.get(&number).map(|(begun, _)| begun.clone()),
                    });
                    if let Some(begun) = begun {
                        // The one who waits has gone only if its run has ended.
                        let _ = begun.send(answer);
                    }
                }
                ControlMessage::Answers { run, served } => {
                    let Served { answers, freed, operations } = served;
                    for answer in answers {
                        self.answer(run, answer);
                    }
                    for (number, bytes) in operations {
                        let operation = self.of_run(run, |run| run.operations.remove(&number));
                        if let Some((_, answer)) = operation {
                            answer(bytes);
                        }
                    }
                    for number in freed {
                        let room = self.of_run(run, |run| run.left.remove(&number));
                        drop(room);
                    }
                }
                ControlMessage::Folder { answer, has_file } => {
                    let file = has_file.then(|| self.file());
                    *self.answer.lock() = Some((answer, file));
                    self.answered.notify_all();
                }
                ControlMessage::Ping => self.send(&WorkerMessage::Alive),
            }
        }
    }

    /// Ends a run, at once if it goes on, or when it begins.
    fn end_run(&self, end: StopRequest) {
        let stop = self.runs.lock().end(end);
        if let Some(stop) = stop {
            end.of(&stop);
        }
    }

    /// Does something with the run of this number, if it goes on.
    fn of_run<T>(&self, number: u64, work: impl FnOnce(&mut Run) -> Option<T>) -> Option<T> {
        self.runs.lock().of(number).and_then(work)
    }

    /// Ends a call of this run.
    fn answer(&self, run: u64, answer: Answer) {
        let number = answer.number;
        let Some((reply, room)) = self.of_run(run, |run| run.calls.remove(&number)) else {
            // The program gave it up meanwhile.
            if !answer.is_worked_on {
                drop(self.of_run(run, |run| run.left.remove(&number)));
            }
            return;
        };
        if answer.is_worked_on {
            self.of_run(run, |run| run.left.insert(number, room));
            reply.answer(answer.into_result());
        } else {
            // Without the lock, since the end of a call may begin another one.
            reply.answer(answer.into_result());
            drop(room);
        }
    }

    /// Takes the descriptor that came before a frame.
    fn file(&self) -> OwnedFd {
        match self.files.receive(1).map(|mut files| files.pop()) {
            Ok(Some(file)) => file,
            _ => end(6),
        }
    }

    /// Takes the state that came before a frame.
    fn state(&self) -> Arrived {
        let state = states::receive(|| self.files.receive(MOST_DESCRIPTORS));
        state.unwrap_or_else(|_| end(5))
    }

    fn hand_out(&self, ask: StateAsk, states: &Descriptors) {
        match ask {
            StateAsk::Send(number) => {
                let state = self.kept.lock().get(&number).cloned();
                let sent =
                    state.map(|state| states::send(states, &state, |mount| mount.lent_number()));
                if !matches!(sent, Some(Ok(()))) {
                    // The one who waits for it must not wait without end.
                    end(7);
                }
            }
            StateAsk::Forget(numbers) => self.forget(&numbers),
        }
    }

    /// Drops the copies of these numbers.
    fn forget(&self, numbers: &[u64]) {
        for number in numbers {
            let forgotten = self.kept.lock().remove(number);
            drop(forgotten);
        }
    }

    fn done(&self, done: Reply, stats: WorkerStats) {
        self.send(&WorkerMessage::Reply(done, stats));
    }

    fn send(&self, message: &WorkerMessage) {
        if self.sender.lock().send(message, None).is_err() {
            end(0);
        }
    }
}

/// Stands in for what the embedding process has.
struct ParentProxies(Arc<WorkerShared>);

impl fmt::Debug for ParentProxies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ParentProxies")
    }
}

impl Proxies for ParentProxies {
    fn folders(&self) -> Arc<dyn FolderServer> {
        Arc::new(Self(Arc::clone(&self.0)))
    }

    fn callee(&self, name: &str) -> Arc<dyn Callee> {
        Arc::new(Elsewhere { shared: Arc::clone(&self.0), name: name.to_owned() })
    }

    fn network(&self) -> Arc<dyn NetworkPeer> {
        Arc::new(Self(Arc::clone(&self.0)))
    }
}

/// The embedding process serves the streams, keeps the secrets and knows the requests.
impl NetworkPeer for ParentProxies {
    fn begin(&self, _transcript: &Arc<Transcript>) {}

    fn serve(&self, frame: &[u8], answer: NetworkAnswer) -> NetworkReply {
        let (begun, answered) = sync_channel(1);
        let number = {
            let mut runs = self.0.runs.lock();
            let Some(run) = runs.now.as_mut() else { return NetworkReply::Later(Box::new(())) };
            run.last_call += 1;
            run.operations.insert(run.last_call, (begun, answer));
            run.last_call
        };
        self.0.send(&WorkerMessage::Operates { number, frame: frame.to_vec() });
        match answered.recv() {
            Ok(Some(answer)) => NetworkReply::Now(answer),
            // Or its answer came before the word that it comes later.
            Ok(None) | Err(_) => {
                NetworkReply::Later(Box::new(Operation { shared: Arc::clone(&self.0), number }))
            }
        }
    }

    fn finish(&self) -> NetworkEffects {
        NetworkEffects::default()
    }
}

impl FolderServer for ParentProxies {
    fn ask(&self, folder: u64, ask: FolderAsk) -> Option<(FolderAnswer, Option<OwnedFd>)> {
        let mut answer = self.0.answer.lock();
        *answer = None;
        self.0.send(&WorkerMessage::Folder { number: folder, ask });
        while answer.is_none() {
            self.0.answered.wait(&mut answer);
        }
        answer.take()
    }
}

/// An operation on a stream, which the program gives up by dropping this.
struct Operation {
    shared: Arc<WorkerShared>,
    number: u64,
}

impl Drop for Operation {
    fn drop(&mut self) {
        let Self { shared, number } = self;
        let operation =
            shared.runs.lock().now.as_mut().and_then(|run| run.operations.remove(number));
        if operation.is_some() {
            shared.send(&WorkerMessage::Cancelled { number: *number });
        }
    }
}

/// A function of the embedding process.
struct Elsewhere {
    shared: Arc<WorkerShared>,
    name: String,
}

impl Callee for Elsewhere {
    fn call(&self, call: HostCall) {
        let HostCall { arguments, room, reply, .. } = call;
        let cancellation = reply.cancellation();
        let number = {
            let mut runs = self.shared.runs.lock();
            let Some(run) = runs.now.as_mut() else { return };
            run.last_call += 1;
            run.calls.insert(run.last_call, (reply, room));
            run.last_call
        };
        let arguments = serde_json::Value::Object(arguments).to_string();
        self.shared.send(&WorkerMessage::Called { number, name: self.name.clone(), arguments });
        let shared = Arc::clone(&self.shared);
        cancellation.on_cancel(move || {
            // Its room stays taken until the host has stopped working on it.
            let reply = shared.runs.lock().now.as_mut().and_then(|run| {
                let (reply, room) = run.calls.remove(&number)?;
                run.left.insert(number, room);
                Some(reply)
            });
            if reply.is_some() {
                shared.send(&WorkerMessage::Cancelled { number });
            }
        });
    }
}

/// What a worker knows of runs.
///
/// A run's command and a request to stop it come over two rings, so a request may overtake its command.
/// The numbers of runs only grow, which tells such a request from one that came too late.
#[derive(Default)]
struct Runs {
    /// The one that goes on.
    now: Option<Run>,
    /// The number of the last one that began.
    last: u64,
    /// How runs are to end that haven't begun.
    early: Vec<StopRequest>,
}

/// What takes the answer to an operation of the network: one that is there at once, or `None` for the
/// word that it comes later; and that later one.
type PendingOperation = (SyncSender<Option<Vec<u8>>>, NetworkAnswer);

/// The run that goes on.
struct Run {
    number: u64,
    stop: StopHandle,
    calls: HashMap<u64, (engine::Reply, Room)>,
    /// The room of calls that have ended for the program, while the host works on them.
    left: HashMap<u64, Room>,
    operations: HashMap<u64, PendingOperation>,
    /// The number of the last call or operation.
    last_call: u64,
}

impl StopRequest {
    /// Ends the run that has this handle.
    fn of(self, stop: &StopHandle) {
        match self.kind {
            StopKind::Interrupt => stop.interrupt(self.reason),
            StopKind::Kill => stop.stop(self.reason),
        }
    }
}

impl Runs {
    /// Whether a run whose command was taken doesn't begin, since its outcome isn't wanted any more.
    fn is_cancelled(&self, number: u64) -> bool {
        let is_kill =
            |end: &StopRequest| end.reason == StopReason::Cancelled && end.kind == StopKind::Kill;
        self.early.iter().any(|end| end.run == number && is_kill(end))
    }

    /// Notes that a run begins. Returns how it is to end, if that was said before.
    #[must_use]
    fn begin(&mut self, number: u64, stop: StopHandle) -> Option<StopRequest> {
        let (calls, left, operations) = (HashMap::new(), HashMap::new(), HashMap::new());
        self.now = Some(Run { number, stop, calls, left, operations, last_call: 0 });
        self.last = number;
        let early = self.early.iter().find(|end| end.run == number).copied();
        self.early.retain(|end| end.run > number);
        early
    }

    /// Notes how a run is to end, if it hasn't begun. Returns its handle, if it goes on.
    #[must_use]
    fn end(&mut self, end: StopRequest) -> Option<StopHandle> {
        if end.run > self.last {
            end.add_to(&mut self.early);
        }
        self.of(end.run).map(|run| run.stop.clone())
    }

    /// Returns the run of this number, if it goes on.
    fn of(&mut self, number: u64) -> Option<&mut Run> {
        self.now.as_mut().filter(|run| run.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: StopRequest =
        StopRequest { run: 2, reason: StopReason::Cancelled, kind: StopKind::Kill };

    #[test]
    fn a_run_that_nobody_wants_does_not_begin() {
        let mut runs = Runs::default();
        let end = |run, kind| StopRequest { run, kind, ..STOP };
        assert!(
            runs.end(end(1, StopKind::Interrupt)).is_none()
                && runs.end(end(2, StopKind::Kill)).is_none()
        );
        // It can answer an interrupt.
        assert!(!runs.is_cancelled(1) && runs.is_cancelled(2) && !runs.is_cancelled(3));
    }

    #[test]
    fn a_word_that_overtakes_its_run_ends_it_when_it_begins() {
        let interrupt = StopRequest { kind: StopKind::Interrupt, ..STOP };
        let mut runs = Runs::default();
        assert!(runs.begin(1, StopHandle::default()).is_none());
        assert!(
            runs.end(interrupt).is_none()
                && runs.end(STOP).is_none()
                && runs.end(interrupt).is_none()
        );
        assert!(runs.of(1).is_some() && runs.of(2).is_none());
        runs.now = None;
        let early = runs.begin(2, StopHandle::default()).expect("it was said before");
        assert!(early.run == 2 && early.kind == StopKind::Kill);
        // Those that come in time reach the run, and those that come late nothing.
        assert!(runs.end(interrupt).is_some());
        runs.now = None;
        assert!(runs.end(STOP).is_none() && runs.begin(3, StopHandle::default()).is_none());
    }
}
