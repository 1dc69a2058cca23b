//! Starts interpreters: CPython from scratch, or a copy of an image.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use scopeguard::ScopeGuard;
use wasmer::{FunctionEnv, Instance, MemoryType};

use super::entry::{Entrance, Guest};
use super::judge::panic_text;
use super::turn::{begin_gate, begin_host};
use super::{Interpreter, START_LIMIT};
use crate::cause::Cause;
use crate::error::StartError;
use crate::guest::agent;
use crate::guest::agent::boot;
use crate::guest::recursion;
use crate::host::GuestHost;
use crate::host::env::{GuestEnv, Parts, RunSetup, Siblings};
use crate::host::layout::Layout;
use crate::host::threads::{ThreadMemory, Threads};
use crate::host::wasi::{HostState, Wasi};
use crate::interpreter::engine::Engine;
use crate::interpreter::image::Image;
use crate::interpreter::session::Life;
use crate::interpreter::session::forks::Lineage;
use crate::interrupt::gate::{Gate, ThreadGate};
use crate::interrupt::here::RunsHere;
use crate::interrupt::raise::{Offsets, Raiser};
use crate::interrupt::watchdog::Stopwatch;
use crate::limits::Limits;
use crate::memory::GuestMemory;
use crate::memory::faults;
use crate::memory::tunables::{SharedMemory, with_memory};
use crate::python::module::shape::{Shape, shared_memory};
use crate::python::module::threads::{InterpreterLock, words_of};
use crate::python::module::throws::ThrowsLeft;
use crate::run::program::{Deterministic, Program};
use crate::run::transcript::{Stream, Transcript};

impl Engine {
    /// Starts an interpreter on this thread, where it stays.
    ///
    /// # Errors
    /// The system refuses memory, or CPython does not come up.
    pub fn start(&self) -> Result<Interpreter, StartError> {
        self.start_with(&self.inner.layout, None)
    }

    /// Starts an interpreter with these files, whose clock and random numbers may be deterministic.
    #[tracing::instrument(level = "debug", name = "start_interpreter", skip_all)]
    pub(crate) fn start_with(
        &self,
        layout: &Layout,
        deterministic: Option<Deterministic>,
    ) -> Result<Interpreter, StartError> {
        let (host, wasi) = self.host(HostState::new(layout, deterministic.as_ref()));
        let (mut interpreter, instance) = Interpreter::instantiate(self, host, wasi, None)?;
        interpreter.life.deterministic = deterministic;
        interpreter.boot(&instance)?;
        Ok(interpreter)
    }
}

impl Image {
    /// Starts an interpreter in the state of the image on this thread, where it stays.
    ///
    /// # Errors
    /// The system refuses memory.
    #[tracing::instrument(level = "debug", name = "start_interpreter", skip_all)]
    pub fn start(&self) -> Result<Interpreter, StartError> {
        Interpreter::on(self.clone(), None)
    }
}

impl Interpreter {
    /// Creates an interpreter in the state of `image`, perhaps in the place of another one with
    /// this memory.
    ///
    /// # Errors
    /// The system refuses memory.
    pub(super) fn on(image: Image, predecessor: Option<&GuestMemory>) -> Result<Self, StartError> {
        let engine = image.engine();
        let (host, wasi) = engine.host(image.inner.host.clone());
        let memory =
            GuestMemory::over(Arc::clone(&image.inner.memory), engine.inner.config.copy_on_write);
        let memory = memory.map_err(|error| StartError::Instantiate(Cause::new(error)))?;
        let hidden = usize::try_from(image.inner.facts.hidden_bytes).unwrap_or(usize::MAX);
        let mut memory = memory.uncharged(hidden);
        if shared_memory(engine.inner.module.module()).is_some() {
            memory = memory.shared();
        }
        if let Some(predecessor) = predecessor {
            memory.prefault_from(predecessor);
        }
        let (mut interpreter, _) = Self::instantiate(engine, host, wasi, Some(Arc::new(memory)))?;
        interpreter.exception = image.inner.facts.exception;
        interpreter.raise_with(image.inner.facts.offsets);
        interpreter.restore(
            &image.inner.pristine,
            &image.inner.facts.globals,
            image.inner.host.clone(),
        )?;
        interpreter.entry.reenter(&mut interpreter.store, image.inner.facts.reentry)?;
        interpreter.image = Some(image);
        Ok(interpreter)
    }

