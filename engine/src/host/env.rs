//! The environment of host functions, and what host and interpreter exchange at the start and end
//! of a run.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmer::{FunctionEnvMut, RuntimeError, TypedFunction};

use super::call_channel::{CallChannel, DeviceAnswer};
use super::wasi::Wasi;
use super::wasi::bytes::GuestBytes;
use super::wasi::path::Sought;
use crate::errno::Result;
use crate::files::changes::{ChangedFile, LeftOutFiles};
use crate::interrupt::gate::{Gate, ThreadGate};
use crate::interrupt::reason::StopReason;
use crate::interrupt::watchdog::{Pause, StopRequester};
use crate::limits::{LimitHit, Limits};
use crate::memory::GuestMemory;
use crate::python::module::threads::InterpreterLock;
use crate::run::program::Program;
use crate::run::transcript::Transcript;

/// What a host needs to begin a run.
pub(crate) struct RunSetup<'a> {
    pub(crate) program: &'a Program,
    pub(crate) limits: &'a Limits,
    pub(crate) transcript: Arc<Transcript>,
}

impl RunSetup<'_> {
    /// Returns how many threads the run may have at once. The order in which threads run isn't
    /// determined, so a deterministic run has none.
    pub(crate) fn most_threads(&self) -> usize {
        if self.program.deterministic.is_some() { 0 } else { self.limits.threads }
    }
}

/// What a host reports about a finished run.
#[derive(Debug, Default)]
pub(crate) struct RunEffects {
    /// Files of the workspace that the run changed and kept, sorted by path.
    pub(crate) files: Vec<ChangedFile>,
    pub(crate) left_out_files: LeftOutFiles,
    pub(crate) host_calls: u64,
    pub(crate) file_growth_bytes: u64,
    pub(crate) network_bytes: u64,
    /// The paths that the run looked for and didn't find.
    pub(crate) sought: Sought,
    /// Limits on files and the network that refused an operation of the run.
    pub(crate) refusals: Vec<LimitHit>,
}

/// The guest's thread that calls a host function.
pub(crate) type Caller<'a> = FunctionEnvMut<'a, GuestEnv>;

/// What a host function returns to the guest; an error unwinds it.
pub(crate) type HostResult<T = i32> = Result<T, RuntimeError>;

/// The data that host functions of one thread reach through wasmer.
pub(crate) struct GuestEnv {
    pub(crate) gate: Arc<ThreadGate>,
    pub(crate) wasi: Arc<Mutex<Wasi>>,
    pub(crate) channel: Arc<Mutex<CallChannel>>,
    pub(crate) control: Arc<RunControl>,
    /// See [`Parts::has_kernels`].
    pub(crate) has_kernels: bool,
    /// What the device of a command build has to answer this thread.
    pub(crate) answer: Mutex<DeviceAnswer>,
    /// Starts threads, if the guest's memory can be shared.
    pub(crate) threads: Option<Arc<dyn Siblings>>,
    pub(crate) guest: GuestBytes,
    /// The guest's allocator, once there is an instance.
    pub(crate) alloc: Option<TypedFunction<u32, u32>>,
    /// The lock of an interpreter whose threads run one at a time.
    pub(crate) lock: Option<InterpreterLock>,
    /// The guest's function for signals, if it has one and isn't handling one.
    pub(crate) handler: Option<TypedFunction<i32, ()>>,
}

/// The other threads of a guest, as host functions of one thread see them (`host/threads.rs`).
pub(crate) trait Siblings: Send + Sync {
    /// Starts a thread; returns its number.
    fn spawn(&self, begins: ThreadStart) -> Result<u32>;

    /// Takes memory for a stack that an ended thread has left, if there is some.
    fn take_block(&self) -> Option<u32>;

    /// Keeps memory for the stack of a later thread.
    fn give_block(&self, block: u32);

    /// Returns how often something has changed for which threads may wait.
    fn changes(&self) -> u64;

