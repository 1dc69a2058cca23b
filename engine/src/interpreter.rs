//! One live interpreter: start it, run programs on it.
//!
//! Owns the wasmer store, which never leaves its thread. A run that was stopped, trapped or left
//! by `os._exit` leaves CPython in the middle of something, so the interpreter is lost with it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmer::sys::vm::TrapCode;
use wasmer::{FunctionEnv, Instance, RuntimeError, Store, TypedFunction};

use crate::agent;
use crate::engine::Engine;
use crate::error::StartError;
use crate::host::door::Door;
use crate::host::{GuestEnv, GuestExit, GuestExports, GuestHost, Services, clock::Clock};
use crate::interrupt::{Gate, InterruptHandle, Stopped};
use crate::limits::{LimitHit, LimitKind, Limits};
use crate::memory::GuestMemory;
use crate::meter::Stopwatch;
use crate::outcome::{Afterwards, Outcome, SandboxFailure, StopReason, Usage, Verdict};
use crate::program::Program;
use crate::stop::StopHandle;
use crate::transcript::{Stream, Transcript};
use crate::tunables::GUEST_STACK_BYTES;

/// CPython is up in 0.12 s; this only ends a start that hangs.
const START_LIMIT: Duration = Duration::from_secs(120);

/// The exit code of a process that a shell saw abort: 128 and the number of SIGABRT.
const ABORTED: u8 = 128 + 6;

/// One CPython interpreter in its sandbox, bound to the thread that started it.
pub struct Interpreter {
    store: Store,
    exports: GuestExports,
    turn: TypedFunction<(i32, i32), i32>,
    gate: Arc<Gate>,
    memory: Arc<GuestMemory>,
    door: Arc<Mutex<Door>>,
    host: Box<dyn GuestHost>,
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
    pub(crate) fn start(engine: &Engine, mut host: Box<dyn GuestHost>) -> Result<Self, StartError> {
        let mut store = Store::new(engine.wasmer().clone());
        // The gate guards a memory that the instance will bring, and the imports need the gate
        // before there is an instance; so the gate is told of the memory afterwards.
        let door = Arc::new(Mutex::new(Door::default()));
        let gate = Arc::new(Gate::new());
        let env = FunctionEnv::new(
            &mut store,
            GuestEnv {
                gate: Arc::clone(&gate),
                door: Arc::clone(&door),
                clock: Clock::new(),
                guest: None,
            },
        );
        let services = Services { gate: Arc::clone(&gate), env: env.clone() };
        let imports = host.imports(&mut store, engine.module(), &services)?;
        let (instance, memory) = crate::tunables::with_memory(|| {
            Instance::new(&mut store, engine.module(), &imports)
                .map_err(|error| StartError::Instantiate(error.to_string()))
        });
        let instance = instance?;
        let memory =
            memory.ok_or_else(|| StartError::Instantiate("the module has no memory".to_owned()))?;
        gate.guard(Arc::clone(&memory));
        let exports = guest_exports(&store, &instance)?;
        env.as_mut(&mut store).guest = Some(exports.clone());
        host.attach(&mut store, &instance)?;
        let turn = instance.exports.get_typed_function(&store, "turn").map_err(export_error)?;
        let mut interpreter =
            Self { store, exports, turn, gate, memory, door, host, is_lost: false };
        interpreter.boot(&instance)?;
        Ok(interpreter)
    }

