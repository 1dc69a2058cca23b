//! Kills the processes under a command whose workers are processes.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{children, family};

/// What is killed under a command.
#[derive(Debug, Clone, Copy)]
pub enum Victim {
    /// All workers.
    Workers,
    /// The first process of the workers' namespace; the helper, where they have none.
    First,
    /// The helper that forks the workers.
    Helper,
}

impl Victim {
    pub const ALL: [Self; 3] = [Self::Workers, Self::First, Self::Helper];

    /// Kills it under the process of a command, as soon as it is there. Returns when all workers that
    /// there were have ended, as they do whatever is killed.
    pub fn kill(self, command: u32) {
        self.kill_within(command, Duration::MAX);
    }

    /// Does the same, unless it isn't there for so long. A command that is idle may start none until it
    /// needs one. Returns whether it was killed.
    pub fn kill_within(self, command: u32, patience: Duration) -> bool {
        let begun = Instant::now();
        let is_killed = |process: &u32| {
            let process = Pid::from_raw(process.cast_signed());
            process.is_some_and(|process| kill_process(process, Signal::KILL).is_ok())
        };
        loop {
            let helper = children(command).first().copied();
            let (workers, first) = helper.map(family).unwrap_or_default();
            let victims = match self {
                Self::Workers => workers.clone(),
                Self::First => Vec::from_iter(first.or(helper)),
                Self::Helper => Vec::from_iter(helper),
            };
            if victims.iter().filter(|process| is_killed(process)).count() > 0 {
                while workers.iter().any(|worker| is_alive(*worker)) {
                    std::thread::yield_now();
                }
                return true;
            }
            if Instant::now().saturating_duration_since(begun) >= patience {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

/// Returns whether a process is there and hasn't ended.
fn is_alive(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| {
        line.strip_prefix("State:").is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
    })
}
