//! The knobs of the pool. How many workers there are is up to its owner.

use std::path::PathBuf;
use std::time::Duration;

/// The knobs of the pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
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
    /// The folder on whose disk sessions are spilled, into a file without a name.
    ///
    /// Default: none, and nothing is spilled. Whatever fills that disk keeps sessions in memory,
    /// and nothing else comes of it. A folder in memory, as `/tmp` often is, gains nothing.
    pub spill_dir: Option<PathBuf>,
    /// The state of a session that rests on a worker is copied after each of its runs, if the
    /// worker's interpreter has at most so many bytes of its own. A run that ends by force, or with
    /// the end of its worker, then takes the session back to where it was before that run, instead
    /// of with it.
    ///
    /// Default: 128 MiB. A copy takes half a millisecond and what the run changed, while nobody waits but
    /// the session's next run, and as much memory as a parked session. At zero sessions are lost.
    pub rollback_bytes: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            first_back_off: Duration::from_millis(100),
            longest_back_off: Duration::from_secs(10),
            most_failures: 5,
            spill_dir: None,
            rollback_bytes: 128 << 20,
        }
    }
}
