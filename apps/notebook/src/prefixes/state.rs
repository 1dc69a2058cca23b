//! A notebook's progress up to a cell: what is in its outputs and files, and the session's state.

use std::collections::BTreeMap;

use hatchery::Checkpoint;
use hatchery::files::{ChangeKind, ChangedFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::Notebook;

/// What the cells so far have left outside of the session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traces {
    /// Outputs that can be updated: the id, the index of the cell, and the index of the output.
    pub(crate) places: Vec<(String, usize, usize)>,
    /// Files that the cells created or changed, by path.
    pub(crate) files: BTreeMap<String, ChangedFile>,
    /// Number of symbolic links that the cells made, which aren't among the files.
    pub(crate) links: u64,
    /// Number of cells that raised and were allowed to.
    pub(crate) allowed_errors: usize,
}

impl Traces {
    /// Adds what a cell left in the workspace.
    pub(crate) fn add(&mut self, files: Vec<ChangedFile>, links: u64) {
        self.files.extend(files.into_iter().map(|file| (file.path.clone(), file)));
        self.links += links;
    }
}

/// The state after some cells of a notebook, in memory.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) checkpoint: Checkpoint,
    /// The outputs of each cell.
    pub(crate) outputs: Vec<Vec<Value>>,
    pub(crate) traces: Traces,
}

/// The state after some cells of a notebook, on disk beside the saved session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The name of the session's file.
    pub(crate) session: String,
    outputs: Vec<Vec<Value>>,
    places: Vec<(String, usize, usize)>,
    /// The paths of the files, and whether each is new. Their contents are in the session.
    files: Vec<(String, Change)>,
    #[serde(default)]
    links: u64,
    allowed_errors: usize,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Created,
    Modified,
    Deleted,
}

impl State {
    /// Describes the first `count` cells.
    pub(crate) fn of(
        checkpoint: Checkpoint,
        notebook: &Notebook,
        count: usize,
        traces: &Traces,
    ) -> Self {
        let outputs = notebook.code().take(count).map(|cell| cell.outputs.clone()).collect();
        Self { checkpoint, outputs, traces: traces.clone() }
    }
}

impl Kept {
    /// Describes the first `count` cells, whose session isn't saved yet.
    pub(crate) fn of(notebook: &Notebook, count: usize, traces: &Traces) -> Self {
        let kind = |file: &ChangedFile| match file.kind {
            ChangeKind::Created => Change::Created,
            ChangeKind::Deleted => Change::Deleted,
            _ => Change::Modified,
        };
        let files = traces.files.values().map(|file| (file.path.clone(), kind(file)));
        Self {
            session: String::new(),
            outputs: notebook.code().take(count).map(|cell| cell.outputs.clone()).collect(),
            places: traces.places.clone(),
            files: files.collect(),
            links: traces.links,
            allowed_errors: traces.allowed_errors,
        }
    }

    /// Returns whether the session has to be opened for the contents of files.
    pub(crate) fn has_files(&self) -> bool {
        self.files.iter().any(|(_, change)| !matches!(change, Change::Deleted))
    }

    /// Returns whether it describes so many cells, and refers only to their outputs.
    pub(crate) fn fits(&self, count: usize) -> bool {
        let is_there = |(_, cell, output): &(String, usize, usize)| {
            self.outputs.get(*cell).is_some_and(|outputs| *output < outputs.len())
        };
        self.outputs.len() == count && self.places.iter().all(is_there)
    }

    /// Splits it into the cells' outputs and the other traces. `contents` returns those of a file;
    /// the result is `None` if one is missing.
    pub(crate) fn open(
        self,
        contents: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<(Vec<Vec<Value>>, Traces)> {
        let file = |(path, change): (String, Change)| {
            let (kind, contents) = match change {
                Change::Deleted => (ChangeKind::Deleted, Vec::new()),
                Change::Created => (ChangeKind::Created, contents(&path)?),
                Change::Modified => (ChangeKind::Modified, contents(&path)?),
            };
            Some((path.clone(), ChangedFile::new(path, kind, contents)))
        };
        let files = self.files.into_iter().map(file).collect::<Option<_>>()?;
        let Self { outputs, places, links, allowed_errors, .. } = self;
        Some((outputs, Traces { places, files, links, allowed_errors }))
    }
}

/// Puts the outputs of the first cells into a notebook.
pub(crate) fn take_over(notebook: &mut Notebook, outputs: &[Vec<Value>]) {
    for ((number, cell), outputs) in (1..).zip(notebook.code_mut()).zip(outputs) {
        cell.execution_count = Some(number);
        cell.outputs.clone_from(outputs);
    }
}
