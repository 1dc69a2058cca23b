//! The pool's seam: a source whose interpreters are worker processes.

use std::sync::Arc;

use engine::{Cause, Image, StartError};
use parking_lot::Mutex;
use pool::{Interpreter, InterpreterSource, IsolationStatus, MissingLayer, PackedBytes, Suspended};

use crate::child::helper::Helper;
use crate::child::worker;
use crate::error::ProcessError;
use crate::parent::groups::{Bounds, Kernel, WorkerGroups};
use crate::parent::handle::{ATTEMPTS, Helpers, Recipe};
use crate::parent::interpreter::ProcessInterpreter;
use crate::parent::offloader::SnapshotOffloader;
use crate::parent::snapshot::settled;

/// What a worker may map beyond the pool's memory: addresses that are reserved and hardly used.
/// Stacks have such, and a guest's memory while it is replaced.
const ROOM: u64 = 16 << 30;

/// Starts interpreters in processes of their own.
#[derive(Debug)]
pub struct ProcessSource {
    /// The same image as the helper's, by which states are checked.
    image: Image,
    helpers: Arc<Helpers>,
    /// The first worker, which showed what the system offers; it waits to be used.
    first: Mutex<Option<ProcessInterpreter>>,
    /// Whether no worker may lack a layer of the wall, not even a later one.
    is_strict: bool,
    isolation: Mutex<IsolationStatus>,
}

impl ProcessSource {
    /// Starts the helper, which loads what `load` says: the build and the packages of `image`. Then
    /// starts the first worker, to see what the system does to confine it. Blocks for as long as a
    /// start with warm caches.
    ///
    /// All workers together may have `memory_bytes`. The kernel enforces that where this process
    /// has a control group for it. Otherwise it bounds the private memory of each.
    ///
    /// # Errors
    /// The helper can't be started, isn't one, or loads another image. Or the first worker doesn't
    /// start. Or `is_strict`, and the system lacks a layer of confinement.
    pub fn start(
        image: &Image,
        helper: &Helper,
        load: Vec<u8>,
        is_strict: bool,
        memory_bytes: u64,
    ) -> Result<Self, ProcessError> {
        let bounds = Bounds { memory_bytes, threads: worker::THREADS };
        let groups = WorkerGroups::new(Arc::new(Kernel), bounds).map(Arc::new);
        let recipe = Recipe {
            helper: helper.clone(),
            load,
            key: image.info().key.clone(),
            groups: groups.as_ref().ok().cloned(),
            private_bytes: memory_bytes.saturating_add(ROOM),
            copies: SnapshotOffloader::start()?,
        };
        let helpers = Helpers::start(recipe)?;
        let cgroup = groups.map(|groups| groups.folder().display().to_string());
        if let Err(reason) = &cgroup {
            tracing::info!(reason, "worker processes have no control groups");
        }
        let isolation = Mutex::new(IsolationStatus::of_processes(Vec::new(), cgroup));
        let (image, first) = (image.clone(), Mutex::default());
        let source = Self { image, helpers, first, is_strict, isolation };
        let first = source.fork()?;
        *source.first.lock() = Some(first);
        Ok(source)
    }

    /// Starts a worker. One that can't be forked or ends while it starts may have been killed, with its
    /// helper or alone. A job may wait for it, so others are tried at once.
    fn fork(&self) -> Result<ProcessInterpreter, ProcessError> {
        let mut attempt = 1;
        loop {
            match self.fork_once() {
                Err(ProcessError::Worker(error)) if attempt < ATTEMPTS => {
                    let error = engine::chain(&error);
                    tracing::debug!(%error, attempt, "a worker process didn't start");
                    attempt += 1;
                }
                forked => return forked,
            }
        }
    }

    /// Starts a worker, and notes what the system doesn't do to confine it.
    fn fork_once(&self) -> Result<ProcessInterpreter, ProcessError> {
        let forked = self.helpers.fork().map_err(|error| StartError::Process(Cause::new(error)));
        let started = forked.and_then(|(worker, receiver)| {
            ProcessInterpreter::start(&self.image, worker, receiver)
        });
        let worker = started.map_err(ProcessError::Worker)?;
        let missing = worker.report.missing();
        let missing: Vec<_> = missing.map(|(layer, why)| MissingLayer::new(layer, why)).collect();
        let mut isolation = self.isolation.lock();
        if missing.is_empty() || missing == isolation.missing {
            return Ok(worker);
        }
        if self.is_strict {
            return Err(ProcessError::Missing { missing });
        }
        let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
        let missing_layers = names.join("; ");
        tracing::info!(missing_layers, "worker processes are less confined than they could be");
        isolation.missing = missing;
        Ok(worker)
    }
}

impl InterpreterSource for ProcessSource {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        let is_alive = |first: &ProcessInterpreter| {
            first.process().is_some_and(|process| !process.has_ended())
        };
        let first = self.first.lock().take().filter(is_alive);
        let worker = first.map_or_else(|| self.fork(), Ok).map_err(|error| match error {
            ProcessError::Worker(error) => error,
            error => StartError::Process(Cause::new(error)),
        })?;
        Ok(Box::new(worker))
    }

    fn isolation(&self) -> IsolationStatus {
        self.isolation.lock().clone()
    }

    fn shared_bytes(&self) -> u64 {
        self.image.shared_bytes()
    }

    fn pack(&self, suspended: &Suspended) -> Result<PackedBytes, StartError> {
        InterpreterSource::pack(&self.image, &settled(suspended)?)
    }

    fn unpack(&self, packed: &PackedBytes) -> Result<Suspended, StartError> {
        InterpreterSource::unpack(&self.image, packed)
    }
}
