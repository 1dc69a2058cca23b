//! The threads of a guest whose memory is shared.
//!
//! Each is a thread of the system with its own store and instance, on the same memory. It has the
//! same host: files, descriptors, the call channel. Its instance begins at the export
//! `wasi_thread_start`, as the proposal `wasi-threads` has it. The gate knows them all
//! (`interrupt/gate/threads.rs`), so stops, interrupts and limits reach them.
//!
//! The guest ends with any thread that traps or calls `proc_exit`; one that returns, or calls
//! `thread_exit`, ends alone.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use wasmer::{FunctionEnv, Instance, Module, RuntimeError};

use super::env::{GuestEnv, Parts, Siblings, ThreadExit, unwind};
use super::reactor;
use super::wasi::process;
use crate::errno::{Errno, Result};
use crate::interrupt::gate::{Stopped, ThreadGate};
use crate::interrupt::watchdog::CpuClocks;
use crate::memory::tunables::{SharedMemory, Waits};
use crate::python::module::native::NativeEngine;
use crate::python::module::shape::{ALLOC, THREAD_START};

/// The stack for host functions; the guest's code has a stack of its own.
const HOST_STACK_BYTES: usize = 1 << 20;
/// How long threads that aren't waiting may go on when the main one has come back.
const A_MOMENT: Duration = Duration::from_millis(20);
/// How long threads that are to end may take to reach the host. Then the memory is taken away.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long threads may take to end after that. One that doesn't hangs in the host, on a mounted
/// disk for example, and is left behind.
const LONGEST: Duration = Duration::from_secs(10);

/// The threads of one guest besides its main one.
pub(crate) struct Threads {
    engine: NativeEngine,
    module: Module,
    memory: SharedMemory,
    parts: Parts,
    clocks: Arc<CpuClocks>,
    changes: AtomicU64,
    /// Threads have run since the last `take_used`.
    is_used: AtomicBool,
    run: Mutex<Run>,
}

#[derive(Default)]
struct Run {
    most: usize,
    /// The largest number of threads that was refused.
    refused: Option<u64>,
    end: Option<GuestEnd>,
}

/// How a thread has ended the whole guest.
pub(crate) enum GuestEnd {
    /// It trapped, or called `proc_exit`.
    Unwound(RuntimeError),
    /// The host panicked.
    Panic(Box<dyn Any + Send>),
}

impl Threads {
    pub(crate) fn new(
        engine: &NativeEngine,
        module: &Module,
        memory: &SharedMemory,
        parts: Parts,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine: engine.clone(),
            module: module.clone(),
            memory: memory.clone(),
            parts,
            clocks: Arc::default(),
            changes: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            run: Mutex::default(),
        })
    }

    /// Begins a run that may have `most` threads at once.
    pub(crate) fn begin_run(&self, most: usize) {
        *self.run.lock() = Run { most, ..Run::default() };
    }

    /// Holds the threads when the main one has come back from the guest. Returns whether all are
    /// held, and how a thread has ended the guest, if one did.
    pub(crate) fn end_turn(&self, patience: Duration) -> (bool, Option<GuestEnd>) {
        let gate = &self.parts.gate;
        let is_held = gate.others() == 0 || gate.hold_others(A_MOMENT, patience);
        if self.is_used.swap(gate.others() > 0, Ordering::Relaxed) {
            self.memory.guest().forget_copied();
        }
        (is_held, self.run.lock().end.take())
    }

    /// Ends all threads. Returns false if one hangs; the guest is then lost.
    pub(crate) fn end(&self) -> bool {
        let gate = &self.parts.gate;
        let have_left = gate.others() == 0 || gate.end_others(PATIENCE, LONGEST);
        if self.is_used.swap(false, Ordering::Relaxed) {
            self.memory.guest().forget_copied();
        }
        if !have_left {
            tracing::error!("a thread of a guest continues long after a request to end");
        }
        have_left
    }

    /// Returns the number of threads besides the main one.
    pub(crate) fn count(&self) -> usize {
        self.parts.gate.others()
    }

    /// Returns the largest number of threads that the run was refused.
    pub(crate) fn refused(&self) -> Option<u64> {
        self.run.lock().refused
    }

    pub(crate) fn clocks(&self) -> &Arc<CpuClocks> {
        &self.clocks
    }

    fn serve(self: &Arc<Self>, passage: Arc<ThreadGate>, argument: u32) {
        let clock = self.clocks.count_this_thread();
        let ended = catch_unwind(AssertUnwindSafe(|| self.run_guest(&passage, argument)));
        let end = match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) if ends_alone(&error) => None,
            Ok(Err(error)) => Some(GuestEnd::Unwound(error)),
            Err(panic) => Some(GuestEnd::Panic(panic)),
        };
        drop(clock);
        if let Some(end) = end {
            // A thread that was stopped ends so as well; then nobody asks.
            self.run.lock().end.get_or_insert(end);
            passage.gate().finish();
        }
    }

    fn run_guest(
        self: &Arc<Self>,
        passage: &Arc<ThreadGate>,
        argument: u32,
    ) -> Result<(), RuntimeError> {
        let mut store = self.engine.store();
        let env = GuestEnv::new(Arc::clone(passage), &self.parts);
        let env = FunctionEnv::new(&mut store, env);
        let waits: Arc<dyn Waits> = Arc::<ThreadGate>::clone(passage);
        let memory = self.memory.in_store(&mut store, waits).map_err(unwind)?;
        let imports =
            reactor::served(&mut store, &self.module, &env, Some(memory)).map_err(unwind)?;
        // A module's start function is the guest's.
        let instance = passage
            .guest(|| Instance::new(&mut store, &self.module, &imports).map_err(unwind))
            .map_err(unwind)??;
        let exports = &instance.exports;
        let handler = exports.get_typed_function(&store, process::HANDLER).ok();
        let alloc = exports.get_typed_function(&store, ALLOC).ok();
        let start = exports.get_typed_function::<(u32, u32), ()>(&store, THREAD_START);
        let start = start.map_err(unwind)?;
        let own = env.as_mut(&mut store);
        own.threads = Some(Arc::new(Arc::clone(self)));
        own.attach_memory(self.memory.guest());
        (own.handler, own.alloc) = (handler, alloc);
        passage.guest(|| start.call(&mut store, passage.number(), argument)).map_err(unwind)?
    }
}

impl Siblings for Arc<Threads> {
    fn spawn(&self, argument: u32) -> Result<u32> {
        let most = self.run.lock().most;
        let Some(passage) = self.parts.gate.admit(most) else {
            let wanted = most as u64 + 1;
            let refused = &mut self.run.lock().refused;
            *refused = (*refused).max(Some(wanted));
            return Err(Errno::Again);
        };
        self.is_used.store(true, Ordering::Relaxed);
        self.memory.guest().forget_copied();
        let number = passage.number();
        let threads = Self::clone(self);
        let spawned = thread::Builder::new()
            .name(format!("hatchery-guest-{number}"))
            .stack_size(HOST_STACK_BYTES)
            .spawn(move || threads.serve(Arc::new(passage), argument));
        match spawned {
            Ok(_) => Ok(number),
            Err(error) => {
                tracing::warn!(%error, "the system refused a thread for a guest");
                Err(Errno::Again)
            }
        }
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn note_change(&self) -> u64 {
        let count = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        self.parts.gate.wake();
        count
    }
}

/// Whether only the thread ends that was unwound by this.
fn ends_alone(error: &RuntimeError) -> bool {
    error.downcast_ref::<ThreadExit>().is_some() || error.downcast_ref::<Stopped>().is_some()
}

#[cfg(test)]
mod tests;
