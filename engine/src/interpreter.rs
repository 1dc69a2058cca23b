//! One live interpreter: start it, run programs on it, reset it, suspend and resume its state.
//!
//! Owns the wasmer store, which never leaves its thread. A run that is stopped, traps or leaves by
//! `os._exit` leaves CPython and wasmer in an undefined state. So the interpreter is lost with it
//! and a new instance replaces it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use scopeguard::ScopeGuard;
use wasmer::Store;

use crate::guest::agent::{self, Moment, Word};
use crate::host::GuestHost;
use crate::host::call_channel::{CallChannel, GeneratorClaim};
use crate::host::env::{RunControl, RunEffects, RunSetup};
use crate::host::threads::Threads;
use crate::interpreter::engine::Engine;
use crate::interpreter::image::Image;
use crate::interpreter::session::forks::Lineage;
use crate::interpreter::session::{Generators, Life};
use crate::interrupt::gate::Gate;
use crate::interrupt::stop::StopHandle;
use crate::limits::{LimitKind, Limits};
use crate::memory::tunables::InstanceMemory;
use crate::python::module::throws::ThrowsLeft;
use crate::python::spec::ImageSpec;
use crate::run::outcome::{Afterwards, Outcome, Usage, Verdict};
use crate::run::program::{Program, ProgramEntry};
use crate::run::transcript::Transcript;
use entry::{Entrance, Guest};
use judge::{hit, judge};
use turn::{EndedTurn, OpenTurn, Servers, Turn};

mod ahead;
pub(crate) mod bytecode;
pub(crate) mod engine;
pub(crate) mod entry;
pub(crate) mod image;
pub(crate) mod judge;
pub(crate) mod session;
mod start;
mod state;
pub(crate) mod survey;
mod turn;

/// Ends a start that hangs; CPython takes 0.12 s to start.
const START_LIMIT: Duration = Duration::from_secs(120);

/// One CPython interpreter in its sandbox, bound to the thread that started it.
#[derive(derive_more::Debug)]
#[debug("Interpreter {{ is_lost: {is_lost} }}")]
pub struct Interpreter {
    store: Store,
    entry: Entrance,
    gate: Arc<Gate>,
    memory: InstanceMemory,
    channel: Arc<Mutex<CallChannel>>,
    host: Box<dyn GuestHost>,
    control: Arc<RunControl>,
    engine: Engine,
    /// The image that a reset returns it to.
    image: Option<Image>,
    /// The address of `KeyboardInterrupt`.
    exception: Option<u32>,
    life: Life,
    /// What the states of its session share with forks.
    lineage: Lineage,
    /// The states of generators for the first run after a reset. The reset has already given the
    /// host a clock and random numbers of its own.
    individuality: Option<Generators>,
    throws: ThrowsLeft,
    /// The guest's other threads, if its memory can be shared.
    threads: Option<Arc<Threads>>,
    /// The runs of this instance, and the C++ exceptions that wasmer has kept from them.
    runs: u32,
    exceptions: u32,
    /// Whether the last run was given code that was compiled ahead.
    had_code: bool,
    is_lost: bool,
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        self.end_threads();
    }
}

