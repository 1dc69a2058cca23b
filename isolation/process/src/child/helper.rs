//! The helper from inside: it loads an image and forks workers.
//!
//! It has one thread, since a fork copies locks as they are. It reaps its workers and reports how
//! each ended.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use channel::Descriptors;
use confine::{ConfineError, RefusedCall, Separation};
use engine::Image;
use rustix::process::{Pid, Signal, kill_process};

use crate::child::worker::{self, Outside, WorkerEnds};
use crate::error::ProcessError;
use crate::message::{HelperCommand, HelperEvent, MARK, read, write};
use crate::system::{self, EndedChildren, SharedWord};

/// How long the threads that have loaded an image may take to end.
const ENDING: Duration = Duration::from_secs(2);

static ASKED: AtomicBool = AtomicBool::new(false);

/// Which program becomes the helper.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Helper {
    /// This program, which calls [`be_helper`] first in its `main`.
    Itself,
    /// Another program that does.
    Program(PathBuf),
}

impl Helper {
    /// Returns the program that `$HATCHERY_HELPER` names, else this one.
    pub fn from_env() -> Self {
        std::env::var_os("HATCHERY_HELPER").map_or(Self::Itself, |path| Self::Program(path.into()))
    }

    /// Returns the program's path.
    ///
    /// # Errors
    /// It is this program, and it isn't one that becomes a helper. Started again, it would do its
    /// work once more.
    pub(crate) fn path(&self) -> Result<PathBuf, ProcessError> {
        match self {
            Self::Itself if !ASKED.load(Ordering::Relaxed) => {
                let path = std::env::current_exe().unwrap_or_else(|_| "this program".into());
                Err(ProcessError::NoHelper { path })
            }
            // The file that runs, even if another one has its path by now.
            Self::Itself => Ok(PathBuf::from("/proc/self/exe")),
            Self::Program(path) => Ok(path.clone()),
        }
    }
}

/// Makes this process a helper if it was started as one, and then never returns. Else does nothing.
///
/// `load` gets what [`ProcessSource::start`](crate::ProcessSource::start) was given.
pub fn be_helper(load: impl FnOnce(&[u8]) -> Result<Image, String>) {
    if std::env::var_os(MARK).is_none() {
        ASKED.store(true, Ordering::Relaxed);
        return;
    }
    confine::use_one_heap();
    engine::hash_on_one_thread();
    engine::own_handlers();
    let (input, output) = system::inherited();
    let code = match serve(UnixStream::from(input), Descriptors::from_socket(output), load) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(%error, "the helper for worker processes ends");
            1
        }
    };
    system::end(code)
}

fn serve(
    mut stream: UnixStream,
    files: Descriptors,
    load: impl FnOnce(&[u8]) -> Result<Image, String>,
) -> io::Result<()> {
    let Some(HelperCommand::Load { what, private_bytes }) = read(&mut stream)? else {
        return Ok(());
    };
    let image = match load(&what) {
        Ok(image) => image,
        Err(what) => return write(&mut stream, &HelperEvent::NotLoaded { what }),
    };
    let key = image.info().key.clone();
    // Not before: loading may take long, and doesn't look whether the other process is still there.
    system::leave_ending_to_parent();
    let separation = separate();
    let mut forks = Forks {
        image,
        separation,
        private_bytes,
        process: std::process::id(),
        ended: EndedChildren::watch()?,
        workers: HashMap::new(),
    };
    write(&mut stream, &HelperEvent::Loaded { key })?;
    loop {
        let [asked, ended] = system::wait_readable([stream.as_fd(), forks.ended.as_fd()], None)?;
        if ended {
            forks.ended.clear()?;
            forks.reap(&mut stream)?;
        }
        if asked {
            match read(&mut stream)? {
                Some(HelperCommand::Fork(worker)) => forks.fork(worker, &mut stream, &files)?,
                Some(HelperCommand::Kill(worker)) => forks.kill(worker),
                Some(HelperCommand::Load { .. }) => {}
                None => return Ok(()),
            }
        }
    }
}

/// Makes namespaces for the workers. Without them, each worker makes some of its own.
fn separate() -> Option<Separation> {
    let deadline = Instant::now() + ENDING;
    loop {
        match confine::separate() {
            // What threads did to load the image has been waited for, and not their ends.
            Err(ConfineError::Threads) if Instant::now() < deadline => thread::yield_now(),
            Err(error) => {
                tracing::warn!(%error, "workers see the process ids of the system");
                return None;
            }
            Ok(separation) => return Some(separation),
        }
    }
}

struct Forks {
    image: Image,
    /// The namespaces that all workers share.
    separation: Option<Separation>,
    /// The most private memory of a worker.
    private_bytes: u64,
    /// This process's id.
    process: u32,
    ended: EndedChildren,
    /// The workers by their process ids.
    workers: HashMap<Pid, Forked>,
}

struct Forked {
    number: u64,
    /// Where the worker notes the system call that it is killed for. No other worker has this page.
    refused: SharedWord,
}

impl Forks {
    fn fork(
        &mut self,
        worker: u64,
        stream: &mut UnixStream,
        files: &Descriptors,
    ) -> io::Result<()> {
        let mut its = files.receive(6).map_err(io::Error::other)?;
        let group = (its.len() == 6).then(|| its.pop()).flatten();
        let Ok([ring, control, its_files, asks, states]) = <[OwnedFd; 5]>::try_from(its) else {
            return Err(io::Error::other("a worker needs five descriptors"));
        };
        let forked = SharedWord::new().and_then(|refused| Ok((refused, system::fork()?)));
        match forked {
            Ok((refused, None)) => {
                EndedChildren::forget();
                self.workers.clear();
                let ends = WorkerEnds {
                    ring,
                    control,
                    files: Descriptors::from_socket(its_files),
                    asks: UnixStream::from(asks),
                    states: Descriptors::from_socket(states),
                    group,
                };
                let outside = Outside {
                    parent: self.process,
                    separation: self.separation.as_ref(),
                    refused: refused.keep(),
                    private_bytes: self.private_bytes,
                    left: &[stream.as_fd(), files.as_fd(), self.ended.as_fd()],
                };
                worker::run(&self.image, ends, &outside)
            }
            Ok((refused, Some(pid))) => {
                self.workers.insert(pid, Forked { number: worker, refused });
                write(stream, &HelperEvent::Forked { worker })
            }
            Err(error) => {
                write(stream, &HelperEvent::NotForked { worker, what: error.to_string() })
            }
        }
    }

    fn kill(&self, worker: u64) {
        for (pid, _) in self.workers.iter().filter(|(_, forked)| forked.number == worker) {
            // It hasn't been reaped, so nothing else has its id.
            let _ = kill_process(*pid, Signal::KILL);
        }
    }

    fn reap(&mut self, stream: &mut UnixStream) -> io::Result<()> {
        let keeper = self.separation.as_ref().and_then(|separation| separation.keeper);
        while let Some((pid, how)) = system::reap() {
            if keeper == Some(pid.as_raw_nonzero().get().cast_unsigned()) {
                // All workers end with it, and none can be forked any more.
                let why = format!("the first process of its workers' namespace has ended: {how}");
                write(stream, &HelperEvent::Ends { why: why.clone() })?;
                return Err(io::Error::other(why));
            }
            if let Some(Forked { number, refused }) = self.workers.remove(&pid) {
                let how = match RefusedCall::read(refused.get()) {
                    Some(call) => format!("{how} ({call})"),
                    None => how,
                };
                write(stream, &HelperEvent::Ended { worker: number, how })?;
            }
        }
        Ok(())
    }
}
