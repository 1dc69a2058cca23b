//! What samples may use, and how they are graded.

use std::time::Duration;

use hatchery::{Deterministic, Limits};
use serde::{Deserialize, Serialize};

/// How many times its CPU time a sample may take in all. A busy machine then changes no verdict,
/// since this only ends programs that wait.
const WALL_FACTOR: u32 = 10;
const LEAST_WALL: Duration = Duration::from_secs(20);

/// Calls between a judge and a candidate: more than they can make within any CPU time.
const MOST_CALLS: u64 = u64::MAX;

/// What samples may use, and how they are graded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// CPU time of each sample on all its tests. Default: 40 s. Right programs of data sets take up
    /// to 9 s natively, and four times as long in WebAssembly.
    pub cpu_time: Duration,
    /// Wall time of each sample. Default: ten times the CPU time, and at least 20 s.
    pub wall_time: Option<Duration>,
    /// Memory of each sample's interpreter, in bytes. Default: 1 GiB.
    pub memory_bytes: usize,
    /// What one value that a test and its sample exchange may take, as JSON, in bytes. Default: 64 MiB.
    pub value_bytes: usize,
    /// Further limits of an interpreter, such as that of the output, of which the default is 16 MiB. Those
    /// on time, memory and values have no effect.
    pub limits: Limits,
    /// Whether tests that need it run beside their candidate, unguarded. Default: no.
    pub allow_shared: bool,
    /// Whether the tasks' own solutions are graded first, to check the tests and how they can run.
    /// Default: yes.
    pub check_solutions: bool,
    /// Whether all interpreters have one fixed clock and fixed random numbers, so that a verdict can be
    /// repeated. Default: no.
    pub is_deterministic: bool,
    /// Samples that are graded at once. Default: 1.
    pub at_once: usize,
}

/// Returns the limits of tests that run without their candidate, such as a checker.
pub(crate) fn limits_of_tests(cpu_time: Duration) -> Limits {
    // Tests wait for nothing, so only their CPU time ends them.
    Limits { cpu_time: Some(cpu_time), wall_time: cpu_time * 100, ..Limits::default() }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cpu_time: Duration::from_secs(40),
            wall_time: None,
            memory_bytes: 1 << 30,
            value_bytes: 64 << 20,
            limits: Limits { output_bytes: 16 << 20, ..Limits::default() },
            allow_shared: false,
            check_solutions: true,
            is_deterministic: false,
            at_once: 1,
        }
    }
}

impl Settings {
    /// Returns the clock and random numbers of deterministic interpreters.
    pub(crate) fn deterministic() -> Deterministic {
        Deterministic::new(0)
    }

    /// Returns the limits of an interpreter that may take this CPU time.
    pub(crate) fn limits(&self, cpu_time: Duration) -> Limits {
        let wall_time = self.wall_time.unwrap_or_else(|| LEAST_WALL.max(cpu_time * WALL_FACTOR));
        Limits {
            cpu_time: Some(cpu_time),
            wall_time,
            grace: Duration::from_millis(200),
            memory_bytes: self.memory_bytes,
            function_calls: MOST_CALLS,
            function_argument_bytes: self.value_bytes,
            function_result_bytes: self.value_bytes,
            ..self.limits.clone()
        }
    }
}
