//! What happens while notebooks run, for whoever shows it.

use std::fmt::Debug;

/// A step of one notebook.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// It runs from its start although a saved session was wanted.
    NotResumed {
        /// Why.
        why: String,
    },
    /// Its session is ready.
    Started {
        /// The number of its code cells.
        total: usize,
        /// How many of them have run before, in the saved session.
        done: usize,
    },
    /// A cell starts.
    Cell {
        /// Its number, counted from 1.
        number: usize,
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
