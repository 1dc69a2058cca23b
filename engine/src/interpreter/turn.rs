//! One turn of the guest: opens what serves it, calls it, and closes everything again.
//!
//! A turn opens its guards one after the other, and they close in reverse order. So neither an
//! early return nor a panic leaves anything open.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use scopeguard::{ScopeGuard, guard};

use super::entry::Guest;
use super::judge::TurnFailure;
use crate::guest::agent::{self, Word};
use crate::host::GuestHost;
use crate::host::call_channel::{CallChannel, GeneratorClaim, Passed};
use crate::host::env::{RunControl, RunSetup};
use crate::host::threads::{GuestEnd, Threads};
use crate::interrupt::gate::{Gate, GateRun, StopCause};
use crate::interrupt::here::RunsHere;
use crate::interrupt::stop::StopHandle;
use crate::interrupt::watchdog::{StopRequester, Stopwatch, WatchGuard, be_watched};
use crate::limits::Limits;
use crate::python::module::throws::{MOST_THROWS, ThrowsLeft};
use crate::run::functions::calls::{CallEffects, Calls};
use crate::run::outcome::{Usage, Verdict};
use crate::run::program::Program;
use crate::run::transcript::Transcript;

pub(super) struct Turn {
    pub(super) word: Word,
    pub(super) request: Vec<u8>,
}

/// The parts of an interpreter that serve its guest during a turn.
pub(super) struct Servers<'a> {
    pub(super) host: &'a mut dyn GuestHost,
    pub(super) control: &'a RunControl,
    pub(super) throws: &'a ThrowsLeft,
    pub(super) threads: Option<&'a Threads>,
}

/// A turn for which everything is open. The guards are dropped in the order of the fields, the
/// reverse of the order in which they opened.
pub(super) struct OpenTurn<'a> {
    stop: Guarded<&'a StopHandle>,
    here: RunsHere,
    watch_guard: WatchGuard,
    gate: Guarded<&'a Gate>,
    channel: Guarded<&'a Mutex<CallChannel>>,
    host: Guarded<&'a mut dyn GuestHost>,
    watch: Stopwatch,
    guest: Guest<'a>,
    throws: &'a ThrowsLeft,
    threads: Option<&'a Threads>,
    /// How long other threads may take to be held when the turn is over.
    patience: Duration,
    word: Word,
    transcript: Arc<Transcript>,
}

/// A turn that has ended and closed everything except the host's run. Its files are kept or undone
/// once it is known how the turn ended.
pub(super) struct EndedTurn<'a> {
    pub(super) host: Guarded<&'a mut dyn GuestHost>,
    pub(super) ended: Result<Result<i32, TurnFailure>, Box<dyn Any + Send>>,
    pub(super) asked: StopCause,
    /// No other thread of the guest goes on.
    pub(super) is_held: bool,
    pub(super) usage: Usage,
    pub(super) reply: Option<Vec<u8>>,
    pub(super) generators: Vec<GeneratorClaim>,
    pub(super) calls: CallEffects,
}

impl<'a> OpenTurn<'a> {
    /// Opens everything that `turn` needs.
    ///
    /// # Errors
    /// The host refuses the program.
    pub(super) fn open(
        guest: Guest<'a>,
        servers: Servers<'a>,
        turn: Turn,
        setup: RunSetup<'_>,
        stop: &'a StopHandle,
    ) -> Result<Self, Box<Verdict>> {
        let Servers { host, control, throws, threads } = servers;
        let most_threads = setup.most_threads();
        let RunSetup { program, limits, ref transcript } = setup;
        let transcript = Arc::clone(transcript);
        be_watched();
        let host = begin_host(host, setup)?;
        let channel = open_channel(guest.channel, |channel| {
            let cap = agent::reply_cap(limits);
            match turn.word {
                Word::Turn => {
                    channel.open(turn.request, cap);
                    channel.calls = Some(calls(program, limits, guest.gate, &transcript));
                }
                Word::Compile => channel.open(turn.request, cap),
                Word::Prepare => channel.open_to_prepare(turn.request, cap),
            }
            channel.show_in(&transcript, limits.display_bytes);
        });
        guest.memory.begin_run(limits.memory_bytes);
        throws.allow(guest.store);
        let mut watch = Stopwatch::start();
        if let Some(threads) = threads {
            threads.begin_run(most_threads);
            watch = watch.with(Arc::clone(threads.clocks()));
        }
        let (gate, run) = begin_gate(guest.gate);
        let held = Arc::clone(guest.gate);
        let watch_guard = watch.guard(limits, run, held.clone(), stop.overdue_hook());
        // Never taken down: the requester of a watch that has ended does nothing.
        control.attach(watch_guard.stop_requester());
        let here = RunsHere::begin(guest.gate, watch_guard.stop_requester());
        let stop = attach_stop(stop, held, run, watch_guard.stop_requester());
        Ok(Self {
            stop,
            here,
            watch_guard,
            gate,
            channel,
            host,
            watch,
            guest,
            throws,
            threads,
            patience: limits.grace,
            word: turn.word,
            transcript,
        })
    }

