//! The CPU time of a guest's threads besides the one that runs the interpreter.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::cpu::ThreadCpuClock;

/// Adds up the CPU time of threads that come and go.
#[derive(Debug, Default)]
pub(crate) struct CpuClocks {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The CPU time of threads that have ended.
    ended: Duration,
    living: Vec<(u64, ThreadCpuClock)>,
    last: u64,
}

/// Counts the CPU time of its thread as long as it lives, and keeps what it has counted.
#[derive(Debug)]
pub(crate) struct Counted {
    clocks: Arc<CpuClocks>,
    number: u64,
}

impl CpuClocks {
    /// Counts this thread, which has just begun.
    pub(crate) fn count_this_thread(self: &Arc<Self>) -> Counted {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.living.push((number, ThreadCpuClock::of_this_thread()));
        Counted { clocks: Arc::clone(self), number }
    }

    /// Returns the CPU time of all threads so far, and the number of those that live.
    pub(crate) fn total(&self) -> (Duration, u32) {
        let state = self.state.lock();
        let living: Duration = state.living.iter().map(|(_, clock)| clock.now()).sum();
        (state.ended + living, u32::try_from(state.living.len()).unwrap_or(u32::MAX))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.clocks.state.lock();
        let Some(place) = state.living.iter().position(|(number, _)| *number == self.number) else {
            return;
        };
        let (_, clock) = state.living.swap_remove(place);
        state.ended += clock.now();
    }
}
