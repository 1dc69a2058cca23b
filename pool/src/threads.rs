//! This process's threads by name, for tests of what a pool leaves behind.

use std::fs;
use std::io;
use std::time::Duration;

use crate::clock::now;

/// What every worker's thread is named by, up to its number; the system keeps 15 characters.
const WORKERS: &str = "hatchery-worker";
/// A thread that was joined may be in the system's list for a moment longer.
const LISTED_ON: Duration = Duration::from_secs(10);

/// How many threads of workers the system lists: `/proc/self/task` of Linux.
///
/// # Errors
///
/// The system has no such list.
pub fn workers() -> io::Result<usize> {
    let mut workers = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // One that ends in between is none.
        let name = fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        workers += usize::from(name.starts_with(WORKERS));
    }
    Ok(workers)
}

/// Whether no thread of a worker is left, waiting for the system's list to say so: at most 10
/// seconds, on the thread that asks.
///
/// # Errors
///
/// The system has no such list.
pub fn no_worker_is_left() -> io::Result<bool> {
    let asked = now();
    loop {
        if workers()? == 0 {
            return Ok(true);
        }
        if now().duration_since(asked) > LISTED_ON {
            return Ok(false);
        }
        std::thread::yield_now();
    }
}
