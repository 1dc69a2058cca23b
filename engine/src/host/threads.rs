//! The threads of a guest.
//!
//! Each is a thread of the system with its own store and instance, on the same memory. It has the
//! same host: files, descriptors, the call channel. The gate knows them all
//! (`interrupt/gate/threads.rs`), so stops, interrupts and limits reach them.
//!
//! Threads that share an imported memory run at once. Their instances begin at the export
//! `wasi_thread_start`, as the proposal `wasi-threads` has it. Those of a build that was given
//! threads (`python/module/threads.rs`) run one at a time (`interrupt/gate/turn.rs`). They begin at
//! a function of the table, as `pthread_create` has it. One that returns leaves its thread
//! and instance to the next of the run: making an instance takes most of a thread's start.
//!
//! The guest ends with any thread that traps or calls `proc_exit`; one that returns, or calls
//! `thread_exit`, ends alone.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SendError, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use wasmer::{FunctionEnv, Instance, Module, RuntimeError, Store, Value};

use super::env::{Caller, GuestEnv, Parts, Siblings, ThreadExit, ThreadStart, unwind};
use super::reactor;
use super::wasi::process;
use crate::errno::{Errno, Result};
use crate::guest::recursion::C_STACK_BYTES;
use crate::interrupt::gate::words::{ThreadWords, VALUES_BYTES};
use crate::interrupt::gate::{Stopped, ThreadGate};
use crate::interrupt::watchdog::CpuClocks;
use crate::memory::GuestMemory;
use crate::memory::tunables::{Expected, SharedMemory, Waited, Waits, with_memory};
use crate::python::module::native::NativeEngine;
use crate::python::module::shape::{ALLOC, TABLE, THREAD_START};
use crate::python::module::threads::{
    ABSOLUTE, CLOCK_SHIFT, FREES, InterpreterLock, SPAWN, WAIT, WAKE, set_stack,
};

/// The stack for host functions; the guest's code has a stack of its own.
const HOST_STACK_BYTES: usize = 1 << 20;
/// The memory of a thread that runs in turn: its values, and its stack. Below the bound that CPython
/// keeps to, that has room for C code that doesn't look.
const THREAD_BYTES: u32 = C_STACK_BYTES + (128 << 10);
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
    memory: ThreadMemory,
    parts: Parts,
    clocks: Arc<CpuClocks>,
    changes: AtomicU64,
    /// Threads have run since the last `take_used`.
    is_used: AtomicBool,
    run: Mutex<Run>,
    /// Threads of the system with an instance, whose thread of the guest has returned in this run.
    idle: Mutex<Vec<Sender<AdmittedThread>>>,
}

/// A thread of the guest that begins, and its way through the gate.
type AdmittedThread = (ThreadGate, ThreadStart);

/// What a thread of the system runs; wasmer ties it to that.
struct GuestInstance {
    store: Store,
    instance: Instance,
    env: FunctionEnv<GuestEnv>,
}

/// The memory of the guest's instances.
#[derive(Clone)]
pub(crate) enum ThreadMemory {
    /// They import it.
    Shared(SharedMemory),
    /// Each would have its own, and gets this one.
    Own(Arc<GuestMemory>, ThreadWords),
}

