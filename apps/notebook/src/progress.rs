//! What happens while notebooks run, for whoever shows it.

use std::fmt::Debug;
use std::time::Duration;

/// A step of one notebook.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// It runs from its start although a saved session was wanted.
    NotResumed {
        /// Why.
        why: String,
    },
    /// It begins.
    Started {
        /// The number of its code cells.
        total: usize,
    },
    /// It continues from its saved session, in which so many cells have run.
    Resumed {
        /// The cells.
        done: usize,
    },
    /// It takes over the outputs and the state of further cells, which don't run.
    TakenOver {
        /// The first of them, counted from 1.
        first: usize,
        /// The last of them.
        last: usize,
        /// Where another notebook of this command ran them; otherwise an earlier command did.
        of_this_command: bool,
    },
    /// A cell starts.
    Cell {
        /// Its number, counted from 1.
        number: usize,
    },
    /// A cell has ended, and the copy is about to have its outputs.
    CellEnded {
        /// Its number, counted from 1.
        number: usize,
        /// How long it took, on the wall clock.
        took: Duration,
        /// The class of the exception, or what else it failed with.
        failed: Option<String>,
    },
    /// No further cell runs.
    Ended,
}

/// Shows the progress of notebooks. Called from the tasks that run them, so it must not block for
/// long.
pub trait Observer: Debug + Send + Sync {
    /// Takes note of a step. `notebook` is the place of the notebook's [`Task`](crate::Task) among
    /// those of the command.
    fn progress(&self, notebook: usize, step: &Progress);
}

/// Shows nothing.
impl Observer for () {
    fn progress(&self, _notebook: usize, _step: &Progress) {}
}
