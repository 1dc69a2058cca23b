//! Arguments of `hatchery notebook`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::batch::parse_workers;
use super::image::ImageArguments;
use super::limits::LimitArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum NotebookCommand {
    /// Run the code cells of notebooks in order, several notebooks in parallel, and write copies
    /// with the outputs.
    ///
    /// The copy of NAME.ipynb is NAME.executed.ipynb beside it, or NAME.ipynb in --output-dir. When
    /// a cell fails or Ctrl-C is pressed, the notebook ends, and its session as it was before that
    /// cell is saved beside the copy, for --resume.
    Run(Box<NotebookArguments>),
}

/// Arguments of `hatchery notebook run`. The limits apply to each cell.
#[derive(Debug, Args)]
pub(crate) struct NotebookArguments {
    /// Jupyter notebooks in Python, version 4 of the format. They aren't changed.
    #[arg(value_name = "NOTEBOOK", required = true)]
    pub(crate) notebooks: Vec<PathBuf>,

    /// Write the copies into this folder, and the files that cells created or changed into a
    /// subfolder for each notebook, overwriting files of the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Resume at the cell that failed, with the saved session. A notebook runs from its start if
    /// its earlier cells, inputs or image have changed, or if nothing was saved.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Number of notebooks that run at once, or `MIN..MAX` to follow the load. Default: the number
    /// of CPUs.
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    pub(crate) workers: Option<RangeInclusive<usize>>,

    /// Continue after a cell that raises, as the tag `raises-exception` does for a single cell.
    #[arg(long)]
    pub(crate) allow_errors: bool,

    /// Copy the file HOST into each notebook's workspace as NAME, by default under its own name.
    /// Can be repeated.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Let each notebook read its own folder as if it ran there: the folder's contents also appear
    /// in the working directory. Cells can't change what is there; new files are the notebook's
    /// own.
    #[arg(long)]
    pub(crate) beside: bool,

    /// Mount the folder HOST at PATH, for the notebooks to read. The default PATH is / and the
    /// name of the folder. Can be repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    // Last: in the help, their headings apply to everything that follows.
    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}
