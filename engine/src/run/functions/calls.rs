//! The host calls of one run: pending calls, answers, and their limits.
//!
//! The guest's thread begins calls and waits for them; any thread answers them. The end of the run
//! cancels pending calls and drops later answers.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value as Json};

use super::error::{FAILURE, HostError, LIMIT};
use super::recording::{RecordedAnswer, Recorder, Recording, Replayed, Replayer};
use super::rooms::{Room, Rooms, Sum};
use super::{HostCall, HostFunctions, RunId};
use crate::interrupt::gate::Gate;
use crate::limits::{LimitHit, LimitKind, Limits};
use crate::run::egress::{self, FIRST_TICKET, MOST_OPERATIONS, NetworkPeer, NetworkReply};
use crate::run::transcript::Transcript;
use crate::run::value::marshal::Marshal;
use crate::run::value::{json_bytes, number};

/// The most bytes of answers that the guest gets at once; it gets at least one answer.
const DELIVERY_BYTES: usize = 1 << 20;

/// How long a call waits for calls that the program has given up and that occupy its room. A future
/// ends within microseconds unless the host is busy; a closure may take any time.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Counts runs that call functions, to number them.
static RUNS: AtomicU64 = AtomicU64::new(0);

#[derive(derive_more::Debug)]
#[debug("Calls({functions:?})")]
pub(crate) struct Calls {
    /// Set by the first call.
    run: OnceLock<RunId>,
    functions: HostFunctions,
    /// What serves the run's streams.
    network: Option<Arc<dyn NetworkPeer>>,
    limits: CallLimits,
    gate: Arc<Gate>,
    transcript: Arc<Transcript>,
    /// The function that provides standard input.
    stdin: Option<String>,
    /// Lock order: the state first, then this.
    rooms: Arc<Rooms>,
    state: Mutex<CallsState>,
}

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct CallsState {
    begun: u32,
    /// The ticket of the last operation of the network, less the first one.
    operations: u32,
    /// Calls without an answer, and the hooks to run if they are cancelled.
    pending: BTreeMap<u32, Option<Hook>>,
    /// Answers that the guest hasn't fetched, in order of arrival.
    ended: VecDeque<(u32, WaitAnswer)>,
    is_over: bool,
    /// The last call that reads standard input.
    reading: Option<u32>,
    /// Limits that were hit, with the largest refused amount.
    met: BTreeMap<&'static str, LimitHit>,
    recorder: Option<Recorder>,
    replayer: Option<Replayer>,
}

/// The result of a run's calls.
#[derive(Debug, Default)]
pub(crate) struct CallEffects {
    /// Limits on calls that the run hit.
    pub(crate) refusals: Vec<LimitHit>,
    pub(crate) recording: Option<Recording>,
}

/// What a wait brings the guest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WaitAnswer {
    /// Of a host function.
    Call(RecordedAnswer),
    /// Of an operation of the network.
    Network(Vec<u8>),
}

/// What a wait finds at this moment.
#[derive(Debug, PartialEq)]
pub(crate) enum WaitResult {
    /// These calls have ended.
    Ended(Vec<(u32, WaitAnswer)>),
    /// None has ended, and some are pending.
    Pending,
    /// No call is pending that could end.
    Idle,
    /// According to the recording, none ends in this wait.
    NotNow,
}

impl Calls {
    pub(crate) fn new(
        functions: HostFunctions,
        network: Option<Arc<dyn NetworkPeer>>,
        limits: &Limits,
        gate: Arc<Gate>,
        transcript: Arc<Transcript>,
        records: bool,
        replays: Option<Arc<Recording>>,
    ) -> Self {
        let state = CallsState {
            recorder: records.then(Recorder::default),
            replayer: replays.map(Replayer::new),
            ..CallsState::default()
        };
        let run = OnceLock::new();
        let rooms = Rooms::new(&gate);
        let stdin = None;
        let (limits, state) = (CallLimits::of(limits), Mutex::new(state));
        Self { run, functions, network, limits, gate, transcript, stdin, rooms, state }
    }

