//! Limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;

/// Limits as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentLimits(#[serde(with = "Fields")] pub Limits);

/// The same fields as [`Limits`], which is no format of its own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(remote = "Limits")]
struct Fields {
    wall_time: Duration,
    cpu_time: Option<Duration>,
    grace: Duration,
    memory_bytes: usize,
    output_bytes: usize,
    stop_at_output_limit: bool,
    file_bytes: u64,
    file_count: u64,
    open_files: u64,
    threads: usize,
    network_bytes: u64,
    host_calls: u64,
    function_calls: u64,
    functions_in_flight: usize,
    function_argument_bytes: usize,
    function_result_bytes: usize,
    source_bytes: usize,
    result_bytes: usize,
    result_data_bytes: usize,
    display_bytes: usize,
    display_count: usize,
}
