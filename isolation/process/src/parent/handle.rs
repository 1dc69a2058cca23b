//! Parent-side handle of a pool's helper, which forks workers on request and restarts once it has
//! ended.
//!
//! Any process may be killed at any time, for example by an out-of-memory killer. When a helper
//! ends, so do its workers. The thread that listens to it starts the next one at once. Each worker
//! of the pool gets another process when it needs one. If no helper starts, every attempt to fork a
//! worker retries, and fails with that reason.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use channel::Descriptors;
use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::child::helper::Helper;
use crate::error::ProcessError;
use crate::message::{
    HelperCommand, HelperEvent, MARK, commands_config, control_config, read, write,
};
use crate::parent::control::ControlChannel;
use crate::parent::exit_state::ExitState;
use crate::parent::groups::{WorkerGroup, WorkerGroups};
use crate::parent::offloader::SnapshotOffloader;
use crate::parent::remote::Worker;
use crate::system;
use crate::system::wait_readable;

/// The variables of the environment that a helper and its workers get, besides those of Hatchery:
/// what starts the program and finds the cache. Others may hold secrets.
const VARIABLES: [&str; 8] = [
    "HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "TMPDIR",
    "XDG_CACHE_HOME",
];

fn is_given(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"HATCHERY_")
        || VARIABLES.iter().any(|variable| name == *variable)
}

/// How long a helper may take to load a build and its image, which are in the cache by then.
const LOADING: Duration = Duration::from_secs(60);

/// How long a helper may take to fork a worker.
const FORKING: Duration = Duration::from_secs(10);

/// How long a helper that can't fork, or says nothing, is given to end. It then was about to. Once
/// the first process of its namespace has ended, it can fork no more, and ends soon.
const ENDING: Duration = Duration::from_millis(500);

/// What every helper of a pool is started with.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) helper: Helper,
    pub(crate) load: Vec<u8>,
    /// The key of the image that it has then.
    pub(crate) key: String,
    /// Where its workers get control groups.
    pub(crate) groups: Option<Arc<WorkerGroups>>,
    /// The most private memory of a worker.
    pub(crate) private_bytes: u64,
    pub(crate) copies: SnapshotOffloader,
}

/// A running helper. It ends, with all its workers, when this is dropped.
#[derive(Debug)]
pub(crate) struct HelperHandle {
    asks: Mutex<Asks>,
    shared: Arc<HelperShared>,
    recipe: Arc<Recipe>,
}

/// What the thread that listens to the helper has of it.
#[derive(Debug)]
struct HelperShared {
    known: Mutex<WorkerRegistry>,
    ended: Condvar,
    process: HelperProcess,
}

/// The helper's process, which is killed when this is dropped.
#[derive(Debug)]
struct HelperProcess {
    child: Mutex<Child>,
    /// Readable once it has ended.
    pidfd: OwnedFd,
}

impl HelperProcess {
    fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { child: Mutex::new(child), pidfd }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    fn kill(&self) {
        // It may have ended before.
        let _ = self.child.lock().kill();
    }

    /// Ends it, if it hasn't ended, and says how it did.
    fn end(&self) -> String {
        self.kill();
        let ended = self.child.lock().wait();
        ended.map_or_else(|error| error.to_string(), |status| system::how(status.into_raw()))
    }