    fn run(&self) -> RunId {
        *self.run.get_or_init(|| RunId(RUNS.fetch_add(1, Ordering::Relaxed)))
    }

    /// Treats calls of this function as reads of standard input.
    pub(crate) fn reading_by(self, stdin: Option<String>) -> Self {
        Self { stdin, ..self }
    }

    /// Returns whether the call reads standard input, so that the wait is for the user's typing.
    pub(crate) fn is_reading(&self, ticket: u32) -> bool {
        self.state.lock().reading == Some(ticket)
    }

    pub(crate) fn table(&self) -> Vec<u8> {
        self.functions.table()
    }

    /// Returns the length of the longest accepted call.
    pub(crate) fn argument_bytes(&self) -> usize {
        self.limits.argument_bytes
    }

    /// Begins a call that the guest describes in JSON, and returns its ticket.
    pub(crate) fn begin(self: &Arc<Self>, call: &[u8]) -> Result<u32, HostError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Described {
            name: String,
            arguments: Map<String, Json>,
        }
        if call.len() > self.limits.argument_bytes {
            return Err(self.refuse_arguments(call.len()));
        }
        let no_call = |problem| HostError::new("ValueError", format!("no call: {problem}"));
        let Described { name, mut arguments } =
            serde_json::from_slice(call).map_err(|error| no_call(error.to_string()))?;
        arguments.values_mut().try_for_each(number::normalise).map_err(no_call)?;
        let (ticket, room, is_replayed) = self.admit(&name, &arguments)?;
        let callee = self.functions.callee(&name);
        if is_replayed || callee.is_some() {
            self.transcript.host_called(&name);
        }
        if is_replayed {
            return Ok(ticket);
        }
        let missing = format!("the host has no function `{name}` for this job");
        let reply = Reply { calls: Arc::clone(self), ticket, function: name, is_answered: false };
        let Some(callee) = callee else {
            reply.answer(Err(HostError::new("AttributeError", missing)));
            return Ok(ticket);
        };
        match self.wait_for_room() {
            Ok(()) => {
                // A panic drops the reply, which answers the call.
                let call = HostCall { arguments, run: self.run(), room, reply };
                drop(catch_unwind(AssertUnwindSafe(|| callee.call(call))));
            }
            // As an answer, so that a recording holds this refusal, which depends on timing.
            Err(refused) => reply.answer(Err(refused)),
        }
        Ok(ticket)
    }

    /// Passes an operation on to what serves the run's streams. Returns the answer, or the ticket of
    /// one that comes later.
    pub(crate) fn operate(self: &Arc<Self>, frame: &[u8]) -> Result<Vec<u8>, u32> {
        let Some(network) = &self.network else { return Ok(egress::no_network()) };
        let ticket = {
            let mut state = self.state.lock();
            if state.is_over {
                return Ok(egress::no_network());
            }
            if state.pending.range(FIRST_TICKET..).count() >= MOST_OPERATIONS {
                return Ok(egress::too_many());
            }
            state.operations = (state.operations + 1) % FIRST_TICKET;
            let ticket = FIRST_TICKET + state.operations;
            state.pending.insert(ticket, None);
            ticket
        };
        let calls = Arc::clone(self);
        let answer = Box::new(move |answer| calls.answer_operation(ticket, answer));
        let reply = catch_unwind(AssertUnwindSafe(|| network.serve(frame, answer)));
        let mut state = self.state.lock();
        match reply {
            Ok(NetworkReply::Now(answer)) => {
                state.pending.remove(&ticket);
                return Ok(answer);
            }
            Ok(NetworkReply::Later(operation)) => match state.pending.get_mut(&ticket) {
                Some(hook) => *hook = Some(Box::new(move || drop(operation))),
                None => {
                    // It has been answered already.
                    drop(state);
                    drop(operation);
                }
            },
            Err(_) => {
                state.pending.remove(&ticket);
                return Ok(egress::no_network());
            }
        }
        Err(ticket)
    }

    fn answer_operation(&self, ticket: u32, answer: Vec<u8>) {
        let mut state = self.state.lock();
        let Some(hook) = state.pending.remove(&ticket) else { return };
        state.ended.push_back((ticket, WaitAnswer::Network(answer)));
        drop(state);
        drop(hook);
        self.gate.wake();
    }

    /// Assigns a call its ticket and its room. Also returns whether a recording answers it.
    ///
    /// Refusals here depend only on what the program did, so a replay refuses the same calls.
    fn admit(
        &self,
        name: &str,
        arguments: &Map<String, Json>,
    ) -> Result<(u32, Room, bool), HostError> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(HostError::new(FAILURE, "the run is over"));
        }
        let calls = u64::from(state.begun) + 1;
        if calls > self.limits.count {
            return Err(state.refuse(LimitKind::FunctionCalls, self.limits.count, calls));
        }
        let bytes: usize =
            arguments.iter().map(|(name, value)| name.len() + json_bytes(value)).sum();
        let wanted = self.rooms.wanted();
        let wanted = Sum { calls: wanted.calls + 1, bytes: wanted.bytes.saturating_add(bytes) };
        if let Some((limit, allowed, used)) = self.limits.excess(wanted) {
            return Err(state.refuse(limit, allowed, used));
        }
        if let Some(replayer) = &state.replayer {
            replayer.begin(state.begun as usize, name, arguments)?;
        }
        if let Some(recorder) = &mut state.recorder {
            recorder.begin(name, arguments);
        }
        state.begun += 1;
        let ticket = state.begun;
        state.pending.insert(ticket, None);
        if self.stdin.as_deref() == Some(name) {
            state.reading = Some(ticket);
        }
        Ok((ticket, self.rooms.take(ticket, bytes), state.replayer.is_some()))
    }

    /// Waits briefly if calls that the program has given up leave no room for a new one.
    fn wait_for_room(&self) -> Result<(), HostError> {
        let excess = || self.limits.excess(self.rooms.all());
        if excess().is_none() {
            return Ok(());
        }
        self.gate.wait(Some(ROOM_WAIT), || excess().is_none());
        let Some((limit, allowed, used)) = excess() else { return Ok(()) };
        let refused = self.state.lock().refuse(limit, allowed, used);
        let text = format!("{}: calls that were given up still run", refused.message());
        Err(HostError::new(LIMIT, text))
    }

    /// Refuses a call of `used` bytes.
    pub(crate) fn refuse_arguments(&self, used: usize) -> HostError {
        let allowed = self.limits.argument_bytes as u64;
        self.state.lock().refuse(LimitKind::FunctionArguments, allowed, used as u64)
    }

    /// Takes the answers that have arrived, to the call of `ticket` or to any. Each wait of the
    /// guest begins with this, and `has_ended` says when to look again.
    pub(crate) fn look(&self, ticket: Option<u32>) -> WaitResult {
        let mut state = self.state.lock();
        let is_wanted = |one: u32| ticket.is_none_or(|ticket| ticket == one);
        let mut found = Vec::new();
        let mut bytes = 0;
        while let Some(at) = state.ended.iter().position(|(one, _)| is_wanted(*one)) {
            let length = match &state.ended[at].1 {
                WaitAnswer::Call(answer) => bytes_of(answer),
                WaitAnswer::Network(answer) => answer.len(),
            };
            if !found.is_empty() && bytes + length > DELIVERY_BYTES {
                break;
            }
            bytes += length;
            found.extend(state.ended.remove(at));
        }
        if found.is_empty() && state.replayer.is_some() {
            let found = state.look_in_recording(ticket);
            if let WaitResult::Ended(ended) = &found {
                ended.iter().for_each(|(one, _)| self.rooms.unwanted(*one));
            }
            return found;
        }
        if !found.is_empty() {
            found.iter().for_each(|(one, _)| self.rooms.unwanted(*one));
            if let Some(recorder) = &mut state.recorder {
                let calls: Vec<_> = found.iter().filter_map(call_of).collect();
                if !calls.is_empty() {
                    recorder.waited(&calls);
                }
            }
            return WaitResult::Ended(found);
        }
        match state.pending.keys().any(|one| is_wanted(*one)) {
            true => WaitResult::Pending,
            false => WaitResult::Idle,
        }
    }

    /// Ends the calls that a wait without an end waits for, after [`WaitResult::NotNow`]: the
    /// recorded wait had an end.
    pub(crate) fn fail_in_replay(&self, ticket: Option<u32>) -> Vec<(u32, WaitAnswer)> {
        let failed = self.state.lock().fail_in_replay(ticket);
        failed.iter().for_each(|(one, _)| self.rooms.unwanted(*one));
        failed
    }

    /// Records that a wait for pending calls found no answer.
    pub(crate) fn waited_in_vain(&self) {
        let mut state = self.state.lock();
        let calls = state.pending.range(..FIRST_TICKET).next().is_some();
        if let Some(recorder) = state.recorder.as_mut().filter(|_| calls) {
            recorder.waited(&[]);
        }
    }

    /// Returns whether a call has ended, that of `ticket` or any. Another thread of the guest may
    /// have taken the answer.
    pub(crate) fn has_ended(&self, ticket: Option<u32>) -> bool {
        let state = self.state.lock();
        match ticket {
            Some(ticket) => !state.pending.contains_key(&ticket),
            None => !state.ended.is_empty(),
        }
    }

    /// Cancels a call for the program. It keeps its room until the host's work on it has ended.
    pub(crate) fn cancel(&self, ticket: u32) {
        let pending = {
            let mut state = self.state.lock();
            state.ended.retain(|(one, _)| *one != ticket);
            self.rooms.unwanted(ticket);
            state.pending.remove(&ticket)
        };
        if let Some(hook) = pending.flatten() {
            hook();
        }
    }

    /// Whether the host still works on a call that has ended for the program.
    pub(crate) fn is_worked_on(&self, ticket: u32) -> bool {
        self.rooms.is_worked_on(ticket)
    }

    /// Ends the run: cancels pending calls and refuses new ones.
    pub(crate) fn close(&self) -> CallEffects {
        let (pending, effects) = {
            let mut state = self.state.lock();
            state.is_over = true;
            state.ended.clear();
            let effects = CallEffects {
                refusals: std::mem::take(&mut state.met).into_values().collect(),
                recording: state.recorder.take().map(Recorder::finish),
            };
            (std::mem::take(&mut state.pending), effects)
        };
        pending.into_values().flatten().for_each(|hook| hook());
        effects
    }

    fn answer(&self, ticket: u32, function: &str, result: Result<Json, HostError>) {
        if !self.state.lock().pending.contains_key(&ticket) {
            // Neither the answer nor its log message is of interest any more.
            return;
        }
        let passed = |value| match number::check(&value) {
            Ok(()) => Ok(value),
            Err(problem) => {
                Err(HostError::new("ValueError", format!("`{function}` returned {problem}")))
            }
        };
        let answer = match result.and_then(passed) {
            Ok(value) => RecordedAnswer::Returned(value),
            Err(error) => {
                let (type_name, message) = error.for_program(function);
                RecordedAnswer::Raised(type_name, message)
            }
        };
        let (allowed, used) = (self.limits.result_bytes, bytes_of(&answer));
        let mut state = self.state.lock();
        let Some(hook) = state.pending.remove(&ticket) else { return };
        let answer = if used > allowed {
            let refused = state.refuse(LimitKind::FunctionResults, allowed as u64, used as u64);
            let (type_name, message) = refused.for_program(function);
            RecordedAnswer::Raised(type_name, message)
        } else {
            answer
        };
        state.ended.push_back((ticket, WaitAnswer::Call(answer)));
        // Before the gate is locked: a waiter there holds the gate's lock while it takes this one.
        drop(state);
        drop(hook);
        self.gate.wake();
    }
}

