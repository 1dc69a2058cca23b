//! The data of a job. How it is read from JSON is in `read.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use strum::{Display, EnumString, VariantNames};

/// A job: what to run, with which inputs and limits.
///
/// What to run is exactly one of `code`, `file`, `shell` and `call`. A field that is `null` is not given, and
/// an unknown field is an error. Deserializing applies [`Intake::BATCH`](crate::Intake::BATCH),
/// which takes every field; read jobs of others with an [`Intake`](crate::Intake) that takes less.
// The comments on fields are their descriptions in the schema.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "hatchery_job", description = "A job for a pool of Python sandboxes.")]
#[schemars(deny_unknown_fields)]
pub struct Job {
    /// Names the job in its result: any JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
    /// The program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The path of a script to run, on the machine that runs the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A command to run in the sandbox's shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// A function to call in place of running a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<Call>,
    /// Variables that the program finds, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    pub variables: BTreeMap<String, Value>,
    /// What `sys.argv[1:]` is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Option<Vec<String>>", description = "sys.argv[1:].")]
    pub args: Vec<String>,
    /// Variables of the environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    pub env: BTreeMap<String, String>,
    /// Standard input; empty without it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub stdin: String,
    /// Files in the working directory, by their relative paths: texts, or bytes as {"base64": ...}.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "Option<BTreeMap<String, Contents>>")]
    pub files: BTreeMap<String, Contents>,
    /// Seconds that the program may take.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0, "maximum" = MOST_SECONDS))]
    pub timeout: Option<Duration>,
    /// Other limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Makes the run reproducible: its clock and all random numbers come from a seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<Deterministic>,
    /// Whose job it is. Tenants share the CPU time by their weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// How urgent it is among the jobs of its tenant; normal without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Seconds from when the job is read until its result is due, time in the queue included.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0, "maximum" = MOST_SECONDS))]
    pub deadline: Option<Duration>,
    /// The name of the Python build to run on; without it the session's, or else the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// The HTTP requests that it may make, out of those that the pool allows, as rules such as
    /// `GET https://api.example.com/v1/*`; all of them without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
}

impl Job {
    /// Creates a job that runs this program.
    pub fn code(code: impl Into<String>) -> Self {
        Self { code: Some(code.into()), ..Self::default() }
    }

    /// Creates a job that runs the script at this path of the machine that runs the job.
    pub fn file(path: impl Into<String>) -> Self {
        Self { file: Some(path.into()), ..Self::default() }
    }

    /// Creates a job that runs a command in the sandbox's shell.
    pub fn shell(command: impl Into<String>) -> Self {
        Self { shell: Some(command.into()), ..Self::default() }
    }

    /// Creates a job that calls a function, `module:function`, with positional arguments.
    pub fn call(function: impl Into<String>, args: Vec<Value>) -> Self {
        let call = Call { function: function.into(), args, ..Call::default() };
        Self { call: Some(call), ..Self::default() }
    }
}

/// A function to call in place of running a program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Call {
    /// The function as module:function, such as math:sqrt.
    pub function: String,
    /// Positional arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Option<Vec<Value>>")]
    pub args: Vec<Value>,
    /// Keyword arguments, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    pub keywords: BTreeMap<String, Value>,
    /// Whether arguments are in the tagged form, which has what JSON can't hold, with bytes in base64.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(with = "Option<bool>")]
    pub tagged: bool,
}

/// What makes a run reproducible. The order of sets comes from the image, whatever the seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Deterministic {
    /// Determines every random number.
    #[schemars(extend("maximum" = u64::MAX))]
    pub seed: u64,
    /// Where the clock starts, in seconds since 1970; noon on 1 January 2026 without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
}

/// How urgent a job is among the jobs of its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Display, EnumString, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Priority {
    /// Somebody is waiting for the result.
    High,
    /// Everything else.
    Normal,
    /// Background work.
    Low,
}

impl JsonSchema for Priority {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Priority".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Self::VARIANTS })
    }
}

/// The contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// A text, a string in JSON.
    Text(String),
    /// Bytes, in JSON an object whose only field, `base64`, has them (RFC 4648, padded).
    Bytes(Vec<u8>),
}

impl Contents {
    /// Returns the bytes of the file.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Serialize for Contents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Bytes(bytes) => {
                json!({ "base64": BASE64_STANDARD.encode(bytes) }).serialize(serializer)
            }
        }
    }
}

impl JsonSchema for Contents {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Contents".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "base64": { "type": "string" } },
                    "required": ["base64"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}

/// The most seconds that a time can have.
pub(crate) const MOST_SECONDS: f64 = 1e19;

/// The least memory of a guest, in bytes: what CPython needs.
pub(crate) const LEAST_MEMORY: u64 = 32 << 20;

/// The most memory of a guest, in bytes: what can be addressed.
pub(crate) const MOST_MEMORY: u64 = 4 << 30;

/// Limits that one job has in place of its pool's. They have the names of the command line's
/// options; times are in seconds, sizes in bytes. The wall time is
/// [`Job::timeout`](crate::Job::timeout).
// The comments on fields are their descriptions in the schema.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Limits {
    /// Seconds of CPU time, which don't depend on how busy the machine is.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0, "maximum" = MOST_SECONDS))]
    pub cpu_time: Option<Duration>,
    /// Seconds that a program may continue after it was interrupted.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    #[schemars(with = "Option<f64>", extend("minimum" = 0, "maximum" = MOST_SECONDS))]
    pub grace: Option<Duration>,
    /// Bytes of memory, CPython's own included: 32 MiB to 4 GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = LEAST_MEMORY, "maximum" = MOST_MEMORY))]
    pub memory: Option<u64>,
    /// Bytes of standard output, and as many of standard error; the rest is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Whether a program that reaches the limit on output is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_at_output_limit: Option<bool>,
    /// Bytes of all files together, input files included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Number of files, folders and links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_count: Option<u64>,
    /// Number of files that are open at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Number of threads of a program besides its main one, at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Bytes that a program sends and receives over connections that it was granted, together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_bytes: Option<u64>,
    /// Number of calls to the host, such as reads, writes and clock readings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_calls: Option<u64>,
    /// Number of calls of host functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_calls: Option<u64>,
    /// Number of calls of host functions in flight at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions_in_flight: Option<u64>,
    /// Bytes of one call of a host function as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_argument_bytes: Option<u64>,
    /// Bytes of the result of one host function as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_result_bytes: Option<u64>,
    /// Bytes of the program's source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<u64>,
    /// Bytes of each of these: the value as JSON, its repr, its other forms, each text of an
    /// exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<u64>,
    /// Bytes of a value that JSON can't hold, such as an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_data: Option<u64>,
    /// Bytes of all displays together; the rest is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_bytes: Option<u64>,
    /// Number of displays; the rest is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_count: Option<u64>,
}

/// Writes a time as a number of seconds.
pub(crate) fn seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
