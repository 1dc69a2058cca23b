//! One live interpreter: start it, run programs on it.
//!
//! Owns the wasmer store, which never leaves its thread. A run that was stopped, trapped or left
//! by `os._exit` leaves CPython in the middle of something, so the interpreter is lost with it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmer::{FunctionEnv, Instance, RuntimeError, Store, TypedFunction};

use crate::agent;
use crate::engine::Engine;
use crate::error::StartError;
use crate::host::door::Door;
use crate::host::wasi::Wasi;
use crate::host::{Bell, GuestEnv, GuestHost, RunSetup};
use crate::interrupt::raise::Raiser;
use crate::interrupt::{Gate, InterruptHandle, Stopped};
use crate::limits::{LimitHit, LimitKind, Limits};
use crate::memory::GuestMemory;
use crate::meter::Stopwatch;
use crate::outcome::{Afterwards, Outcome, SandboxFailure, Usage, Verdict};
use crate::program::{Deterministic, Program};
use crate::stop::StopHandle;
use crate::transcript::{Stream, Transcript};
use judge::{hit, judge};

mod judge;

/// CPython is up in 0.12 s; this only ends a start that hangs.
const START_LIMIT: Duration = Duration::from_secs(120);

/// One CPython interpreter in its sandbox, bound to the thread that started it.
pub struct Interpreter {
    store: Store,
    alloc: TypedFunction<u32, u32>,
    turn: TypedFunction<(u32, u32), i32>,
    gate: Arc<Gate>,
    memory: Arc<GuestMemory>,
    door: Arc<Mutex<Door>>,
    host: Box<dyn GuestHost>,
    bell: Arc<Bell>,
    engine: Engine,
    deterministic: Option<Deterministic>,
    has_run: bool,
    is_lost: bool,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Interpreter")
            .field("is_lost", &self.is_lost)
            .finish_non_exhaustive()
    }
}

impl Interpreter {
    /// Starts CPython and the agent.
    ///
    /// # Errors
    /// The system refuses memory, or the module does not come up as a Python build.
    pub(crate) fn start(
        engine: &Engine,
        mut host: Box<dyn GuestHost>,
        wasi: Arc<Mutex<Wasi>>,
        deterministic: Option<Deterministic>,
    ) -> Result<Self, StartError> {
        let mut store = Store::new(engine.wasmer().clone());
        // The gate guards a memory that the instance will bring, and the imports need the gate
        // before there is an instance; so the gate is told of the memory afterwards.
        let (door, gate, bell) = (Arc::default(), Arc::new(Gate::new()), Arc::new(Bell::default()));
        let env = GuestEnv {
            gate: Arc::clone(&gate),
            wasi,
            door: Arc::clone(&door),
            bell: Arc::clone(&bell),
            memory: None,
            alloc: None,
        };
        let env = FunctionEnv::new(&mut store, env);
        let imports = host.imports(&mut store, engine.module(), &env)?;
        let (instance, memory) = crate::tunables::with_memory(|| {
            Instance::new(&mut store, engine.module(), &imports)
                .map_err(|error| StartError::Instantiate(error.to_string()))
        });
        let instance = instance?;
        let memory =
            memory.ok_or_else(|| StartError::Instantiate("the module has no memory".to_owned()))?;
        gate.guard(Arc::clone(&memory));
        let alloc: TypedFunction<u32, u32> =
            instance.exports.get_typed_function(&store, "host_alloc").map_err(export_error)?;
        env.as_mut(&mut store).memory = Some(Arc::clone(&memory));
        env.as_mut(&mut store).alloc = Some(alloc.clone());
        host.attach(&mut store, &instance)?;
        let turn = instance.exports.get_typed_function(&store, "turn").map_err(export_error)?;
        let mut interpreter = Self {
            store,
            alloc,
            turn,
            gate,
            memory,
            door,
            host,
            bell,
            engine: engine.clone(),
            deterministic,
            has_run: false,
            is_lost: false,
        };
        interpreter.boot(&instance)?;
        Ok(interpreter)
    }

