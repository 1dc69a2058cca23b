//! Arguments about how programs run, for one program and for a batch.

use clap::Args;
use hatchery::{Deterministic, Job};

use super::limits::whole;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConductArguments {
    /// Keep programs from changing any file.
    #[arg(long)]
    read_only: bool,

    /// Keep the files of a program even if it failed or was stopped.
    #[arg(long)]
    keep_files: bool,

    /// Make each run reproducible: the clock and all random numbers come from this seed, and
    /// sleeping takes no time. The order of sets comes from the image, whatever the seed.
    #[arg(long, value_name = "SEED", value_parser = whole::<u64>(..))]
    deterministic: Option<u64>,

    /// Start the clock of a deterministic run at this time, in seconds since 1970. Default: noon on
    /// 1 January 2026.
    #[arg(long, value_name = "SECONDS", requires = "deterministic",
        value_parser = whole::<u64>(..))]
    start: Option<u64>,
}

impl ConductArguments {
    pub(crate) fn apply(&self, job: Job) -> Job {
        let job = if self.read_only { job.read_only() } else { job };
        let job = if self.keep_files { job.keep_files() } else { job };
        let Some(seed) = self.deterministic else { return job };
        let start = self.start.map(|seconds| seconds.saturating_mul(1_000_000_000));
        let start = start.unwrap_or(Deterministic::DEFAULT_START);
        job.deterministic(Deterministic::new(seed).starting_at(start))
    }
}
