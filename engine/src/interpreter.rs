//! One live interpreter: start it, run programs on it, put it back, put aside what it holds.
//!
//! Owns the wasmer store, which never leaves its thread. A run that was stopped, trapped or left
//! by `os._exit` leaves CPython and wasmer in the middle of something, so the interpreter is lost
//! with it, and the next one gets a new instance.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmer::{FunctionEnv, Instance, RuntimeError, Store, TypedFunction};

use crate::agent::{self, Moment};
use crate::engine::Engine;
use crate::error::{SessionError, StartError};
use crate::host::door::{Door, GeneratorClaim, Passed};
use crate::host::wasi::{HostState, Wasi};
use crate::host::{Bell, GuestEnv, GuestHost, RunSetup};
use crate::image::{GeneratorState, Image, ImageSpec};
use crate::interrupt::raise::{Offsets, Raiser};
use crate::interrupt::{Gate, InterruptHandle, Stopped};
use crate::limits::{LimitHit, LimitKind, Limits};
use crate::memory::GuestMemory;
use crate::memory::patch::MemoryPatch;
use crate::meter::Stopwatch;
use crate::outcome::{Afterwards, Outcome, SandboxFailure, Usage, Verdict};
use crate::program::{Deterministic, Program};
use crate::session::{Life, SessionState};
use crate::stop::StopHandle;
use crate::transcript::{Stream, Transcript};
use crate::tunables::InstanceMemory;
use judge::{hit, judge};

mod judge;

/// CPython is up in 0.12 s; this only ends a start that hangs.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Exception objects that an instance may leave with wasmer before it is remade; each takes a few
/// KB, most of it a backtrace.
const MOST_EXCEPTIONS: usize = 1024;
/// Runs between two looks at that number.
const RUNS_PER_LOOK: u32 = 64;

