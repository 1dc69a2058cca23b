//! The state of an interpreter: reset to the image, suspend, resume another state.

use std::io;
use std::sync::Arc;

use super::Interpreter;
use crate::cause::Cause;
use crate::error::{SessionError, StartError};
use crate::host::wasi::HostState;
use crate::interpreter::image::{GeneratorState, Image};
use crate::interpreter::session::forks::Lineage;
use crate::interpreter::session::{Generators, Life, SessionInner, SessionMemory, SessionState};
use crate::memory::GuestMemory;
use crate::memory::patch::MemoryPatch;
use crate::python::module::throws::THROWN_BYTES;
use crate::run::outcome::SandboxFailure;
use crate::run::program::Deterministic;

/// C++ exceptions that wasmer may keep for an instance before the instance is replaced, which frees
/// them: about 2 MiB.
const MOST_EXCEPTIONS: u32 = 1024;
/// What a thread takes in the host: its instance and its stacks. Of a build for WASIX, 64 that wait
/// took 0.64 MiB each. Of the default build, which has more functions, 60 took 5.2 MiB each.
const THREAD_BYTES: u64 = 6 << 20;

impl Interpreter {
    /// Gives the interpreter the clock and the random numbers that a run asks for.
    pub(super) fn determine(
        &mut self,
        wanted: Option<Deterministic>,
    ) -> Result<(), SandboxFailure> {
        if self.life.has_run || (wanted == self.life.deterministic && self.image.is_none()) {
            let is_as_wanted = wanted.is_none() || wanted == self.life.deterministic;
            return if is_as_wanted { Ok(()) } else { Err(SandboxFailure::NotDeterministic) };
        }
        let begun = match self.image.clone() {
            Some(image) => self.begin_life(&image, wanted).map_err(StartError::from),
            // CPython draws its hash seed when it starts, so it has to start again.
            None => {
                let started = self.engine.start_with(&self.engine.inner.layout, wanted);
                started.map(|started| *self = started)
            }
        };
        begun.map_err(|error| SandboxFailure::Start(Cause::new(error)))
    }

    /// Moves a session to a new instance if this one is worn out.
    pub(super) fn renew(&mut self) -> Result<(), SandboxFailure> {
        if self.image.is_none() || !self.life.has_run || !self.is_worn() {
            return Ok(());
        }
        let moved = self.suspend().and_then(|state| self.resume(&state));
        moved.map_err(|error| SandboxFailure::Start(Cause::new(error)))
    }

    /// Gives a copy of the image its own clock and random numbers.
    fn begin_life(
        &mut self,
        image: &Image,
        wanted: Option<Deterministic>,
    ) -> Result<(), SessionError> {
        let generators = match self.individuality.take() {
            Some(drawn) if wanted.is_none() => drawn,
            _ => {
                let mut host = self.host.state().ok_or(SessionError::NotSuspendable)?;
                // Nothing has read the clock that a reset has given it.
                host.clock = image.inner.host.clock.clone();
                host.diverge(wanted.as_ref());
                let drawn = draw(image, &mut host)?;
                self.host.set_state(host);
                drawn
            }
        };
        let no_memory = || {
            SessionError::Memory(io::Error::other(
                "a random number generator lies outside of the memory",
            ))
        };
        for (generator, state) in image.inner.facts.generators.iter().zip(&generators) {
            let memory = self.memory.shared();
            memory.write(generator.address, state).ok_or_else(no_memory)?;
        }
        // This also ends `is_copy`.
        self.life = Life { deterministic: wanted, ..Life::default() };
        Ok(())
    }

    /// Opens what this and later interpreters of this process may need, for a process that soon may
    /// open nothing more. Such a process must not fork: what is kept describes it alone.
    pub fn open_ahead(&mut self) {
        self.memory.shared().open_ahead();
    }

    /// Returns the image that a reset returns it to, if it has one.
    pub fn image(&self) -> Option<&Image> {
        self.image.as_ref()
    }

    /// Ends the threads that programs have left. The interpreter is lost if their memory had to be
    /// taken away, or one hangs.
    pub(super) fn end_threads(&mut self) {
        let Some(threads) = &self.threads else { return };
        let have_left = threads.end();
        self.is_lost |= !have_left || self.memory.shared().is_revoked();
    }

