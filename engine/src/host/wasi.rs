//! WASI preview 1 and WASIX, as far as Python builds import them: plain functions over plain data.
//!
//! Nothing here knows wasmer or blocks. Nothing touches the machine, except for mounted folders,
//! the system's random source, and granted connections. Each function checks its pointers and
//! lengths, and returns an error number for any invalid argument. None panics, which `fuzz.rs`
//! tests.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::errno::{Errno, Result};
use crate::files::tree::Device;
use crate::files::tree::{NodeId, Tree};
use crate::host::layout::Layout;
use crate::host::network::RunNetwork;
use crate::host::network::watch::Want;
use crate::interrupt::reason::StopReason;
use crate::places::MATPLOTLIB_DATA_PATH;
use crate::run::program::Deterministic;
use crate::run::transcript::Transcript;
use bytes::{Buffer, GuestBytes};
use clock::Clock;
use descriptors::{Descriptors, Open};
use path::Sought;
use random::Random;

pub(crate) mod binding;
pub(crate) mod bytes;
mod channel;
pub(crate) mod clock;
pub(crate) mod descriptors;
mod emscripten;
mod fd;
mod inet;
pub(crate) mod path;
pub(crate) mod pipe;
pub(crate) mod poll;
pub(crate) mod process;
pub(crate) mod random;
mod socket;
mod stat;
#[cfg(test)]
mod tests;

/// The environment that CPython needs; each run adds its own variables.
pub(crate) const BASE_ENVIRONMENT: [(&str, &str); 6] = [
    ("HOME", "/home"),
    ("TMPDIR", "/tmp"),
    // Time zones come from the tzdata package, not from files of the system.
    ("PYTHONTZPATH", ""),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    // There is no display; this spares matplotlib the search for one.
    ("MPLBACKEND", "Agg"),
    // A folder that is always there: matplotlib wants one, also where nothing can be written.
    ("MPLCONFIGDIR", "/home"),
];

/// The name of the program in `argv`; the agent sets each run's own.
const PROGRAM: &str = "python";

/// The most random bytes that one call returns; the C library asks for 256 at a time.
const MOST_RANDOM_BYTES: u32 = 1 << 20;

/// The numbers of the states of a guest's standard input.
///
/// Guests see them, and shall not learn from them how many there were.
#[derive(Debug, Clone, Copy)]
struct StdinNumbers {
    guest: u64,
    given: u64,
}

impl StdinNumbers {
    fn new() -> Self {
        static GUESTS: AtomicU64 = AtomicU64::new(0);
        Self { guest: GUESTS.fetch_add(1, Ordering::Relaxed), given: 0 }
    }

    /// Returns a positive number that no guest was given before, in any process, as far as chance
    /// goes.
    fn next(&mut self) -> i64 {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        self.given += 1;
        1 + (STATE.hash_one((self.guest, self.given)) >> 2).cast_signed()
    }
}

/// The state that the functions of one guest work on.
#[derive(Debug)]
pub(crate) struct Wasi {
    pub(crate) tree: Tree,
    pub(crate) workspace: NodeId,
    /// What the functions read and write of the guest's memory.
    pub(crate) guest: GuestBytes,
    /// `argv`.
    arguments: Arc<[String]>,
    open: Descriptors,
    /// The current folder, from which `chdir` resolves relative paths. All other functions name a
    /// descriptor of a folder, since the guest's C library keeps the path too.
    workdir: Arc<str>,
    pub(crate) clock: Clock,
    random: Random,
    transcript: Arc<Transcript>,
    /// Standard input, and the number of bytes already read.
    stdin: (Vec<u8>, usize),
    /// Of the state of standard input; no other state had it, here or in another guest.
    stdin_number: i64,
    stdin_numbers: StdinNumbers,
    stops_at_output_limit: bool,
    calls: u64,
    most_calls: u64,
    /// The limit that a function found exceeded, so that the run must stop.
    exceeded: Option<StopReason>,
    pub(crate) sought: Sought,
    pub(crate) network: RunNetwork,
    /// What the function that was called last has to wait for.
    want: Option<Want>,
    /// A wait was ended by an interrupt, so nothing waits again.
    pub(crate) is_asked: bool,
    /// The descriptor that was synchronised last: a guest learns the host's number of it.
    synced: Option<u32>,
}