impl CallsState {
    /// Records a limit that was hit, and returns the error for the program.
    fn refuse(&mut self, limit: LimitKind, allowed: u64, used: u64) -> HostError {
        let hit = self.met.entry(limit.name()).or_insert(LimitHit::new(limit, allowed, used));
        hit.used = hit.used.max(used);
        HostError::new(LIMIT, LimitHit::new(limit, allowed, used).event())
    }

    fn look_in_recording(&mut self, ticket: Option<u32>) -> WaitResult {
        let is_wanted = |one: u32| ticket.is_none_or(|ticket| ticket == one);
        let Some(replayer) = self.replayer.as_mut() else { return WaitResult::Idle };
        let mut wanted = self.pending.keys().filter(|one| is_wanted(**one)).peekable();
        let Some(first) = wanted.peek().copied().copied() else { return WaitResult::Idle };
        if first >= FIRST_TICKET {
            return WaitResult::Pending;
        }
        let operates = wanted.last().is_some_and(|last| *last >= FIRST_TICKET);
        match replayer.wait(ticket) {
            // The recording says when calls end, not when operations do.
            Replayed::Nothing if operates => WaitResult::Pending,
            Replayed::Nothing => WaitResult::NotNow,
            Replayed::Ended(ended) => {
                // Calls that the program has cancelled since don't end in the recording either.
                let ended = ended.into_iter().filter(|(one, _)| self.pending.remove(one).is_some());
                WaitResult::Ended(
                    ended.map(|(one, answer)| (one, WaitAnswer::Call(answer))).collect(),
                )
            }
            Replayed::Lost => WaitResult::Ended(self.fail_in_replay(ticket)),
        }
    }

