//! The messages between a client and a server that share a pool, on a connection of frames.
//!
//! A frame is a message with its bytes: the header's length as a little-endian `u32`, the header, the
//! attachments. The header is the message as a JSON object. If there
//! are attachments, its field `attachments` has their lengths in bytes. Messages refer to an
//! attachment by its place in that list, from 0.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::job::Job;
use crate::problem::Problem;

/// The longest header of a frame, in bytes.
pub const MOST_HEADER_BYTES: usize = 64 << 20;
/// The most bytes of the attachments of one frame.
pub const MOST_ATTACHED_BYTES: usize = 1 << 30;

/// What a client calls a request of its own, to recognise the answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClientMessage {
    /// The first message. Answered by [`ServerMessage::Hello`].
    Hello {
        /// The version of the format: [`VERSION`](crate::VERSION).
        version: u32,
        /// What the client is, so that messages are in its words. Default: a client of its own kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<ClientKind>,
    },
    /// Runs a job. Answered by its events, if asked for, and its outcome, or by a refusal.
    Run(Box<Run>),
    /// Raises `KeyboardInterrupt` in a job, as Ctrl-C does. Nothing answers but the job's outcome;
    /// so for `cancel` and `stop`, and if the job has ended.
    Interrupt {
        /// The request that runs the job.
        id: RequestId,
    },
    /// Cancels a job. In a session the program is interrupted first.
    Cancel {
        /// The request that runs the job.
        id: RequestId,
    },
    /// Stops a job at once, and undoes what it did to its session.
    Stop {
        /// The request that runs the job.
        id: RequestId,
    },
    /// Answers a call of a function.
    Answer {
        /// The call.
        call: u64,
        /// What the function returns.
        #[serde(default)]
        value: Value,
        /// What it raises in place of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<CallError>,
    },
    /// Does something with a session. Answered by [`ServerMessage::Done`] or a refusal.
    Session {
        /// Names this request.
        id: RequestId,
        /// The session.
        session: String,
        /// What to do.
        action: SessionAction,
    },
    /// Runs programs, each on a fork of a session. Answered by an event for each as it ends, and then
    /// by [`ServerMessage::Done`], or by a refusal.
    Explore {
        /// Names this request.
        id: RequestId,
        /// The session, whose jobs have ended.
        session: String,
        /// What to run, and which forks to keep.
        explore: Explore,
    },
    /// Asks for the names of the caller's sessions.
    Sessions {
        /// Names this request.
        id: RequestId,
    },
    /// Asks for the status of the pool.
    Status {
        /// Names this request.
        id: RequestId,
    },
    /// Asks why a job waits. The answer is null if it has ended.
    Explain {
        /// Names this request.
        id: RequestId,
        /// The request that runs the job.
        run: RequestId,
    },
    /// Asks for the scheduler's decisions from now on, as events of this request, until the
    /// connection ends.
    Decisions {
        /// Names this request.
        id: RequestId,
    },
    /// Ends a worker after its present job; another takes its place if it is needed. Answered once
    /// that has been decided, or by a refusal if there is no such worker.
    Retire {
        /// Names this request.
        id: RequestId,
        /// The number of the worker, as in the status.
        worker: u64,
    },
    /// Serves a Jupyter kernel by sessions of the pool, until a front end shuts it down or the
    /// connection ends. Answered then.
    Kernel {
        /// Names this request.
        id: RequestId,
        /// The contents of the connection file, which says where front ends expect the kernel.
        connection: Value,
        /// Options of `hatchery kernel` about its sessions: limits and folders.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<String>,
    },
    /// Grades a sample of generated code. Answered by its line of the results of `hatchery grade`.
    Grade(Box<Grade>),
    /// Shuts the pool down: it accepts no more jobs, and ends when those that it has admitted have
    /// ended. Answered then.
    Drain {
        /// Names this request.
        id: RequestId,
        /// Jobs that take longer, in seconds, are cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
    },
}

/// A client with words of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClientKind {
    /// The Python package.
    Python,
}

/// A job to run, and what goes with it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Names this request.
    pub id: RequestId,
    /// The job.
    pub job: Job,
    /// Runs it in this session. Default: in a fresh interpreter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Sends what happens in the job as it happens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub events: bool,
    /// Attaches the contents of files that the job created or changed to its outcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contents: bool,
    /// Functions of the client that the program can call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
    /// Variables of the program that JSON can't hold, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, Data>,
    /// Files in the working directory: the attachments with their contents, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, usize>,
}

/// A sample to grade against the tests of its task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grade {
    /// Names this request.
    pub id: RequestId,
    /// The task, in the form of a line of tasks of `hatchery grade`.
    pub task: Map<String, Value>,
    /// The sample, in the form of a line of samples.
    pub sample: Map<String, Value>,
    /// CPU time of the sample on all its tests, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<f64>,
    /// Wall time of the sample, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Memory of each interpreter, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<usize>,
    /// The largest value that the sample and its tests can pass each other, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_bytes: Option<usize>,
    /// Whether tests that need the candidate's own interpreter run there, unguarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_shared: bool,
}

