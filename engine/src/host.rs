//! The host under the guest: everything that a guest can reach.
//!
//! Owns the seam between an interpreter and what serves its imports, and the functions that are
//! ours whoever serves the rest: the door of the agent, clocks, sleeping and leaving. All that touch
//! the guest's memory run on the host's side of the gate (`interrupt.rs`).

use std::sync::Arc;

use parking_lot::Mutex;
use wasmer::{FunctionEnv, FunctionEnvMut, Imports, Instance, Memory, Module, RuntimeError, Store};

use crate::error::StartError;
use crate::interrupt::Gate;
use crate::outcome::{ChangedFile, SandboxFailure};
use crate::program::InputFile;
use crate::transcript::Transcript;

pub(crate) mod clock;
pub(crate) mod door;
#[cfg(feature = "wasix")]
pub(crate) mod wasix;
#[cfg(not(feature = "wasix"))]
#[path = "host/wasix_disabled.rs"]
pub(crate) mod wasix;

/// What serves the imports of one guest, apart from the functions that are ours.
pub(crate) trait GuestHost {
    /// The import table. Every function in it that touches the guest's memory passes the gate.
    fn imports(
        &mut self,
        store: &mut Store,
        module: &Module,
        services: &Services,
    ) -> Result<Imports, StartError>;

    /// Called once, before any export of the instance.
    fn attach(&mut self, store: &mut Store, instance: &Instance) -> Result<(), StartError>;

    /// Directs the standard streams of the run that begins.
    fn begin_run(&mut self, transcript: Arc<Transcript>, stdin: Vec<u8>);

    /// Puts a file into the workspace.
    fn put_file(&mut self, file: &InputFile) -> Result<(), SandboxFailure>;

    /// Files of the workspace that changed since the last call, sorted by path.
    fn changed_files(&mut self) -> Vec<ChangedFile>;
}

/// What the functions that are ours work on.
pub(crate) struct Services {
    pub(crate) gate: Arc<Gate>,
    pub(crate) env: FunctionEnv<GuestEnv>,
}

/// The data that host functions reach through wasmer.
pub(crate) struct GuestEnv {
    pub(crate) gate: Arc<Gate>,
    pub(crate) door: Arc<Mutex<door::Door>>,
    pub(crate) clock: clock::Clock,
    /// The guest's memory and allocator, once there is an instance.
    pub(crate) guest: Option<GuestExports>,
}

/// The exports that the host itself uses.
#[derive(Clone)]
pub(crate) struct GuestExports {
    pub(crate) memory: Memory,
    pub(crate) alloc: wasmer::TypedFunction<i32, i32>,
}

/// The guest left by `proc_exit`: unwinds the guest as a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest left with code {0}")]
pub(crate) struct GuestExit(pub(crate) u32);

/// Turns a value that unwinds the guest into wasmer's form of it.
pub(crate) fn unwind(reason: impl std::error::Error + Send + Sync + 'static) -> RuntimeError {
    RuntimeError::user(Box::new(reason))
}

/// Error numbers of WASI preview 1 that our own functions answer with.
pub(crate) mod errno {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const FAULT: i32 = 21;
    pub(crate) const INVALID: i32 = 28;
}

/// Runs `work` on the host's side with the guest's memory; memory faults become `EFAULT`.
pub(crate) fn with_memory(
    context: &mut FunctionEnvMut<'_, GuestEnv>,
    work: impl FnOnce(&wasmer::MemoryView<'_>, &clock::Clock, &Gate) -> Result<i32, HostFault>,
) -> Result<i32, RuntimeError> {
    let gate = Arc::clone(&context.data().gate);
    let result = gate.host(|| {
        let (env, store) = context.data_and_store_mut();
        let Some(guest) = &env.guest else { return Ok(errno::FAULT) };
        work(&guest.memory.view(&store), &env.clock, &env.gate)
    });
    match result {
        Ok(Ok(errno)) => Ok(errno),
        Ok(Err(HostFault::Memory)) => Ok(errno::FAULT),
        Ok(Err(HostFault::Stopped(stopped))) | Err(stopped) => Err(unwind(stopped)),
    }
}

/// Why a host function could not finish.
#[derive(Debug)]
pub(crate) enum HostFault {
    /// A pointer of the guest is outside of its memory.
    Memory,
    /// The run was stopped.
    Stopped(crate::interrupt::Stopped),
}

impl From<wasmer::MemoryAccessError> for HostFault {
    fn from(_: wasmer::MemoryAccessError) -> Self {
        Self::Memory
    }
}

impl From<crate::interrupt::Stopped> for HostFault {
    fn from(stopped: crate::interrupt::Stopped) -> Self {
        Self::Stopped(stopped)
    }
}
