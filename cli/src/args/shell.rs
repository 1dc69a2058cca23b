//! Arguments of commands about the command line itself.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Write the pages of all commands into this folder, as hatchery.1, hatchery-run.1 and so on.
    /// By default the main page is printed.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
