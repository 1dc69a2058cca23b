//! The host under the guest: everything that a guest can reach.
//!
//! Owns the seam between an interpreter and what serves its imports. `reactor.rs` is our own host,
//! on the functions of `wasi.rs`; `wasix.rs` has wasmer-wasix serve files instead. The door of the
//! agent, clocks, sleeping and leaving are ours in both. Every function that touches the guest's
//! memory runs on the host's side of the gate (`interrupt.rs`).

use std::sync::Arc;

use parking_lot::Mutex;
use wasmer::{FunctionEnv, Imports, Instance, Module, RuntimeError, Store, TypedFunction};

use crate::error::StartError;
use crate::interrupt::Gate;
use crate::limits::{LimitHit, Limits};
use crate::memory::GuestMemory;
use crate::meter::{Asker, Pause};
use crate::outcome::{ChangedFile, StopReason, Verdict};
use crate::program::Program;
use crate::transcript::Transcript;
use wasi::{Alarm, HostState, Wasi};

mod calls;
pub(crate) mod door;
pub(crate) mod reactor;
pub(crate) mod wasi;
#[cfg(feature = "wasix")]
pub(crate) mod wasix;
#[cfg(not(feature = "wasix"))]
#[path = "host/wasix_disabled.rs"]
pub(crate) mod wasix;

/// What serves the imports of one guest.
pub(crate) trait GuestHost {
    /// The import table. Every function in it that touches the guest's memory passes the gate.
    fn imports(
        &mut self,
        store: &mut Store,
        module: &Module,
        env: &FunctionEnv<GuestEnv>,
    ) -> Result<Imports, StartError>;

    /// Called once, before any export of the instance.
    fn attach(&mut self, store: &mut Store, instance: &Instance) -> Result<(), StartError>;

    /// Prepares a run: its streams, its files, its bounds.
    ///
    /// # Errors
    /// What the caller gave can't be put, and how the run ends therefore.
    fn begin_run(&mut self, setup: RunSetup<'_>) -> Result<(), Box<Verdict>>;

    /// Ends the run. What it did to files is kept if it `commits`, and else undone.
    fn end_run(&mut self, commits: bool) -> RunEffects;

    /// What it keeps from run to run, between two runs; `None` if that can't be put away.
    fn state(&self) -> Option<HostState>;

    /// Goes on from a state that `state` gave.
    fn set_state(&mut self, state: HostState);
}

/// What a host is told of a run that begins.
pub(crate) struct RunSetup<'a> {
    pub(crate) program: &'a Program,
    pub(crate) limits: &'a Limits,
    pub(crate) transcript: Arc<Transcript>,
}

/// What a host knows of a run that has ended.
#[derive(Debug, Default)]
pub(crate) struct RunEffects {
    /// Files of the workspace that the run changed and kept, sorted by path.
    pub(crate) files: Vec<ChangedFile>,
    pub(crate) host_calls: u64,
    pub(crate) file_growth_bytes: u64,
    /// Bounds on files that stood in the run's way.
    pub(crate) refusals: Vec<LimitHit>,
}

/// The data that host functions reach through wasmer.
pub(crate) struct GuestEnv {
    pub(crate) gate: Arc<Gate>,
    pub(crate) wasi: Arc<Mutex<Wasi>>,
    pub(crate) door: Arc<Mutex<door::Door>>,
    pub(crate) bell: Arc<Bell>,
    /// The guest's memory and allocator, once there is an instance.
    pub(crate) memory: Option<Arc<GuestMemory>>,
    pub(crate) alloc: Option<TypedFunction<u32, u32>>,
}

/// Has the run that goes end, when a host function finds that it must, or its time stand still.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    asker: Mutex<Option<Asker>>,
}

impl Bell {
    /// Says whom to ask, for the run that begins.
    pub(crate) fn hang(&self, asker: Asker) {
        *self.asker.lock() = Some(asker);
    }

    /// Has the wall time of the run that goes stand still.
    pub(crate) fn pause(&self) -> Option<Pause> {
        let asker = *self.asker.lock();
        asker.map(|asker| asker.pause())
    }

    pub(crate) fn ring(&self, alarm: Alarm) {
        let reason = match alarm {
            Alarm::Output => StopReason::Output,
            Alarm::HostCalls => StopReason::HostCalls,
        };
        let asker = *self.asker.lock();
        if let Some(asker) = asker {
            asker.ask(reason);
        }
    }
}

/// The guest left by `proc_exit`: unwinds the guest as a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest left with code {0}")]
pub(crate) struct GuestExit(pub(crate) u32);

/// Turns a value that unwinds the guest into wasmer's form of it.
pub(crate) fn unwind(reason: impl std::error::Error + Send + Sync + 'static) -> RuntimeError {
    RuntimeError::user(Box::new(reason))
}
