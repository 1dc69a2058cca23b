//! The helper from outside: it is started once, and forks workers on request.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use channel::{Descriptors, End, Sender};
use parking_lot::Mutex;

use crate::copies::Copies;
use crate::error::ProcessError;
use crate::groups::{WorkerGroup, WorkerGroups};
use crate::helper::Helper;
use crate::life::Life;
use crate::message::{HelperEvent, HelperOrder, MARK, orders_config, words_config};
use crate::stream::{read, write};

/// How long a helper may take to load a build and its image, which are in the cache by then.
const LOADING: Duration = Duration::from_secs(60);

/// A running helper. It ends, with all its workers, when this is dropped.
#[derive(Debug)]
pub(crate) struct HelperHandle {
    asks: Mutex<Asks>,
    known: Arc<Mutex<Known>>,
    copies: Copies,
    groups: Option<Arc<WorkerGroups>>,
    helper: HelperProcess,
}

/// The helper's process, which is killed when this is dropped.
#[derive(Debug)]
struct HelperProcess(Child);

impl HelperProcess {
    fn end(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug)]
struct Asks {
    stream: UnixStream,
    files: Descriptors,
    last: u64,
}

#[derive(Debug, Default)]
struct Known {
    workers: HashMap<u64, KnownWorker>,
    /// Who waits for a fork.
    forks: HashMap<u64, SyncSender<Result<(), String>>>,
}

#[derive(Debug)]
struct KnownWorker {
    life: Weak<Life>,
    group: Option<WorkerGroup>,
}

/// What the embedding process has of a new worker.
#[derive(Debug)]
pub(crate) struct Born {
    pub(crate) number: u64,
    pub(crate) end: End,
    pub(crate) words: Sender,
    pub(crate) files: Descriptors,
    pub(crate) asks: UnixStream,
    pub(crate) states: Descriptors,
    pub(crate) life: Arc<Life>,
}

impl HelperHandle {
    /// Starts the helper, which loads what `load` says. Its workers get control groups in `groups`, and
    /// may each have this much private memory. Returns it with the key of its image. Blocks.
    pub(crate) fn start(
        helper: &Helper,
        load: Vec<u8>,
        groups: Option<Arc<WorkerGroups>>,
        private_bytes: u64,
    ) -> Result<(Self, String), ProcessError> {
        let program = helper.path()?;
        let no_helper = || ProcessError::NoHelper { path: program.clone() };
        // A helper has no helpers: this is a program that was started as one and didn't become it.
        if std::env::var_os(MARK).is_some() {
            return Err(no_helper());
        }
        let (mut stream, its_stream) = UnixStream::pair()?;
        let (files, its_files) = Descriptors::pair()?;
        let its_files = its_files.as_fd().try_clone_to_owned()?;
        let mut command = Command::new(&program);
        command.env(MARK, "1");
        command.stdin(Stdio::from(OwnedFd::from(its_stream))).stdout(Stdio::from(its_files));
        let helper = command
            .spawn()
            .map_err(|cause| ProcessError::Start { path: program.clone(), cause })?;
        // This process keeps no copy of the helper's ends.
        drop(command);
        let helper = HelperProcess(helper);
        stream.set_read_timeout(Some(LOADING))?;
        let load = HelperOrder::Load { what: load, private_bytes };
        write(&mut stream, &load).map_err(|_| no_helper())?;
        let told = read(&mut stream).ok().flatten().ok_or_else(no_helper)?;
        let key = match told {
            HelperEvent::Loaded { key } => key,
            HelperEvent::NotLoaded { what } => return Err(ProcessError::Load { what }),
            _ => return Err(no_helper()),
        };
        stream.set_read_timeout(None)?;
        let known = Arc::<Mutex<Known>>::default();
        let (mut told, its_known) = (stream.try_clone()?, Arc::clone(&known));
        thread::Builder::new().name("hatchery-helper".to_owned()).spawn(move || {
            while let Ok(Some(word)) = read(&mut told) {
                its_known.lock().learn(word);
            }
            its_known.lock().all_ended();
        })?;
        let asks = Mutex::new(Asks { stream, files, last: 0 });
        let copies = Copies::start()?;
        Ok((Self { asks, known, copies, groups, helper }, key))
    }

