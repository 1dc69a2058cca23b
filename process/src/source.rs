//! The pool's seam: a source whose interpreters are worker processes.

use std::sync::Arc;

use engine::{Cause, Image, StartError};
use parking_lot::Mutex;
use pool::{Interpreter, InterpreterSource, IsolationStatus, MissingLayer, Packed, Parked};

use crate::error::ProcessError;
use crate::handle::HelperHandle;
use crate::helper::Helper;
use crate::interpreter::ProcessInterpreter;
use crate::kept::settled;

/// Starts interpreters in processes of their own.
#[derive(Debug)]
pub struct ProcessSource {
    /// The same image as the helper's, by which states are checked.
    image: Image,
    helper: Arc<HelperHandle>,
    /// The first worker, which showed what the system offers; it waits to be used.
    first: Mutex<Option<ProcessInterpreter>>,
    missing: Vec<MissingLayer>,
}

impl ProcessSource {
    /// Starts the helper, which loads what `load` says: the build and the packages of `image`. Then
    /// starts the first worker, to see what the system does to confine it. Blocks for as long as a
    /// start with warm caches.
    ///
    /// # Errors
    /// The helper can't be started, isn't one, or loads another image; the first worker doesn't
    /// start; or `is_strict`, and the system doesn't offer a layer of the wall.
    pub fn start(
        image: &Image,
        helper: &Helper,
        load: Vec<u8>,
        is_strict: bool,
    ) -> Result<Self, ProcessError> {
        let (helper, key) = HelperHandle::start(helper, load)?;
        if key != image.info().key {
            let what = "it has another image: its packages have changed meanwhile".to_owned();
            return Err(ProcessError::Load { what });
        }
        let (first, missing) = (Mutex::default(), Vec::new());
        let mut source = Self { image: image.clone(), helper: Arc::new(helper), first, missing };
        let first = source.fork().map_err(ProcessError::Worker)?;
        let missing = first.report().missing();
        source.missing = missing.map(|(layer, why)| MissingLayer::new(layer, why)).collect();
        if is_strict && !source.missing.is_empty() {
            return Err(ProcessError::Missing { missing: source.missing });
        }
        if !source.missing.is_empty() {
            let missing: Vec<_> = source.missing.iter().map(ToString::to_string).collect();
            tracing::info!(
                missing = missing.join("; "),
                "worker processes are less confined than they could be"
            );
        }
        source.first = Mutex::new(Some(first));
        Ok(source)
    }

    fn fork(&self) -> Result<ProcessInterpreter, StartError> {
        let born = self.helper.fork();
        let born = born.map_err(|error| StartError::Process(Cause::new(error)))?;
        ProcessInterpreter::start(&self.image, Arc::clone(&self.helper), born)
    }
}

impl InterpreterSource for ProcessSource {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        let first = self.first.lock().take().filter(ProcessInterpreter::is_alive);
        Ok(Box::new(first.map_or_else(|| self.fork(), Ok)?))
    }

    fn isolation(&self) -> IsolationStatus {
        IsolationStatus::of_processes(self.missing.clone())
    }

    fn shared_bytes(&self) -> u64 {
        self.image.shared_bytes()
    }

    fn pack(&self, parked: &Parked) -> Result<Packed, StartError> {
        InterpreterSource::pack(&self.image, &settled(parked)?)
    }

    fn unpack(&self, packed: &Packed) -> Result<Parked, StartError> {
        InterpreterSource::unpack(&self.image, packed)
    }
}
