//! Host calls of a run in another process, which this process answers.
//!
//! The other process numbers its calls; its numbers, names and arguments aren't trusted. The same
//! limits hold here as there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::HostError;
use super::HostFunctions;
use super::calls::{Calls, WaitAnswer, WaitResult};
use super::recording::RecordedAnswer;
use crate::interrupt::gate::Gate;
use crate::limits::{LimitHit, Limits};
use crate::run::egress::NetworkPeer;
use crate::run::transcript::Transcript;

/// The calls of one run in another process.
#[derive(Debug)]
pub struct ServedCalls {
    calls: Arc<Calls>,
    gate: Arc<Gate>,
    state: Mutex<ServedState>,
}

#[derive(Debug, Default)]
struct ServedState {
    /// The other process's numbers of the calls that this one has given tickets.
    numbers: HashMap<u32, u64>,
    tickets: HashMap<u64, u32>,
    /// Answers that came before their call's ticket was known here.
    early: HashMap<u32, WaitAnswer>,
    /// Answers that nobody has taken.
    ready: Served,
    /// The other process's numbers of calls that have ended for the program, by their tickets. The
    /// host still works on them.
    left: HashMap<u32, u64>,
    is_closed: bool,
}

/// What the process that makes the calls has to know.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Answers, in the order in which they came.
    pub answers: Vec<Answer>,
    /// The numbers of ended calls that the host has stopped working on. They occupy their room
    /// until then.
    pub freed: Vec<u64>,
    /// Answers to operations of the network, by number.
    pub operations: Vec<(u64, Vec<u8>)>,
}

impl Served {
    /// Whether there is nothing to know.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.freed.is_empty() && self.operations.is_empty()
    }
}

/// The answer to a call, for the process that made it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The call's number there.
    pub number: u64,
    /// The result as JSON, or the name of an exception's type and its message.
    pub result: Result<String, (String, String)>,
    /// The host still works on the call, which is among [`Served::freed`] later.
    pub is_worked_on: bool,
}

impl Answer {
    fn new(number: u64, answer: RecordedAnswer, is_worked_on: bool) -> Self {
        let result = match answer {
            RecordedAnswer::Returned(value) => Ok(value.to_string()),
            RecordedAnswer::Raised(type_name, message) => Err((type_name, message)),
        };
        Self { number, result, is_worked_on }
    }

    /// Returns what the call's [`Reply`](super::Reply) takes.
    pub fn into_result(self) -> Result<Json, HostError> {
        match self.result {
            Ok(text) => serde_json::from_str(&text).map_err(HostError::from),
            Err((type_name, message)) => Err(HostError::new(type_name, message)),
        }
    }
}

impl ServedCalls {
    /// Returns a run's calls, of which there are none yet.
    pub fn new(
        functions: HostFunctions,
        network: Option<Arc<dyn NetworkPeer>>,
        limits: &Limits,
    ) -> Self {
        let gate = Arc::new(Gate::new());
        let transcript = Arc::<Transcript>::default();
        let its = Arc::clone(&gate);
        let calls = Calls::new(functions, network, limits, its, transcript, false, None);
        Self { calls: Arc::new(calls), gate, state: Mutex::default() }
    }

    /// Begins a call. A refusal is its answer. One thread begins a run's calls.
    pub fn begin(&self, number: u64, name: &str, arguments: &Map<String, Json>) {
        {
            let state = self.state.lock();
            if state.is_closed || state.tickets.contains_key(&number) {
                return;
            }
        }
        let call = json!({ "name": name, "arguments": arguments }).to_string();
        // Without the lock, since the function may answer at once, which wakes who holds the gate.
        let begun = self.calls.begin(call.as_bytes());
        match begun {
            Ok(ticket) => self.number(ticket, number),
            Err(error) => {
                let (type_name, message) = error.for_program(name);
                let answer = RecordedAnswer::Raised(type_name, message);
                self.state.lock().ready.answers.push(Answer::new(number, answer, false));
                self.gate.wake();
            }
        }
    }

