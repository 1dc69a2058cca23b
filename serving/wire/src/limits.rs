//! Limits that one job can have in place of its pool's.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

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

impl Limits {
    /// The fields, by name.
    pub(crate) const NAMES: [&str; 20] = [
        "cpu_time",
        "grace",
        "memory",
        "output",
        "stop_at_output_limit",
        "file_bytes",
        "file_count",
        "open_files",
        "threads",
        "network_bytes",
        "host_calls",
        "function_calls",
        "functions_in_flight",
        "function_argument_bytes",
        "function_result_bytes",
        "source",
        "result",
        "result_data",
        "display_bytes",
        "display_count",
    ];
}

/// Writes a time as a number of seconds.
pub(crate) fn seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
