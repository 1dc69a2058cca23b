//! The configuration of the pool. Its owner decides how many workers there are.

use std::path::PathBuf;
use std::time::Duration;

/// The configuration of the pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The delay before a worker that failed to start a second time is replaced. It doubles with
    /// each further consecutive failure, up to `longest_back_off`. The first replacement comes at
    /// once.
    ///
    /// Default: 100 ms. Zero turns a broken machine into a busy loop until `most_failures`.
    pub first_back_off: Duration,
    /// The longest delay before a worker is replaced.
    ///
    /// Default: 10 s.
    pub longest_back_off: Duration,
    /// A place is given up after this many consecutive workers failed to start in it. Its owner may
    /// ask for another worker later.
    ///
    /// Default: 8, about 6 s. With 1 a place is given up at its first failure; with a large number
    /// it never is.
    pub most_failures: u32,
    /// The folder on whose disk sessions are offloaded, in an unnamed file.
    ///
    /// Default: none, and sessions are never offloaded. If that disk fills up, sessions stay in
    /// memory; nothing else happens. A folder in memory, as `/tmp` often is, gains nothing.
    pub offload_dir: Option<PathBuf>,
    /// The largest private memory of an interpreter, in bytes, at which its session's state is
    /// copied after each turn. After a forced stop or the death of its worker, the session then
    /// continues from its state before that turn.
    ///
    /// Default: 128 MiB. A copy takes half a millisecond plus the time to copy what the turn
    /// changed. Only the session's next turn waits for it. It takes as much memory as a suspended
    /// session. At zero sessions are lost.
    pub rollback_bytes: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            first_back_off: Duration::from_millis(100),
            longest_back_off: Duration::from_secs(10),
            most_failures: 8,
            offload_dir: None,
            rollback_bytes: 128 << 20,
        }
    }
}
