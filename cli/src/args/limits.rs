//! Arguments that limit what a program may use.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Arg, Args};
use hatchery::{Builder, Deterministic, Hatchery, Job, Limits};

use super::image::ImageArguments;
use crate::progress;

/// The heading of limits.
const LIMITS: &str = "Limits";

/// Lets a limit take `-5s` for its value, so that the error names the limit and what to write.
fn with_hyphens(option: Arg) -> Arg {
    let is_limit = option.get_help_heading() == Some(LIMITS) && option.get_action().takes_values();
    if is_limit { option.allow_hyphen_values(true) } else { option }
}

/// Limits on a program's files and on its calls of the host.
#[derive(Debug, Args)]
#[command(next_help_heading = LIMITS, mut_args(with_hyphens))]
pub(crate) struct FileLimits {
    /// Total size of the program's files.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    pub(crate) file_bytes: ByteSize,

    /// Number of the program's files and folders.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = whole::<u64>(..))]
    pub(crate) file_count: u64,

    /// Number of files open at once.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = whole::<u64>(..))]
    pub(crate) open_files: u64,

    /// Number of calls from the program to the host, such as reads, writes and clock readings.
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = whole::<u64>(..))]
    pub(crate) host_calls: u64,

    /// Number of the program's threads at once, besides its main one.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole::<usize>(..))]
    pub(crate) threads: usize,

    /// What the program's requests and connections send and receive together.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub(crate) network_bytes: ByteSize,
}

impl FileLimits {
    /// Sets these limits, and leaves the others as they are.
    pub(crate) fn set(&self, limits: Limits) -> Limits {
        Limits {
            file_bytes: self.file_bytes.as_u64(),
            file_count: self.file_count,
            open_files: self.open_files,
            host_calls: self.host_calls,
            threads: self.threads,
            network_bytes: self.network_bytes.as_u64(),
            ..limits
        }
    }
}

/// Limits on what a program may use.
#[derive(Debug, Args)]
#[command(next_help_heading = LIMITS, mut_args(with_hyphens))]
struct LimitArguments {
    /// Wall-clock time, such as `500ms`, `30s` or `2m`.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    timeout: Duration,

    /// CPU time, independent of the machine's load. By default, only the wall-clock time is
    /// limited.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    cpu_time: Option<Duration>,

    /// How long a program may continue after an interrupt, from a time limit or Ctrl-C.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    grace: Duration,

    /// Memory of the guest, CPython's own included: 32MiB to 4GiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory)]
    memory: ByteSize,

    /// Size of standard output, and of standard error; the rest is dropped.
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = parse_size)]
    output: ByteSize,

    /// Stop a program that reaches the output limit.
    #[arg(long)]
    stop_at_output_limit: bool,

    #[command(flatten)]
    files: FileLimits,

    /// Size of the program's source.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    source: ByteSize,

    /// Size of each form of the program's value (JSON, `repr` and others), and of each text of an
    /// exception.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    result: ByteSize,

    /// Total size of a program's displays; the rest is dropped.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size)]
    display_bytes: ByteSize,

    /// Number of a program's displays; the rest is dropped.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole::<usize>(..))]
    display_count: usize,
}

/// What every command takes that runs programs.
#[derive(Debug, Args)]
pub(crate) struct ProgramArguments {
    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    limits: LimitArguments,
}

impl ProgramArguments {
    /// Returns the limits of each program.
    pub(crate) fn limits(&self) -> Limits {
        let bytes = |size: ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        let limits = &self.limits;
        limits.files.set(Limits {
            wall_time: limits.timeout,
            cpu_time: limits.cpu_time,
            grace: limits.grace,
            memory_bytes: bytes(limits.memory),
            output_bytes: bytes(limits.output),
            stop_at_output_limit: limits.stop_at_output_limit,
            source_bytes: bytes(limits.source),
            result_bytes: bytes(limits.result),
            display_bytes: bytes(limits.display_bytes),
            display_count: limits.display_count,
            ..Limits::default()
        })
    }