impl Interpreter {
    /// Runs one program to its end and returns the outcome and the state of the interpreter.
    ///
    /// Output appears in `transcript` while the program runs; the end of the run closes it. `stop`
    /// ends the run from any thread. The `last` run also runs the program's exit functions. The
    /// next program sees the state that this one leaves.
    ///
    /// # Panics
    /// If the interpreter is lost.
    #[tracing::instrument(level = "debug", name = "run_program", skip_all, fields(last))]
    pub fn run(
        &mut self,
        program: &Program,
        limits: &Limits,
        transcript: &Arc<Transcript>,
        stop: &StopHandle,
        last: bool,
    ) -> (Outcome, Afterwards) {
        assert!(!self.is_lost, "a lost interpreter runs nothing");
        transcript.begin(limits);
        self.had_code = false;
        let refused = if stop.requested().is_some() {
            // Nothing has run yet, so the interpreter is unchanged.
            Some(Verdict::Cancelled)
        } else {
            self.refuse(program, limits)
        };
        let outcome = match refused {
            Some(verdict) => Outcome::not_run(verdict),
            None => {
                // A run that is to be repeated has to find its objects at the same addresses.
                let is_repeatable = self.life.deterministic.is_some();
                let stdin = if is_repeatable { 0 } else { self.host.stdin_number() };
                let moment = Moment { last, reseed: self.life.is_copy, rehearse: false, stdin };
                let code = self.code(program);
                self.had_code = code.is_some();
                let request = agent::request(program, limits, moment, code.as_deref());
                let turn = Turn { word: Word::Turn, request };
                let setup = RunSetup { program, limits, transcript: Arc::clone(transcript) };
                let (outcome, _) = self.serve(turn, setup, stop);
                // Out of memory or refused by the host, the run may have ended before it seeded.
                self.life.is_copy &= match &outcome.verdict {
                    Verdict::Raised(exception) => exception.type_name == "MemoryError",
                    Verdict::Limit(_) | Verdict::Tampered(_) | Verdict::SandboxFailed(_) => true,
                    Verdict::Completed { .. } | Verdict::Exited { .. } | Verdict::Cancelled => {
                        false
                    }
                };
                outcome
            }
        };
        let afterwards = if self.is_lost { Afterwards::Lost } else { Afterwards::Usable };
        (outcome.with_output(transcript), afterwards)
    }

    pub(crate) fn prepare(&mut self, spec: &ImageSpec) -> Prepared {
        let limits = Limits { wall_time: START_LIMIT, threads: 0, ..Limits::default() };
        let transcript = Arc::<Transcript>::default();
        transcript.begin(&limits);
        let turn = Turn { word: Word::Prepare, request: agent::prepare_request(spec, &limits) };
        let program = Program::default();
        let setup =
            RunSetup { program: &program, limits: &limits, transcript: Arc::clone(&transcript) };
        let (outcome, generators) = self.serve(turn, setup, &StopHandle::default());
        // Two rehearsals, since every first run on the image follows another run.
        let moment = Moment { last: true, rehearse: true, ..Moment::default() };
        let rehearsal = Program { source: "pass".to_owned(), ..Program::default() };
        for _ in 0..2 {
            let request = agent::request(&rehearsal, &limits, moment, None);
            let turn = Turn { word: Word::Turn, request };
            let setup = RunSetup {
                program: &rehearsal,
                limits: &limits,
                transcript: Arc::clone(&transcript),
            };
            let (rehearsed, _) = self.serve(turn, setup, &StopHandle::default());
            if outcome.is_success() && !rehearsed.is_success() {
                return Prepared { outcome: rehearsed, generators };
            }
        }
        Prepared { outcome: outcome.with_output(&transcript), generators }
    }

    /// Returns the program's code, if it was compiled ahead.
    fn code(&self, program: &Program) -> Option<Arc<[u8]>> {
        let is_expression = match program.entry {
            ProgramEntry::Statements => false,
            ProgramEntry::Expression => true,
            ProgramEntry::Call(_) | ProgramEntry::Shell => return None,
        };
        // Compiling takes memory, so without it objects have other addresses.
        let image = self.image.as_ref().filter(|_| self.life.deterministic.is_none())?;
        image.inner.bytecode.code(&program.source, is_expression)
    }

    /// Returns whether the last run was given code that was compiled ahead.
    pub fn had_code(&self) -> bool {
        self.had_code
    }

    /// Returns why the program is refused before anything runs, if it is.
    fn refuse(&mut self, program: &Program, limits: &Limits) -> Option<Verdict> {
        if program.source.len() > limits.source_bytes {
            return Some(Verdict::Limit(hit(
                LimitKind::Source,
                limits,
                program.source.len() as u64,
            )));
        }
        let renewed = self.renew().and_then(|()| self.determine(program.deterministic));
        if let Err(failure) = renewed {
            return Some(Verdict::SandboxFailed(failure));
        }
        // Only a session that ran under wider limits, or was read from a file, can exceed the
        // limit.
        let held = self.memory.shared().charged();
        let image = self.image.as_ref().map_or(held, |image| image.inner.memory.bytes().len());
        (held > limits.memory_bytes.max(image))
            .then(|| Verdict::Limit(hit(LimitKind::Memory, limits, held as u64)))
    }