    /// Serves an operation of the network. Returns the answer if it is there at once.
    pub fn operate(&self, number: u64, frame: &[u8]) -> Option<Vec<u8>> {
        match self.calls.operate(frame) {
            Ok(answer) => Some(answer),
            Err(ticket) => {
                self.number(ticket, number);
                None
            }
        }
    }

    /// Notes the other process's number of a ticket, whose answer may be here already.
    fn number(&self, ticket: u32, number: u64) {
        let mut state = self.state.lock();
        match state.early.remove(&ticket) {
            Some(answer) => {
                self.deliver(&mut state, ticket, number, answer);
                drop(state);
                self.gate.wake();
            }
            None => {
                state.numbers.insert(ticket, number);
                state.tickets.insert(number, ticket);
            }
        }
    }

    fn deliver(&self, state: &mut ServedState, ticket: u32, number: u64, answer: WaitAnswer) {
        match answer {
            WaitAnswer::Call(answer) => {
                let is_left = self.is_left(state, ticket, number);
                state.ready.answers.push(Answer::new(number, answer, is_left));
            }
            WaitAnswer::Network(answer) => state.ready.operations.push((number, answer)),
        }
    }

    /// Notes an ended call that the host still works on. Returns whether it does.
    fn is_left(&self, state: &mut ServedState, ticket: u32, number: u64) -> bool {
        let is_left = self.calls.is_worked_on(ticket);
        if is_left {
            state.left.insert(ticket, number);
        }
        is_left
    }

    /// Cancels a call, if it goes on. Its room is free once its number is among [`Served::freed`].
    pub fn cancel(&self, number: u64) {
        let ticket = {
            let mut state = self.state.lock();
            let Some(ticket) = state.tickets.remove(&number) else { return };
            state.numbers.remove(&ticket);
            state.left.insert(ticket, number);
            ticket
        };
        self.calls.cancel(ticket);
        // It may have ended before it was noted.
        self.gate.wake();
    }

    /// Waits for answers and for room that becomes free, at most for `time`; returns `None` once
    /// the run has ended.
    pub fn wait(&self, time: Option<Duration>) -> Option<Served> {
        let is_ready = || {
            let state = self.state.lock();
            state.is_closed
                || !state.ready.is_empty()
                || state.left.keys().any(|ticket| !self.calls.is_worked_on(*ticket))
                || self.calls.has_ended(None)
        };
        self.gate.wait(time, is_ready);
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        if let WaitResult::Ended(ended) = self.calls.look(None) {
            for (ticket, answer) in ended {
                match state.numbers.remove(&ticket) {
                    Some(number) => {
                        state.tickets.remove(&number);
                        self.deliver(&mut state, ticket, number, answer);
                    }
                    None => drop(state.early.insert(ticket, answer)),
                }
            }
        }
        // After the answers, which free the room that they leave at once.
        let is_free = |ticket: &u32, _: &mut u64| !self.calls.is_worked_on(*ticket);
        let freed = state.left.extract_if(is_free).map(|(_, number)| number).collect();
        Some(Served { freed, ..std::mem::take(&mut state.ready) })
    }

    /// Ends the run: cancels its calls, and ends waits. Returns the limits that calls met here.
    pub fn close(&self) -> Vec<LimitHit> {
        self.state.lock().is_closed = true;
        let met = self.calls.close().refusals;
        self.gate.wake();
        met
    }
}

impl Drop for ServedCalls {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::run::functions::{Callee, HostCall, Reply, Room, Signature};

    /// Keeps the replies of its calls.
    struct Kept(Arc<Mutex<Vec<Reply>>>);

    impl Callee for Kept {
        fn call(&self, call: HostCall) {
            self.0.lock().push(call.reply);
        }
    }

    /// Keeps the rooms of its calls, which it answers at once if they have an argument.
    struct Works(Arc<Mutex<Vec<Room>>>, Arc<Mutex<Vec<Reply>>>);

    impl Callee for Works {
        fn call(&self, call: HostCall) {
            self.0.lock().push(call.room);
            match call.arguments.is_empty() {
                true => self.1.lock().push(call.reply),
                false => call.reply.answer(Ok(json!(null))),
            }
        }
    }