impl Default for RequestId {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// What to do with a session: `"open"`, `{"fork": {"to": "other"}}` and so on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum SessionAction {
    /// Opens it, under a new name, on the default Python build.
    Open,
    /// Opens it, under a new name, on another Python build.
    OpenOn {
        /// The name of the build.
        python: String,
    },
    /// Opens another session that continues from its state.
    Fork {
        /// The name of the other session.
        to: String,
    },
    /// Opens many sessions that continue from its state: all, or none. The answer's value has their
    /// names.
    ForkMany {
        /// How many, 1 or more.
        count: usize,
    },
    /// Prepares it for the cells of a notebook, which have what IPython gives them. Each cell is a call
    /// of `hatchery_notebook:run_cell` with its source and its number.
    BeginNotebook,
    /// Captures its state.
    Checkpoint {
        /// The name of the checkpoint; an earlier one of this name is dropped.
        checkpoint: String,
    },
    /// Restores a checkpoint of the session.
    Restore {
        /// The name of the checkpoint.
        checkpoint: String,
    },
    /// Makes its state that of a fresh one.
    Reset,
    /// Saves its state. The answer's value is the number of bytes, which are attached.
    Save,
    /// Opens it, under a new name, from a state that was saved, the first attachment. It runs on the
    /// build on which it was saved.
    Revive,
    /// Asks for its files. The answer's value has their attachments by path.
    Workspace,
    /// Closes it once its jobs have ended, and drops its state and its checkpoints.
    Close,
}

/// Programs to run, each on a fork of one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explore {
    /// The programs: at most [`MOST_CANDIDATES`].
    #[serde(deserialize_with = "candidates")]
    pub candidates: Vec<Job>,
    /// Which forks stay open. Default: those whose program succeeds.
    #[serde(default)]
    pub keep: KeepForks,
    /// No further fork is opened while the states of those that are open take so many bytes, beside
    /// what they share. Default: no bound but those of the tenant and the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_bytes: Option<u64>,
}

/// The most programs of one exploration.
pub const MOST_CANDIDATES: usize = 10_000;

/// Reads candidates one by one, so that too many take no memory.
fn candidates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Job>, D::Error> {
    struct Candidates;
    impl<'de> Visitor<'de> for Candidates {
        type Value = Vec<Job>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "a list of at most {MOST_CANDIDATES} jobs")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut jobs: A) -> Result<Vec<Job>, A::Error> {
            let mut read = Vec::new();
            while let Some(job) = jobs.next_element()? {
                if read.len() == MOST_CANDIDATES {
                    return Err(A::Error::invalid_length(read.len() + 1, &self));
                }
                read.push(job);
            }
            Ok(read)
        }
    }
    deserializer.deserialize_seq(Candidates)
}

/// Which forks of an exploration stay open: `"all"`, `"none"`, `"succeeded"` or `{"first": 3}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeepForks {
    /// All.
    All,
    /// None.
    None,
    /// Those whose program succeeds.
    #[default]
    Succeeded,
    /// The first so many whose program succeeds. The other candidates run, too.
    First(usize),
}

/// A function of a client that programs can call by name: `from hatchery import host`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// The name.
    pub name: String,
    /// The documentation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doc: String,
    /// The parameters. Without a list, it takes any keyword arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Vec<Parameter>>,
    /// The type of its result in Python's notation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub returns: String,
    /// Whether arguments, defaults and results are in the form of [`Data::Tagged`], with bytes in
    /// base64. Otherwise they are what JSON can hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tagged: bool,
    /// Seconds after which a call raises `TimeoutError`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

/// A parameter of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// The type in Python's notation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// The value if it isn't given; without this field it must be given.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub default: Option<Value>,
}

/// An exception that a function raises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallError {
    /// The name of the exception's type, such as `KeyError`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The message.
    pub message: String,
}

/// A value that JSON can't hold, whose bytes are attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Data {
    /// `bytes`.
    Bytes {
        /// The attachment.
        attachment: usize,
    },
    /// A `numpy.ndarray`.
    Array {
        /// The type of the items: NumPy's `dtype.str`, in little-endian order.
        dtype: String,
        /// The number of items in each dimension.
        shape: Vec<usize>,
        /// The attachment with the items in C order.
        attachment: usize,
    },
    /// A `pandas.DataFrame`.
    Frame {
        /// The columns in order.
        columns: Vec<NamedColumn>,
        /// The names of the rows, unless they are numbered from 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index: Option<ColumnData>,
        /// The name of the index.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index_name: Option<String>,
    },
    /// Anything else: a set, a date, a frame with other columns, an array in a dictionary.
    ///
    /// In its JSON an object whose only key begins with `$` is a value of another type, such as
    /// `{"$set": [1, 2]}`. `engine/src/guest/agent/hatchery/_tagged.py` lists them.
    Tagged {
        /// The attachment with the JSON.
        tree: usize,
        /// The attachments to which the JSON refers by their places here.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<usize>,
    },
}