    /// Initialises CPython and starts the agent.
    fn boot(&mut self, instance: &Instance) -> Result<(), StartError> {
        let transcript = Arc::new(Transcript::default());
        transcript.begin(64 << 10);
        self.host.begin_run(Arc::clone(&transcript), Vec::new());
        let initialize: TypedFunction<(), ()> = instance
            .exports
            .get_typed_function(&self.store, "_initialize")
            .map_err(export_error)?;
        let run = self.gate.begin();
        let handle = InterruptHandle::new(Arc::clone(&self.gate));
        let deadline = Stopwatch::start().deadline(START_LIMIT, run, handle);
        let booted = catch_unwind(AssertUnwindSafe(|| {
            match self.gate.guest(|| initialize.call(&mut self.store)) {
                Ok(Ok(())) => self.turn(&agent::boot_source()),
                Ok(Err(error)) => Err(TurnFailure::Trap(error)),
                Err(stopped) => Err(stopped.into()),
            }
        }));
        drop(deadline);
        let stopped = self.gate.end();
        match (booted, stopped) {
            (Ok(Ok(0)), None) => Ok(()),
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
        let refused = if stop.requested() == Some(StopReason::Cancelled) {
            // Before anything ran, so the interpreter is as it was.
            Some(Verdict::Cancelled)
        } else {
            self.refuse(program, limits)
        };
        let (verdict, usage) = match refused {
            Some(verdict) => (verdict, Usage::default()),
            None => self.run_admitted(program, limits, transcript, stop, last),
        };
        transcript.close();
        let files = if is_success(&verdict) && !self.is_lost {
            self.host.changed_files()
        } else {
            Vec::new()
        };
        let outcome = Outcome {
            verdict,
            stdout: transcript.text_of(Stream::Stdout),
            stderr: transcript.text_of(Stream::Stderr),
            output_truncated: transcript.is_truncated(),
            files,
            usage: Usage { output_bytes: transcript.written_bytes(), ..usage },
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
        program
            .files
            .iter()
            .find_map(|file| self.host.put_file(file).err())
            .map(Verdict::SandboxFailed)
    }

    fn run_admitted(
        &mut self,
        program: &Program,
        limits: &Limits,
        transcript: &Arc<Transcript>,
        stop: &StopHandle,
        last: bool,
    ) -> (Verdict, Usage) {
        self.host.begin_run(Arc::clone(transcript), program.stdin.clone());
        self.door.lock().open(agent::request(program, limits, last), agent::reply_cap(limits));
        self.memory.begin_run(limits.memory_bytes);
        let run = self.gate.begin();
        let interrupt = InterruptHandle::new(Arc::clone(&self.gate));
        let watch = Stopwatch::start();
        let deadline = watch.deadline(limits.wall_time, run, interrupt.clone());
        stop.attach(interrupt, run);
        let ended = catch_unwind(AssertUnwindSafe(|| self.turn(agent::TURN)));
        stop.detach();
        drop(deadline);
        let stopped = self.gate.end();
        let usage = Usage {
            wall: watch.wall(),
            cpu: watch.cpu(),
            peak_memory_bytes: self.memory.len() as u64,
            ..Usage::default()
        };
        let reply = self.door.lock().close();
        let (verdict, afterwards) = judge(ended, stopped, reply, limits, &usage);
        self.is_lost = afterwards == Afterwards::Lost || self.memory.is_revoked();
        (verdict, usage)
    }

    /// Hands `source` to the guest's `turn` and returns its status.
    fn turn(&mut self, source: &str) -> Result<i32, TurnFailure> {
        let length = i32::try_from(source.len()).expect("turns are short");
        let store = &mut self.store;
        let address = self
            .gate
            .guest(|| self.exports.alloc.call(store, length))?
            .map_err(TurnFailure::Trap)?;
        if self.gate.stop_requested().is_some() {
            return Err(TurnFailure::Stopped);
        }
        if address == 0 {
            return Err(TurnFailure::NoRoom);
        }
        let view = self.exports.memory.view(&self.store);
        view.write(u64::from(address.cast_unsigned()), source.as_bytes())
            .map_err(|_| TurnFailure::NoRoom)?;
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

/// What a run's end means. The order of the arms is the order of trust: what the host knows comes
/// before what the guest says.
fn judge(
    ended: Result<Result<i32, TurnFailure>, Box<dyn Any + Send>>,
    stopped: Option<StopReason>,
    reply: Option<Vec<u8>>,
    limits: &Limits,
    usage: &Usage,
) -> (Verdict, Afterwards) {
    let failed = |failure| (Verdict::SandboxFailed(failure), Afterwards::Lost);
    match (ended, stopped) {
        (Err(panic), _) => failed(SandboxFailure::HostPanic(panic_text(&*panic))),
        (Ok(_), Some(StopReason::Cancelled)) => (Verdict::Cancelled, Afterwards::Lost),
        (Ok(_), Some(StopReason::WallTime)) => {
            let hit = LimitHit {
                limit: LimitKind::Wall,
                allowed: milliseconds(limits.wall_time),
                used: milliseconds(usage.wall),
            };
            (Verdict::Limit(hit), Afterwards::Lost)
        }
        (Ok(Err(TurnFailure::Trap(error))), None) => (judge_trap(error), Afterwards::Lost),
        (Ok(Err(failure)), None) => failed(SandboxFailure::Trap(failure.to_string())),
        (Ok(Ok(status)), None) => match reply.as_deref().map(agent::parse_reply) {
            Some(Ok(verdict)) if status == 0 => (verdict, Afterwards::Usable),
            Some(Err(failure)) => failed(failure),
            _ => failed(SandboxFailure::Protocol(format!(
                "the turn ended with status {status} and without a reply"
            ))),
        },
    }
}

/// What a trap means that nobody asked for.
fn judge_trap(error: RuntimeError) -> Verdict {
    let error = match error.downcast::<GuestExit>() {
        Ok(GuestExit(code)) => return Verdict::Exited { code: code as u8, message: None },
        Err(error) => error,
    };
    match error.clone().to_trap() {
        // `abort()`, which a signal of the program to itself ends in too.
        Some(TrapCode::UnreachableCodeReached) => {
            let message = Some("the program aborted its interpreter".to_owned());
            Verdict::Exited { code: ABORTED, message }
        }
        Some(TrapCode::StackOverflow) => {
            let (limit, bytes) = (LimitKind::Stack, GUEST_STACK_BYTES as u64);
            Verdict::Limit(LimitHit { limit, allowed: bytes, used: bytes })
        }
        _ => Verdict::SandboxFailed(SandboxFailure::Trap(error.message())),
    }
}

fn is_success(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Completed { .. } | Verdict::Exited { code: 0, .. })
}

fn guest_exports(store: &Store, instance: &Instance) -> Result<GuestExports, StartError> {
    let exports = &instance.exports;
    Ok(GuestExports {
        memory: exports.get_memory("memory").map_err(export_error)?.clone(),
        alloc: exports.get_typed_function(store, "host_alloc").map_err(export_error)?,
    })
}

fn export_error(error: wasmer::ExportError) -> StartError {
    StartError::Instantiate(error.to_string())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
