//! A worker process: it owns one interpreter, and asks the embedding process for all else.
//!
//! Its main thread carries out orders; `hatchery-orders` receives them, with whatever concerns the
//! run that goes on; `hatchery-states` hands out kept states. If the channel ends, so does the
//! process.
#![expect(unsafe_code, reason = "closing descriptors that the helper owned")]

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use channel::{Descriptors, Receiver, Sender};
use confine::{Confinement, Report, Separation};
use engine::{
    Additions, Afterwards, Callee, Cause, FolderAnswer, FolderAsk, FolderServer, HostCall, Image,
    Interpreter, Lent, Outcome, Reply, Room, SandboxFailure, SentOutcome, SentProgram,
    SessionState, StartError, StopHandle, Transcript, Verdict, chain,
};
use parking_lot::{Condvar, Mutex};

use crate::memory;
use crate::message::{Done, Down, Facts, Order, StateAsk, Up, channel_config};
use crate::states;
use crate::stream::read;
use crate::system::{self, end};

/// Memory files that are made or taken at once, and files of mounted folders.
const NEW_DESCRIPTORS: u64 = 1 << 10;

/// The engine's store of copied pages is a memory file of 64 GiB, mostly holes.
const LONGEST_FILE: u64 = 128 << 30;

/// The threads of a worker, with room for those of a guest.
const THREADS: u64 = 1 << 10;

/// What the threads of a worker share.
struct Shared {
    sender: Mutex<Sender>,
    files: Descriptors,
    run: Mutex<Option<Run>>,
    /// The answer to the one question about a folder that is open.
    answer: Mutex<Option<(FolderAnswer, Option<OwnedFd>)>>,
    answered: Condvar,
    kept: Mutex<HashMap<u64, SessionState>>,
}

/// The run that goes on.
struct Run {
    number: u64,
    stop: StopHandle,
    calls: HashMap<u64, (Reply, Room)>,
    last_call: u64,
}

/// A worker's ends of what connects it with the embedding process.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) ring: OwnedFd,
    pub(crate) files: Descriptors,
    pub(crate) asks: UnixStream,
    pub(crate) states: Descriptors,
}

/// What a worker is confined by, and what it leaves behind.
pub(crate) struct Outside<'a> {
    /// The helper's process id.
    pub(crate) parent: u32,
    /// The namespaces that it shares with the helper's other workers.
    pub(crate) separation: Option<&'a Separation>,
    /// Where the system call is noted that the worker is killed for.
    pub(crate) refused: &'static AtomicU32,
    /// The helper's own descriptors.
    pub(crate) left: &'a [BorrowedFd<'a>],
}

impl Outside<'_> {
    /// Confines this process, which keeps these descriptors and the files that the engine has open.
    fn confine(&self, ends: [BorrowedFd<'_>; 3]) -> Result<Report, String> {
        let kept = system::open_files(self.left).map_err(|error| error.to_string())?;
        let kept: Vec<BorrowedFd<'_>> = kept.into_iter().chain(ends).collect();
        let mut confinement = Confinement::of_child(self.parent);
        confinement.keep = &kept;
        confinement.new_descriptors = NEW_DESCRIPTORS;
        confinement.file_bytes = LONGEST_FILE;
        confinement.threads = THREADS;
        confinement.refused = Some(self.refused);
        confinement.separation = self.separation;
        // SAFETY: what isn't kept belonged to the helper, and this process uses none of it: it goes
        // on in `run`, which never returns to the helper's code.
        unsafe { confine::confine(&confinement) }.map_err(|error| engine::chain(&error).to_string())
    }
}

/// Runs a worker in a process that was forked for it.
pub(crate) fn run(image: &Image, ends: Ends, outside: &Outside<'_>) -> ! {
    // A panic must not unwind into the helper's code, which this process has a copy of.
    let ran = panic::catch_unwind(AssertUnwindSafe(|| work(image, ends, outside)));
    end(if ran.is_ok() { 0 } else { 8 })
}

