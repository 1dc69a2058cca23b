//! Records the host calls of a run, to repeat the run without the host.
//!
//! A recording holds each call with its answer, and the wait in which the program received the
//! answer. So a deterministic program runs the same way again, byte for byte.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::error::HostError;

/// The calls of host functions that a program made in one run, and the answers that it received.
///
/// Plain data that any serde format can store. Holds what the program passed and received, never
/// the text of a private error. Its size is bounded by the [`Limits`](crate::Limits) on arguments
/// and results of each call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recording {
    /// The calls, in the order in which they began.
    pub calls: Vec<RecordedCall>,
    /// When the program received the answers, in this order.
    pub deliveries: Vec<Delivery>,
    /// What it sent and received over HTTP, with placeholders instead of secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Json>,
}

/// A call of a host function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The function.
    pub name: String,
    /// The arguments by name.
    pub arguments: Map<String, Json>,
    /// The answer; `None` if the program didn't receive it.
    pub answer: Option<RecordedAnswer>,
}

/// The answer to a call, as the program received it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RecordedAnswer {
    /// The result.
    Returned(Json),
    /// The name of the exception, and its message.
    Raised(String, String),
}

/// A wait of the program in which calls ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Delivery {
    /// Waits without an answer since the previous delivery.
    pub empty_waits: u64,
    /// The calls that ended, by number from 0.
    pub calls: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Recorder {
    recording: Recording,
    empty_waits: u64,
}

impl Recorder {
    pub(super) fn begin(&mut self, name: &str, arguments: &Map<String, Json>) {
        let (name, arguments) = (name.to_owned(), arguments.clone());
        self.recording.calls.push(RecordedCall { name, arguments, answer: None });
    }

    /// Records a wait with pending calls in which these calls ended, by ticket.
    pub(super) fn waited(&mut self, ended: &[(u32, RecordedAnswer)]) {
        if ended.is_empty() {
            self.empty_waits += 1;
            return;
        }
        let mut calls = Vec::with_capacity(ended.len());
        for (ticket, answer) in ended {
            let call = ticket - 1;
            calls.push(call);
            if let Some(call) = self.recording.calls.get_mut(call as usize) {
                call.answer = Some(answer.clone());
            }
        }
        let empty_waits = std::mem::take(&mut self.empty_waits);
        self.recording.deliveries.push(Delivery { empty_waits, calls });
    }

    pub(super) fn finish(self) -> Recording {
        self.recording
    }
}

#[derive(Debug)]
pub(super) struct Replayer {
    recording: std::sync::Arc<Recording>,
    delivered: usize,
    empty_waits: u64,
}

#[derive(Debug, PartialEq)]
pub(super) enum Replayed {
    Ended(Vec<(u32, RecordedAnswer)>),
    /// None ended in time.
    Nothing,
    /// The program has left the recorded path, or is beyond its end.
    Lost,
}

impl Replayer {
    pub(super) fn new(recording: std::sync::Arc<Recording>) -> Self {
        Self { recording, delivered: 0, empty_waits: 0 }
    }

    /// Checks a call that begins, by its number from 0.
    pub(super) fn begin(
        &self,
        number: usize,
        name: &str,
        arguments: &Map<String, Json>,
    ) -> Result<(), HostError> {
        let there = match self.recording.calls.get(number) {
            Some(call) if call.name == name && call.arguments == *arguments => return Ok(()),
            Some(call) => format!("the recording has {}", shown(&call.name, &call.arguments)),
            None => format!("the recording has only {number}"),
        };
        let here = shown(name, arguments);
        Err(HostError::new("ReplayError", format!("call {} is {here}, {there}", number + 1)))
    }

    /// Returns the result of a wait for the call of this ticket, or for any.
    pub(super) fn wait(&mut self, ticket: Option<u32>) -> Replayed {
        let Some(delivery) = self.recording.deliveries.get(self.delivered) else {
            return Replayed::Lost;
        };
        if self.empty_waits < delivery.empty_waits {
            self.empty_waits += 1;
            return Replayed::Nothing;
        }
        let mut ended = Vec::with_capacity(delivery.calls.len());
        for call in &delivery.calls {
            let answer = self.recording.calls.get(*call as usize).and_then(|c| c.answer.clone());
            match (answer, call.checked_add(1)) {
                (Some(answer), Some(number)) if ticket.is_none_or(|ticket| ticket == number) => {
                    ended.push((number, answer));
                }
                _ => return Replayed::Lost,
            }
        }
        self.delivered += 1;
        self.empty_waits = 0;
        Replayed::Ended(ended)
    }
}

/// Formats a call in Python syntax, truncated to a readable length.
fn shown(name: &str, arguments: &Map<String, Json>) -> String {
    let arguments: Vec<String> =
        arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let arguments = arguments.join(", ");
    let short: String = arguments.chars().take(200).collect();
    let rest = if short.len() < arguments.len() { "…" } else { "" };
    format!("{name}({short}{rest})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(item: &str) -> Map<String, Json> {
        [("item".to_owned(), item.into())].into_iter().collect()
    }

    fn answer(number: i64) -> RecordedAnswer {
        RecordedAnswer::Returned(number.into())
    }

    fn recording() -> Recording {
        let mut recorder = Recorder::default();
        recorder.begin("price", &arguments("a"));
        recorder.begin("price", &arguments("b"));
        recorder.waited(&[]);
        recorder.waited(&[(2, answer(2))]);
        recorder.waited(&[(1, answer(1))]);
        recorder.waited(&[]);
        recorder.finish()
    }

    #[test]
    fn a_recording_is_replayed_wait_by_wait() {
        let text = serde_json::to_string(&recording()).unwrap();
        let recording: Recording = serde_json::from_str(&text).unwrap();
        let mut replayer = Replayer::new(recording.into());
        assert_eq!(replayer.begin(0, "price", &arguments("a")), Ok(()));
        assert_eq!(replayer.begin(1, "price", &arguments("b")), Ok(()));
        assert_eq!(replayer.wait(None), Replayed::Nothing);
        assert_eq!(replayer.wait(None), Replayed::Ended(vec![(2, answer(2))]));
        assert_eq!(replayer.wait(Some(1)), Replayed::Ended(vec![(1, answer(1))]));
        assert_eq!(replayer.wait(None), Replayed::Lost);
    }

    #[test]
    fn another_call_is_named_with_the_recorded_one() {
        let mut replayer = Replayer::new(recording().into());
        let error = replayer.begin(1, "price", &arguments("c")).unwrap_err();
        let expected = r#"call 2 is price(item="c"), the recording has price(item="b")"#;
        assert_eq!(error.message(), expected);
        let error = replayer.begin(2, "price", &arguments("c")).unwrap_err();
        assert_eq!(error.message(), r#"call 3 is price(item="c"), the recording has only 2"#);
        replayer.wait(None);
        assert_eq!(replayer.wait(Some(1)), Replayed::Lost);
    }
}
