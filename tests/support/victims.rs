//! Kills the processes under a command whose workers are processes.

use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{children, family};

/// A process under a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Victim {
    /// A worker.
    Worker,
    /// The first process of the workers' namespace; the helper, where they have none.
    First,
    /// The helper that forks the workers.
    Helper,
}

impl Victim {
    pub(crate) const ALL: [Self; 3] = [Self::Worker, Self::First, Self::Helper];

    /// Kills it under the process of a command, as soon as it is there.
    pub(crate) fn kill(self, command: u32) {
        let found = || {
            let helper = *children(command).first()?;
            let (workers, first) = family(helper);
            match self {
                Self::Worker => workers.first().copied(),
                Self::First => first.or(Some(helper)),
                Self::Helper => Some(helper),
            }
        };
        let kill = || {
            let victim = Pid::from_raw(found()?.cast_signed())?;
            kill_process(victim, Signal::KILL).ok()
        };
        while kill().is_none() {
            std::thread::yield_now();
        }
    }
}