/// Works until the channel ends.
fn work(image: &Image, ends: Ends, outside: &Outside<'_>) {
    // The default hook opens files for its trace.
    panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a worker process panicked")));
    let Ends { ring, files, mut asks, states } = ends;
    let Ok(mut channel) = channel::attach(&ring, &channel_config()) else { end(2) };
    let mut interpreter = match Image::start(image) {
        Ok(interpreter) => interpreter,
        Err(error) => {
            let failed = Up::Done(Done::Failed(chain(&error).to_string()), Facts::default());
            // If nobody can be told, nobody waits.
            let _ = channel.sender.send(&failed, &[], None);
            end(0)
        }
    };
    interpreter.open_ahead();
    // It is kept, as all open files are.
    let memory = memory::open();
    let report = match outside.confine([files.as_fd(), asks.as_fd(), states.as_fd()]) {
        Ok(report) => report,
        Err(error) => {
            let failed = Up::Done(Done::Failed(error), Facts::default());
            let _ = channel.sender.send(&failed, &[], None);
            end(0)
        }
    };
    let shared = Arc::new(Shared {
        sender: Mutex::new(channel.sender),
        files,
        run: Mutex::default(),
        answer: Mutex::default(),
        answered: Condvar::new(),
        kept: Mutex::default(),
    });
    let (orders, next) = sync_channel(1);
    let receiver = channel.receiver;
    let its = Arc::clone(&shared);
    let began = thread::Builder::new()
        .name("hatchery-orders".to_owned())
        .spawn(move || its.receive(receiver, &orders))
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
    shared.send(&Up::Confined(report));
    shared.done(Done::Well, facts(&interpreter));
    while let Ok((order, file)) = next.recv() {
        let done = shared.carry_out(&mut interpreter, order, file);
        let done = done.unwrap_or_else(|error| Done::Failed(chain(&error).to_string()));
        let facts = facts(&interpreter);
        shared.done(done, facts);
    }
}

fn facts(interpreter: &Interpreter) -> Facts {
    Facts {
        memory_bytes: interpreter.private_bytes(),
        has_much_work_ahead: interpreter.wants_to_compile(),
        had_code: interpreter.had_code(),
    }
}

impl Shared {
    fn carry_out(
        self: &Arc<Self>,
        interpreter: &mut Interpreter,
        order: Order,
        file: Option<OwnedFd>,
    ) -> Result<Done, StartError> {
        match order {
            Order::Run { run, program, is_last } => {
                return Ok(self.run(interpreter, run, *program, is_last));
            }
            Order::Reset => interpreter.reset()?,
            Order::WorkAhead => interpreter.compile_ahead()?,
            Order::Park => {
                let state = states::file_of(&interpreter.park()?.send());
                let sent = state.map(|state| self.files.send(&[state.as_fd()]));
                if !matches!(sent, Ok(Ok(()))) {
                    end(4);
                }
            }
            Order::Keep(number) => {
                let state = interpreter.snapshot()?;
                let bytes = state.bytes();
                self.kept.lock().insert(number, state);
                return Ok(Done::Kept { bytes });
            }
            Order::Attach => {
                let Some(Ok(bytes)) = file.map(states::read) else { end(5) };
                let image = interpreter.image().expect("it was started on one").clone();
                interpreter.attach(&SessionState::receive(&image, &bytes)?)?;
            }
            Order::AttachKept(number) => {
                let state = self.kept.lock().get(&number).cloned();
                let state = state.ok_or(engine::SessionError::NotParkable)?;
                interpreter.attach(&state)?;
            }
        }
        Ok(Done::Well)
    }

    fn run(
        self: &Arc<Self>,
        interpreter: &mut Interpreter,
        number: u64,
        program: SentProgram,
        is_last: bool,
    ) -> Done {
        let (program, limits) = match program.program(&Lender(Arc::clone(self))) {
            Ok(program) => program,
            Err(error) => {
                let failure = SandboxFailure::Start(Cause::new(error));
                let outcome = Outcome::not_run(Verdict::SandboxFailed(failure));
                let outcome = Box::new(SentOutcome::new(&outcome));
                return Done::Ran { outcome, is_lost: false };
            }
        };
        let stop = StopHandle::default();
        let run = Run { number, stop: stop.clone(), calls: HashMap::new(), last_call: 0 };
        *self.run.lock() = Some(run);
        let transcript = Arc::<Transcript>::default();
        let its = Arc::clone(self);
        transcript.copy_to(Additions(move |addition| its.send(&Up::Added(addition))));
        let (outcome, afterwards) = interpreter.run(&program, &limits, &transcript, &stop, is_last);
        // Calls that go on end with the run; their replies do nothing any more.
        let ended = self.run.lock().take();
        drop(ended);
        let outcome = Box::new(SentOutcome::new(&outcome));
        Done::Ran { outcome, is_lost: afterwards == Afterwards::Lost }
    }

