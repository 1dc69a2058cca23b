//! Arguments of `hatchery cache`.

use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, Subcommand};

use super::limits::{parse_duration, parse_size};

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List what the cache holds, most recently used first.
    Info {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Remove what hasn't been used for a time, or the least recently used until the rest fits a
    /// size.
    ///
    /// Files that a running process uses stay. Removed files are rebuilt or downloaded again when
    /// needed. The Python build and its compiled form, which every start needs, are removed last.
    Prune(PruneArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// Remove what hasn't been used for this time, such as `30d` or `12h`.
    #[arg(long, value_name = "TIME", value_parser = parse_duration,
        required_unless_present = "to_size")]
    pub(crate) older_than: Option<Duration>,

    /// Remove the least recently used until the cache takes no more than this, such as `2GiB`.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) to_size: Option<ByteSize>,

    /// Only show what would be removed.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
