//! The knobs of the scheduler.

use crate::error::ConfigError;

/// The knobs of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Jobs that may run at once, isolated ones and those of sessions together.
    ///
    /// Default: the number of CPUs. It should equal the pool's workers: with fewer, warm
    /// interpreters idle; more can't be used.
    pub concurrent: usize,
    /// Jobs that may wait. Further ones are refused with `QueueFull`.
    ///
    /// Default: 10,000. Zero refuses whatever can't run at once. Each waiting job holds its source
    /// and input files in memory, which `queued_bytes` bounds.
    pub queued_count: usize,
    /// Bytes that waiting jobs may hold: source, arguments, environment, standard input and files.
    /// Further jobs are refused with `QueueBytes`.
    ///
    /// Default: 256 MiB. A job that is larger by itself is only taken when it can run at once.
    pub queued_bytes: usize,
    /// Sessions that may be open, closed ones whose jobs still run included. Further ones are
    /// refused with `TooManySessions`.
    ///
    /// Default: 10,000. A session that is on no worker costs only the pages that its programs
    /// changed, from some hundred KB to all the memory that a job may use, so the limit guards the
    /// machine's memory together with the jobs' own limit. Zero leaves isolated jobs alone.
    pub sessions: usize,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            concurrent: std::thread::available_parallelism().map_or(1, usize::from),
            queued_count: 10_000,
            queued_bytes: 256 << 20,
            sessions: 10_000,
        }
    }
}

impl SchedulerConfig {
    /// Checks that the values make sense together.
    ///
    /// # Errors
    /// A value with which no job could ever run.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.concurrent == 0 {
            return Err(ConfigError::NothingRuns);
        }
        Ok(())
    }
}
