//! What the user typed about a batch.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;

use super::{ImageArguments, LimitArguments};

/// More interpreters than this help nobody.
const MOST_WORKERS: u16 = 1024;

#[derive(Debug, Args)]
pub(crate) struct BatchArguments {
    /// Jobs, one JSON object a line: `id`, `code`, `file` or `call` (an object with `function`, and
    /// perhaps `args` and `keywords`), and optionally `args`, `env`, `stdin`, `variables`, `timeout`
    /// (seconds, before `--timeout`), `tenant`, `priority` (`high`, `normal` or `low`) and
    /// `deadline` (seconds from when the line is read). `-` reads standard input.
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

    /// Write results to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Serve metrics for Prometheus and the pool's status at this address, such as 127.0.0.1:9184,
    /// while the batch runs; port 0 takes a free one. Whoever reaches the address can read them.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,

    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
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

    #[test]
    fn tenants_have_a_name_and_a_weight() {
        assert_eq!(parse_tenant("a=3"), Ok(("a".to_owned(), 3)));
        assert_eq!(parse_tenant("a=b=3"), Ok(("a=b".to_owned(), 3)));
        for wrong in ["a", "=3", "a=", "a=0", "a=-1", "a=1.5"] {
            assert!(parse_tenant(wrong).is_err(), "{wrong}");
        }
    }
}
