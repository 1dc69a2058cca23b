//! Host calls of a run in another process, which this process answers.
//!
//! The other process numbers its calls; its numbers, names and arguments aren't believed. The same
//! limits hold here as there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::HostFunctions;
use super::calls::{Calls, Found};
use super::error::HostError;
use super::recording::RecordedAnswer;
use crate::interrupt::gate::Gate;
use crate::limits::{LimitHit, Limits};
use crate::run::transcript::Transcript;

/// The calls of one run in another process.
#[derive(Debug)]
pub struct ServedCalls {
    calls: Arc<Calls>,
    gate: Arc<Gate>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The other process's numbers of the calls that this one has given tickets.
    numbers: HashMap<u32, u64>,
    tickets: HashMap<u64, u32>,
    /// Answers that came before their call's ticket was known here.
    early: HashMap<u32, RecordedAnswer>,
    /// Answers that nobody has taken.
    ready: Vec<Answer>,
    is_closed: bool,
}

/// The answer to a call, for the process that made it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The call's number there.
    pub number: u64,
    /// The result as JSON, or the name of an exception's type and its message.
    pub result: Result<String, (String, String)>,
}

impl Answer {
    fn new(number: u64, answer: RecordedAnswer) -> Self {
        let result = match answer {
            RecordedAnswer::Returned(value) => Ok(value.to_string()),
            RecordedAnswer::Raised(type_name, message) => Err((type_name, message)),
        };
        Self { number, result }
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
    pub fn new(functions: HostFunctions, limits: &Limits) -> Self {
        let gate = Arc::new(Gate::new());
        let transcript = Arc::<Transcript>::default();
        let calls = Calls::new(functions, limits, Arc::clone(&gate), transcript, false, None);
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
        let mut state = self.state.lock();
        let ended = match begun {
            Ok(ticket) => match state.early.remove(&ticket) {
                Some(answer) => Some(answer),
                None => {
                    state.numbers.insert(ticket, number);
                    state.tickets.insert(number, ticket);
                    None
                }
            },
            Err(error) => {
                let (type_name, message) = error.for_program(name);
                Some(RecordedAnswer::Raised(type_name, message))
            }
        };
        if let Some(answer) = ended {
            state.ready.push(Answer::new(number, answer));
            drop(state);
            self.gate.wake();
        }
    }

    /// Cancels a call, if it goes on.
    pub fn cancel(&self, number: u64) {
        let ticket = {
            let mut state = self.state.lock();
            let ticket = state.tickets.remove(&number);
            if let Some(ticket) = ticket {
                state.numbers.remove(&ticket);
            }
            ticket
        };
        if let Some(ticket) = ticket {
            self.calls.cancel(ticket);
        }
    }

    /// Waits for answers, at most for `time`; returns `None` once the run has ended.
    pub fn wait(&self, time: Option<Duration>) -> Option<Vec<Answer>> {
        let is_ready = || {
            let state = self.state.lock();
            state.is_closed || !state.ready.is_empty() || self.calls.has_ended(None)
        };
        self.gate.wait(time, is_ready);
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let mut answers = std::mem::take(&mut state.ready);
        if let Found::Ended(ended) = self.calls.look(None) {
            for (ticket, answer) in ended {
                match state.numbers.remove(&ticket) {
                    Some(number) => {
                        state.tickets.remove(&number);
                        answers.push(Answer::new(number, answer));
                    }
                    None => drop(state.early.insert(ticket, answer)),
                }
            }
        }
        Some(answers)
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
    use crate::run::functions::{Callee, HostCall, Reply, Signature};

    /// Keeps the replies of its calls.
    struct Kept(Arc<Mutex<Vec<Reply>>>);

    impl Callee for Kept {
        fn call(&self, call: HostCall) {
            self.0.lock().push(call.reply);
        }
    }

    fn served(limits: &Limits) -> (ServedCalls, Arc<Mutex<Vec<Reply>>>) {
        let kept = Arc::<Mutex<Vec<Reply>>>::default();
        let signature = Signature { name: "f".to_owned(), ..Signature::default() };
        let callee: Arc<dyn Callee> = Arc::new(Kept(Arc::clone(&kept)));
        let functions = HostFunctions::new([(signature, callee)]).unwrap();
        (ServedCalls::new(functions, limits), kept)
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
        let answers = served.wait(None).unwrap();
        assert_eq!(told(&answers), [(7, "0"), (3, "1")]);
        assert_eq!(answers.into_iter().next().unwrap().into_result(), Ok(json!(0)));
        assert_eq!(served.wait(Some(Duration::ZERO)), Some(Vec::new()));
    }

    #[test]
    fn limits_hold_here_too() {
        let limits = Limits { functions_in_flight: 1, ..Limits::default() };
        let (served, kept) = served(&limits);
        for number in 0..3 {
            served.begin(number, if number == 2 { "g" } else { "f" }, &Map::new());
        }
        let answers = served.wait(None).unwrap();
        assert_eq!(told(&answers), [(1, "HostLimitError"), (2, "HostLimitError")]);
        served.cancel(0);
        served.cancel(9);
        assert_eq!(kept.lock().len(), 1);
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