    /// Notes a change, and wakes the threads that wait for one. Returns the number of changes.
    fn note_change(&self) -> u64;
}

/// Where a thread begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ThreadStart {
    /// At the export `wasi_thread_start`, with this argument.
    Export { argument: u32 },
    /// At a function of the table, with this argument. `block` is memory for its stack.
    Function { index: u32, argument: u32, block: u32 },
}

/// What the threads of a guest share in the host.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) gate: Arc<Gate>,
    pub(crate) wasi: Arc<Mutex<Wasi>>,
    pub(crate) channel: Arc<Mutex<CallChannel>>,
    pub(crate) control: Arc<RunControl>,
    /// Whether the host computes for NumPy (`host/kernels.rs`).
    pub(crate) has_kernels: bool,
}

impl GuestEnv {
    /// Returns the environment of a thread that has no instance yet.
    pub(crate) fn new(gate: Arc<ThreadGate>, parts: &Parts) -> Self {
        let Parts { wasi, channel, control, has_kernels, .. } = parts.clone();
        Self {
            gate,
            wasi,
            channel,
            control,
            has_kernels,
            answer: Mutex::default(),
            threads: None,
            guest: GuestBytes::default(),
            alloc: None,
            lock: None,
            handler: None,
        }
    }

    /// Has host functions serve an instance with this memory.
    pub(crate) fn attach_memory(&mut self, memory: &Arc<GuestMemory>) {
        self.guest = GuestBytes::of(memory);
        self.wasi.lock().guest = self.guest.clone();
    }

    /// Returns how often something has changed for which threads may wait.
    pub(crate) fn changes(&self) -> u64 {
        self.threads.as_ref().map_or(0, |threads| threads.changes())
    }

    /// Wakes the threads that wait for a change, if a function has made one. Returns the number of
    /// changes so far.
    pub(crate) fn note_changes(&self, before: u64, after: u64) -> u64 {
        match &self.threads {
            Some(threads) if before != after => threads.note_change(),
            _ => self.changes(),
        }
    }

    /// Counts a call of the guest, and stops the run if it has made too many.
    pub(crate) fn count_call(&self) {
        let mut wasi = self.wasi.lock();
        wasi.count_call();
        if let Some(exceeded) = wasi.take_exceeded() {
            self.control.request_stop(exceeded);
        }
    }
}

/// Lets host functions stop the current run or pause its wall time.
#[derive(Debug, Default)]
pub(crate) struct RunControl {
    requester: Mutex<Option<StopRequester>>,
}

impl RunControl {
    pub(crate) fn attach(&self, requester: StopRequester) {
        *self.requester.lock() = Some(requester);
    }

    /// Pauses the wall time of the current run.
    pub(crate) fn pause(&self) -> Option<Pause> {
        let requester = *self.requester.lock();
        requester.map(|requester| requester.pause())
    }

    /// Sets the alarm of the current run, if it gets one.
    pub(crate) fn set_alarm(&self, after: Option<Duration>) {
        let requester = *self.requester.lock();
        if let Some(requester) = requester {
            requester.set_alarm(after);
        }
    }

    /// Asks the current run to stop, because it exceeded a limit.
    pub(crate) fn request_stop(&self, exceeded: StopReason) {
        let requester = *self.requester.lock();
        if let Some(requester) = requester {
            requester.request(exceeded);
        }
    }
}

/// The guest exited through `proc_exit`. Unwinds the guest as a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest exited with code {0}")]
pub(crate) struct GuestExit(pub(crate) u32);

/// A thread of the guest ends, and the guest goes on. Unwinds the thread as a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest's thread exited")]
pub(crate) struct ThreadExit;

/// Wraps an error that unwinds the guest in wasmer's error type.
pub(crate) fn unwind(reason: impl std::error::Error + Send + Sync + 'static) -> RuntimeError {
    RuntimeError::user(Box::new(reason))
}
