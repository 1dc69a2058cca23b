//! Checks whether the system lets this process start as many threads as it needs.
//!
//! Runtimes that start threads panic when they get none, so this is checked first.

use std::io;
use std::sync::Mutex;
use std::thread::{self, Builder};

use anyhow::Context;

/// Threads per CPU: for tokio, for hashing and compiling, and for workers.
const EACH_CPU: usize = 3;
/// Further threads: the watchdog, and those that read, write and load.
const OTHERS: usize = 8;
/// Small, since the threads end at once.
const STACK_BYTES: usize = 64 << 10;

/// Returns how many CPUs this process may use.
pub(crate) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Starts as many threads as a command may need at once, and ends them. Fails if the system refuses
/// one.
pub(crate) fn check() -> anyhow::Result<()> {
    let needed = cpus() * EACH_CPU + OTHERS;
    let Some((started, error)) = refused(needed) else { return Ok(()) };
    Err(error).with_context(|| {
        format!(
            "the system lets this process start {started} threads, and it may need {needed} \
             (raise the limit on processes, `ulimit -u`, or that of the container)"
        )
    })
}

/// Returns how many threads could be started and the error of the next one; `None` if all could.
fn refused(count: usize) -> Option<(usize, io::Error)> {
    // All threads wait for this until the last one was started.
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        let wait = || drop(gate.lock());
        let start = || Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, wait).err();
        let refusal = (0..count).find_map(|started| Some((started, start()?)));
        drop(closed);
        refusal
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_that_gives_threads_gives_all_of_them() {
        assert!(refused(20).is_none());
        assert!(check().is_ok());
    }
}