    /// Returns the interpreter to its image: nothing that ran here remains. Takes 0.1 ms plus the
    /// time for the memory that the run touched. An instance that was stopped, left or worn out is
    /// replaced in 5 ms. Without an image, Python starts again.
    ///
    /// # Errors
    /// The system refuses memory. The interpreter is then lost, and can be reset again.
    #[tracing::instrument(level = "debug", name = "reset_interpreter", skip_all)]
    pub fn reset(&mut self) -> Result<(), StartError> {
        self.end_threads();
        let Some(image) = self.image.clone() else {
            *self = self.engine.start()?;
            return Ok(());
        };
        if self.is_lost || self.is_worn() {
            *self = Self::on(image, Some(self.memory.shared()))?;
            return Ok(());
        }
        // Here rather than in the next run, which would have to wait for it.
        let mut host = image.inner.host.clone();
        host.diverge(None);
        let drawn = draw(&image, &mut host).ok();
        self.restore(&image.inner.pristine, &image.inner.facts.globals, host)?;
        self.life = Life::default();
        self.lineage = Lineage::default();
        self.individuality = drawn;
        Ok(())
    }

    /// Returns whether [`Self::reset`] takes only 10 to 60 µs: the last run touched little memory
    /// that earlier runs hadn't touched.
    pub fn resets_soon(&self) -> bool {
        let keeps_its_instance =
            self.image.is_some() && !self.is_lost && !self.is_worn() && self.threads() == 0;
        keeps_its_instance && self.memory.shared().is_restored_soon()
    }

    /// Returns whether [`Self::snapshot`] takes only 10 to 60 µs. There was one before the last
    /// run, which touched little memory that earlier runs hadn't touched.
    pub fn copies_soon(&self) -> bool {
        !self.is_lost && self.threads() == 0 && self.memory.shared().is_copied_soon()
    }

    /// Returns the number of threads that programs have left. They are held, and go on in the next
    /// run.
    pub fn threads(&self) -> usize {
        self.threads.as_ref().map_or(0, |threads| threads.count())
    }

    /// Returns a copy of the state that the interpreter holds beyond its image, and keeps that
    /// state.
    ///
    /// # Errors
    /// The interpreter has no image, or the system refuses memory.
    ///
    /// # Panics
    /// If the interpreter is lost.
    #[tracing::instrument(level = "debug", name = "suspend_session", skip_all)]
    pub fn suspend(&mut self) -> Result<SessionState, SessionError> {
        self.check_suspendable()?;
        let was_marked = self.memory.shared().is_marked();
        let memory = self.memory.shared().patch().map_err(SessionError::Memory)?;
        self.with_rest(SessionMemory::Patch(memory), was_marked)
    }

    /// Returns a copy of the state for the case that the next turn of its session has to be undone.
    /// As `suspend`, but takes a third of the time if the session's turns follow each other here.
    /// The next turn needn't fault on every page that it writes to. The copy takes more memory
    /// ([`SessionState::compact`]).
    ///
    /// # Errors
    /// As `suspend`.
    ///
    /// # Panics
    /// If the interpreter is lost.
    #[tracing::instrument(level = "debug", name = "snapshot_session", skip_all)]
    pub fn snapshot(&mut self) -> Result<SessionState, SessionError> {
        self.check_suspendable()?;
        match self.memory.shared().snapshot().map_err(SessionError::Memory)? {
            Some(snapshot) => {
                let was_marked = self.memory.shared().is_marked();
                self.with_rest(SessionMemory::Snapshot(snapshot), was_marked)
            }
            None => self.suspend(),
        }
    }

    fn check_suspendable(&self) -> Result<(), SessionError> {
        assert!(!self.is_lost, "a lost interpreter holds nothing");
        match self.threads() {
            0 if self.image.is_some() => Ok(()),
            0 => Err(SessionError::NotSuspendable),
            count => Err(SessionError::Threads(count)),
        }
    }