/// The state of a guest's host that lasts from run to run, as plain data.
#[derive(Debug, Clone)]
pub(crate) struct HostState {
    pub(crate) tree: Tree,
    pub(crate) open: Descriptors,
    pub(crate) workdir: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
}

impl HostState {
    pub(crate) fn new(layout: &Layout, deterministic: Option<&Deterministic>) -> Self {
        let (clock, random) = match deterministic {
            None => (Clock::real(), Random::System),
            Some(Deterministic { seed, start }) => {
                (Clock::starting_at(*start), Random::seeded(*seed))
            }
        };
        let data = layout.matplotlib_data.map(|folder| (folder, MATPLOTLIB_DATA_PATH));
        let open = Descriptors::new([(NodeId::ROOT, "/")].into_iter().chain(data));
        Self { tree: layout.tree.clone(), open, workdir: "/".into(), clock, random }
    }

    /// Fills `bytes` with states of random number generators in the guest.
    pub(crate) fn draw(&mut self, bytes: &mut [u8]) -> Result {
        self.random.fill_states(bytes)
    }

    /// Gives a copied guest its own clock and random numbers: the machine's, or deterministic ones.
    pub(crate) fn diverge(&mut self, deterministic: Option<&Deterministic>) {
        let passed = self.clock.passed();
        (self.clock, self.random) = match deterministic {
            None => (Clock::real_after(passed), Random::System),
            Some(Deterministic { seed, start }) => {
                (Clock::starting_after(*start, passed), Random::seeded(*seed))
            }
        };
    }
}

pub(crate) struct RunStreams {
    pub(crate) transcript: Arc<Transcript>,
    pub(crate) stdin: Vec<u8>,
    pub(crate) stops_at_output_limit: bool,
    pub(crate) most_calls: u64,
    pub(crate) network: RunNetwork,
}

impl Wasi {
    pub(crate) fn new(workspace: NodeId, state: HostState) -> Self {
        let arguments = Arc::new([PROGRAM.to_owned()]);
        Self::with(GuestBytes::default(), arguments, workspace, StdinNumbers::new(), state)
    }

    fn with(
        guest: GuestBytes,
        arguments: Arc<[String]>,
        workspace: NodeId,
        mut stdin_numbers: StdinNumbers,
        state: HostState,
    ) -> Self {
        let HostState { tree, open, workdir, clock, random } = state;
        Self {
            tree,
            workspace,
            guest,
            arguments,
            open,
            workdir,
            clock,
            random,
            transcript: Arc::default(),
            stdin: (Vec::new(), 0),
            stdin_number: stdin_numbers.next(),
            stdin_numbers,
            stops_at_output_limit: false,
            calls: 0,
            most_calls: u64::MAX,
            exceeded: None,
            sought: Sought::default(),
            network: RunNetwork::default(),
            want: None,
            is_asked: false,
            synced: None,
        }
    }

    /// Starts the guest with these arguments after the program's name.
    pub(crate) fn with_arguments(mut self, arguments: &[String]) -> Self {
        self.arguments = [PROGRAM.to_owned()].iter().chain(arguments).cloned().collect();
        self
    }

    pub(crate) fn state(&self) -> HostState {
        HostState {
            tree: self.tree.clone(),
            open: self.open.clone(),
            workdir: Arc::clone(&self.workdir),
            clock: self.clock.clone(),
            random: self.random.clone(),
        }
    }

    pub(crate) fn set_state(&mut self, state: HostState) {
        let (guest, arguments) = (self.guest.clone(), Arc::clone(&self.arguments));
        *self = Self::with(guest, arguments, self.workspace, self.stdin_numbers, state);
    }

    /// Connects the streams of the run that begins, and resets the call count.
    pub(crate) fn begin_run(&mut self, streams: RunStreams) {
        for file in self.open.restore_standard_streams() {
            self.tree.drop_if_nameless(file);
        }
        self.transcript = streams.transcript;
        self.stdin = (streams.stdin, 0);
        self.stops_at_output_limit = streams.stops_at_output_limit;
        self.most_calls = streams.most_calls;
        self.calls = 0;
        self.exceeded = None;
        self.sought = Sought::default();
        self.clock.begin_run();
        self.network = match self.clock {
            Clock::Real { .. } => streams.network,
            Clock::Virtual { .. } => RunNetwork::default(),
        };
    }

