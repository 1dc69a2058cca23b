//! What the first cells of a notebook left: in memory beside a checkpoint, and on disk beside a saved
//! session.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use hatchery::files::{ChangeKind, ChangedFile};
use replace::{Access, replace};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::Notebook;

/// The version of the record's format, and of the functions that a saved session has for its cells.
const VERSION: u32 = 4;

/// An output that can be updated: the id, the index of the cell, and the index of the output.
pub(crate) type Place = (String, usize, usize);

/// What the cells so far have left outside of the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Traces {
    /// The outputs that can be updated.
    pub(crate) places: Vec<Place>,
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

/// The record of the first cells of a notebook, on disk beside the session that was saved after them.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    version: u32,
    /// The name of the session's file, for a state that a key identifies.
    pub(crate) session: String,
    /// The key of the session's image, for any other state.
    image: String,
    /// A digest of the input files, likewise.
    inputs: String,
    /// The source of each cell, and its outputs.
    cells: Vec<(String, Vec<Value>)>,
    places: Vec<Place>,
    /// The paths of the files, and whether each is new. Their contents are in the session.
    files: Vec<(String, ChangeKind)>,
    links: u64,
    allowed_errors: usize,
}

impl SavedState {
    /// Describes the first `count` cells, whose session isn't saved yet.
    pub(crate) fn of(notebook: &Notebook, count: usize, traces: &Traces) -> Self {
        let cells = notebook.code().take(count);
        let places = traces.places.iter().filter(|(_, cell, _)| *cell < count);
        let files = traces.files.values().map(|file| (file.path.clone(), file.kind));
        Self {
            version: VERSION,
            cells: cells.map(|cell| (cell.source.clone(), cell.outputs.clone())).collect(),
            places: places.cloned().collect(),
            files: files.collect(),
            links: traces.links,
            allowed_errors: traces.allowed_errors,
            ..Self::default()
        }
    }

    /// Says with which image and inputs the cells ran.
    pub(crate) fn with(self, image: &str, inputs: &str) -> Self {
        Self { image: image.to_owned(), inputs: inputs.to_owned(), ..self }
    }

    /// Reads a record; `None` if it is damaged.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        Ok(serde_json::from_slice(&fs::read(path)?).ok())
    }

    /// Writes the record, unless it has more bytes; returns whether it has. It contains outputs, and
    /// so is as private as the session.
    pub(crate) fn write(&self, path: &Path, most_bytes: usize) -> io::Result<bool> {
        let bytes = serde_json::to_vec(self)?;
        let fits = bytes.len() <= most_bytes;
        if fits {
            replace(path, Access::Private, |file| file.write_all(&bytes))?;
        }
        Ok(fits)
    }

    /// Returns how many cells it describes.
    pub(crate) fn count(&self) -> usize {
        self.cells.len()
    }

    /// Returns whether the session has to be opened for the contents of files.
    pub(crate) fn has_files(&self) -> bool {
        self.files.iter().any(|(_, kind)| *kind != ChangeKind::Deleted)
    }

    /// Returns whether it refers only to outputs that it has.
    pub(crate) fn is_whole(&self) -> bool {
        let is_there = |(_, cell, output): &Place| {
            self.cells.get(*cell).is_some_and(|(_, outputs)| *output < outputs.len())
        };
        self.places.iter().all(is_there)
    }

    /// Opens it if it is one of this notebook; else says why the notebook must run from its start.
    pub(crate) fn resume(
        self,
        notebook: &Notebook,
        image: &str,
        inputs: &str,
    ) -> Result<(Vec<Vec<Value>>, Traces), String> {
        let damaged = "its record is damaged";
        let reasons = [
            (self.version != VERSION, "it was saved by another version of hatchery"),
            (self.image != image, "the image has changed"),
            (self.inputs != inputs, "an input has changed"),
            (!self.is_whole(), damaged),
        ];
        if let Some((_, reason)) = reasons.iter().find(|(applies, _)| *applies) {
            return Err((*reason).to_owned());
        }
        let mut now = notebook.code();
        for (number, (source, _)) in (1..).zip(&self.cells) {
            match now.next() {
                Some(cell) if cell.source == *source => {}
                Some(_) => return Err(format!("cell {number} has changed")),
                None => return Err(format!("cell {number} is gone")),
            }
        }
        // Files of earlier cells are written already.
        self.open(|_| None).ok_or_else(|| damaged.to_owned())
    }

    /// Splits it into the cells' outputs and the other traces. `contents` returns those of a file;
    /// the result is `None` if one is missing.
    pub(crate) fn open(
        self,
        contents: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<(Vec<Vec<Value>>, Traces)> {
        let file = |(path, kind): (String, ChangeKind)| {
            let contents = match kind {
                ChangeKind::Deleted => Vec::new(),
                _ => contents(&path)?,
            };
            Some((path.clone(), ChangedFile::new(path, kind, contents)))
        };
        let files = self.files.into_iter().map(file).collect::<Option<_>>()?;
        let outputs = self.cells.into_iter().map(|(_, outputs)| outputs).collect();
        let Self { places, links, allowed_errors, .. } = self;
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
        let places = vec![("a".to_owned(), 0, 0), ("b".to_owned(), 2, 0)];
        let traces = Traces { places, ..Traces::default() };
        let written = SavedState::of(&first, 2, &traces).with("image", "inputs");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        assert!(!written.write(&path, 10).unwrap() && !path.exists());
        assert!(written.write(&path, 10_000).unwrap());
        let record = || SavedState::read(&path).unwrap().unwrap();
        assert_eq!((record(), record().count()), (written, 2));

        // The third failed; it may have changed, and so may what follows.
        for sources in [&["a", "b", "c"][..], &["a", "b", "d", "e"], &["a", "b"]] {
            let mut fixed = notebook(sources);
            let (outputs, left) = record().resume(&fixed, "image", "inputs").unwrap();
            take_over(&mut fixed, &outputs);
            assert_eq!(left.places, traces.places[..1]);
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
            let problem = record().resume(&notebook(sources), image, inputs).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        fs::write(&path, "{").unwrap();
        assert_eq!(SavedState::read(&path).unwrap(), None);
    }
}
