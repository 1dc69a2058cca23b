//! One turn of the guest: opens what serves it, calls it, and closes everything again.
//!
//! Each guard here closes what it opened when it is dropped. A turn opens its guards one after the
//! other, and they close in reverse order, so neither an early return nor a panic leaves one open.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::entry::Guest;
use super::judge::TurnFailure;
use crate::guest::agent::{self, Word};
use crate::host::GuestHost;
use crate::host::call_channel::{CallChannel, GeneratorClaim, Passed};
use crate::host::env::{RunControl, RunEffects, RunSetup};
use crate::host::threads::{GuestEnd, Threads};
use crate::interrupt::gate::{Gate, GateRun, InterruptHandle, StopCause};
use crate::interrupt::here::RunsHere;
use crate::interrupt::stop::StopHandle;
use crate::interrupt::watchdog::{StopRequester, Stopwatch, WatchGuard, be_watched};
use crate::limits::Limits;
use crate::python::module::throws::{MOST_THROWS, ThrowsLeft};
use crate::run::functions::calls::{CallEffects, Calls};
use crate::run::outcome::{Usage, Verdict};
use crate::run::program::Program;
use crate::run::transcript::Transcript;
use parking_lot::Mutex;

pub(super) struct Turn {
    pub(super) word: Word,
    pub(super) request: Vec<u8>,
}

/// The parts of an interpreter that serve its guest during a turn.
pub(super) struct Servers<'a> {
    pub(super) host: &'a mut dyn GuestHost,
    pub(super) channel: &'a Mutex<CallChannel>,
    pub(super) control: &'a RunControl,
    pub(super) throws: &'a ThrowsLeft,
    pub(super) threads: Option<&'a Threads>,
}

/// A turn for which everything is open. The guards are dropped in the order of the fields, the
/// reverse of the order in which they opened.
pub(super) struct OpenTurn<'a> {
    stop: AttachedStop<'a>,
    here: RunsHere,
    watch_guard: WatchGuard,
    gate: OpenGate<'a>,
    channel: OpenChannel<'a>,
    host: HostRun<'a>,
    watch: Stopwatch,
    guest: Guest<'a>,
    throws: &'a ThrowsLeft,
    threads: Option<&'a Threads>,
    /// How long other threads may take to be held when the turn is over.
    patience: Duration,
    word: Word,
    transcript: Arc<Transcript>,
}

/// A turn that has ended and closed everything except the host's run, whose files are kept or
/// undone once it is known how the turn ended.
pub(super) struct EndedTurn<'a> {
    pub(super) host: HostRun<'a>,
    pub(super) ended: Result<Result<i32, TurnFailure>, Box<dyn Any + Send>>,
    pub(super) asked: StopCause,
    /// No other thread of the guest goes on.
    pub(super) is_held: bool,
    pub(super) thrown: u32,
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
        let Servers { host, channel, control, throws, threads } = servers;
        let most_threads = setup.most_threads();
        let RunSetup { program, limits, ref transcript } = setup;
        let transcript = Arc::clone(transcript);
        be_watched();
        let host = HostRun::begin(host, setup)?;
        let channel = OpenChannel::open(channel, |channel| {
            let cap = agent::reply_cap(limits);
            match turn.word {
                Word::Turn => {
                    channel.open(turn.request, cap);
                    channel.allow(calls(program, limits, guest.gate, &transcript));
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
        let (gate, run) = OpenGate::begin(guest.gate);
        let interrupt = InterruptHandle::new(Arc::clone(guest.gate));
        let watch_guard = watch.guard(limits, run, interrupt.clone(), stop.overdue_hook());
        // Never taken down: the requester of a watch that has ended does nothing.
        control.attach(watch_guard.stop_requester());
        let here = RunsHere::begin(guest.gate, watch_guard.stop_requester());
        let stop = AttachedStop::attach(stop, interrupt, run, watch_guard.stop_requester());
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

    /// Enters the guest, and closes everything except the host's run when it comes back.
    pub(super) fn run(self) -> EndedTurn<'a> {
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
        let ended = match ended {
            Ok(Err(TurnFailure::Trap(_))) if thrown == MOST_THROWS => {
                Ok(Err(TurnFailure::OutOfThrows))
            }
            ended => ended,
        };
        let asked = gate.end();
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
            peak_memory_bytes: guest.memory.len() as u64,
            output_bytes: self.transcript.written_bytes(),
            ..Usage::default()
        };
        let Passed { reply, generators, calls } = channel.close();
        let calls = calls.map(|calls| calls.close()).unwrap_or_default();
        EndedTurn { host, ended, asked, is_held, thrown, usage, reply, generators, calls }
    }
}

/// Returns the host functions that the program can call.
fn calls(
    program: &Program,
    limits: &Limits,
    gate: &Arc<Gate>,
    transcript: &Arc<Transcript>,
) -> Arc<Calls> {
    let (functions, replays) = (program.functions.clone(), program.replays.clone());
    let (gate, transcript) = (Arc::clone(gate), Arc::clone(transcript));
    let calls = Calls::new(functions, limits, gate, transcript, program.records_calls, replays);
    Arc::new(calls.reading_by(program.stdin_function.clone()))
}

/// A run that the host has begun; dropped, it ends and its changes to files are undone.
pub(super) struct HostRun<'a> {
    host: Option<&'a mut dyn GuestHost>,
}

