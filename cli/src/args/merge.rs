//! Arguments of `hatchery batch-merge`.

use std::path::PathBuf;

use clap::Args;

// A command of its own: as `hatchery batch merge`, a batch in a file named `merge` could no longer be
// run by its name.
#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// The jobs of the batch, as its shards read them; `-` reads standard input.
    #[arg(value_name = "IN.ndjson")]
    pub(crate) jobs: PathBuf,

    /// The results of the shards: the files of `--out`, in any order.
    #[arg(value_name = "PART", required = true)]
    pub(crate) parts: Vec<PathBuf>,

    /// Write the results to this file instead of standard output. An existing file is replaced in
    /// one step, once every result has been found.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Write the results that exist, even if others are missing. The exit code is still 3.
    #[arg(long)]
    pub(crate) partial: bool,

    /// Leave out results that belong to no line, such as those of changed lines, instead of
    /// refusing their parts.
    #[arg(long)]
    pub(crate) drop_others: bool,
}
