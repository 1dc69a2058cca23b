//! How a notebook ended.

use hatchery::error::counted;
use hatchery::files::ChangedFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Number of cells that didn't run, since their outputs and state were there already: of other
    /// notebooks or earlier commands, not of a resumed session.
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

/// The version of the record's format, and of the functions that a saved session has for its cells.
const VERSION: u32 = 3;

/// An output that can be updated: the id, the index of the cell, and the index of the output.
pub(crate) type Place = (String, usize, usize);

/// What a notebook resumes from.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    /// The key of the session's image.
    image: String,
    /// A digest of the input files.
    inputs: String,
    cells: Vec<DoneCell>,
    /// Outputs that can be updated: the id, the index of the cell, and the index of the output.
    places: Vec<Place>,
}

/// A cell that need not run again.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct DoneCell {
    source: String,
    outputs: Vec<Value>,
}

impl Record {
    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and JSON always serialize")
    }

    /// Reads a record; `None` if it is damaged.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Describes the first `count` cells.
    pub(crate) fn of(
        notebook: &Notebook,
        count: usize,
        image: &str,
        inputs: &str,
        places: &[Place],
    ) -> Self {
        let cells = notebook
            .code()
            .take(count)
            .map(|cell| DoneCell { source: cell.source.clone(), outputs: cell.outputs.clone() });
        let (image, inputs) = (image.to_owned(), inputs.to_owned());
        let places = places.iter().filter(|(_, cell, _)| *cell < count).cloned().collect();
        Self { version: VERSION, image, inputs, cells: cells.collect(), places }
    }

    /// Restores the outputs of the cells that need not run again, and returns their number and the
    /// outputs that can be updated; or says why the notebook must run from its start.
    pub(crate) fn apply(
        self,
        notebook: &mut Notebook,
        image: &str,
        inputs: &str,
    ) -> Result<(usize, Vec<Place>), String> {
        if self.version != VERSION {
            return Err("it was saved by another version of hatchery".to_owned());
        }
        if self.image != image {
            return Err("the image has changed".to_owned());
        }
        if self.inputs != inputs {
            return Err("an input has changed".to_owned());
        }
        let mut now = notebook.code();
        for (number, done) in (1..).zip(&self.cells) {
            match now.next() {
                Some(cell) if cell.source == done.source => {}
                Some(_) => return Err(format!("cell {number} has changed")),
                None => return Err(format!("cell {number} is gone")),
            }
        }
        drop(now);
        let is_there = |(_, cell, output): &Place| {
            self.cells.get(*cell).is_some_and(|cell| *output < cell.outputs.len())
        };
        if !self.places.iter().all(is_there) {
            return Err("its record is damaged".to_owned());
        }
        let count = self.cells.len();
        for ((number, cell), done) in (1..).zip(notebook.code_mut()).zip(self.cells) {
            cell.execution_count = Some(number);
            cell.outputs = done.outputs;
        }
        Ok((count, self.places))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn notebook(sources: &[&str]) -> Notebook {
        let cells: Vec<Value> = sources
            .iter()
            .map(|source| json!({ "cell_type": "code", "metadata": {}, "source": source }))
            .collect();
        let text = json!({ "nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells });
        Notebook::read(&text.to_string()).unwrap()
    }

    #[test]
    fn a_record_applies_only_to_its_own_notebook() {
        let mut first = notebook(&["a", "b", "c"]);
        first.code_mut().next().unwrap().outputs.push(json!("out"));
        let places = [("a".to_owned(), 0, 0), ("b".to_owned(), 2, 0)];
        let record =
            || Record::read(&Record::of(&first, 2, "image", "inputs", &places).write()).unwrap();

        // The third failed; it may have changed, and so may what follows.
        for sources in [&["a", "b", "c"][..], &["a", "b", "d", "e"], &["a", "b"]] {
            let mut fixed = notebook(sources);
            assert_eq!(
                record().apply(&mut fixed, "image", "inputs"),
                Ok((2, vec![places[0].clone()]))
            );
            let counts: Vec<_> = fixed.code().map(|cell| cell.execution_count).collect();
            assert_eq!(counts[..2], [Some(1), Some(2)]);
            assert!(counts[2..].iter().all(Option::is_none));
            assert_eq!(fixed.code().next().unwrap().outputs, [json!("out")]);
        }
        for (sources, image, inputs, expected) in [
            (&["a", "B", "c"][..], "image", "inputs", "cell 2 has changed"),
            (&["a"], "image", "inputs", "cell 2 is gone"),
            (&["a", "b"], "other", "inputs", "image"),
            (&["a", "b"], "image", "other", "input"),
        ] {
            let mut other = notebook(sources);
            let problem = record().apply(&mut other, image, inputs).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
            assert!(other.code().all(|cell| cell.execution_count.is_none()));
        }
        assert_eq!(Record::read(b"{"), None);
    }
}