    /// Ends the run's CPU time and its network.
    pub(crate) fn end_run(&mut self) -> RunNetwork {
        self.clock.end_run();
        self.open.lose_sockets();
        std::mem::take(&mut self.network)
    }

    /// Takes what the last function has to wait for, if it has failed for that.
    pub(crate) fn take_want(&mut self) -> Option<Want> {
        self.want.take()
    }

    /// Restores the files of an earlier state. Drops files that were open without a name then and
    /// are closed now, since nothing can reach them any more.
    pub(crate) fn undo_to(&mut self, before: &Tree) {
        self.tree.undo_to(before);
        for file in self.tree.nameless() {
            if !self.open.is_open(file) {
                self.tree.drop_if_nameless(file);
            }
        }
    }

    /// Returns the number of standard input's state: see `GuestHost`. Called between runs.
    pub(crate) fn stdin_number(&mut self) -> i64 {
        if !self.open.has_stdin() {
            self.stdin_number = self.stdin_numbers.next();
        }
        self.stdin_number
    }

    /// Returns the number of host calls that the run has made.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Counts a host call, and notes when the calls exceed their limit.
    pub(crate) fn count_call(&mut self) {
        self.calls += 1;
        if self.calls > self.most_calls {
            self.exceeded = Some(StopReason::HostCalls);
        }
    }

    pub(crate) fn take_exceeded(&mut self) -> Option<StopReason> {
        self.exceeded.take()
    }

    fn args_get(&mut self, pointers: u32, texts: u32) -> Result {
        put_texts(&self.guest, &self.arguments, pointers, texts)
    }

    fn args_sizes_get(&mut self, count: u32, bytes: u32) -> Result {
        put_sizes(&self.guest, &self.arguments, count, bytes)
    }

    fn environ_get(&mut self, pointers: u32, texts: u32) -> Result {
        put_texts(&self.guest, &environment(), pointers, texts)
    }

    fn environ_sizes_get(&mut self, count: u32, bytes: u32) -> Result {
        put_sizes(&self.guest, &environment(), count, bytes)
    }

    fn clock_res_get(&mut self, id: u32, out: u32) -> Result {
        if !Clock::is_clock(id) {
            return Err(Errno::Invalid);
        }
        self.guest.write_u64(out, 1)
    }

    fn clock_time_get(&mut self, id: u32, _precision: u64, out: u32) -> Result {
        let now = self.clock.read(id).ok_or(Errno::Invalid)?;
        self.guest.write_u64(out, now)
    }

    fn random_get(&mut self, at: u32, len: u32) -> Result {
        if len > MOST_RANDOM_BYTES {
            return Err(Errno::Invalid);
        }
        self.guest.with(Buffer { at, len }, |buffer| self.random.fill(buffer))?
    }

    fn sched_yield(&mut self) -> Result {
        Ok(())
    }

    /// Returns whether this descriptor is the device through which a command build talks to the
    /// host.
    pub(crate) fn is_call_device(&self, fd: u32) -> bool {
        matches!(self.open.get(fd), Ok(Open::Device { device: Device::CallChannel, .. }))
    }
}

fn environment() -> [String; BASE_ENVIRONMENT.len()] {
    BASE_ENVIRONMENT.map(|(name, value)| format!("{name}={value}"))
}

/// Writes NUL-terminated texts and a table of pointers to them.
fn put_texts(guest: &GuestBytes, texts: &[String], mut pointers: u32, mut at: u32) -> Result {
    for text in texts {
        guest.write_u32(pointers, at)?;
        guest.write(at, text.as_bytes())?;
        let end = at.checked_add(text.len() as u32).ok_or(Errno::Fault)?;
        guest.write(end, &[0])?;
        at = end.checked_add(1).ok_or(Errno::Fault)?;
        pointers = pointers.checked_add(4).ok_or(Errno::Fault)?;
    }
    Ok(())
}

fn put_sizes(guest: &GuestBytes, texts: &[String], count: u32, bytes: u32) -> Result {
    let total: usize = texts.iter().map(|text| text.len() + 1).sum();
    guest.write_u32(count, texts.len() as u32)?;
    guest.write_u32(bytes, total as u32)
}
