//! A run's changes to the files of its workspace, found by comparing the tree before and after.

use std::collections::BTreeMap;

use super::contents::Contents;
use super::tree::{Kind, NodeId, Tree};

/// A file of the workspace that a run created, modified or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedFile {
    /// Path relative to the workspace.
    pub path: String,
    /// What happened to it.
    pub kind: ChangeKind,
    /// Its contents when the run ended; empty if it was deleted.
    pub contents: Vec<u8>,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The file did not exist before.
    Created,
    /// Its contents differ.
    Modified,
    /// It no longer exists.
    Deleted,
}

impl ChangedFile {
    /// Creates a change of the file at `path`, relative to the workspace.
    pub fn new(path: impl Into<String>, kind: ChangeKind, contents: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), kind, contents: contents.into() }
    }
}

/// Returns the files below `folder` that differ between the trees, sorted by path.
///
/// A file rewritten with the same bytes is unchanged. Links and folders are left out.
pub(crate) fn changes(before: &Tree, after: &Tree, folder: NodeId) -> Vec<ChangedFile> {
    if before.version() == after.version() {
        return Vec::new();
    }
    let (mut old, new) = (files(before, folder), files(after, folder));
    let mut changes = Vec::new();
    for (path, contents) in new {
        let kind = match old.remove(&path) {
            None => ChangeKind::Created,
            Some(before) if before.is_same(contents) => continue,
            Some(_) => ChangeKind::Modified,
        };
        changes.push(ChangedFile { path, kind, contents: contents.to_vec() });
    }
    changes.extend(old.into_keys().map(|path| ChangedFile {
        path,
        kind: ChangeKind::Deleted,
        contents: Vec::new(),
    }));
    changes.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// Returns each file below `folder`, by its path relative to the folder.
pub(super) fn files(tree: &Tree, folder: NodeId) -> BTreeMap<String, &Contents> {
    let mut files = BTreeMap::new();
    let mut pending = vec![(String::new(), folder)];
    while let Some((path, folder)) = pending.pop() {
        let Ok(entries) = tree.entries(folder) else { continue };
        for (name, id) in entries {
            let path = if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
            match tree.node(*id).map(|node| &node.kind) {
                Ok(Kind::File(contents)) => drop(files.insert(path, contents)),
                Ok(Kind::Folder { .. }) => pending.push((path, *id)),
                Ok(Kind::Fixed(_) | Kind::Device(_) | Kind::Link(_) | Kind::Mount { .. })
                | Err(_) => {}
            }
        }
    }
    files
}
