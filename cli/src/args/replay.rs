//! Arguments of `hatchery replay`.

use std::path::PathBuf;

use clap::Args;

use super::groups::WorkerCount;
use super::limits::ProgramArguments;

/// The limits apply to programs that are run in place of recorded ones.
#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// The recordings, as `--record` writes them.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Run all turns again and compare their outcomes byte by byte. Turns that the clock ended, or that
    /// read folders of the host, are taken from the recording, and marked.
    #[arg(long, conflicts_with_all = ["turn", "diff"])]
    pub(crate) verify: bool,

    /// Show the first turn in which two recordings part, with the outputs and variables that differ.
    #[arg(long, conflicts_with = "turn")]
    pub(crate) diff: bool,

    /// Open a prompt in the state after turn K; 0 is the beginning.
    #[arg(long, value_name = "K")]
    pub(crate) turn: Option<usize>,

    /// Run this program there instead.
    #[arg(short, long, value_name = "CODE", requires = "turn", allow_hyphen_values = true)]
    pub(crate) code: Option<String>,

    /// Run the program in this file there instead.
    #[arg(long, value_name = "FILE", requires = "turn", conflicts_with = "code")]
    pub(crate) program: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) workers: WorkerCount,

    // Last: in the help, its headings apply to everything that follows.
    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}
