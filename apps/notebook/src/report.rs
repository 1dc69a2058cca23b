//! How a notebook ended.

use hatchery::error::counted;
use hatchery::files::ChangedFile;

use crate::document::Notebook;
use crate::error::Error;
use crate::problem::Problem;

/// The end of one notebook.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// How it ended.
    pub end: NotebookEnd,
    /// The notebook with the outputs of the cells that ran.
    pub notebook: Notebook,
    /// Whether its copy has these outputs.
    pub is_written: bool,
    /// Number of cells that raised and were allowed to.
    pub allowed_errors: usize,
    /// Number of cells that didn't run, since their outputs and state were there already. They are of
    /// other notebooks or earlier commands, not of a resumed session.
    pub taken_over: usize,
    /// The files that its cells created or changed, sorted by path.
    pub files: Vec<ChangedFile>,
    /// Number of symbolic links that its cells made, which aren't among the files.
    pub links: u64,
    /// Whether a later run can continue where it ended.
    pub resumption: Resumption,
    /// Failures other than the cells' own, in the order in which they occurred.
    pub errors: Vec<Error>,
}

/// How the cells of a notebook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotebookEnd {
    /// All cells ran.
    Completed,
    /// The cell of this number, from 1, ended the notebook as `sys.exit(0)` does; the cells after it
    /// didn't run.
    Exited(usize),
    /// A cell failed.
    Failed {
        /// The cell, counted from 1.
        cell: usize,
        /// What it failed with.
        problem: Problem,
        /// Whether the sandbox is at fault, not the cell.
        is_of_sandbox: bool,
    },
    /// The user interrupted, while the cell of this number, from 1, ran or came next.
    Interrupted(usize),
    /// An error that the report has came during the cell of this number, from 1, or after it.
    Broken(usize),
    /// The user interrupted before the notebook started.
    NotStarted,
    /// The session couldn't start; the report has the error.
    NoSession,
}

impl NotebookEnd {
    /// Returns whether the notebook ended as its author meant it to.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Completed | Self::Exited(_))
    }

    /// Says how a notebook of so many cells ended. It may contain what a program wrote.
    pub fn text(&self, total: usize) -> String {
        match self {
            Self::Completed => format!("{} completed", counted(total, "cell")),
            Self::Exited(cell) => format!("exited at cell {cell} of {total}"),
            Self::Failed { cell, problem, .. } => {
                format!("cell {cell} of {total} failed: {problem}")
            }
            Self::Interrupted(cell) => format!("interrupted at cell {cell} of {total}"),
            Self::Broken(cell) => format!("ended at cell {cell} of {total}"),
            Self::NotStarted | Self::NoSession => "not started".to_owned(),
        }
    }
}

/// What a later run finds of a notebook that didn't complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resumption {
    /// Its session, as it was before the cell that ended the notebook.
    Saved,
    /// Nothing, and nothing is needed: it completed, or ended at its first cell.
    Nothing,
    /// Nothing, because of an error that the report has.
    Lost,
}

impl Report {
    /// Reports a notebook whose cells didn't begin.
    pub(crate) fn not_begun(end: NotebookEnd, notebook: Notebook, errors: Vec<Error>) -> Self {
        Self {
            end,
            notebook,
            is_written: false,
            allowed_errors: 0,
            taken_over: 0,
            files: Vec::new(),
            links: 0,
            resumption: Resumption::Nothing,
            errors,
        }
    }
}
