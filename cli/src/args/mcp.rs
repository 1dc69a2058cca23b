//! Arguments of `hatchery mcp`.

use std::ops::RangeInclusive;

use clap::Args;

use super::batch::parse_workers;
use super::image::ImageArguments;
use super::limits::LimitArguments;

/// Arguments of `hatchery mcp`. The limits apply to each call.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Number of programs that run at once, or `MIN..MAX` to follow the load. Default: the number
    /// of CPUs.
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    pub(crate) workers: Option<RangeInclusive<usize>>,

    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}
