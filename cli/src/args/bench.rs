//! Arguments of `hatchery bench`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// Measure for 15 s in place of 60, with a quarter of the samples.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