    /// Receives what the embedding process says.
    fn receive(&self, mut receiver: Receiver, orders: &SyncSender<(Order, Option<OwnedFd>)>) {
        loop {
            let Ok(frame) = receiver.receive::<Down>(None) else { end(0) };
            match frame.message {
                Down::Order(order) => {
                    let file = matches!(order, Order::Attach).then(|| self.file());
                    if orders.send((order, file)).is_err() {
                        end(0);
                    }
                }
                Down::End { run, reason, is_gentle } => {
                    let stop = self
                        .run
                        .lock()
                        .as_ref()
                        .filter(|one| one.number == run)
                        .map(|one| one.stop.clone());
                    match (stop, is_gentle) {
                        (Some(stop), true) => stop.interrupt(reason),
                        (Some(stop), false) => stop.stop(reason),
                        (None, _) => {}
                    }
                }
                Down::Answers { run, answers } => {
                    for answer in answers {
                        let call = self
                            .run
                            .lock()
                            .as_mut()
                            .filter(|one| one.number == run)
                            .and_then(|one| one.calls.remove(&answer.number));
                        // Without the lock, since the end of a call may begin another one.
                        if let Some((reply, room)) = call {
                            reply.answer(answer.into_result());
                            drop(room);
                        }
                    }
                }
                Down::Folder { answer, has_file } => {
                    let file = has_file.then(|| self.file());
                    *self.answer.lock() = Some((answer, file));
                    self.answered.notify_all();
                }
                Down::Ping => self.send(&Up::Alive),
            }
        }
    }

    /// Takes the descriptor that came before a frame.
    fn file(&self) -> OwnedFd {
        match self.files.receive(1).map(|mut files| files.pop()) {
            Ok(Some(file)) => file,
            _ => end(6),
        }
    }

    fn hand_out(&self, ask: StateAsk, states: &Descriptors) {
        match ask {
            StateAsk::Send(number) => {
                let state = self.kept.lock().get(&number).cloned();
                let file = state.and_then(|state| states::file_of(&state.send()).ok());
                let sent = file.map(|file| states.send(&[file.as_fd()]));
                if !matches!(sent, Some(Ok(()))) {
                    // Whoever waits for it must not wait in vain.
                    end(7);
                }
            }
            StateAsk::Forget(number) => {
                let forgotten = self.kept.lock().remove(&number);
                drop(forgotten);
            }
        }
    }

    fn done(&self, done: Done, facts: Facts) {
        self.send(&Up::Done(done, facts));
    }

    fn send(&self, message: &Up) {
        if self.sender.lock().send(message, &[], None).is_err() {
            end(0);
        }
    }
}

/// Stands in for what the embedding process has.
struct Lender(Arc<Shared>);

impl Lent for Lender {
    fn folders(&self) -> Arc<dyn FolderServer> {
        Arc::new(Self(Arc::clone(&self.0)))
    }

    fn callee(&self, name: &str) -> Arc<dyn Callee> {
        Arc::new(Elsewhere { shared: Arc::clone(&self.0), name: name.to_owned() })
    }
}

impl FolderServer for Lender {
    fn ask(&self, folder: u64, ask: FolderAsk) -> Option<(FolderAnswer, Option<OwnedFd>)> {
        let mut answer = self.0.answer.lock();
        *answer = None;
        self.0.send(&Up::Folder { number: folder, ask });
        while answer.is_none() {
            self.0.answered.wait(&mut answer);
        }
        answer.take()
    }
}

/// A function of the embedding process.
struct Elsewhere {
    shared: Arc<Shared>,
    name: String,
}

impl Callee for Elsewhere {
    fn call(&self, call: HostCall) {
        let HostCall { arguments, room, reply, .. } = call;
        let cancellation = reply.cancellation();
        let number = {
            let mut run = self.shared.run.lock();
            let Some(run) = &mut *run else { return };
            run.last_call += 1;
            run.calls.insert(run.last_call, (reply, room));
            run.last_call
        };
        let arguments = serde_json::Value::Object(arguments).to_string();
        self.shared.send(&Up::Called { number, name: self.name.clone(), arguments });
        let shared = Arc::clone(&self.shared);
        cancellation.on_cancel(move || {
            let call = shared.run.lock().as_mut().and_then(|run| run.calls.remove(&number));
            if call.is_some() {
                shared.send(&Up::Cancelled { number });
            }
        });
    }
}