    /// Ends pending calls, that of `ticket` or all, since the recording is of another program.
    fn fail_in_replay(&mut self, ticket: Option<u32>) -> Vec<(u32, WaitAnswer)> {
        let text = "the recording has no answer at this point of the program";
        let answer = RecordedAnswer::Raised("ReplayError".to_owned(), text.to_owned());
        let answer = WaitAnswer::Call(answer);
        self.pending
            .extract_if(..FIRST_TICKET, |one, _| ticket.is_none_or(|ticket| ticket == *one))
            .map(|(one, _)| (one, answer.clone()))
            .collect()
    }
}

/// Returns the answer if it is that of a host function.
fn call_of((ticket, answer): &(u32, WaitAnswer)) -> Option<(u32, RecordedAnswer)> {
    match answer {
        WaitAnswer::Call(answer) => Some((*ticket, answer.clone())),
        WaitAnswer::Network(_) => None,
    }
}

/// Returns the size of an answer on its way to the guest.
fn bytes_of(answer: &RecordedAnswer) -> usize {
    match answer {
        RecordedAnswer::Returned(value) => Marshal::from(value).encoded_len(),
        RecordedAnswer::Raised(type_name, message) => type_name.len() + message.len(),
    }
}

/// Encodes the answers to a wait in the format of `marshal`.
pub(crate) fn encode(ended: &[(u32, WaitAnswer)]) -> Vec<u8> {
    let items = ended.iter().map(|(ticket, answer)| {
        let (is_success, result) = match answer {
            WaitAnswer::Call(RecordedAnswer::Returned(value)) => (true, value.into()),
            WaitAnswer::Call(RecordedAnswer::Raised(type_name, message)) => {
                (false, error(type_name, message))
            }
            WaitAnswer::Network(answer) => (true, (&answer[..]).into()),
        };
        Marshal::List(vec![Marshal::Int(i64::from(*ticket)), is_success.into(), result])
    });
    Marshal::List(items.collect()).encode()
}

