//! What the host's functions work on: the guest's environment, and what passes between a host and
//! the interpreter as a run begins and ends.

use std::sync::Arc;

use parking_lot::Mutex;
use wasmer::{RuntimeError, TypedFunction};

use super::door::Door;
use super::wasi::{Alarm, Wasi};
use crate::files::changes::ChangedFile;
use crate::interrupt::gate::Gate;
use crate::interrupt::reason::StopReason;
use crate::interrupt::watchdog::{Asker, Pause};
use crate::limits::{LimitHit, Limits};
use crate::memory::GuestMemory;
use crate::run::program::Program;
use crate::run::transcript::Transcript;

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
    pub(crate) door: Arc<Mutex<Door>>,
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
