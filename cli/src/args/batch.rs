//! Arguments of `hatchery batch`.

use std::path::PathBuf;

use batch::Shard;
use clap::{Args, ValueEnum};

use super::groups::{HostFiles, PoolSize};
use super::limits::{ConductArguments, ProgramArguments};

#[derive(Debug, Args)]
pub(crate) struct BatchArguments {
    /// The jobs, one JSON object per line, each with `code`, `file`, `shell` or `call`. A call is an
    /// object with `function`, and optionally `args` and `keywords`. Optional are `id`, `args`, `env`,
    /// `stdin`, `variables`, `files`, `tenant`, and `priority` (`high`, `normal` or `low`). So are `timeout`
    /// (seconds, overrides `--timeout`) and `deadline` (seconds from when the line is read). `files`
    /// maps each path to a string or to an object with `base64`. `-` reads standard input.
    #[arg(value_name = "IN.ndjson")]
    pub(crate) jobs: PathBuf,

    #[command(flatten)]
    pub(crate) size: PoolSize,

    /// Set a tenant's weight: tenants share the CPU time in proportion to their weights. The
    /// default weight is 1. Can be repeated.
    #[arg(long, value_name = "NAME=WEIGHT", value_parser = parse_tenant)]
    pub(crate) tenant: Vec<(String, u32)>,

    /// Write results to this file instead of standard output. Overwrites the file, unless
    /// `--resume` is given.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Resume from the results in the file of `--out`, if it exists: lines that have a result there
    /// are skipped. Lines that were refused, that the sandbox or a deadline ended, or that have
    /// changed are run again.
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// Run shard K of N, counted from 1. N processes, on one machine or many, then run each line
    /// once. A digest of each line decides its shard. `hatchery batch-merge` merges their results.
    #[arg(long, value_name = "K/N")]
    pub(crate) shard: Option<Shard>,

    /// Write results in the order of the lines, not as jobs end. Results behind a slow job wait in
    /// memory. Once 64 per worker, or 64 MiB, are waiting, no further line starts.
    #[arg(long)]
    pub(crate) ordered: bool,

    /// Stop stragglers: jobs that run for FACTOR times the median, and at least 100 ms. This starts
    /// once most of the jobs read so far have ended. The result is `cancelled`, with the reason.
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    pub(crate) cut_stragglers: Option<f64>,

    /// Record all jobs in a new file in this folder, for `hatchery replay`. Each is deterministic, with its
    /// own seed unless its line has one.
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) host: HostFiles,

    #[command(flatten)]
    pub(crate) conduct: ConductArguments,

    /// Write the files that programs created or changed into this folder, in subfolders named after
    /// the line's id or number. Overwrites files of the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Write what programs display into this folder, in subfolders as with `--output-dir`. Figures
    /// and other displays become display-1.png and so on. The value of the last line becomes
    /// result.html or similar if it is more than text.
    #[arg(long, value_name = "DIR")]
    pub(crate) save_displays: Option<PathBuf>,

    /// Include the contents of those files in the results, in base64.
    #[arg(long)]
    pub(crate) file_contents: bool,

    /// While the batch runs, serve Prometheus metrics, the pool's status and its decisions at this
    /// address, such as 127.0.0.1:9184. Port 0 picks a free port. Anyone who can reach the address
    /// can read them.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,

    /// How to show progress on standard error.
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) progress: ProgressForm,

    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

/// How a batch shows its progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// A bar if standard error is a terminal that doesn't also get the results; else nothing.
    #[default]
    Auto,
    /// A bar; needs a terminal.
    Bar,
    /// A line of text every 10 seconds, and a final one.
    Lines,
    /// A JSON object on a line every second, and a final one.
    Json,
    /// No progress.
    None,
}

pub(super) fn parse_tenant(text: &str) -> Result<(String, u32), String> {
    let wrong = || "write NAME=WEIGHT, with a whole number of at least 1".to_owned();
    let (name, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    let weight = weight.parse().map_err(|_| wrong())?;
    if name.is_empty() || weight == 0 {
        return Err(wrong());
    }
    Ok((name.to_owned(), weight))
}

/// The largest factor that is accepted. A larger one would cut nothing.
const LARGEST_FACTOR: f64 = 1e6;

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (1.0..=LARGEST_FACTOR).contains(factor));
    factor.ok_or_else(|| "write a number of at least 1, such as 3 or 2.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stragglers_are_cut_at_a_multiple() {
        assert_eq!(parse_factor("2.5"), Ok(2.5));
        for wrong in ["0.5", "-3", "NaN", "inf", "3x", ""] {
            assert!(parse_factor(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tenants_have_a_name_and_a_weight() {
        assert_eq!(parse_tenant("a=3"), Ok(("a".to_owned(), 3)));
        assert_eq!(parse_tenant("a=b=3"), Ok(("a=b".to_owned(), 3)));
        for wrong in ["a", "=3", "a=", "a=0", "a=-1", "a=1.5"] {
            assert!(parse_tenant(wrong).is_err(), "{wrong}");
        }
    }
}