/// Encodes the answer to the beginning of a call in the format of `marshal`.
pub(crate) fn encode_begun(begun: Result<u32, HostError>) -> Vec<u8> {
    match begun {
        Ok(ticket) => Marshal::Int(i64::from(ticket)).encode(),
        Err(refused) => {
            let (type_name, message) = refused.for_program("");
            error(&type_name, &message).encode()
        }
    }
}

fn error<'a>(type_name: &'a str, message: &'a str) -> Marshal<'a> {
    Marshal::List(vec![type_name.into(), message.into()])
}

/// Takes the answer to one call. If it is dropped without an answer, the call fails.
#[derive(derive_more::Debug)]
#[debug("Reply({ticket})")]
#[must_use = "a call that nobody answers fails"]
pub struct Reply {
    calls: Arc<Calls>,
    ticket: u32,
    function: String,
    is_answered: bool,
}

impl Reply {
    /// Answers the call. Does nothing if the call was cancelled or its run has ended.
    pub fn answer(mut self, result: Result<Json, HostError>) {
        self.is_answered = true;
        self.calls.answer(self.ticket, &self.function, result);
    }

    /// Returns a handle that reports when the call is cancelled.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation { calls: Arc::clone(&self.calls), ticket: self.ticket }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_answered {
            let text = match std::thread::panicking() {
                true => "it panicked",
                false => "it ended without an answer",
            };
            let failed = Err(HostError::private(text));
            self.calls.answer(self.ticket, &self.function, failed);
        }
    }
}

