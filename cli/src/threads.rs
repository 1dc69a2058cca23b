//! Whether the system gives this process as many threads as it needs.
//!
//! Runtimes that start threads of their own panic when they get none, so they are asked for here
//! first.

use std::io;
use std::sync::Mutex;
use std::thread::{self, Builder};

/// Threads for each CPU: of tokio, of what hashes and compiles, and of workers.
const EACH_CPU: usize = 3;
/// Further ones: the watchdog, and those that read, write and load.
const OTHERS: usize = 8;
/// They end at once.
const STACK_BYTES: usize = 64 << 10;

/// Starts as many threads as a command may need at once, and ends them.
///
/// # Errors
/// The system refuses one.
pub(crate) fn check() -> anyhow::Result<()> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let needed = cpus * EACH_CPU + OTHERS;
    let Some((started, error)) = refused(needed) else { return Ok(()) };
    anyhow::bail!(
        "the system lets this process start {started} threads, and it may need {needed}: {error}; \
         raise the limit on processes (`ulimit -u`), or that of the container"
    );
}

/// If not so many threads can be started: how many could be, and why no further one.
fn refused(count: usize) -> Option<(usize, io::Error)> {
    // Held until the last one was started, which all of them wait for.
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