/// A column of a frame, with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedColumn {
    /// The name.
    pub name: String,
    /// The items.
    #[serde(flatten)]
    pub column: ColumnData,
}

/// The items of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ColumnData {
    /// Items of one type.
    Array {
        /// The type of the items.
        dtype: String,
        /// The attachment with the items.
        attachment: usize,
    },
    /// Texts, some of which may be missing.
    Strings {
        /// The texts.
        strings: Vec<Option<String>>,
    },
}

/// What a server sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerMessage {
    /// The answer to the client's first message.
    Hello {
        /// The version of the format.
        version: u32,
        /// The version of the server.
        server: String,
        /// The modules that are already imported in every interpreter.
        preload: Vec<String>,
        /// The names of the Python builds, that of the default one first.
        #[serde(default)]
        pythons: Vec<String>,
    },
    /// Something has happened.
    Event {
        /// The request.
        id: RequestId,
        /// Numbers the events of a request from 0.
        sequence: u64,
        /// What has happened.
        event: Event,
    },
    /// A program calls a function of the client and waits for the answer.
    Call {
        /// The request that runs the job.
        id: RequestId,
        /// Names the call.
        call: u64,
        /// The function.
        name: String,
        /// The arguments by name.
        arguments: serde_json::Map<String, Value>,
    },
    /// Nobody waits for the answer to a call any more.
    CallDropped {
        /// The call.
        call: u64,
    },
    /// A job has ended. Nothing else of this request follows.
    Outcome {
        /// The request.
        id: RequestId,
        /// The result, as of `hatchery tool`, without the contents of files.
        result: Value,
        /// The last expression, if JSON can't hold all of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Data>,
        /// The attachments with the contents of files, by path, if they were asked for.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        files: BTreeMap<String, usize>,
    },
    /// A request other than for a job has succeeded.
    Done {
        /// The request.
        id: RequestId,
        /// What was asked for.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        value: Value,
    },
    /// A request was refused. Nothing else of it follows.
    Refused {
        /// The request, if the message has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<RequestId>,
        /// The reason.
        problem: Problem,
    },
}

/// Something that happened in a job or in the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// An interpreter has taken the job.
    Started,
    /// The program wrote to a stream.
    Output {
        /// `stdout` or `stderr`.
        stream: String,
        /// The attachment with the bytes, which may end within a character.
        attachment: usize,
    },
    /// The program displayed an object.
    Display {
        /// Its forms: MIME types and texts, bytes in base64.
        bundle: Value,
    },
    /// The program called a function of the host.
    HostCall {
        /// The function.
        name: String,
    },
    /// The sandbox failed, and the job runs again: nothing before this is part of its outcome.
    Retried,
    /// A file was created, modified or deleted.
    FileChanged {
        /// Its path.
        path: String,
        /// What happened to it: `created`, `modified` or `deleted`.
        change: Value,
    },
    /// A candidate of an exploration has ended.
    Explored {
        /// Its place among the candidates, from 0.
        candidate: usize,
        /// Its result, as of `hatchery tool`, without the contents of files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// Why it wasn't run, in place of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<Problem>,
        /// The name of its fork, if that stays open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        survivor: Option<String>,
    },
    /// The scheduler decided something.
    Decision {
        /// The decision, or how many were missed.
        decision: Value,
    },
}

/// A default that is there is one even if it is null.
fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_what_the_guide_shows() {
        let run = json!({
            "type": "run", "id": 1, "job": { "code": "x" }, "session": "s", "events": true,
            "functions": [
                { "name": "f", "parameters": [{ "name": "a", "default": null }], "tagged": true },
            ],
            "data": {
                "x": { "kind": "array", "dtype": "<f8", "shape": [2], "attachment": 0 },
                "y": { "kind": "tagged", "tree": 2, "attachments": [3] },
            },
            "files": { "a.csv": 1 },
        });
        let read: ClientMessage = serde_json::from_value(run.clone()).unwrap();
        assert_eq!(json!(read), run);
        let fork = json!({ "type": "session", "id": "a", "session": "s", "action": { "fork": { "to": "t" } } });
        let read: ClientMessage = serde_json::from_value(fork.clone()).unwrap();
        assert_eq!(json!(read), fork);
        let event = ServerMessage::Event {
            id: RequestId::Number(1),
            sequence: 2,
            event: Event::Output { stream: "stdout".to_owned(), attachment: 0 },
        };
        let expected = json!({
            "type": "event", "id": 1, "sequence": 2,
            "event": { "kind": "output", "stream": "stdout", "attachment": 0 },
        });
        assert_eq!(json!(event), expected);
        assert_eq!(serde_json::from_value::<ServerMessage>(expected).unwrap(), event);
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        for (message, field) in [
            (json!({ "type": "run", "id": 1, "job": { "code": "" }, "sesion": "s" }), "sesion"),
            (json!({ "type": "run", "id": 1, "job": { "cod": "" } }), "cod"),
            (json!({ "type": "drain", "id": 1, "second": 1 }), "second"),
            (json!({ "type": "runs" }), "runs"),
        ] {
            let error = serde_json::from_value::<ClientMessage>(message).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