    /// Returns the state whose memory is `memory`.
    fn with_rest(
        &mut self,
        memory: SessionMemory,
        was_marked: bool,
    ) -> Result<SessionState, SessionError> {
        let image = self.image.clone().ok_or(SessionError::NotSuspendable)?;
        let host = self.host.state().ok_or(SessionError::NotSuspendable)?;
        let globals = crate::memory::tunables::globals(&mut self.store).into();
        let (life, lineage) = (self.life, self.lineage.now());
        Ok(SessionInner { image, memory, globals, host, life, was_marked, lineage }.counted())
    }

    /// Replaces the state of the interpreter with `state`.
    ///
    /// # Errors
    /// The state belongs to another image, or the system refuses memory. The interpreter is then
    /// lost, and can be reset.
    #[tracing::instrument(level = "debug", name = "resume_session", skip_all, fields(bytes = state.bytes()))]
    pub fn resume(&mut self, state: &SessionState) -> Result<(), SessionError> {
        let image = self.image.clone().ok_or(SessionError::NotSuspendable)?;
        if image.info().key != state.inner.image.info().key {
            return Err(SessionError::NotSuspendable);
        }
        self.end_threads();
        if self.is_lost || self.is_worn() {
            *self = Self::on(image, Some(self.memory.shared()))
                .map_err(|error| SessionError::Memory(io::Error::other(error)))?;
        }
        self.restore(&state.memory(), &state.inner.globals, state.inner.host.clone())
            .map_err(|error| SessionError::Memory(io::Error::other(error)))?;
        if state.inner.was_marked {
            self.memory.shared().mark_soon();
        }
        self.life = state.inner.life;
        self.lineage = state.inner.lineage.resumed();
        Ok(())
    }

    /// Returns the bytes of guest memory that only this interpreter uses. That is memory beyond the
    /// length of its image, and copied pages of the image. Those are the pages that were copied at
    /// the last reset, suspend or resume. Asks the system nothing. If images aren't mapped
    /// copy-on-write, and without an image, that is all its memory. Includes what wasmer keeps for
    /// exceptions, and what threads take.
    pub fn private_bytes(&self) -> u64 {
        let exceptions = u64::from(self.exceptions) * THROWN_BYTES;
        let threads = self.threads() as u64 * THREAD_BYTES;
        self.memory.shared().private_bytes() as u64 + exceptions + threads
    }

    /// Returns whether memory and globals equal the image byte for byte, to prove `reset`.
    pub fn is_as_image(&mut self) -> bool {
        let Some(image) = self.image.clone() else { return false };
        self.globals() == image.inner.facts.globals
            && self.memory.shared().with_all(|bytes| bytes == image.inner.memory.bytes())
                == Some(true)
    }

    /// Returns whether `needle` occurs in the guest's memory, to prove that nothing remains.
    pub fn finds(&self, needle: &[u8]) -> bool {
        let found = |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        self.memory.shared().with_all(found) == Some(true)
    }

    pub(super) fn restore(
        &mut self,
        memory: &Arc<MemoryPatch>,
        globals: &[u128],
        host: HostState,
    ) -> Result<(), StartError> {
        // Lost until everything is restored.
        self.is_lost = true;
        self.individuality = None;
        let restored = self.memory.restore(&mut self.store, memory, globals);
        restored.map_err(|error| StartError::Instantiate(Cause::new(error)))?;
        self.host.set_state(host);
        self.is_lost = false;
        Ok(())
    }

    /// Returns whether the instance has run many programs or made wasmer keep many exceptions.
    fn is_worn(&self) -> bool {
        self.exceptions > MOST_EXCEPTIONS || self.runs >= self.engine.inner.config.runs_per_instance
    }

    pub(crate) fn memory(&self) -> Arc<GuestMemory> {
        Arc::clone(self.memory.shared())
    }

    pub(crate) fn globals(&mut self) -> Vec<u128> {
        crate::memory::tunables::globals(&mut self.store)
    }
}

fn draw(image: &Image, host: &mut HostState) -> Result<Generators, SessionError> {
    let mut states = vec![[0; GeneratorState::BYTES as usize]; image.inner.facts.generators.len()];
    host.draw(states.as_flattened_mut())
        .map_err(|_| SessionError::Memory(io::Error::other("the system gave no random numbers")))?;
    Ok(states)
}
