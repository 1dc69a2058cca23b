//! Arguments of `hatchery notebook`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use ::notebook::Unmarked;
use bytesize::ByteSize;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Subcommand, ValueEnum};

use super::groups::{HostFiles, parse_workers};
use super::limits::{ProgramArguments, parse_size};

#[derive(Debug, Subcommand)]
pub(crate) enum NotebookCommand {
    /// Run the code cells of notebooks in order, several notebooks in parallel, and write copies
    /// with the outputs.
    ///
    /// The copy of NAME.ipynb is NAME.executed.ipynb next to it, or NAME.ipynb in --output-dir.
    /// When a cell fails or Ctrl-C is pressed, the notebook ends. Its session from before that cell
    /// is saved next to the copy, for --resume.
    Run(Box<NotebookArguments>),
    /// List the parameters that a notebook's cell tagged `parameters` defines: their names, types,
    /// defaults and descriptions.
    Parameters(Box<ParametersArguments>),
}

/// Arguments of `hatchery notebook parameters`.
#[derive(Debug, Args)]
pub(crate) struct ParametersArguments {
    /// A Jupyter notebook in Python, version 4 of the format.
    #[arg(value_name = "NOTEBOOK")]
    pub(crate) notebook: PathBuf,

    /// Print a JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NotebookProgress {
    /// Bars on standard error, even if it isn't a terminal.
    Bars,
    /// A line on standard error for each cell.
    Lines,
    /// An object on standard output for each step.
    Json,
}

/// The parameters of notebooks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Parameters")]
pub(crate) struct ParameterArguments {
    /// Assign a value to a parameter: `None`, `True`, `False`, a number, or text. Can be repeated.
    /// A cell with all assignments is inserted after the cell tagged `parameters`.
    #[arg(short = 'p', long = "parameter", num_args = 2, value_names = ["NAME", "VALUE"],
        action = ArgAction::Append, allow_hyphen_values = true)]
    pub(crate) values: Vec<String>,

    /// Assign a text to a parameter, even if it looks like a number. Can be repeated.
    #[arg(short = 'r', long = "raw-parameter", num_args = 2, value_names = ["NAME", "TEXT"],
        action = ArgAction::Append, allow_hyphen_values = true)]
    pub(crate) raw: Vec<String>,

    /// Assign the parameters of a mapping in YAML or JSON. Can be repeated. `-p` and `-r` take
    /// precedence.
    #[arg(short = 'y', long = "parameters-yaml", value_name = "YAML", allow_hyphen_values = true)]
    pub(crate) yaml: Vec<String>,

    /// Assign the parameters of a file in YAML or JSON. Can be repeated. All other options take
    /// precedence.
    #[arg(short = 'f', long = "parameters-file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Run each notebook with each set of parameters in a file: CSV, JSON lines, or a list or
    /// mapping of sets in JSON or YAML. The field `@name`, or the key in a mapping, names a set and
    /// its outputs; the default is its number. A set takes precedence over all other options.
    #[arg(long, value_name = "FILE")]
    pub(crate) sets: Option<PathBuf>,
}

/// Arguments of `hatchery notebook run`. The limits apply to each cell.
#[derive(Debug, Args)]
pub(crate) struct NotebookArguments {
    /// Jupyter notebooks in Python, version 4 of the format. They aren't changed.
    #[arg(value_name = "NOTEBOOK", required = true)]
    pub(crate) notebooks: Vec<PathBuf>,

    /// Write the copies into this folder. Files that cells created or changed go into a subfolder
    /// for each notebook. Overwrites files of the same names.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Resume at the cell that failed, with the saved session. A notebook runs from its start if
    /// its earlier cells, inputs or image have changed, or if nothing was saved.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Run all cells. By default, a notebook reuses the outputs and state of earlier cells, up to
    /// the first that changed. This requires the same image, inputs, folders, limits and
    /// parameters. A cell with the tag `fresh` and all after it always run.
    #[arg(long)]
    pub(crate) fresh: bool,

    /// Maximum size of the states that are kept for later runs. The least recently used go first;
    /// `0` keeps and uses none.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    pub(crate) keep_states: ByteSize,

    /// How to show progress. Default: bars on a terminal, and a line for each notebook.
    #[arg(long, value_name = "HOW")]
    pub(crate) progress: Option<NotebookProgress>,

    /// Compare the outputs of `all` cells, or of those `marked` NBVAL_CHECK_OUTPUT, with those in
    /// the file. Exit with 1 if some differ. nbval's comments and tags apply. Implies --fresh, and
    /// writes copies only into an --output-dir.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
        value_parser = PossibleValuesParser::new(["all", "marked"]).map(unmarked),
        default_missing_value = "all", conflicts_with = "resume")]
    pub(crate) check: Option<Unmarked>,

    /// Before comparing, apply the `regex: …` and `replace: …` lines of this file to all outputs,
    /// as nbval does.
    #[arg(long, value_name = "FILE", requires = "check")]
    pub(crate) sanitize_with: Option<PathBuf>,

    /// Write a report of the run into this file: a page with all cells and outputs, without
    /// scripts.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Record each notebook in a new file in this folder, for `hatchery replay`. Implies --fresh. Cells
    /// then see a clock that begins now and advances only while they run.
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) record: Option<PathBuf>,

    /// Number of notebooks that run at once, or `MIN..MAX` to follow the load. Default: the number
    /// of CPUs.
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    pub(crate) workers: Option<RangeInclusive<usize>>,

    /// Continue after a cell that raises, as the tag `raises-exception` does for a single cell.
    #[arg(long)]
    pub(crate) allow_errors: bool,

    /// Let each notebook read its own folder as if it ran there. Its contents also appear in the
    /// working directory. Cells can't change what is there; new files are the notebook's own.
    #[arg(long)]
    pub(crate) beside: bool,

    #[command(flatten)]
    pub(crate) host: HostFiles,

    #[command(flatten)]
    pub(crate) parameters: ParameterArguments,

    // Last: in the help, its headings apply to everything that follows.
    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

/// Returns what becomes of cells without a marker.
fn unmarked(which: String) -> Unmarked {
    if which == "all" { Unmarked::Checked } else { Unmarked::Ignored }
}