    /// Initialises CPython and starts the agent.
    fn boot(&mut self, instance: &Instance) -> Result<(), StartError> {
        let limits = Limits { wall_time: START_LIMIT, cpu_time: START_LIMIT, ..Limits::default() };
        let transcript = Arc::new(Transcript::default());
        transcript.begin(64 << 10);
        let program = Program::default();
        let setup =
            RunSetup { program: &program, limits: &limits, transcript: Arc::clone(&transcript) };
        self.host.begin_run(setup).map_err(|verdict| StartError::Host(format!("{verdict:?}")))?;
        self.door.lock().open(Vec::new(), agent::BOOT_FRAME_BYTES);
        let initialize: TypedFunction<(), ()> = instance
            .exports
            .get_typed_function(&self.store, "_initialize")
            .map_err(export_error)?;
        let run = self.gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&self.gate));
        let guard = Stopwatch::start().guard(&limits, run, handle);
        let booted = catch_unwind(AssertUnwindSafe(|| {
            match self.gate.guest(|| initialize.call(&mut self.store)) {
                Ok(Ok(())) => self.turn(&agent::boot_source()),
                Ok(Err(error)) => Err(TurnFailure::Trap(error)),
                Err(stopped) => Err(stopped.into()),
            }
        }));
        drop(guard);
        let asked = self.gate.end();
        let exception = self.door.lock().exception();
        self.host.end_run(true);
        match (booted, asked.stop) {
            (Ok(Ok(0)), None) => {
                if let (Some(offsets), Some(exception)) =
                    (self.engine.offsets(&self.memory), exception)
                {
                    self.gate.raise_with(Raiser::new(offsets, exception));
                }
                Ok(())
            }
            (Ok(Ok(_)), None) => {
                let said = transcript.text_of(Stream::Stderr);
                Err(StartError::Boot(String::from_utf8_lossy(&said).trim().to_owned()))
            }
            (Ok(Err(failure)), None) => Err(StartError::Boot(failure.to_string())),
            (Err(panic), None) => Err(StartError::Boot(panic_text(&*panic))),
            (_, Some(_)) => Err(StartError::Boot(format!("not within {START_LIMIT:?}"))),
        }
    }

    /// Runs one program to its end, whatever that is, and says what became of the interpreter.
    ///
    /// Output appears in `transcript` while the program runs, which is closed at the end. `stop`
    /// ends the run from any thread. After the `last` run, exit functions of the program run too.
    /// State that the program leaves is seen by the next one.
    ///
    /// # Panics
    /// If the interpreter is lost.
    pub fn run(
        &mut self,
        program: &Program,
        limits: &Limits,
        transcript: &Arc<Transcript>,
        stop: &StopHandle,
        last: bool,
    ) -> (Outcome, Afterwards) {
        assert!(!self.is_lost, "a lost interpreter runs nothing");
        transcript.begin(limits.output_bytes);
        let refused = if stop.requested().is_some() {
            // Before anything ran, so the interpreter is as it was.
            Some(Verdict::Cancelled)
        } else {
            self.refuse(program, limits)
        };
        let outcome = match refused {
            Some(verdict) => Outcome::not_run(verdict),
            None => self.run_admitted(program, limits, transcript, stop, last),
        };
        transcript.close();
        let outcome = Outcome {
            stdout: transcript.text_of(Stream::Stdout),
            stderr: transcript.text_of(Stream::Stderr),
            output_truncated: transcript.is_truncated(),
            usage: Usage { output_bytes: transcript.written_bytes(), ..outcome.usage },
            ..outcome
        };
        (outcome, if self.is_lost { Afterwards::Lost } else { Afterwards::Usable })
    }

    /// What is refused before anything runs.
    fn refuse(&mut self, program: &Program, limits: &Limits) -> Option<Verdict> {
        if program.source.len() > limits.source_bytes {
            return Some(Verdict::Limit(LimitHit {
                limit: LimitKind::Source,
                allowed: limits.source_bytes as u64,
                used: program.source.len() as u64,
            }));
        }
        self.determine(program.deterministic).err().map(Verdict::SandboxFailed)
    }

    /// Makes this an interpreter with the clock and the random numbers that a run wants.
    fn determine(&mut self, wanted: Option<Deterministic>) -> Result<(), SandboxFailure> {
        if wanted.is_none() || wanted == self.deterministic {
            return Ok(());
        }
        if self.has_run {
            return Err(SandboxFailure::NotDeterministic);
        }
        // The hash seed is drawn as CPython starts, so it has to start again.
        let started = self.engine.start_with(wanted);
        *self = started.map_err(|error| SandboxFailure::Start(error.to_string()))?;
        Ok(())
    }

    fn run_admitted(
        &mut self,
        program: &Program,
        limits: &Limits,
        transcript: &Arc<Transcript>,
        stop: &StopHandle,
        last: bool,
    ) -> Outcome {
        let setup = RunSetup { program, limits, transcript: Arc::clone(transcript) };
        if let Err(verdict) = self.host.begin_run(setup) {
            self.host.end_run(false);
            return Outcome::not_run(verdict);
        }
        self.has_run = true;
        self.door.lock().open(agent::request(program, limits, last), agent::reply_cap(limits));
        self.memory.begin_run(limits.memory_bytes);
        let run = self.gate.begin();
        let interrupt = InterruptHandle::new(Arc::clone(&self.gate));
        let watch = Stopwatch::start();
        let guard = watch.guard(limits, run, interrupt.clone());
        self.bell.hang(guard.asker());
        stop.attach(interrupt, run, guard.asker());
        let ended = catch_unwind(AssertUnwindSafe(|| self.turn(agent::TURN)));
        stop.detach();
        drop(guard);
        let asked = self.gate.end();
        let usage = Usage {
            wall: watch.wall(),
            cpu: watch.cpu(),
            peak_memory_bytes: self.memory.len() as u64,
            output_bytes: transcript.written_bytes(),
            ..Usage::default()
        };
        let reply = self.door.lock().close();
        let judgement = judge(ended, asked, reply, limits);
        self.is_lost = judgement.afterwards == Afterwards::Lost || self.memory.is_revoked();
        let is_kept = judgement.is_success() || program.keeps_files;
        let effects = self.host.end_run(is_kept);
        let usage = Usage { host_calls: effects.host_calls, ..usage };
        let (verdict, interrupted_at) = judgement.verdict(limits, &usage);
        let mut limits_met = effects.refusals;
        if let Some(refused) = self.memory.refused() {
            limits_met.push(hit(LimitKind::Memory, limits, refused as u64));
        }
        if transcript.is_truncated() {
            limits_met.push(hit(LimitKind::Output, limits, usage.output_bytes));
        }
        Outcome {
            files: effects.files,
            limits_met,
            interrupted_at,
            usage,
            ..Outcome::not_run(verdict)
        }
    }

    /// Hands `source` to the guest's `turn` and returns its status.
    fn turn(&mut self, source: &str) -> Result<i32, TurnFailure> {
        let length = u32::try_from(source.len()).expect("turns are short");
        let store = &mut self.store;
        let address =
            self.gate.guest(|| self.alloc.call(store, length))?.map_err(TurnFailure::Trap)?;
        if self.gate.stop_requested().is_some() {
            return Err(TurnFailure::Stopped);
        }
        if address == 0 {
            return Err(TurnFailure::NoRoom);
        }
        self.memory
            .with_bytes(address, length, |target| target.copy_from_slice(source.as_bytes()))
            .ok_or(TurnFailure::NoRoom)?;
        self.gate
            .guest(|| self.turn.call(&mut self.store, address, length))?
            .map_err(TurnFailure::Trap)
    }
}

/// Why a turn did not come to an end of its own.
#[derive(Debug, thiserror::Error)]
enum TurnFailure {
    #[error("stopped")]
    Stopped,
    #[error("the guest has no room for the turn")]
    NoRoom,
    #[error("{}", .0.message())]
    Trap(RuntimeError),
}

impl From<Stopped> for TurnFailure {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

fn export_error(error: wasmer::ExportError) -> StartError {
    StartError::Instantiate(error.to_string())
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
