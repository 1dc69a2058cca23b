//! What the user typed about a batch.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ImageArguments, LimitArguments};

/// More interpreters than this help nobody.
const MOST_WORKERS: u16 = 1024;

#[derive(Debug, Args)]
pub(crate) struct BatchArguments {
    /// Jobs, one JSON object a line: `id`, `code`, `file` or `call` (an object with `function`, and
    /// perhaps `args` and `keywords`), and optionally `args`, `env`, `stdin`, `variables`, `files`
    /// (by path, each a text or an object with `base64`), `timeout` (seconds, before `--timeout`),
    /// `tenant`, `priority` (`high`, `normal` or `low`) and `deadline` (seconds from when the line
    /// is read). `-` reads standard input.
    #[arg(value_name = "IN.ndjson")]
    pub(crate) jobs: PathBuf,

    /// Programs that run at once: a number, or `MIN..MAX` for as many as there is work for. Default:
    /// the number of CPUs.
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    pub(crate) workers: Option<RangeInclusive<usize>>,

    /// Give a tenant a larger share of the CPU time, which tenants have by their weights. Those that
    /// aren't named have 1. Can be repeated.
    #[arg(long, value_name = "NAME=WEIGHT", value_parser = parse_tenant)]
    pub(crate) tenant: Vec<(String, u32)>,

    /// Jobs that may wait in the pool while others run. Those of further lines are tried again when
    /// there is room. Default: 10000.
    #[arg(long, value_name = "N", value_parser = parse_queue)]
    pub(crate) queue: Option<usize>,

    /// Write results to this file instead of standard output. What it held is gone, unless with
    /// `--resume`.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Go on with the results in the file of `--out`, if there are some: lines that have one there
    /// aren't run again. Those that were refused, that the sandbox or a deadline ended, or that have
    /// changed are.
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// Write results in the order of the lines instead of as jobs end. Those behind a slow job wait
    /// in memory for it; once 64 for each worker, or 64 MiB, do so, no further line is begun.
    #[arg(long)]
    pub(crate) ordered: bool,

    /// Cut stragglers: once most jobs of the lines read so far have ended, end one that has run for
    /// FACTOR times their median, and at least 100 ms. Its result is `cancelled` and says so.
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    pub(crate) cut_stragglers: Option<f64>,

    /// Give every program a copy of a file: HOST, or HOST=NAME for another name in its workspace.
    /// Can be repeated.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Let every program read a folder: HOST, or HOST=PATH for another place than /NAME. Can be
    /// repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    /// Let no program change any file.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Keep the files of programs that failed or were ended, too.
    #[arg(long)]
    pub(crate) keep_files: bool,

    /// Write the files that programs made or changed into this folder, each line's into one of its
    /// own, named by the line's id or number, in place of what is there under the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Write what programs show into this folder, each line's into one of its own, named as that of
    /// `--output-dir`: figures and other displays as display-1.png and so on, the value of the last
    /// line, where that is more than text, as result.html or the like.
    #[arg(long, value_name = "DIR")]
    pub(crate) save_displays: Option<PathBuf>,

    /// Have results tell what those files hold, in base64.
    #[arg(long)]
    pub(crate) file_contents: bool,

    /// Make each run the same every time: the clock and every random number come from this seed,
    /// and sleeping takes no time.
    #[arg(long, value_name = "SEED")]
    pub(crate) deterministic: Option<u64>,

    /// What the clock of a deterministic run shows as it starts, in seconds since 1970. Without it,
    /// noon on 1 January 2026.
    #[arg(long, value_name = "SECONDS", requires = "deterministic")]
    pub(crate) start: Option<u64>,

    /// Serve metrics for Prometheus and the pool's status at this address, such as 127.0.0.1:9184,
    /// while the batch runs; port 0 takes a free one. Whoever reaches the address can read them.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,

    /// How to show on standard error how far the batch is.
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) progress: ProgressForm,

    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// A bar at a terminal, unless the results go to the terminal as well; else nothing.
    #[default]
    Auto,
    /// A bar, which only terminals can show.
    Bar,
    /// A line of text every 10 seconds, and one at the end.
    Lines,
    /// A JSON object on a line every second, and one at the end.
    Json,
    /// Nothing.
    None,
}

pub(super) fn parse_workers(text: &str) -> Result<RangeInclusive<usize>, String> {
    let wrong = || {
        format!(
            "write a number in 1..={MOST_WORKERS}, or two as in 1..8, the second at least as large"
        )
    };
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

fn parse_queue(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "write a whole number; 0 lets none wait".to_owned())
}

fn parse_tenant(text: &str) -> Result<(String, u32), String> {
    let wrong = || "write NAME=WEIGHT, a weight being a whole number of at least 1".to_owned();
    let (name, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    let weight = weight.parse().map_err(|_| wrong())?;
    if name.is_empty() || weight == 0 {
        return Err(wrong());
    }
    Ok((name.to_owned(), weight))
}

/// Larger ones mean none.
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
    fn workers_are_a_number_or_a_range() {
        assert_eq!(parse_workers("4"), Ok(4..=4));
        assert_eq!(parse_workers("1..8"), Ok(1..=8));
        assert_eq!(parse_workers("0..1024"), Ok(0..=1024));
        for wrong in ["0", "0..0", "8..1", "1025", "1..1025", "1..", "..", "-1", "1...3", "many"] {
            assert!(parse_workers(wrong).is_err(), "{wrong}");
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