impl<'a> HostRun<'a> {
    pub(super) fn begin(
        host: &'a mut dyn GuestHost,
        setup: RunSetup<'_>,
    ) -> Result<Self, Box<Verdict>> {
        // Before the host begins, so that a run which it refuses ends too.
        let mut run = Self { host: Some(host) };
        if let Some(host) = &mut run.host {
            host.begin_run(setup)?;
        }
        Ok(run)
    }

    /// Ends the run; `commits` decides whether its changes to files are kept.
    pub(super) fn end(mut self, commits: bool) -> RunEffects {
        let host = self.host.take().expect("a run ends once");
        host.end_run(commits)
    }
}

impl Drop for HostRun<'_> {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            host.end_run(false);
        }
    }
}

/// A gate with a run; dropped, the run has ended and can no longer be stopped.
pub(super) struct OpenGate<'a> {
    gate: Option<&'a Gate>,
}

impl<'a> OpenGate<'a> {
    pub(super) fn begin(gate: &'a Gate) -> (Self, GateRun) {
        let run = gate.begin();
        (Self { gate: Some(gate) }, run)
    }

    pub(super) fn end(mut self) -> StopCause {
        self.gate.take().expect("a run ends once").end()
    }
}

impl Drop for OpenGate<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.end();
        }
    }
}

/// A channel with a request behind it; dropped, it is shut and host calls are cancelled.
struct OpenChannel<'a> {
    channel: Option<&'a Mutex<CallChannel>>,
}

impl<'a> OpenChannel<'a> {
    fn open(channel: &'a Mutex<CallChannel>, lay_out: impl FnOnce(&mut CallChannel)) -> Self {
        let open = Self { channel: Some(channel) };
        lay_out(&mut channel.lock());
        open
    }

    fn close(mut self) -> Passed {
        self.channel.take().expect("a channel closes once").lock().close()
    }
}

impl Drop for OpenChannel<'_> {
    fn drop(&mut self) {
        let Some(channel) = self.channel.take() else { return };
        let passed = channel.lock().close();
        if let Some(calls) = passed.calls {
            calls.close();
        }
    }
}

/// A stop handle whose requests reach the run; dropped, they reach nothing.
struct AttachedStop<'a> {
    stop: &'a StopHandle,
}

impl<'a> AttachedStop<'a> {
    fn attach(
        stop: &'a StopHandle,
        interrupt: InterruptHandle,
        run: GateRun,
        requester: StopRequester,
    ) -> Self {
        stop.attach(interrupt, run, requester);
        Self { stop }
    }
}

impl Drop for AttachedStop<'_> {
    fn drop(&mut self) {
        self.stop.detach();
    }
}

#[cfg(test)]
mod tests {
    use wasmer::{FunctionEnv, Imports, Instance, Memory, Module, Store};

    use super::*;
    use crate::error::StartError;
    use crate::host::env::GuestEnv;
    use crate::host::wasi::HostState;
    use crate::interrupt::stop::StopReason;

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
            let Ok(host) = HostRun::begin(host, setup) else { return };
            let channel =
                OpenChannel::open(&channel, |channel| channel.open(b"request".to_vec(), 1));
            let (gate_run, run) = OpenGate::begin(gate);
            let interrupt = InterruptHandle::new(Arc::clone(gate));
            let watch_guard = Stopwatch::start().guard(&limits, run, interrupt.clone(), None);
            let stop = AttachedStop::attach(stop, interrupt, run, watch_guard.stop_requester());
            work();
            drop((stop, watch_guard));
            gate_run.end();
            channel.close();
            host.end(true);
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
