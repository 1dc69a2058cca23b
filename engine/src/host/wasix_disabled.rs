//! The engine without wasmer-wasix: every start is refused, with the reason.

use std::sync::Arc;

use wasmer::{FunctionEnv, Imports, Instance, Memory, Module, Store};

use super::GuestHost;
use super::env::{GuestEnv, RunEffects, RunSetup};
use crate::error::StartError;
use crate::host::wasi::HostState;
use crate::python::library::Library;
use crate::python::module::native::NativeEngine;
use crate::run::outcome::Verdict;

/// A host that serves no guest.
pub(crate) struct WasixHost;

impl WasixHost {
    pub(crate) fn new(_engine: NativeEngine, _library: Arc<Library>) -> Self {
        Self
    }
}

impl GuestHost for WasixHost {
    fn imports(
        &mut self,
        _store: &mut Store,
        _module: &Module,
        _env: &FunctionEnv<GuestEnv>,
        _memory: Option<Memory>,
    ) -> Result<Imports, StartError> {
        Err(StartError::Host("hatchery was built without its feature `wasix`".into()))
    }

    fn attach(&mut self, _store: &mut Store, _instance: &Instance) -> Result<(), StartError> {
        Ok(())
    }

    fn begin_run(&mut self, _setup: RunSetup<'_>) -> Result<(), Box<Verdict>> {
        Ok(())
    }

    fn end_run(&mut self, _commits: bool) -> RunEffects {
        RunEffects::default()
    }

    fn state(&self) -> Option<HostState> {
        None
    }

    fn set_state(&mut self, _state: HostState) {}
}
