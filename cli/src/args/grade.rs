//! Arguments of `hatchery grade`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, ValueEnum};

use super::groups::parse_workers;
use super::image::ImageArguments;
use super::limits::{FileLimits, parse_memory, parse_time, whole};

/// More samples at once than any machine has CPUs for.
const MOST_AT_ONCE: usize = 4096;

/// Which verdicts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordedSamples {
    /// Those of samples that didn't pass.
    Failed,
    /// Those of all samples.
    All,
}

#[derive(Debug, Args)]
pub(crate) struct GradeArguments {
    /// The tasks: a file of JSON lines or a JSON list, plain or from human-eval, MBPP, EvalPlus,
    /// BigCodeBench, ClassEval, DS-1000, ODEX, APPS, TACO, LiveCodeBench, CodeContests or
    /// CRUXEval. It may be compressed with gzip or zstd.
    #[arg(value_name = "TASKS", required_unless_present = "compare", conflicts_with = "compare")]
    pub(crate) tasks: Option<PathBuf>,

    /// The samples: a file of JSON lines with `task_id` and `completion` or `solution`, or a list. Default:
    /// the programs in TASKS, else the tasks' own solutions.
    #[arg(value_name = "SAMPLES", conflicts_with = "compare")]
    pub(crate) samples: Option<PathBuf>,

    /// Write a line of JSON for each sample to this file, as it ends.
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    pub(crate) out: Option<PathBuf>,

    /// Keep the results in the file of `--out`. Grade only new samples, and those whose text, task
    /// or limits changed.
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// Write the report, or the comparison, as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the report as a page of HTML to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    pub(crate) html: Option<PathBuf>,

    /// Write what repeats a verdict to a new file in this folder for each sample that fails, for
    /// `hatchery replay --verify`. Interpreters then have a fixed clock and fixed random numbers.
    #[arg(long, value_name = "DIR", conflicts_with = "compare")]
    pub(crate) record: Option<PathBuf>,

    /// Which samples `--record` keeps.
    #[arg(long, value_name = "WHICH", requires = "record", value_enum, default_value = "failed")]
    pub(crate) record_samples: RecordedSamples,

    /// Compare two files of results: pass@1 of each, the paired difference, and the tasks that changed.
    #[arg(long, value_name = "FILE", num_args = 2)]
    pub(crate) compare: Option<Vec<PathBuf>>,

    /// Numbers of samples for which to estimate pass@k; left out if a task has fewer.
    #[arg(short, value_name = "K", value_delimiter = ',', default_value = "1,10,100",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) k: Vec<u64>,

    /// CPU time of each sample on all its tests.
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = parse_time)]
    pub(crate) cpu_time: Duration,

    /// Wall-clock time of each sample. Default: ten times the CPU time, and at least 20s.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,

    /// Memory of each sample's interpreter: 32MiB to 4GiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory)]
    pub(crate) memory: ByteSize,

    /// Maximum size of a value that a sample and its tests exchange, as JSON.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub(crate) value_bytes: ByteSize,

    /// Maximum output of a program for one case.
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    pub(crate) output: ByteSize,

    /// Number of workers, or `MIN..MAX`, of which MAX counts. Each sample takes two workers, one
    /// for itself and one for its tests. Default: two for each CPU.
    #[arg(long, value_name = "N", value_parser = parse_workers, conflicts_with = "at_once")]
    pub(crate) workers: Option<RangeInclusive<usize>>,

    /// Number of samples that are graded at once, with two workers each. Default: the number of
    /// CPUs.
    #[arg(long, value_name = "N", value_parser = whole(1..=MOST_AT_ONCE))]
    pub(crate) at_once: Option<usize>,

    /// Run tests that need the candidate's own interpreter there, where a candidate can reach them. The
    /// results say `"guarded": false`. Without this such samples are `undecided`.
    #[arg(long)]
    pub(crate) allow_shared: bool,

    /// Don't grade the tasks' own solutions first.
    #[arg(long)]
    pub(crate) no_solutions: bool,

    /// Also run MBPP's `challenge_test_list`.
    #[arg(long)]
    pub(crate) challenge: bool,

    #[command(flatten)]
    pub(crate) files: FileLimits,

    #[command(flatten)]
    pub(crate) image: ImageArguments,
}