    /// Forks a worker. Blocks for milliseconds.
    pub(crate) fn fork(&self) -> io::Result<Born> {
        let (end, ring) = channel::create(&orders_config())?;
        let (words, word_ring) = channel::create(&words_config())?;
        let (files, its_files) = Descriptors::pair()?;
        let (states, its_states) = Descriptors::pair()?;
        let (asks, its_asks) = UnixStream::pair()?;
        files.set_nonblocking(true)?;
        states.set_nonblocking(true)?;
        asks.set_nonblocking(true)?;
        let life = Arc::new(Life::new([end.closer.clone(), words.closer]));
        let (number, forked) = {
            let mut to_helper = self.asks.lock();
            to_helper.last += 1;
            let number = to_helper.last;
            let group = self.groups.as_ref().map(|groups| groups.make(number)).transpose()?;
            let entrance = group.as_ref().map(WorkerGroup::entrance).transpose()?;
            let forked = self.known.lock().expect(number, &life, group);
            let rings = [ring.as_fd(), word_ring.as_fd()];
            let sockets = [its_files.as_fd(), its_asks.as_fd(), its_states.as_fd()];
            let entrance = entrance.as_ref().map(AsFd::as_fd);
            let sent: Vec<_> = rings.into_iter().chain(sockets).chain(entrance).collect();
            to_helper.files.send(&sent).map_err(io::Error::other)?;
            write(&mut to_helper.stream, &HelperOrder::Fork(number))?;
            (number, forked)
        };
        match forked.recv() {
            Ok(Ok(())) => Ok(Born { number, end, words: words.sender, files, asks, states, life }),
            Ok(Err(what)) => Err(io::Error::other(what)),
            Err(_) => Err(io::Error::other("the helper for worker processes has ended")),
        }
    }

    /// Returns what moves copies of states out of the workers.
    pub(crate) fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Kills a worker.
    pub(crate) fn kill(&self, number: u64) {
        // If the helper has ended, so have its workers.
        let _ = write(&mut self.asks.lock().stream, &HelperOrder::Kill(number));
    }
}

impl Drop for HelperHandle {
    fn drop(&mut self) {
        let _ = self.asks.lock().stream.shutdown(std::net::Shutdown::Both);
        // All workers end with it, and then their groups can go.
        self.helper.end();
        self.known.lock().workers.clear();
    }
}

impl Known {
    fn expect(
        &mut self,
        number: u64,
        life: &Arc<Life>,
        group: Option<WorkerGroup>,
    ) -> Receiver<Result<(), String>> {
        let (sender, forked) = sync_channel(1);
        self.workers.insert(number, KnownWorker { life: Arc::downgrade(life), group });
        self.forks.insert(number, sender);
        forked
    }

    fn learn(&mut self, word: HelperEvent) {
        match word {
            HelperEvent::Forked { worker, .. } => self.forked(worker, Ok(())),
            HelperEvent::NotForked { worker, what } => {
                self.workers.remove(&worker);
                self.forked(worker, Err(what));
            }
            HelperEvent::Ended { worker, how } => {
                if let Some(KnownWorker { life, group }) = self.workers.remove(&worker) {
                    let killer = group.as_ref().and_then(WorkerGroup::out_of_memory);
                    let how = killer.map_or(how.clone(), |killer| format!("{how} {killer}"));
                    if let Some(life) = life.upgrade() {
                        life.end(how);
                    }
                }
            }
            HelperEvent::Loaded { .. } | HelperEvent::NotLoaded { .. } => {}
        }
    }

    fn forked(&mut self, worker: u64, result: Result<(), String>) {
        if let Some(waits) = self.forks.remove(&worker) {
            // Nobody waits any more if the thread that asked has panicked.
            let _ = waits.send(result);
        }
    }

    fn all_ended(&mut self) {
        self.forks.clear();
        let workers = std::mem::take(&mut self.workers).into_values();
        for life in workers.filter_map(|worker| worker.life.upgrade()) {
            life.end("the helper that forked it has ended".to_owned());
        }
    }
}
