//! A run's changes to the files of its workspace, found by comparing the tree before and after.

use std::collections::BTreeMap;

use super::contents::Contents;
use super::resolve::{Base, Links, ResolvedPath, resolve};
use super::tree::{Node, NodeId, NodeKind, Tree};

/// A file of the workspace that a run created, modified or deleted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ChangedFile {
    /// Path relative to the workspace.
    pub path: String,
    /// What happened to it.
    pub kind: ChangeKind,
    /// Its contents when the run ended; empty if it was deleted.
    #[serde(with = "serde_bytes")]
    pub contents: Vec<u8>,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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

/// What a run left in its workspace that its outcome doesn't have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct LeftOutFiles {
    /// Files that the run created or modified, and that were undone because it failed.
    pub undone: u64,
    /// New symbolic links.
    pub links: u64,
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
    let mut old = files(before, folder);
    let mut changes = Vec::new();
    for (path, contents) in files(after, folder) {
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

/// Counts what `changes` leaves out, or, if they are undone, what it would have had.
pub(crate) fn left_out(
    before: &Tree,
    after: &Tree,
    folder: NodeId,
    are_undone: bool,
) -> LeftOutFiles {
    if before.version() == after.version() {
        return LeftOutFiles::default();
    }
    if are_undone {
        let old = files(before, folder);
        let is_old = |(path, contents): &(String, &Contents)| {
            old.get(path).is_some_and(|before| before.is_same(contents))
        };
        let undone = files(after, folder).into_iter().filter(|file| !is_old(file)).count();
        return LeftOutFiles { undone: undone as u64, links: 0 };
    }
    let old = found(before, folder, link);
    let links = found(after, folder, link).into_iter();
    let links = links.filter(|(path, target)| old.get(path) != Some(target)).count();
    LeftOutFiles { undone: 0, links: links as u64 }
}

/// Returns each file below `folder`, by its path relative to the folder.
pub(super) fn files(tree: &Tree, folder: NodeId) -> BTreeMap<String, &Contents> {
    found(tree, folder, |kind| match kind {
        NodeKind::File(contents) => Some(contents),
        _ => None,
    })
}

fn link(kind: &NodeKind) -> Option<&str> {
    match kind {
        NodeKind::Link(target) => Some(target),
        _ => None,
    }
}

/// Returns what `pick` takes of the nodes below `folder`, by their paths relative to the folder.
fn found<'t, T>(
    tree: &'t Tree,
    folder: NodeId,
    pick: impl Fn(&'t NodeKind) -> Option<T>,
) -> BTreeMap<String, T> {
    let mut all = BTreeMap::new();
    let mut pending = vec![(String::new(), folder)];
    while let Some((path, folder)) = pending.pop() {
        let Ok(entries) = tree.entries(folder) else { continue };
        for (name, id) in entries {
            let path = if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
            match tree.node(*id).map(|node| &node.kind) {
                Ok(NodeKind::Folder { .. }) => pending.push((path, *id)),
                Ok(kind) => all.extend(pick(kind).map(|picked| (path, picked))),
                Err(_) => {}
            }
        }
    }
    all
}

/// A snapshot of a session's files.
///
/// It shares their contents with the session until the session writes to them. So it and its clones
/// take little memory. Later changes of the session don't affect it.
#[derive(Clone, derive_more::Debug)]
#[debug("Workspace({:?})", self.files())]
pub struct Workspace {
    tree: Tree,
    folder: NodeId,
}

impl Workspace {
    pub(crate) fn new(tree: &Tree, folder: NodeId) -> Self {
        Self { tree: tree.clone(), folder }
    }

    /// Returns each file of the workspace, sorted by path, with its length in bytes. Paths are
    /// relative to the workspace, with `/` between the parts. Leaves out links, folders and mounts.
    pub fn files(&self) -> Vec<(String, u64)> {
        let files = files(&self.tree, self.folder).into_iter();
        files.map(|(path, contents)| (path, contents.len())).collect()
    }

    /// Whether there is a file at `path`, which has the form that [`read`](Self::read) takes.
    pub fn contains(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// Returns the contents of the file at `path`. It is relative to the workspace, or absolute as
    /// programs see it, such as `/tmp/log`. Follows links. Returns `None` if there is no such file,
    /// or if it is in a mounted folder.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        match &self.find(path)?.kind {
            NodeKind::File(contents) => Some(contents.to_vec()),
            NodeKind::Fixed(contents) => Some(contents.to_vec()),
            NodeKind::Device(_)
            | NodeKind::Folder { .. }
            | NodeKind::Link(_)
            | NodeKind::Mount { .. } => None,
        }
    }

    fn find(&self, path: &str) -> Option<&Node> {
        match resolve(&self.tree, Base::Node(self.folder), path, Links::Follow).ok()? {
            ResolvedPath::Node(node) => self.tree.node(node).ok().filter(|node| node.is_file()),
            ResolvedPath::Vacant { .. } | ResolvedPath::Host(_) => None,
        }
    }
}