    /// Enters the guest, and closes everything except the host's run when it comes back. Adds the
    /// C++ exceptions that it threw to `exceptions`.
    pub(super) fn run(self, exceptions: &mut u32) -> EndedTurn<'a> {
        let Self { host, channel, gate, watch_guard, here, stop, mut guest, .. } = self;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            tracing::debug_span!("guest").in_scope(|| guest.turn(self.word))
        }));
        // Before the limits are lifted.
        let (is_held, end) =
            self.threads.map_or((true, None), |threads| threads.end_turn(self.patience));
        drop(stop);
        drop(here);
        drop(watch_guard);
        let thrown = self.throws.thrown(guest.store);
        *exceptions = exceptions.saturating_add(thrown);
        let ended = match ended {
            Ok(Err(TurnFailure::Trap(_))) if thrown == MOST_THROWS => {
                Ok(Err(TurnFailure::OutOfThrows))
            }
            ended => ended,
        };
        let asked = ScopeGuard::into_inner(gate).end();
        let ended = match end {
            Some(end) if asked.stop.is_none() => match end {
                GuestEnd::Unwound(error) => Ok(Err(TurnFailure::Trap(error))),
                GuestEnd::Panic(panic) => Err(panic),
            },
            _ => ended,
        };
        let usage = Usage {
            wall: self.watch.wall(),
            cpu: self.watch.cpu(),
            peak_memory_bytes: guest.memory.charged() as u64,
            output_bytes: self.transcript.written_bytes(),
            ..Usage::default()
        };
        let Passed { reply, generators, calls } = ScopeGuard::into_inner(channel).lock().close();
        let calls = calls.map(|calls| calls.close()).unwrap_or_default();
        EndedTurn { host, ended, asked, is_held, usage, reply, generators, calls }
    }
}

/// Returns the host functions that the program can call.
fn calls(
    program: &Program,
    limits: &Limits,
    gate: &Arc<Gate>,
    transcript: &Arc<Transcript>,
) -> Arc<Calls> {
    let Program { functions, egress, replays, .. } = program;
    let (functions, egress, replays) = (functions.clone(), egress.clone(), replays.clone());
    let (gate, transcript) = (Arc::clone(gate), Arc::clone(transcript));
    let records = program.records_calls;
    let calls = Calls::new(functions, egress, limits, gate, transcript, records, replays);
    Arc::new(calls.reading_by(program.stdin_function.clone()))
}

/// What a function closes when this is dropped, unless it was taken out before.
pub(super) type Guarded<T> = ScopeGuard<T, fn(T)>;

/// Begins a run of the host. Dropped, the run ends, and its changes to files are undone.
pub(super) fn begin_host<'a>(
    host: &'a mut dyn GuestHost,
    setup: RunSetup<'_>,
) -> Result<Guarded<&'a mut dyn GuestHost>, Box<Verdict>> {
    let undo: fn(&'a mut dyn GuestHost) = |host| drop(host.end_run(false));
    // Before the host begins, so that a run which it refuses ends too.
    let mut host = guard(host, undo);
    host.begin_run(setup)?;
    Ok(host)
}

/// Begins a run at the gate. Dropped, the run has ended and can no longer be stopped.
pub(super) fn begin_gate(gate: &Gate) -> (Guarded<&Gate>, GateRun) {
    let run = gate.begin();
    let end: fn(&Gate) = |gate| _ = gate.end();
    (guard(gate, end), run)
}

