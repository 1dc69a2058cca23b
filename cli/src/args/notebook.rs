//! What the user typed about notebooks.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::batch::parse_workers;
use super::{ImageArguments, LimitArguments};

#[derive(Debug, Subcommand)]
pub(crate) enum NotebookCommand {
    /// Run the code cells of notebooks in order, several notebooks side by side, and write copies
    /// with the outputs.
    ///
    /// The copy of NAME.ipynb is NAME.executed.ipynb beside it, or NAME.ipynb in --output-dir.
    /// Where a cell fails, or Ctrl-C comes, its notebook ends, and the session is kept beside the
    /// copy, as it was before that cell, for --resume.
    Run(Box<NotebookArguments>),
}

/// The limits hold for each cell.
#[derive(Debug, Args)]
pub(crate) struct NotebookArguments {
    /// Notebooks of Jupyter, version 4 of the format, in Python. They aren't changed.
    #[arg(value_name = "NOTEBOOK", required = true)]
    pub(crate) notebooks: Vec<PathBuf>,

    /// Write the copies into this folder, and the files that cells made or changed into a folder
    /// there for each notebook, in place of what is there under the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Go on at the cell that failed, with the session that was kept. A notebook whose earlier
    /// cells, inputs or image are others now runs from its start, and so does one that nothing was
    /// kept of.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Notebooks that run at once: a number, or `MIN..MAX` for workers as there is work for them.
    /// Default: the number of CPUs.
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    pub(crate) workers: Option<RangeInclusive<usize>>,

    /// Go on behind a cell that raises, as the tag `raises-exception` does for its cell.
    #[arg(long)]
    pub(crate) allow_errors: bool,

    /// Give each notebook a copy of a file: HOST, or HOST=NAME for another name in its workspace.
    /// Can be repeated.
    #[arg(long, value_name = "HOST[=NAME]")]
    pub(crate) input: Vec<String>,

    /// Let each notebook read the folder that it lies in, as if it ran there: what is in it is in the
    /// working directory too. Cells can't change what is there; new files are the notebook's own.
    #[arg(long)]
    pub(crate) beside: bool,

    /// Let the notebooks read a folder: HOST, or HOST=PATH for another place than /NAME. Can be
    /// repeated.
    #[arg(long, value_name = "HOST[=PATH]")]
    pub(crate) mount: Vec<String>,

    // Last: their headings in the help hold for all that follows.
    #[command(flatten)]
    pub(crate) image: ImageArguments,

    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}