    fn served(limits: &Limits) -> (ServedCalls, Arc<Mutex<Vec<Reply>>>) {
        let kept = Arc::<Mutex<Vec<Reply>>>::default();
        let signature = Signature { name: "f".to_owned(), ..Signature::default() };
        let callee: Arc<dyn Callee> = Arc::new(Kept(Arc::clone(&kept)));
        let functions = HostFunctions::new([(signature, callee)]).unwrap();
        (ServedCalls::new(functions, None, limits), kept)
    }

    fn told(answers: &[Answer]) -> Vec<(u64, &str)> {
        fn text(answer: &Answer) -> &str {
            match &answer.result {
                Ok(text) => text,
                Err((name, _)) => name,
            }
        }
        answers.iter().map(|answer| (answer.number, text(answer))).collect()
    }

    #[test]
    fn calls_are_answered_by_the_numbers_of_the_other_process() {
        let (served, kept) = served(&Limits::default());
        for number in [7, 3, 7] {
            served.begin(number, "f", &Map::new());
        }
        let replies = std::mem::take(&mut *kept.lock());
        assert_eq!(replies.len(), 2, "a number that is in use is ignored");
        for (result, reply) in replies.into_iter().enumerate() {
            reply.answer(Ok(json!(result)));
        }
        let answers = served.wait(None).unwrap().answers;
        assert_eq!(told(&answers), [(7, "0"), (3, "1")]);
        assert_eq!(answers.into_iter().next().unwrap().into_result(), Ok(json!(0)));
        assert_eq!(served.wait(Some(Duration::ZERO)), Some(Served::default()));
    }

    #[test]
    fn limits_hold_here_too() {
        let limits = Limits { functions_in_flight: 1, ..Limits::default() };
        let (served, kept) = served(&limits);
        for number in 0..3 {
            served.begin(number, if number == 2 { "g" } else { "f" }, &Map::new());
        }
        let answers = served.wait(None).unwrap().answers;
        assert_eq!(told(&answers), [(1, "HostLimitError"), (2, "HostLimitError")]);
        served.cancel(0);
        served.cancel(9);
        assert_eq!(kept.lock().len(), 1);
    }

    #[test]
    fn ended_calls_keep_their_room_until_nothing_works_on_them() {
        let (rooms, replies) = <(Arc<Mutex<Vec<Room>>>, Arc<Mutex<Vec<Reply>>>)>::default();
        let signature = Signature { name: "f".to_owned(), ..Signature::default() };
        let callee: Arc<dyn Callee> = Arc::new(Works(Arc::clone(&rooms), replies));
        let functions = HostFunctions::new([(signature, callee)]).unwrap();
        let served = ServedCalls::new(functions, None, &Limits::default());
        // One call is given up, the other is answered while the work on it goes on.
        served.begin(5, "f", &Map::new());
        served.begin(6, "f", &Map::from_iter([("x".to_owned(), json!(1))]));
        served.cancel(5);
        let Served { answers, freed, .. } = served.wait(None).unwrap();
        assert_eq!(told(&answers), [(6, "null")]);
        assert!(answers[0].is_worked_on && freed.is_empty());
        assert_eq!(served.wait(Some(Duration::ZERO)), Some(Served::default()));
        for expected in [5, 6] {
            drop(rooms.lock().remove(0));
            assert_eq!(served.wait(None).unwrap().freed, [expected]);
        }
    }

    #[test]
    fn the_end_of_the_run_ends_a_wait() {
        let (served, _kept) = served(&Limits::default());
        served.begin(1, "f", &Map::new());
        let served = Arc::new(served);
        let (sender, ended) = sync_channel(1);
        let waiting = Arc::clone(&served);
        let waits = std::thread::spawn(move || sender.send(waiting.wait(None)).unwrap());
        served.close();
        assert_eq!(ended.recv().unwrap(), None);
        waits.join().unwrap();
        served.begin(2, "f", &Map::new());
        assert_eq!(served.wait(None), None);
    }
}