    /// Begins a pool whose programs have these limits.
    pub(crate) fn builder(&self) -> Builder {
        Hatchery::builder().limits(self.limits()).progress(progress::sink())
    }
}

/// Returns a parser of whole numbers in this range.
pub(super) fn whole<N: FromStr + PartialOrd + Display>(
    range: impl RangeBounds<N> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| match (range.start_bound(), range.end_bound()) {
            (Bound::Included(least), Bound::Included(most)) => {
                format!("write a whole number from {least} to {most}")
            }
            (Bound::Included(least), _) => format!("write a whole number from {least}"),
            _ => "write a whole number from 0".to_owned(),
        })
    }
}

pub(super) fn parse_size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| "write a size, such as 512MiB".to_owned())
}

pub(super) fn parse_memory(text: &str) -> Result<ByteSize, String> {
    let size = parse_size(text)?;
    if (ByteSize::mib(32)..=ByteSize::gib(4)).contains(&size) {
        return Ok(size);
    }
    Err("give 32MiB to 4GiB: CPython needs 32MiB, and no guest can have more than 4GiB".to_owned())
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "write a number with a unit, such as 500ms or 30s".to_owned())
}

pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time.is_zero() {
        return Err("a program needs some time; give at least 1ms".to_owned());
    }
    Ok(time)
}

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
    pub(crate) fn is_deterministic(&self) -> bool {
        self.deterministic.is_some()
    }

    pub(crate) fn apply(&self, job: Job) -> Job {
        let job = if self.read_only { job.read_only() } else { job };
        let job = if self.keep_files { job.keep_files() } else { job };
        let Some(seed) = self.deterministic else { return job };
        let start = self.start.map(|seconds| seconds.saturating_mul(1_000_000_000));
        let start = start.unwrap_or(Deterministic::DEFAULT_START);
        job.deterministic(Deterministic::new(seed).starting_at(start))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    /// The defaults in the help must match the library's.
    #[test]
    fn the_defaults_are_the_librarys() {
        let arguments = Arguments::parse_from(["hatchery", "run", "-c", "1"]);
        let Command::Run(arguments) = arguments.command else { panic!("that was `run`") };
        assert_eq!(arguments.programs.limits(), Limits::default());
    }

    /// No default CPU limit cuts short a run whose wall-clock limit was raised.
    #[test]
    fn the_cpu_time_has_a_limit_of_its_own_only_if_it_is_given() {
        let limits = |options: &[&str]| {
            let arguments = ["hatchery", "run", "-c", "1"].iter().chain(options);
            let Command::Run(arguments) = Arguments::parse_from(arguments).command else {
                panic!("that was `run`")
            };
            arguments.programs.limits()
        };
        let raised = limits(&["--timeout", "2m"]);
        assert_eq!((raised.wall_time, raised.cpu_time), (Duration::from_secs(120), None));
        let both = limits(&["--timeout", "2m", "--cpu-time", "40s"]);
        assert_eq!(both.cpu_time, Some(Duration::from_secs(40)));
    }

    #[test]
    fn sizes_and_numbers_say_what_to_write() {
        for wrong in ["lots", "", "-1GiB", "1 stone"] {
            assert!(parse_size(wrong).is_err_and(|said| said == "write a size, such as 512MiB"));
        }
        assert_eq!(whole::<u64>(..)("12"), Ok(12));
        for (wrong, said) in [
            (whole::<u64>(..)("x"), "write a whole number from 0"),
            (whole(1_u64..)("0"), "write a whole number from 1"),
            (whole(1_u64..=5)("6"), "write a whole number from 1 to 5"),
        ] {
            assert_eq!(wrong, Err(said.to_owned()));
        }
    }

    #[test]
    fn times_need_a_unit_and_an_amount() {
        assert_eq!(parse_time("1s"), Ok(Duration::from_secs(1)));
        assert!(parse_time("1").is_err());
        assert!(parse_time("0s").is_err());
        for wrong in ["-5s", "abc", "", "1"] {
            let problem = "write a number with a unit, such as 500ms or 30s";
            assert_eq!(parse_time(wrong), Err(problem.to_owned()), "{wrong}");
        }
    }
}