    /// Creates the instance, on a memory that holds an image or on a new one.
    fn instantiate(
        engine: &Engine,
        mut host: Box<dyn GuestHost>,
        wasi: Arc<Mutex<Wasi>>,
        image: Option<Arc<GuestMemory>>,
    ) -> Result<(Self, Instance), StartError> {
        let mut store = faults::install_around(|| engine.inner.engine.store());
        faults::put_back();
        // The imports need the gate before there is an instance. The gate needs the memory that the
        // instance brings, so the gate receives the memory later.
        let (gate, channel, control) = (Arc::new(Gate::new()), Arc::default(), Arc::default());
        let has_kernels = engine.inner.config.host_kernels;
        let parts = Parts { gate, wasi, channel, control, has_kernels };
        let passage = Arc::new(ThreadGate::of_main(Arc::clone(&parts.gate)));
        let env = GuestEnv::new(Arc::clone(&passage), &parts);
        let env = FunctionEnv::new(&mut store, env);
        let module = engine.inner.module.module();
        let has_image = image.is_some();
        let shared = match shared_memory(module) {
            Some(ty) => Some(shared(ty, image.clone())?),
            None => None,
        };
        let imported = shared.as_ref().map(|shared| shared.in_store(&mut store, passage));
        let imported =
            imported.transpose().map_err(|error| StartError::Instantiate(Cause::new(error)))?;
        let imports = host.imports(&mut store, module, &env, imported)?;
        let (instance, own) = with_memory(image.filter(|_| shared.is_none()), || {
            Instance::new(&mut store, module, &imports)
                .map_err(|error| StartError::Instantiate(Cause::new(error)))
        });
        let instance = instance?;
        let memory = shared.as_ref().map(SharedMemory::of_instance).or(own);
        let memory =
            memory.ok_or_else(|| StartError::Instantiate("the module has no memory".into()))?;
        if !has_image {
            let too_small = || StartError::Instantiate("its data don't fit its memory".into());
            engine.inner.module.initialize(memory.shared()).ok_or_else(too_small)?;
        }
        parts.gate.guard(Arc::clone(memory.shared()));
        let entry = Entrance::of(Shape::of(module), &instance, &store)?;
        env.as_mut(&mut store).attach_memory(memory.shared());
        env.as_mut(&mut store).alloc = entry.alloc().cloned();
        env.as_mut(&mut store).lock = InterpreterLock::of(&instance, &store);
        host.attach(&mut store, &instance)?;
        let throws = ThrowsLeft::of(&instance)
            .map_err(|error| StartError::Instantiate(Cause::new(error)))?;
        let own = || {
            let words = words_of(&instance, &mut store)?;
            parts.gate.alternate(words);
            Some(ThreadMemory::Own(Arc::clone(memory.shared()), words))
        };
        let threads = shared.map(ThreadMemory::Shared).or_else(own);
        let threads =
            threads.map(|memory| Threads::new(&engine.inner.engine, module, memory, parts.clone()));
        let Parts { gate, channel, control, .. } = parts;
        env.as_mut(&mut store).threads =
            threads.clone().map(|threads| Arc::new(threads) as Arc<dyn Siblings>);
        let interpreter = Self {
            store,
            entry,
            gate,
            memory,
            channel,
            host,
            control,
            engine: engine.clone(),
            image: None,
            exception: None,
            life: Life::default(),
            lineage: Lineage::default(),
            individuality: None,
            throws,
            threads,
            runs: 0,
            exceptions: 0,
            had_code: false,
            is_lost: false,
        };
        Ok((interpreter, instance))
    }

    /// Initialises CPython and starts the agent.
    fn boot(&mut self, instance: &Instance) -> Result<(), StartError> {
        let limits = Limits { wall_time: START_LIMIT, output_bytes: 64 << 10, ..Limits::default() };
        let transcript = Arc::new(Transcript::default());
        transcript.begin(&limits);
        let program = Program::default();
        let setup =
            RunSetup { program: &program, limits: &limits, transcript: Arc::clone(&transcript) };
        let host = begin_host(&mut *self.host, setup)
            .map_err(|verdict| StartError::Host(format!("{verdict:?}").into()))?;
        // Only a command build fetches it.
        let source = boot::command_source(self.threads.is_some()).into_bytes();
        self.channel.lock().open(source, agent::BOOT_FRAME_BYTES);
        let (gate, run) = begin_gate(&self.gate);
        let handle = Arc::clone(&self.gate);
        let guard = Stopwatch::start().guard(&limits, run, handle, None);
        let here = RunsHere::begin(&self.gate, guard.stop_requester());
        let mut guest = Guest {
            store: &mut self.store,
            entry: &self.entry,
            gate: &self.gate,
            memory: self.memory.shared(),
            channel: &self.channel,
        };
        let booted = catch_unwind(AssertUnwindSafe(|| guest.boot(instance)));
        drop((here, guard));
        let asked = ScopeGuard::into_inner(gate).end();
        self.exception = self.channel.lock().exception;
        let entered = self.channel.lock().entry;
        ScopeGuard::into_inner(host).end_run(true);
        match (booted, asked.stop) {
            (Ok(Ok(0)), None) => {
                self.entry.enter(&mut self.store, self.memory.shared(), entered)?;
                let memory = self.memory.shared();
                let offsets = self.engine.offsets(memory);
                let thread = offsets.and_then(|offsets| offsets.thread(memory));
                let is_deepened = thread.is_some_and(|thread| recursion::deepen(memory, thread));
                // Other builds, made with other bounds, keep them.
                if !is_deepened && self.engine.inner.build.is_default() {
                    tracing::warn!(
                        "this build has an unknown layout, so its C code can't recurse deep"
                    );
                }
                self.raise_with(offsets);
                Ok(())
            }
            (Ok(Ok(_)), None) => {
                let said = transcript.text_of(Stream::Stderr);
                Err(StartError::Boot(String::from_utf8_lossy(&said).trim().into()))
            }
            (Ok(Err(failure)), None) => Err(StartError::Boot(Cause::new(failure))),
            (Err(panic), None) => Err(StartError::Boot(panic_text(&*panic).into())),
            (_, Some(_)) => Err(StartError::Boot(format!("not within {START_LIMIT:?}").into())),
        }
    }

    fn raise_with(&self, offsets: Option<Offsets>) {
        if let (Some(offsets), Some(exception)) = (offsets, self.exception) {
            self.gate.raise_with(Raiser::new(offsets, exception));
        }
    }
}

/// Returns a memory of this type that threads share: one that holds an image, or a new one.
fn shared(ty: MemoryType, image: Option<Arc<GuestMemory>>) -> Result<SharedMemory, StartError> {
    let new = || GuestMemory::new(ty.minimum.bytes().0).map(|memory| Arc::new(memory.shared()));
    let memory = image.map_or_else(new, Ok);
    let memory = memory.map_err(|error| StartError::Instantiate(Cause::new(error)))?;
    Ok(SharedMemory::new(memory, ty))
}
