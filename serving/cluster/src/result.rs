//! Results of jobs, including those that were refused, cancelled or became dead letters.

use async_nats::{HeaderMap, Subscriber};
use futures_util::StreamExt;
use hatchery::error::counted;
use hatchery::{Outcome, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use wire::{Problem, ProblemKind};

use crate::error::Error;
use crate::names::JobKey;
use crate::payload::WORKER;
use crate::policy::Start;
use crate::streams::Streams;

/// The reason in the error of a dead letter.
const DEAD_LETTER: &str = "dead_letter";

/// The result of a job, as `Outcome::to_tool_json` has it: the same as of a local pool.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobResult {
    json: Map<String, Value>,
    worker: Option<String>,
}

impl JobResult {
    /// Returns the result.
    pub fn json(&self) -> &Map<String, Value> {
        &self.json
    }

    /// Returns the result.
    pub fn into_json(self) -> Value {
        self.json.into()
    }

    /// Returns whether the program succeeded.
    pub fn is_success(&self) -> bool {
        self.json.get("success") == Some(&Value::Bool(true))
    }

    /// Returns whether the job is a dead letter: it was started again and again, and each worker
    /// died. The `history` of the result's error says who.
    pub fn is_dead_letter(&self) -> bool {
        let error = self.json.get("error").and_then(|error| error.get("reason"));
        error.and_then(Value::as_str) == Some(DEAD_LETTER)
    }

    /// Returns the name of the worker that stored it; `None` if nobody ran the job.
    pub fn worker(&self) -> Option<&str> {
        self.worker.as_deref()
    }

    pub(crate) fn read(text: &[u8], headers: Option<&HeaderMap>) -> Self {
        let worker = headers.and_then(|headers| headers.get(WORKER)).map(|name| name.to_string());
        match serde_json::from_slice(text) {
            Ok(Value::Object(json)) => Self { json, worker },
            _ => Self::damaged("a result"),
        }
    }

    /// Returns the result of a job whose result can't be read.
    pub(crate) fn damaged(what: &str) -> Self {
        let error = Error::Damaged(what.to_owned());
        let problem = Problem::new(ProblemKind::Sandbox, error.to_string());
        match failed(&problem.with_reason("damaged")) {
            Value::Object(json) => Self { json, worker: None },
            _ => Self { json: Map::new(), worker: None },
        }
    }
}

/// Returns the result of a job that a pool didn't take, as in a batch: its error always has a
/// `reason`, which is null if there is none.
pub(crate) fn refused(problem: &Problem) -> Value {
    let mut error = json!(problem);
    error["reason"] = json!(problem.reason);
    json!({ "success": false, "passed": false, "error": error })
}

/// Returns the result of a job that was cancelled before anybody ran it.
pub(crate) fn cancelled() -> Value {
    Outcome::not_run(Verdict::Cancelled).to_tool_json()
}

/// Returns the result of a job that failed through no fault of its program.
pub(crate) fn failed(problem: &Problem) -> Value {
    let mut result = cancelled();
    result["status"] = "sandbox_failed".into();
    result["error"] = json!(problem);
    result
}

/// Returns the result of a job whose starts have all taken their workers down.
pub(crate) fn dead_letter(history: &[Start]) -> Value {
    let message = format!(
        "the job was started {}, and each time its worker died; the last time it ran alone",
        counted(history.len(), "time")
    );
    let problem = Problem::new(ProblemKind::Sandbox, message).with_reason(DEAD_LETTER);
    let mut result = failed(&problem);
    result["error"]["history"] = json!(history);
    result
}

/// The largest event. Larger ones aren't sent.
pub(crate) const MOST_BYTES: usize = 512 << 10;

/// Something that happened in a job, at a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The name of the worker.
    pub worker: String,
    /// Counts the events of this run, from 0. A gap shows that some were lost. A number that is
    /// smaller than an earlier one shows that the job was started again.
    pub sequence: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What can happen in a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A worker has started the program.
    Started,
    /// The program wrote something. Bytes that aren't text are replaced.
    Output {
        /// `stdout` or `stderr`.
        stream: String,
        /// What it wrote.
        text: String,
    },
    /// The program displayed something.
    Display {
        /// MIME types and texts, bytes in base64.
        bundle: Value,
    },
    /// The worker's pool has started the program again.
    Retried,
}

/// Reads the events of a job. Events may be missing.
#[derive(Debug)]
pub struct EventStream(Subscriber);

impl EventStream {
    pub(crate) async fn open(streams: &Streams, key: &JobKey) -> Result<Self, Error> {
        let subscribed = streams.client.subscribe(streams.subjects.of("events", key)).await;
        subscribed.map(Self).map_err(|error| Error::server("send events", error))
    }

    /// Returns the next event; `None` once the client is closed. Cancel-safe. There is no last one:
    /// stop reading when the result is there.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let message = self.0.next().await?;
            if message.payload.len() > MOST_BYTES {
                continue;
            }
            if let Ok(event) = serde_json::from_slice(&message.payload) {
                return Some(event);
            }
        }
    }
}
