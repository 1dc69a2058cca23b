//! What the user typed about the cache.

use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List what the cache holds, what was used last first.
    Info {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Remove what wasn't used for long, or what was used longest ago until the rest fits a size.
    ///
    /// What a running process uses stays. What was removed is made or fetched again when it is
    /// needed; the Python build and its compiled form, which every start needs, are the last to go.
    Prune(PruneArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// Remove what wasn't used for so long, such as `30d` or `12h`.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        required_unless_present = "to_size")]
    pub(crate) older_than: Option<Duration>,

    /// Remove what was used longest ago until the cache takes no more than this, such as `2GiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) to_size: Option<ByteSize>,

    /// Only say what would be removed.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