    /// Returns how a signal has ended it, or is about to; `None` if it goes on or exits by itself.
    fn killed(&self) -> Option<String> {
        let [has_ended] = wait_readable([self.pidfd.as_fd()], Some(ENDING)).ok()?;
        let status = self.child.lock().try_wait().ok().flatten().filter(|_| has_ended)?;
        status.signal().map(|_| system::how(status.into_raw()))
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[derive(Debug)]
struct Asks {
    stream: UnixStream,
    files: Descriptors,
}

#[derive(Debug, Default)]
struct WorkerRegistry {
    workers: HashMap<u64, RegisteredWorker>,
    /// Who waits for a fork.
    forks: HashMap<u64, SyncSender<Result<(), String>>>,
    has_forked: bool,
    /// Why the helper ends, if it has said so.
    why: Option<String>,
    /// How it has ended.
    how: Option<String>,
}

#[derive(Debug)]
struct RegisteredWorker {
    life: Weak<ExitState>,
    group: Option<WorkerGroup>,
}

impl HelperHandle {
    /// Starts a helper. Blocks. If it ends by itself after it had forked a worker, `ended` learns
    /// how. One that forks none isn't replaced at once, so that failing helpers don't restart
    /// endlessly.
    pub(crate) fn start(
        recipe: &Arc<Recipe>,
        ended: impl FnOnce(&str) + Send + 'static,
    ) -> Result<Self, ProcessError> {
        let program = recipe.helper.path()?;
        let no_helper = || ProcessError::NoHelper { path: program.clone() };
        // A helper has no helpers: this is a program that was started as one and didn't become it.
        if std::env::var_os(MARK).is_some() {
            return Err(no_helper());
        }
        let (mut stream, its_stream) = UnixStream::pair()?;
        let (files, its_files) = Descriptors::pair()?;
        let its_files = its_files.as_fd().try_clone_to_owned()?;
        let mut command = Command::new(&program);
        let given = std::env::vars_os().filter(|(name, _)| is_given(name));
        command.env_clear().envs(given).env(MARK, "1");
        command.stdin(Stdio::from(OwnedFd::from(its_stream))).stdout(Stdio::from(its_files));
        let process = HelperProcess::spawn(&mut command)
            .map_err(|cause| ProcessError::Start { path: program.clone(), cause })?;
        // This process keeps no copy of the helper's ends.
        drop(command);
        stream.set_read_timeout(Some(LOADING))?;
        let Recipe { load, private_bytes, .. } = &**recipe;
        let load = HelperCommand::Load { what: load.clone(), private_bytes: *private_bytes };
        let key = match write(&mut stream, &load).and_then(|()| read(&mut stream)) {
            Ok(Some(HelperEvent::Loaded { key })) => key,
            Ok(Some(HelperEvent::NotLoaded { what })) => return Err(ProcessError::Load { what }),
            _ => {
                let how = process.killed().map(|how| ProcessError::HelperEnded { how });
                return Err(how.unwrap_or_else(no_helper));
            }
        };
        if key != recipe.key {
            let what = "it has another image: its packages have changed meanwhile".to_owned();
            return Err(ProcessError::Load { what });
        }
        stream.set_read_timeout(None)?;
        let known = Mutex::default();
        let shared = Arc::new(HelperShared { known, ended: Condvar::new(), process });
        let (mut told, listens) = (stream.try_clone()?, Arc::clone(&shared));
        thread::Builder::new().name("hatchery-helper".to_owned()).spawn(move || {
            if let Some(how) = listens.listen(&mut told) {
                ended(&how);
            }
        })?;
        let asks = Mutex::new(Asks { stream, files });
        Ok(Self { asks, shared, recipe: Arc::clone(recipe) })
    }

    /// Forks the worker of this number, which no other one has had. Returns what receives its messages,
    /// too. Blocks for milliseconds.
    fn fork(
        self: Arc<Self>,
        number: u64,
    ) -> Result<(Arc<Worker>, channel::Receiver), ProcessError> {
        let (end, ring) = channel::create(&commands_config())?;
        let (control, word_ring) = channel::create(&control_config())?;
        let (files, its_files) = Descriptors::pair()?;
        let (states, its_states) = Descriptors::pair()?;
        let (asks, its_asks) = UnixStream::pair()?;
        files.set_nonblocking(true)?;
        states.set_nonblocking(true)?;
        asks.set_nonblocking(true)?;
        let life = Arc::new(ExitState::new([end.closer.clone(), control.closer]));
        let group = self.recipe.groups.as_ref().map(|groups| groups.make(number)).transpose()?;
        let entrance = group.as_ref().map(WorkerGroup::entrance).transpose()?;
        let forked = self.shared.known.lock().expect(number, &life, group)?;
        let rings = [ring.as_fd(), word_ring.as_fd()];
        let sockets = [its_files.as_fd(), its_asks.as_fd(), its_states.as_fd()];
        let entrance = entrance.as_ref().map(AsFd::as_fd);
        let sent: Vec<_> = rings.into_iter().chain(sockets).chain(entrance).collect();
        let answer =
            self.ask(&sent, number).map_err(|error| error.to_string()).and_then(|()| match forked
                .recv_timeout(FORKING)
            {
                Ok(forked) => forked,
                Err(RecvTimeoutError::Timeout) => {
                    self.shared.process.kill();
                    Err(format!("it forked no worker in {} s", FORKING.as_secs()))
                }
                Err(RecvTimeoutError::Disconnected) => Err("it has ended".to_owned()),
            });
        answer.map_err(|why| self.shared.not_forked(number, why))?;
        let worker = Worker {
            number,
            helper: self,
            commands: Mutex::new(end.sender),
            control: ControlChannel::new(control.sender),
            files,
            states: Mutex::new((asks, states)),
            dropped: Mutex::default(),
            life,
            was_stopped: AtomicBool::new(false),
        };
        Ok((Arc::new(worker), end.receiver))
    }

    fn ask(&self, files: &[std::os::fd::BorrowedFd<'_>], number: u64) -> io::Result<()> {
        let mut asks = self.asks.lock();
        asks.files.send(files).map_err(io::Error::other)?;
        write(&mut asks.stream, &HelperCommand::Fork(number))
    }

    /// Returns whether it forks no more workers.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.known.lock().how.is_some()
    }

    /// Returns what moves copies of states out of the workers.
    pub(crate) fn copies(&self) -> &SnapshotOffloader {
        &self.recipe.copies
    }

    /// Kills a worker.
    pub(crate) fn kill(&self, number: u64) {
        // If the helper has ended, so have its workers.
        let _ = write(&mut self.asks.lock().stream, &HelperCommand::Kill(number));
    }
}

impl Drop for HelperHandle {
    fn drop(&mut self) {
        self.shared.known.lock().has_forked = false;
        let _ = self.asks.lock().stream.shutdown(std::net::Shutdown::Both);
        // All workers end with it, and then their groups can go.
        self.shared.process.end();
        self.shared.known.lock().workers.clear();
    }
}

impl HelperShared {
    /// Learns what the helper says until it has ended. Returns how, if it had forked a worker and wasn't
    /// dropped.
    fn listen(&self, told: &mut UnixStream) -> Option<String> {
        // Its end of the stream may outlive it, in a worker that has just been forked.
        while let Ok([says, has_ended]) =
            wait_readable([told.as_fd(), self.process.pidfd.as_fd()], None)
        {
            if says {
                let Ok(Some(word)) = read(told) else { break };
                self.known.lock().learn(word);
            } else if has_ended {
                break;
            }
        }
        let how = self.process.end();
        let mut known = self.known.lock();
        known.all_ended(how);
        self.ended.notify_all();
        known.how.clone().filter(|_| known.has_forked)
    }

    /// Forgets a worker that wasn't forked. Returns why, which is the helper's end if it is ending.
    fn not_forked(&self, number: u64, why: String) -> ProcessError {
        let mut known = self.known.lock();
        known.workers.remove(&number);
        known.forks.remove(&number);
        let until = Instant::now() + ENDING;
        while known.how.is_none() && !self.ended.wait_until(&mut known, until).timed_out() {}
        match known.how.clone() {
            Some(how) => ProcessError::HelperEnded { how },
            None => ProcessError::System(io::Error::other(why)),
        }
    }
}

impl WorkerRegistry {
    fn expect(
        &mut self,
        number: u64,
        life: &Arc<ExitState>,
        group: Option<WorkerGroup>,
    ) -> Result<Receiver<Result<(), String>>, ProcessError> {
        if let Some(how) = self.how.clone() {
            return Err(ProcessError::HelperEnded { how });
        }
        let (sender, forked) = sync_channel(1);
        self.workers.insert(number, RegisteredWorker { life: Arc::downgrade(life), group });
        self.forks.insert(number, sender);
        Ok(forked)
    }

    fn learn(&mut self, word: HelperEvent) {
        match word {
            HelperEvent::Forked { worker } => {
                self.has_forked = true;
                self.forked(worker, Ok(()));
            }
            HelperEvent::NotForked { worker, what } => {
                self.workers.remove(&worker);
                self.forked(worker, Err(what));
            }
            HelperEvent::Ended { worker, how } => {
                if let Some(RegisteredWorker { life, group }) = self.workers.remove(&worker) {
                    let killer = group.as_ref().and_then(WorkerGroup::out_of_memory);
                    let how = killer.map_or(how.clone(), |killer| format!("{how} {killer}"));
                    if let Some(life) = life.upgrade() {
                        life.end(how);
                    }
                }
            }
            HelperEvent::Ends { why } => self.why = Some(why),
            HelperEvent::Loaded { .. } | HelperEvent::NotLoaded { .. } => {}
        }
    }

    fn forked(&mut self, worker: u64, result: Result<(), String>) {
        if let Some(waits) = self.forks.remove(&worker) {
            // Nobody waits any more if the thread that asked has panicked.
            let _ = waits.send(result);
        }
    }

    /// Notes how the helper has ended, and with it all workers.
    fn all_ended(&mut self, how: String) {
        let how = self.why.take().unwrap_or(how);
        self.forks.clear();
        let workers = std::mem::take(&mut self.workers).into_values();
        for life in workers.filter_map(|worker| worker.life.upgrade()) {
            life.end(format!("the helper that forked it has ended: {how}"));
        }
        self.how = Some(how);
    }
}

/// How often a helper or a worker that was killed while it started is started again at once.
pub(crate) const ATTEMPTS: u32 = 3;

/// The helper of a pool. Its process ends with this, unless it is just being started: then soon after.
#[derive(Debug)]
pub(crate) struct Helpers {
    recipe: Arc<Recipe>,
    current: Mutex<Option<Arc<HelperHandle>>>,
    /// The number of the last worker.
    last: AtomicU64,
}

impl Helpers {
    /// Starts the helper. Blocks.
    pub(crate) fn start(recipe: Recipe) -> Result<Arc<Self>, ProcessError> {
        let (recipe, current) = (Arc::new(recipe), Mutex::default());
        let helpers = Arc::new(Self { recipe, current, last: AtomicU64::new(0) });
        helpers.current()?;
        Ok(helpers)
    }

    /// Forks a worker, and starts a helper before if the last one has ended. Blocks for milliseconds,
    /// or for as long as a helper starts.
    pub(crate) fn fork(self: &Arc<Self>) -> Result<(Arc<Worker>, channel::Receiver), ProcessError> {
        self.current()?.fork(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns the helper, which was alive a moment ago.
    fn current(self: &Arc<Self>) -> Result<Arc<HelperHandle>, ProcessError> {
        let mut current = self.current.lock();
        if let Some(helper) = current.as_ref().filter(|helper| !helper.has_ended()) {
            return Ok(Arc::clone(helper));
        }
        let mut attempt = 1;
        let helper = loop {
            let again = Arc::downgrade(self);
            match HelperHandle::start(&self.recipe, move |how| replace(&again, how)) {
                Err(ProcessError::HelperEnded { .. }) if attempt < ATTEMPTS => attempt += 1,
                started => break Arc::new(started?),
            }
        };
        Ok(Arc::clone(current.insert(helper)))
    }
}

/// Starts the next helper, if the pool still wants one.
fn replace(helpers: &Weak<Helpers>, how: &str) {
    let Some(helpers) = helpers.upgrade() else { return };
    tracing::warn!(how, "the helper for worker processes has ended, and another one is started");
    if let Err(error) = helpers.current() {
        let error = engine::chain(&error);
        tracing::error!(%error, "no helper for worker processes can be started");
    }
}
