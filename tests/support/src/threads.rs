//! The worker threads of this process, for tests of what a pool leaves behind.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// The prefix of the names of worker threads; the system keeps 15 characters of a name.
const WORKERS: &str = "hatchery-worker";
/// How long a joined thread may remain in the system's list.
const LISTED_AFTER_JOIN: Duration = Duration::from_secs(10);

/// Returns how many worker threads the system lists, from Linux's `/proc/self/task`.
///
/// # Errors
///
/// The system has no such list.
pub fn workers() -> io::Result<usize> {
    let mut workers = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // A thread may have ended since the folder was read.
        let name = fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        workers += usize::from(name.starts_with(WORKERS));
    }
    Ok(workers)
}

/// Returns whether no worker thread is left. Waits for the system's list to show that, at most 10
/// seconds, on the calling thread.
///
/// # Errors
///
/// The system has no such list.
pub fn no_worker_is_left() -> io::Result<bool> {
    let began = Instant::now();
    loop {
        if workers()? == 0 {
            return Ok(true);
        }
        if Instant::now().duration_since(began) > LISTED_AFTER_JOIN {
            return Ok(false);
        }
        std::thread::yield_now();
    }
}
