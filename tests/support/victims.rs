//! Kills the processes under a command whose workers are processes.

use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{children, family};

/// What is killed under a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Victim {
    /// All workers.
    Workers,
    /// The first process of the workers' namespace; the helper, where they have none.
    First,
    /// The helper that forks the workers.
    Helper,
}

impl Victim {
    pub(crate) const ALL: [Self; 3] = [Self::Workers, Self::First, Self::Helper];

    /// Kills it under the process of a command, as soon as it is there.
    pub(crate) fn kill(self, command: u32) {
        let found = || {
            let helper = children(command).first().copied();
            let (workers, first) = helper.map(family).unwrap_or_default();
            match self {
                Self::Workers => workers,
                Self::First => Vec::from_iter(first.or(helper)),
                Self::Helper => Vec::from_iter(helper),
            }
        };
        let is_killed = |process: u32| {
            let process = Pid::from_raw(process.cast_signed());
            process.is_some_and(|process| kill_process(process, Signal::KILL).is_ok())
        };
        while found().into_iter().filter(|process| is_killed(*process)).count() == 0 {
            std::thread::yield_now();
        }
    }
}
