//! The knobs of the pool.

use std::time::Duration;

/// The knobs of the pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Workers, which isolated jobs and sessions share.
    ///
    /// Default: the number of CPUs. Each is a thread that keeps an interpreter warm; its memory is
    /// the image's but for the pages that its programs change. More than the CPUs only helps
    /// programs that wait; with fewer than the sessions in use, states are copied between them.
    pub workers: usize,
    /// The first wait before a worker that failed to start is replaced; it doubles with each such
    /// failure in a row, up to `longest_back_off`. The first replacement comes at once.
    ///
    /// Default: 100 ms. Zero turns a broken machine into a busy loop until `most_failures`.
    pub first_back_off: Duration,
    /// The longest wait before a worker is replaced.
    ///
    /// Default: 10 s.
    pub longest_back_off: Duration,
    /// When this many workers in a row fail to start in a place where none ever started, the place
    /// is given up. Places that once worked are tried for ever, with `longest_back_off` between.
    ///
    /// Default: 5. One gives up at the first failure; a large number never does.
    pub most_failures: u32,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            first_back_off: Duration::from_millis(100),
            longest_back_off: Duration::from_secs(10),
            most_failures: 5,
        }
    }
}