impl ThreadMemory {
    fn guest(&self) -> &Arc<GuestMemory> {
        match self {
            Self::Shared(memory) => memory.guest(),
            Self::Own(memory, _) => memory,
        }
    }
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
        memory: ThreadMemory,
        parts: Parts,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine: engine.clone(),
            module: module.clone(),
            memory,
            parts,
            clocks: Arc::default(),
            changes: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            run: Mutex::default(),
            idle: Mutex::default(),
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
            self.idle.lock().clear();
        }
        (is_held, self.run.lock().end.take())
    }

    /// Ends all threads. Returns false if one hangs; the guest is then lost.
    pub(crate) fn end(&self) -> bool {
        let gate = &self.parts.gate;
        let have_left = gate.others() == 0 || gate.end_others(PATIENCE, LONGEST);
        if self.is_used.swap(false, Ordering::Relaxed) {
            self.memory.guest().forget_copied();
            self.idle.lock().clear();
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

    /// Runs threads of the guest on this thread of the system, one after another.
    fn serve(self: &Arc<Self>, mut admitted: AdmittedThread) {
        let mut kept = None;
        loop {
            let (idle, next) = mpsc::channel();
            self.serve_one(admitted, &mut kept, idle);
            match next.recv() {
                Ok(next) => admitted = next,
                Err(_) => break,
            }
        }
    }

    fn serve_one(
        self: &Arc<Self>,
        (passage, begins): AdmittedThread,
        kept: &mut Option<GuestInstance>,
        idle: Sender<AdmittedThread>,
    ) {
        let passage = Arc::new(passage);
        let clock = self.clocks.count_this_thread();
        let ended = catch_unwind(AssertUnwindSafe(|| self.run_guest(&passage, begins, kept, idle)));
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

    fn instantiate(&self, passage: &Arc<ThreadGate>) -> Result<GuestInstance, RuntimeError> {
        let mut store = self.engine.store();
        let env = GuestEnv::new(Arc::clone(passage), &self.parts);
        let env = FunctionEnv::new(&mut store, env);
        let (imported, own) = match &self.memory {
            ThreadMemory::Shared(memory) => {
                let waits: Arc<dyn Waits> = Arc::<ThreadGate>::clone(passage);
                (Some(memory.in_store(&mut store, waits).map_err(unwind)?), None)
            }
            ThreadMemory::Own(memory, _) => (None, Some(Arc::clone(memory))),
        };
        let imports = reactor::served(&mut store, &self.module, &env, imported).map_err(unwind)?;
        // A module's start function is the guest's.
        let (instance, _) = with_memory(own, || {
            passage.guest(|| Instance::new(&mut store, &self.module, &imports).map_err(unwind))
        });
        let instance = instance.map_err(unwind)??;
        Ok(GuestInstance { store, instance, env })
    }

    fn run_guest(
        self: &Arc<Self>,
        passage: &Arc<ThreadGate>,
        begins: ThreadStart,
        kept: &mut Option<GuestInstance>,
        idle: Sender<AdmittedThread>,
    ) -> Result<(), RuntimeError> {
        let GuestInstance { mut store, instance, env } = match kept.take() {
            Some(mut kept) => {
                let passage = Arc::clone(passage);
                *kept.env.as_mut(&mut kept.store) = GuestEnv::new(passage, &self.parts);
                kept
            }
            None => self.instantiate(passage)?,
        };
        let exports = &instance.exports;
        let handler = exports.get_typed_function(&store, process::HANDLER).ok();
        let alloc = exports.get_typed_function(&store, ALLOC).ok();
        let lock = InterpreterLock::of(&instance, &store);
        let threads = env.as_mut(&mut store);
        threads.threads = Some(Arc::new(Arc::clone(self)));
        threads.attach_memory(self.memory.guest());
        (threads.handler, threads.alloc, threads.lock) = (handler, alloc, lock);
        match begins {
            ThreadStart::Export { argument } => {
                let start = exports.get_typed_function::<(u32, u32), ()>(&store, THREAD_START);
                let start = start.map_err(unwind)?;
                passage
                    .guest(|| start.call(&mut store, passage.number(), argument))
                    .map_err(unwind)?
            }
            ThreadStart::Function { index, argument, block } => {
                set_stack(&instance, &mut store, block.wrapping_add(THREAD_BYTES))?;
                let table = exports.get_table(TABLE).map_err(unwind)?;
                let start = match table.get(&mut store, index) {
                    Some(Value::FuncRef(Some(start))) => start.typed::<u32, u32>(&store)?,
                    _ => return Err(RuntimeError::new("a thread begins at no function")),
                };
                passage.guest(|| start.call(&mut store, argument)).map_err(unwind)??;
                // Still in this thread's turn.
                self.give_block(block);
                // What is idle keeps neither the thread at the gate nor this value.
                let main = Arc::new(ThreadGate::of_main(Arc::clone(passage.gate())));
                *env.as_mut(&mut store) = GuestEnv::new(main, &self.parts);
                *kept = Some(GuestInstance { store, instance, env });
                self.idle.lock().push(idle);
                Ok(())
            }
        }
    }
}

impl Siblings for Arc<Threads> {
    fn spawn(&self, begins: ThreadStart) -> Result<u32> {
        let most = self.run.lock().most;
        let words = match begins {
            ThreadStart::Export { .. } => None,
            ThreadStart::Function { block, .. } => {
                Some(ThreadWords::beginning(block, THREAD_BYTES, C_STACK_BYTES))
            }
        };
        let Some(passage) = self.parts.gate.admit(most, words) else {
            let wanted = most as u64 + 1;
            let refused = &mut self.run.lock().refused;
            *refused = (*refused).max(Some(wanted));
            return Err(Errno::Again);
        };
        self.is_used.store(true, Ordering::Relaxed);
        self.memory.guest().forget_copied();
        let number = passage.number();
        let idle = self.idle.lock().pop();
        let admitted = match idle {
            None => (passage, begins),
            Some(idle) => match idle.send((passage, begins)) {
                Ok(()) => return Ok(number),
                Err(SendError(admitted)) => admitted,
            },
        };
        let threads = Self::clone(self);
        let spawned = thread::Builder::new()
            .name(format!("hatchery-guest-{number}"))
            .stack_size(HOST_STACK_BYTES)
            .spawn(move || threads.serve(admitted));
        match spawned {
            Ok(_) => Ok(number),
            Err(error) => {
                tracing::warn!(%error, "the system refused a thread for a guest");
                Err(Errno::Again)
            }
        }
    }

    fn take_block(&self) -> Option<u32> {
        match &self.memory {
            ThreadMemory::Shared(_) => None,
            ThreadMemory::Own(memory, words) => words.take_block(memory),
        }
    }

    fn give_block(&self, block: u32) {
        if let ThreadMemory::Own(memory, words) = &self.memory {
            words.give_block(memory, block);
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

/// Serves a call of a build that was given threads.
pub(crate) fn thread_call(
    caller: &mut Caller<'_>,
    at: u32,
    call: u32,
    operands: [u32; 2],
) -> Result<i32, RuntimeError> {
    let gate = Arc::clone(&caller.data().gate);
    let [first, second] = operands;
    gate.host(|| {
        let env = caller.data();
        if (FREES..WAIT).contains(&call) {
            gate.gate().forget_state(at);
            return Ok(0);
        }
        if call < FREES {
            // A wait for nothing, of which the program doesn't know, with the interpreter's lock.
            gate.wait(None, || true);
            return Ok(0);
        }
        env.count_call();
        Ok(match call {
            SPAWN.. => {
                let spawned = spawn(caller, at, first, second)?;
                spawned.map_or_else(Errno::code, |()| 0)
            }
            WAKE.. => gate.gate().wake_at(at, first).try_into().unwrap_or(i32::MAX),
            _ => wait(env, at, first, call, second).map_or_else(|errno| -errno.code(), |()| 0),
        })
    })
    .map_err(unwind)?
}

/// Starts a thread, as `pthread_create` does, and stores its number at `out`.
fn spawn(
    caller: &mut Caller<'_>,
    out: u32,
    index: u32,
    argument: u32,
) -> Result<Result<()>, RuntimeError> {
    let (env, mut store) = caller.data_and_store_mut();
    let Some(threads) = env.threads.clone() else { return Ok(Err(Errno::Again)) };
    let block = match threads.take_block() {
        Some(block) => block,
        None => {
            let Some(alloc) = env.alloc.clone() else { return Ok(Err(Errno::Again)) };
            let called = env.gate.guest(|| alloc.call(&mut store, THREAD_BYTES));
            called.map_err(unwind)??
        }
    };
    // The allocator answers 0 when the guest is out of memory.
    if block == 0 {
        return Ok(Err(Errno::Again));
    }
    let values = [0; VALUES_BYTES as usize];
    let begin = || {
        env.guest.write(block, &values)?;
        env.guest.write_u32(out, block)?;
        threads.spawn(ThreadStart::Function { index, argument, block }).map(drop)
    };
    let begun = begin();
    if begun.is_err() {
        threads.give_block(block);
    }
    Ok(begun)
}

/// Waits while the word at `at` is as expected, as Linux' futexes do. `time` points to seconds and
/// nanoseconds, or is 0.
fn wait(env: &GuestEnv, at: u32, expected: u32, call: u32, time: u32) -> Result<()> {
    let timeout = match time {
        0 => None,
        _ => {
            let time: [u8; 12] = env.guest.read(time)?;
            let (seconds, nanoseconds) = time.split_at(8);
            let seconds = i64::from_le_bytes(seconds.try_into().expect("eight bytes"));
            let nanoseconds = u32::from_le_bytes(nanoseconds.try_into().expect("four bytes"));
            let seconds = Duration::from_secs(u64::try_from(seconds).map_err(|_| Errno::Invalid)?);
            let time = seconds.saturating_add(Duration::from_nanos(nanoseconds.into()));
            let mut wasi = env.wasi.lock();
            let past = match call & ABSOLUTE {
                0 => Duration::ZERO,
                _ => {
                    let clock = (call >> CLOCK_SHIFT) & 3;
                    Duration::from_nanos(wasi.clock.read(clock).ok_or(Errno::Invalid)?)
                }
            };
            Some(wasi.clock.sleep(time.saturating_sub(past)))
        }
    };
    match env.gate.wait_for_word(at, Expected::Word(expected), timeout) {
        Waited::Notified => Ok(()),
        Waited::Changed => Err(Errno::Again),
        Waited::TimeOver => Err(Errno::TimedOut),
        Waited::Stopped => Err(Errno::Interrupted),
    }
}

/// Whether only the thread ends that was unwound by this.
fn ends_alone(error: &RuntimeError) -> bool {
    error.downcast_ref::<ThreadExit>().is_some() || error.downcast_ref::<Stopped>().is_some()
}

#[cfg(test)]
mod tests;