/// Puts a request behind the channel. Dropped, the channel is shut and host calls are cancelled.
fn open_channel(
    channel: &Mutex<CallChannel>,
    lay_out: impl FnOnce(&mut CallChannel),
) -> Guarded<&Mutex<CallChannel>> {
    let shut: fn(&Mutex<CallChannel>) = |channel| {
        let passed = channel.lock().close();
        if let Some(calls) = passed.calls {
            calls.close();
        }
    };
    let open = guard(channel, shut);
    lay_out(&mut open.lock());
    open
}

/// Lets requests of the handle reach the run. Dropped, they reach nothing.
fn attach_stop(
    stop: &StopHandle,
    gate: Arc<Gate>,
    run: GateRun,
    requester: StopRequester,
) -> Guarded<&StopHandle> {
    stop.attach(gate, run, requester);
    let detach: fn(&StopHandle) = StopHandle::detach;
    guard(stop, detach)
}

#[cfg(test)]
mod tests {
    use wasmer::{FunctionEnv, Imports, Instance, Memory, Module, Store};

    use super::*;
    use crate::error::StartError;
    use crate::host::env::{GuestEnv, RunEffects};
    use crate::host::wasi::HostState;
    use crate::interrupt::reason::StopReason;

    /// A host that notes how its runs end.
    #[derive(Default)]
    struct Ends {
        refuses: bool,
        commits: Vec<bool>,
    }

    impl GuestHost for Ends {
        fn imports(
            &mut self,
            _: &mut Store,
            _: &Module,
            _: &FunctionEnv<GuestEnv>,
            _: Option<Memory>,
        ) -> Result<Imports, StartError> {
            Ok(Imports::new())
        }

        fn attach(&mut self, _: &mut Store, _: &Instance) -> Result<(), StartError> {
            Ok(())
        }

        fn begin_run(&mut self, _: RunSetup<'_>) -> Result<(), Box<Verdict>> {
            if self.refuses { Err(Box::new(Verdict::Cancelled)) } else { Ok(()) }
        }

        fn end_run(&mut self, commits: bool) -> RunEffects {
            self.commits.push(commits);
            RunEffects::default()
        }

        fn state(&self) -> Option<HostState> {
            None
        }

        fn set_state(&mut self, _: HostState) {}
    }

    /// Opens everything except the guest, and does `work` meanwhile.
    fn open_and(host: &mut Ends, gate: &Arc<Gate>, stop: &StopHandle, work: impl FnOnce()) -> bool {
        let (program, limits, channel) = (Program::default(), Limits::default(), Mutex::default());
        let setup = RunSetup { program: &program, limits: &limits, transcript: Arc::default() };
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let Ok(host) = begin_host(host, setup) else { return };
            let channel = open_channel(&channel, |channel| channel.open(b"request".to_vec(), 1));
            let (gate_run, run) = begin_gate(gate);
            let held = Arc::clone(gate);
            let watch_guard = Stopwatch::start().guard(&limits, run, held.clone(), None);
            let stop = attach_stop(stop, held, run, watch_guard.stop_requester());
            work();
            drop((stop, watch_guard));
            ScopeGuard::into_inner(gate_run).end();
            ScopeGuard::into_inner(channel).lock().close();
            ScopeGuard::into_inner(host).end_run(true);
        }));
        ended.is_ok()
    }

    #[test]
    fn whatever_happens_the_run_ends_once() {
        let (gate, stop) = (Arc::new(Gate::new()), StopHandle::default());
        let mut host = Ends::default();
        assert!(open_and(&mut host, &gate, &stop, || ()));
        assert!(!open_and(&mut host, &gate, &stop, || panic!("in the middle of a turn")));
        host.refuses = true;
        assert!(open_and(&mut host, &gate, &stop, || ()));
        assert_eq!(host.commits, [true, false, false]);
        // A gate whose run hasn't ended refuses another one, and a stop reaches an attached run.
        gate.begin();
        stop.stop(StopReason::Cancelled);
        assert_eq!(gate.end().stop, None);
    }
}
