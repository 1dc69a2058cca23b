//! Options that several commands have.

use std::ops::RangeInclusive;

use clap::Args;
use hatchery::Builder;

use super::limits::whole;
use crate::pool::cpus;

/// Upper bound of `--workers`. More interpreters than this don't help.
const MOST_WORKERS: u16 = 1024;

#[derive(Debug, Args)]
pub(crate) struct WorkerCount {
    /// Number of programs that run at once, or `MIN..MAX` to follow the load. Default: the number
    /// of CPUs.
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    workers: Option<RangeInclusive<usize>>,
}

impl WorkerCount {
    /// Returns how many programs run at once at most.
    pub(crate) fn most(&self) -> usize {
        self.workers.as_ref().map_or_else(cpus, |range| *range.end())
    }

    /// Gives a pool these workers; without the option, it stays as it is.
    pub(crate) fn set(&self, builder: Builder) -> Builder {
        self.workers.iter().cloned().fold(builder, Builder::workers_between)
    }
}

#[derive(Debug, Args)]
pub(crate) struct PoolSize {
    #[command(flatten)]
    pub(crate) workers: WorkerCount,

    /// Number of jobs that may wait in the pool while others run. A server refuses further ones; a
    /// batch submits them when there is room. Default: 10000.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    queue: Option<usize>,
}

impl PoolSize {
    /// Gives a pool this size; without an option, it stays as it is.
    pub(crate) fn set(&self, builder: Builder) -> Builder {
        self.queue.into_iter().fold(self.workers.set(builder), Builder::queue_limit)
    }
}

/// Folders of the host that programs get.
#[derive(Debug, Args)]
pub(crate) struct HostFolders {
    /// Mount the folder HOST at PATH, for programs to read. The default PATH is / and the name of
    /// the folder. Can be repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,
}

/// Files and folders of the host that programs get.
#[derive(Debug, Args)]
pub(crate) struct HostFiles {
    /// Copy the file HOST into each program's workspace as NAME, by default under its own name. Can
    /// be repeated. Files that a script names in its own header need no `--input`.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    #[command(flatten)]
    pub(crate) folders: HostFolders,
}

pub(super) fn parse_workers(text: &str) -> Result<RangeInclusive<usize>, String> {
    let wrong = || format!("write a number in 1..={MOST_WORKERS}, or a range such as 1..8");
    let number = |text: &str| text.parse::<u16>().map(usize::from).map_err(|_| wrong());
    let (min, max) = match text.split_once("..") {
        Some((min, max)) => (number(min)?, number(max)?),
        None => (number(text)?, number(text)?),
    };
    if max == 0 || min > max || max > usize::from(MOST_WORKERS) {
        return Err(wrong());
    }
    Ok(min..=max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_a_number_or_a_range() {
        assert_eq!(parse_workers("4"), Ok(4..=4));
        assert_eq!(parse_workers("1..8"), Ok(1..=8));
        assert_eq!(parse_workers("0..1024"), Ok(0..=1024));
        for wrong in ["0", "0..0", "8..1", "1025", "1..1025", "1..", "..", "-1", "1...3", "many"] {
            assert!(parse_workers(wrong).is_err(), "{wrong}");
        }
    }
}