/// One CPython interpreter in its sandbox, bound to the thread that started it.
pub struct Interpreter {
    store: Store,
    alloc: TypedFunction<u32, u32>,
    turn: TypedFunction<(u32, u32), i32>,
    gate: Arc<Gate>,
    memory: InstanceMemory,
    door: Arc<Mutex<Door>>,
    host: Box<dyn GuestHost>,
    bell: Arc<Bell>,
    engine: Engine,
    /// What it goes back to.
    image: Option<Image>,
    /// The address of `KeyboardInterrupt`.
    exception: Option<u32>,
    life: Life,
    /// The state that it was parked in or attached last, whose patches the next one shares.
    parked: Option<SessionState>,
    /// Runs of this instance.
    runs: u32,
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
        host: Box<dyn GuestHost>,
        wasi: Arc<Mutex<Wasi>>,
        deterministic: Option<Deterministic>,
    ) -> Result<Self, StartError> {
        let (mut interpreter, instance) = Self::instantiate(engine, host, wasi, None)?;
        interpreter.life.deterministic = deterministic;
        interpreter.boot(&instance)?;
        Ok(interpreter)
    }

    /// Makes an interpreter that is as `image` is.
    ///
    /// # Errors
    /// The system refuses memory.
    pub(crate) fn on(image: &Image) -> Result<Self, StartError> {
        let engine = image.engine();
        let (host, wasi) = engine.host(image.host().clone());
        let memory = GuestMemory::over(Arc::clone(image.memory()), engine.copies_on_write());
        let memory = memory.map_err(|error| StartError::Instantiate(error.to_string()))?;
        let (mut interpreter, _) = Self::instantiate(engine, host, wasi, Some(Arc::new(memory)))?;
        interpreter.image = Some(image.clone());
        interpreter.exception = image.facts().exception;
        interpreter.raise_with(image.facts().offsets);
        interpreter.restore(image.pristine(), &image.facts().globals, image.host().clone())?;
        Ok(interpreter)
    }

    /// Makes the instance, on a memory that holds an image or else on a new one.
    fn instantiate(
        engine: &Engine,
        mut host: Box<dyn GuestHost>,
        wasi: Arc<Mutex<Wasi>>,
        image: Option<Arc<GuestMemory>>,
    ) -> Result<(Self, Instance), StartError> {
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
        let (instance, memory) = crate::tunables::with_memory(image, || {
            Instance::new(&mut store, engine.module(), &imports)
                .map_err(|error| StartError::Instantiate(error.to_string()))
        });
        let instance = instance?;
        let memory =
            memory.ok_or_else(|| StartError::Instantiate("the module has no memory".to_owned()))?;
        gate.guard(Arc::clone(memory.shared()));
        let alloc: TypedFunction<u32, u32> =
            instance.exports.get_typed_function(&store, "host_alloc").map_err(export_error)?;
        env.as_mut(&mut store).memory = Some(Arc::clone(memory.shared()));
        env.as_mut(&mut store).alloc = Some(alloc.clone());
        host.attach(&mut store, &instance)?;
        let turn = instance.exports.get_typed_function(&store, "turn").map_err(export_error)?;
        let interpreter = Self {
            store,
            alloc,
            turn,
            gate,
            memory,
            door,
            host,
            bell,
            engine: engine.clone(),
            image: None,
            exception: None,
            life: Life::default(),
            parked: None,
            runs: 0,
            is_lost: false,
        };
        Ok((interpreter, instance))
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
        self.exception = self.door.lock().exception();
        self.host.end_run(true);
        match (booted, asked.stop) {
            (Ok(Ok(0)), None) => {
                self.raise_with(self.engine.offsets(self.memory.shared()));
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

    fn raise_with(&self, offsets: Option<Offsets>) {
        if let (Some(offsets), Some(exception)) = (offsets, self.exception) {
            self.gate.raise_with(Raiser::new(offsets, exception));
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
            None => {
                let reseed = std::mem::take(&mut self.life.is_copy);
                let moment = Moment { last, reseed };
                let request = agent::request(program, limits, moment);
                let turn = Turn { source: agent::TURN, request };
                self.life.has_run = true;
                self.serve(
                    turn,
                    RunSetup { program, limits, transcript: Arc::clone(transcript) },
                    stop,
                )
                .0
            }
        };
        let afterwards = if self.is_lost { Afterwards::Lost } else { Afterwards::Usable };
        (with_output(outcome, transcript), afterwards)
    }

    /// Prepares this interpreter for an image to be taken of it.
    pub(crate) fn prepare(&mut self, spec: &ImageSpec) -> Prepared {
        let limits = Limits { wall_time: START_LIMIT, cpu_time: START_LIMIT, ..Limits::default() };
        let transcript = Arc::<Transcript>::default();
        transcript.begin(limits.output_bytes);
        let turn = Turn { source: agent::PREPARE, request: agent::prepare_request(spec, &limits) };
        let program = Program::default();
        let setup =
            RunSetup { program: &program, limits: &limits, transcript: Arc::clone(&transcript) };
        let (outcome, generators) = self.serve(turn, setup, &StopHandle::default());
        Prepared { outcome: with_output(outcome, &transcript), generators }
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
        if self.life.has_run || (wanted == self.life.deterministic && self.image.is_none()) {
            let is_as_wanted = wanted.is_none() || wanted == self.life.deterministic;
            return if is_as_wanted { Ok(()) } else { Err(SandboxFailure::NotDeterministic) };
        }
        let failed = |error: &dyn std::fmt::Display| SandboxFailure::Start(error.to_string());
        match self.image.clone() {
            Some(image) => self.begin_life(&image, wanted).map_err(|error| failed(&error)),
            // The hash seed is drawn as CPython starts, so it has to start again.
            None => {
                *self = self.engine.start_with(wanted).map_err(|error| failed(&error))?;
                Ok(())
            }
        }
    }

    /// Gives a copy of the image a clock and random numbers of its own.
    fn begin_life(
        &mut self,
        image: &Image,
        wanted: Option<Deterministic>,
    ) -> Result<(), SessionError> {
        let mut state = self.host.state().ok_or(SessionError::NotParkable)?;
        state.diverge(wanted.as_ref());
        for generator in &image.facts().generators {
            let fill = |words: &mut [u8]| state.draw(words);
            let filled =
                self.memory.shared().with_bytes(generator.address, GeneratorState::BYTES, fill);
            if !matches!(filled, Some(Ok(()))) {
                return Err(SessionError::Memory(io::Error::other("no random numbers can be had")));
            }
        }
        self.host.set_state(state);
        self.life.deterministic = wanted;
        Ok(())
    }

    /// Runs one turn of the guest, and says what came of it and what it told of generators.
    fn serve(
        &mut self,
        turn: Turn,
        setup: RunSetup<'_>,
        stop: &StopHandle,
    ) -> (Outcome, Vec<GeneratorClaim>) {
        let RunSetup { program, limits, ref transcript } = setup;
        let transcript = Arc::clone(transcript);
        if let Err(verdict) = self.host.begin_run(setup) {
            self.host.end_run(false);
            return (Outcome::not_run(verdict), Vec::new());
        }
        self.runs += 1;
        self.door.lock().open(turn.request, agent::reply_cap(limits));
        self.memory.shared().begin_run(limits.memory_bytes);
        let run = self.gate.begin();
        let interrupt = InterruptHandle::new(Arc::clone(&self.gate));
        let watch = Stopwatch::start();
        let guard = watch.guard(limits, run, interrupt.clone());
        self.bell.hang(guard.asker());
        stop.attach(interrupt, run, guard.asker());
        let ended = catch_unwind(AssertUnwindSafe(|| self.turn(turn.source)));
        stop.detach();
        drop(guard);
        let asked = self.gate.end();
        let usage = Usage {
            wall: watch.wall(),
            cpu: watch.cpu(),
            peak_memory_bytes: self.memory.shared().len() as u64,
            output_bytes: transcript.written_bytes(),
            ..Usage::default()
        };
        let Passed { reply, generators } = self.door.lock().close();
        let judgement = judge(ended, asked, reply, limits);
        self.is_lost =
            judgement.afterwards == Afterwards::Lost || self.memory.shared().is_revoked();
        let is_kept = judgement.is_success() || program.keeps_files;
        let effects = self.host.end_run(is_kept);
        let usage = Usage { host_calls: effects.host_calls, ..usage };
        let (verdict, interrupted_at) = judgement.verdict(limits, &usage);
        let mut limits_met = effects.refusals;
        if let Some(refused) = self.memory.shared().refused() {
            limits_met.push(hit(LimitKind::Memory, limits, refused as u64));
        }
        if transcript.is_truncated() {
            limits_met.push(hit(LimitKind::Output, limits, usage.output_bytes));
        }
        let outcome = Outcome {
            files: effects.files,
            limits_met,
            interrupted_at,
            usage,
            ..Outcome::not_run(verdict)
        };
        (outcome, generators)
    }

    /// Goes back to the image: nothing that ran here remains. Takes 0.1 ms and what the run
    /// touched; an instance that was stopped, left or worn out is made anew, in 5 ms. Without an
    /// image, Python starts again.
    ///
    /// # Errors
    /// The system refuses memory. The interpreter is then lost, and may be reset again.
    pub fn reset(&mut self) -> Result<(), StartError> {
        let Some(image) = self.image.clone() else {
            *self = self.engine.start()?;
            return Ok(());
        };
        if self.is_lost || self.is_worn() {
            *self = Self::on(&image)?;
            return Ok(());
        }
        self.restore(image.pristine(), &image.facts().globals, image.host().clone())?;
        self.life = Life::default();
        self.parked = None;
        Ok(())
    }

    /// Copies out what the interpreter holds beyond its image. It goes on holding it.
    ///
    /// # Errors
    /// It has no image, or the system refuses.
    ///
    /// # Panics
    /// If the interpreter is lost.
    pub fn park(&mut self) -> Result<SessionState, SessionError> {
        assert!(!self.is_lost, "a lost interpreter holds nothing");
        let image = self.image.as_ref().ok_or(SessionError::NotParkable)?;
        let before = self.parked.as_ref().map_or(image.pristine(), SessionState::memory);
        let memory = self.memory.shared().patch(before).map_err(SessionError::Memory)?;
        let host = self.host.state().ok_or(SessionError::NotParkable)?;
        let globals = crate::tunables::globals(&mut self.store);
        let parked = SessionState::new(image, memory, globals, host, self.life);
        self.parked = Some(parked.clone());
        Ok(parked)
    }

    /// Holds `state` from now on, in place of what it held.
    ///
    /// # Errors
    /// The state is of another image, or the system refuses. The interpreter is then lost, and can
    /// be reset.
    pub fn attach(&mut self, state: &SessionState) -> Result<(), SessionError> {
        let image = self.image.clone().ok_or(SessionError::NotParkable)?;
        if image.info().key != state.image().info().key {
            return Err(SessionError::NotParkable);
        }
        if self.is_lost || self.is_worn() {
            *self = Self::on(&image)
                .map_err(|error| SessionError::Memory(io::Error::other(error.to_string())))?;
        }
        self.restore(state.memory(), state.globals(), state.host().clone())
            .map_err(|error| SessionError::Memory(io::Error::other(error.to_string())))?;
        self.life = state.life();
        self.parked = Some(state.clone());
        Ok(())
    }

    fn restore(
        &mut self,
        memory: &MemoryPatch,
        globals: &[u128],
        host: HostState,
    ) -> Result<(), StartError> {
        // Until all of it is done.
        self.is_lost = true;
        let restored = self.memory.restore(&mut self.store, memory, globals);
        restored.map_err(|error| StartError::Instantiate(error.to_string()))?;
        self.host.set_state(host);
        self.is_lost = false;
        Ok(())
    }

    /// Whether the instance has run often, or left much with wasmer.
    fn is_worn(&mut self) -> bool {
        self.runs >= self.engine.runs_per_instance()
            || (self.runs.is_multiple_of(RUNS_PER_LOOK)
                && crate::tunables::exceptions(&mut self.store) > MOST_EXCEPTIONS)
    }

    pub(crate) fn memory(&self) -> Arc<GuestMemory> {
        Arc::clone(self.memory.shared())
    }

    pub(crate) fn globals(&mut self) -> Vec<u128> {
        crate::tunables::globals(&mut self.store)
    }

    pub(crate) fn exception(&self) -> Option<u32> {
        self.exception
    }

    pub(crate) fn host_state(&self) -> Option<HostState> {
        self.host.state()
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
            .shared()
            .with_bytes(address, length, |target| target.copy_from_slice(source.as_bytes()))
            .ok_or(TurnFailure::NoRoom)?;
        self.gate
            .guest(|| self.turn.call(&mut self.store, address, length))?
            .map_err(TurnFailure::Trap)
    }
}

/// One turn of the guest.
struct Turn {
    source: &'static str,
    request: Vec<u8>,
}

/// What came of preparing an interpreter for an image.
pub(crate) struct Prepared {
    pub(crate) outcome: Outcome,
    /// Where it says that generators of random numbers are.
    pub(crate) generators: Vec<GeneratorClaim>,
}

/// The outcome with what was written, which ends here.
fn with_output(outcome: Outcome, transcript: &Transcript) -> Outcome {
    transcript.close();
    Outcome {
        stdout: transcript.text_of(Stream::Stdout),
        stderr: transcript.text_of(Stream::Stderr),
        output_truncated: transcript.is_truncated(),
        usage: Usage { output_bytes: transcript.written_bytes(), ..outcome.usage },
        ..outcome
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