    /// Runs one turn of the guest. Returns its outcome and the generators that the guest names.
    fn serve(
        &mut self,
        turn: Turn,
        setup: RunSetup<'_>,
        stop: &StopHandle,
    ) -> (Outcome, Vec<GeneratorClaim>) {
        let RunSetup { program, limits, ref transcript } = setup;
        let transcript = Arc::clone(transcript);
        let EndedTurn { host, ended, asked, is_held, usage, reply, generators, calls } =
            match self.take_turn(turn, setup, stop) {
                Ok(turn) => turn,
                Err(verdict) => return (Outcome::not_run(*verdict), Vec::new()),
            };
        let judgement = judge(ended, asked, reply, limits);
        let effects =
            ScopeGuard::into_inner(host).end_run(judgement.is_success() || program.keeps_files);
        self.is_lost = judgement.afterwards == Afterwards::Lost
            || !is_held
            || self.memory.shared().is_revoked();
        let RunEffects { host_calls, file_growth_bytes, network_bytes, .. } = effects;
        let usage = Usage { host_calls, file_growth_bytes, network_bytes, ..usage };
        let left_out = judgement.left_out;
        let (mut verdict, interrupted_at) = judgement.verdict(limits, &usage);
        if let Verdict::Raised(exception) = &mut verdict {
            let has_input = !program.stdin.is_empty();
            exception
                .advice
                .take_if(|advice| !advice.holds(|path| effects.sought.has_missed(path), has_input));
        }
        let mut limits_met = effects.refusals;
        limits_met.extend(calls.refusals);
        if let Some(refused) = self.memory.shared().refused() {
            limits_met.push(hit(LimitKind::Memory, limits, refused as u64));
        }
        if let Some(refused) = self.threads.as_ref().and_then(|threads| threads.refused())
            && program.deterministic.is_none()
        {
            limits_met.push(hit(LimitKind::Threads, limits, refused));
        }
        if transcript.is_truncated() {
            limits_met.push(hit(LimitKind::Output, limits, usage.output_bytes));
        }
        let shown = transcript.display_limits_met();
        limits_met.extend(shown.map(|(limit, asked)| hit(limit, limits, asked)));
        let left_out = left_out.limits_met();
        limits_met.extend(left_out.map(|(limit, bytes)| hit(limit, limits, bytes)));
        let outcome = Outcome {
            files: effects.files,
            left_out_files: effects.left_out_files,
            limits_met,
            interrupted_at,
            recording: calls.recording,
            usage,
            ..Outcome::not_run(verdict)
        };
        (outcome, generators)
    }

    /// Runs one turn of the guest. The interpreter is lost until the caller has judged the turn. So
    /// no panic in between leaves a usable one.
    ///
    /// # Errors
    /// The host refuses the program. Nothing has run.
    fn take_turn<'a>(
        &'a mut self,
        turn: Turn,
        setup: RunSetup<'_>,
        stop: &'a StopHandle,
    ) -> Result<EndedTurn<'a>, Box<Verdict>> {
        let guest = Guest {
            store: &mut self.store,
            entry: &self.entry,
            gate: &self.gate,
            memory: self.memory.shared(),
            channel: &self.channel,
        };
        let servers = Servers {
            host: &mut *self.host,
            control: &self.control,
            throws: &self.throws,
            threads: self.threads.as_deref(),
        };
        let turn = OpenTurn::open(guest, servers, turn, setup, stop)?;
        self.is_lost = true;
        self.runs += 1;
        self.life.has_run = true;
        Ok(turn.run(&mut self.exceptions))
    }
}

pub(crate) struct Prepared {
    pub(crate) outcome: Outcome,
    /// Where the guest says that its random number generators are.
    pub(crate) generators: Vec<GeneratorClaim>,
}
