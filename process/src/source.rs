//! The pool's seam: a source whose interpreters are worker processes.

use std::sync::Arc;

use engine::{Cause, Image, StartError};
use pool::{Interpreter, InterpreterSource, Packed, Parked};

use crate::error::ProcessError;
use crate::handle::HelperHandle;
use crate::helper::Helper;
use crate::interpreter::{ProcessInterpreter, settled};
use crate::message::channel_config;

/// Starts interpreters in processes of their own.
#[derive(Debug)]
pub struct ProcessSource {
    /// The same image as the helper's, by which states are checked.
    image: Image,
    helper: Arc<HelperHandle>,
}

impl ProcessSource {
    /// Starts the helper, which loads what `load` says: the build and the packages of `image`.
    /// Blocks for as long as a start with warm caches.
    ///
    /// # Errors
    /// The helper can't be started, isn't one, or loads another image.
    pub fn start(image: &Image, helper: &Helper, load: Vec<u8>) -> Result<Self, ProcessError> {
        let (helper, key) = HelperHandle::start(helper, load)?;
        if key != image.info().key {
            let what = "it has another image: its packages have changed meanwhile".to_owned();
            return Err(ProcessError::Load { what });
        }
        Ok(Self { image: image.clone(), helper: Arc::new(helper) })
    }
}

impl InterpreterSource for ProcessSource {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        let born = self.helper.fork(&channel_config());
        let born = born.map_err(|error| StartError::Process(Cause::new(error)))?;
        let started = ProcessInterpreter::start(&self.image, Arc::clone(&self.helper), born)?;
        Ok(Box::new(started))
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
