//! The engine without wasmer-wasix: every start is refused, with the reason.

use std::sync::Arc;

use wasmer::{Engine, Imports, Instance, Module, Store};

use super::{GuestHost, Services};
use crate::error::StartError;
use crate::library::Library;
use crate::outcome::{ChangedFile, SandboxFailure};
use crate::program::InputFile;
use crate::transcript::Transcript;

/// A host that serves no guest.
pub(crate) struct WasixHost;

impl WasixHost {
    pub(crate) fn new(_engine: Engine, _library: Arc<Library>) -> Self {
        Self
    }
}

impl GuestHost for WasixHost {
    fn imports(
        &mut self,
        _store: &mut Store,
        _module: &Module,
        _services: &Services,
    ) -> Result<Imports, StartError> {
        Err(StartError::Host("hatchery was built without its feature `wasix`".to_owned()))
    }

    fn attach(&mut self, _store: &mut Store, _instance: &Instance) -> Result<(), StartError> {
        Ok(())
    }

    fn begin_run(&mut self, _transcript: Arc<Transcript>, _stdin: Vec<u8>) {}

    fn put_file(&mut self, file: &InputFile) -> Result<(), SandboxFailure> {
        let detail = "there is no workspace".to_owned();
        Err(SandboxFailure::Workspace { path: file.path.clone(), detail })
    }

    fn changed_files(&mut self) -> Vec<ChangedFile> {
        Vec::new()
    }
}