/// Returns the error for programs without host functions.
pub(crate) fn nothing_to_call() -> HostError {
    HostError::new(FAILURE, "there are no host functions here")
}

/// Reports that the program no longer wants a call.
#[derive(derive_more::Debug)]
#[debug("Cancellation({ticket})")]
pub struct Cancellation {
    calls: Arc<Calls>,
    ticket: u32,
}

impl Cancellation {
    /// Runs `hook` on the guest's thread when the program gives the call up or its run ends. Runs
    /// it at once if that has happened or the call was answered. The hook must not block.
    pub fn on_cancel(self, hook: impl FnOnce() + Send + 'static) {
        let mut state = self.calls.state.lock();
        match state.pending.get_mut(&self.ticket) {
            Some(pending) => *pending = Some(Box::new(hook)),
            None => {
                drop(state);
                hook();
            }
        }
    }
}

/// The most host memory that the arguments of calls in flight may take together. A text of 1 MiB
/// can become 100 MiB of objects. A function may keep them as long as it runs.
const ARGUMENTS_IN_FLIGHT_BYTES: usize = 256 << 20;

#[derive(Debug, Clone, Copy)]
struct CallLimits {
    count: u64,
    argument_bytes: usize,
    result_bytes: usize,
    in_flight: usize,
}

impl CallLimits {
    fn of(limits: &Limits) -> Self {
        Self {
            count: limits.function_calls.min(u64::from(FIRST_TICKET - 1)),
            argument_bytes: limits.function_argument_bytes,
            result_bytes: limits.function_result_bytes,
            in_flight: limits.functions_in_flight,
        }
    }

    /// Returns the limit that these calls exceed, the allowed amount, and the used amount.
    fn excess(&self, taken: Sum) -> Option<(LimitKind, u64, u64)> {
        if taken.calls > self.in_flight {
            let (allowed, used) = (self.in_flight as u64, taken.calls as u64);
            return Some((LimitKind::FunctionsInFlight, allowed, used));
        }
        let (allowed, used) = (ARGUMENTS_IN_FLIGHT_BYTES as u64, taken.bytes as u64);
        (used > allowed).then_some((LimitKind::FunctionArguments, allowed, used))
    }
}

#[cfg(test)]
mod tests;
