//! The saved form of a tree: what a guest added to the library, without mounted folders.
//!
//! The saved form is untrusted input. Checked are valid names, each folder in exactly one other, as
//! many names as a file claims, and the depth.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::names::check_name;
use super::{Entries, Node, NodeId, NodeKind, Timestamp, Tree};
use crate::files::contents::Contents;
use crate::files::mount::Mount;
use crate::files::quota::{FileUsage, MOST_DEPTH, MOST_PATH_BYTES};

/// More nodes than a guest creates in its life, so node ids never run out.
const MOST_NODES: u64 = 1 << 48;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedTree {
    next: NodeId,
    /// Every node that a guest can change, and only those.
    nodes: BTreeMap<NodeId, SavedNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedNode {
    kind: SavedKind,
    links: u64,
    accessed: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum SavedKind {
    File { len: u64, chunks: Vec<Vec<u8>> },
    Folder { parent: NodeId, entries: Vec<(String, NodeId)> },
    Link(String),
}

impl Tree {
    /// Returns what a guest added and changed, for saving.
    pub(crate) fn saved(&self) -> SavedTree {
        let saved = |(id, node): (&NodeId, &Node)| {
            let kind = match &node.kind {
                _ if node.is_fixed => return None,
                NodeKind::File(contents) => SavedKind::File {
                    len: contents.len(),
                    chunks: contents.chunks().map(<[u8]>::to_vec).collect(),
                },
                NodeKind::Folder { parent, entries } => {
                    let entries = entries.iter().filter(|(_, id)| !self.is_fixed(**id));
                    let entries = entries.map(|(name, id)| (name.to_string(), *id)).collect();
                    SavedKind::Folder { parent: *parent, entries }
                }
                NodeKind::Link(target) => SavedKind::Link(target.to_string()),
                NodeKind::Fixed(_) | NodeKind::Device(_) | NodeKind::Mount { .. } => return None,
            };
            let Node { links, accessed, modified, changed, .. } = *node;
            Some((*id, SavedNode { kind, links, accessed, modified, changed }))
        };
        SavedTree { next: self.next, nodes: self.nodes.iter().filter_map(saved).collect() }
    }

    /// Returns the folders of the host, which `saved` leaves out, and their nodes.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = (NodeId, &Arc<Mount>)> {
        self.nodes.iter().filter_map(|(id, node)| match &node.kind {
            NodeKind::Mount { mount, .. } => Some((*id, mount)),
            _ => None,
        })
    }

    /// Adds a saved tree to the library, which is `self`; `None` if the result isn't a valid tree.
    pub(crate) fn with_saved(mut self, saved: SavedTree) -> Option<Self> {
        let library_next = self.next;
        if saved.next < library_next || saved.next.0 - library_next.0 > MOST_NODES {
            return None;
        }
        let writable = self.nodes.iter().filter(|(_, node)| !node.is_fixed);
        let writable: Vec<NodeId> = writable.map(|(id, _)| *id).collect();
        if !writable.iter().all(|id| saved.nodes.contains_key(id)) {
            return None;
        }
        for (id, node) in saved.nodes {
            let is_new = id >= library_next && id < saved.next;
            if !is_new && !writable.contains(&id) {
                return None;
            }
            let node = node.into_node()?;
            match (&self.nodes.get(&id).map(|before| &before.kind), &node.kind) {
                // A writable folder of the library stays where it is.
                (Some(NodeKind::Folder { parent: was, .. }), NodeKind::Folder { parent, .. })
                    if was == parent => {}
                (None, _) => {}
                (Some(_), _) => return None,
            }
            self.nodes.insert_mut(id, node);
        }
        self.next = saved.next;
        self.usage = self.check_from(&writable, library_next)?;
        Some(self)
    }

    /// Checks that the nodes below `writable` form a tree. Returns their usage together with that
    /// of files without a name; `None` if they don't.
    fn check_from(&self, writable: &[NodeId], library_next: NodeId) -> Option<FileUsage> {
        let mut names: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut pending = Vec::new();
        for id in writable {
            pending.push((*id, self.depth(*id).ok()?));
        }
        while let Some((folder, depth)) = pending.pop() {
            for (name, id) in self.entries(folder).ok()? {
                check_name(name).ok()?;
                let seen = names.entry(*id).or_default();
                *seen += 1;
                match &self.node(*id).ok().filter(|_| *id >= library_next)?.kind {
                    // Each folder is visited once, so the walk ends.
                    NodeKind::Folder { parent, .. } if *seen == 1 && *parent == folder => {
                        pending.push((*id, depth + 1));
                    }
                    NodeKind::File(_) | NodeKind::Link(_) => {}
                    NodeKind::Folder { .. }
                    | NodeKind::Fixed(_)
                    | NodeKind::Device(_)
                    | NodeKind::Mount { .. } => {
                        return None;
                    }
                }
            }
            if depth > MOST_DEPTH {
                return None;
            }
        }
        let mut usage = FileUsage::default();
        for (id, node) in self.nodes.iter().filter(|(id, _)| **id >= library_next) {
            let is_folder = matches!(node.kind, NodeKind::Folder { .. });
            let links = names.get(id).copied().unwrap_or(0);
            if links != node.links || (links == 0 && is_folder) {
                return None;
            }
            usage.bytes = usage.bytes.checked_add(node.charged(node.len()))?;
            usage.count += links;
        }
        Some(usage)
    }
}

impl SavedNode {
    fn into_node(self) -> Option<Node> {
        let kind = match self.kind {
            SavedKind::File { len, chunks } => NodeKind::File(Contents::from_chunks(chunks, len)?),
            SavedKind::Folder { parent, entries } => {
                let count = entries.len();
                let entries: Entries =
                    entries.into_iter().map(|(name, id)| (name.into(), id)).collect();
                (entries.size() == count).then_some(NodeKind::Folder { parent, entries })?
            }
            SavedKind::Link(target) if target.len() <= MOST_PATH_BYTES => {
                NodeKind::Link(target.into())
            }
            SavedKind::Link(_) => return None,
        };
        let Self { links, accessed, modified, changed, .. } = self;
        Some(Node { kind, links, accessed, modified, changed, is_fixed: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library with a fixed file, and the folder that guests can write to.
    fn library() -> (Tree, NodeId) {
        let mut tree = Tree::default();
        let file = NodeKind::Fixed(bytes::Bytes::new());
        tree.create_fixed(NodeId::ROOT, "archive", file, 0).unwrap();
        let folder = NodeKind::Folder { parent: NodeId::ROOT, entries: Entries::new_sync() };
        let workspace = tree.create_fixed(NodeId::ROOT, "workspace", folder, 0).unwrap();
        tree.fix(&[workspace]);
        (tree, workspace)
    }

    fn used() -> Tree {
        let (mut tree, workspace) = library();
        let outer = tree.create_folder(workspace, "a", 5).unwrap();
        let inner = tree.create_folder(outer, "b", 5).unwrap();
        let input = tree.create_file(inner, "c.txt", 5).unwrap();
        tree.write(input, 0, &[7; 100_000], 5).unwrap();
        let file = tree.create_file(workspace, "d", 6).unwrap();
        tree.write(file, 1 << 20, b"behind a hole", 7).unwrap();
        tree.add_name(file, outer, "d again", 8).unwrap();
        tree.create_link(workspace, "l", "a/b", 9).unwrap();
        tree.remove_file(workspace, "d", |_| false, 10).unwrap();
        tree
    }

    #[test]
    fn a_saved_tree_loads_as_it_was() {
        let before = used();
        let after = library().0.with_saved(before.saved()).unwrap();
        assert_eq!(after.saved(), before.saved());
        after.check_invariants();
        before.check_invariants();
    }

    #[test]
    fn an_invalid_tree_is_refused() {
        let (tree, workspace) = library();
        let first = tree.next;
        let folder = |parent, entries: &[(&str, NodeId)]| SavedNode {
            kind: SavedKind::Folder {
                parent,
                entries: entries.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect(),
            },
            links: 1,
            accessed: 0,
            modified: 0,
            changed: 0,
        };
        let file = |links, len| SavedNode {
            kind: SavedKind::File { len, chunks: vec![vec![1; 3]] },
            links,
            ..folder(first, &[])
        };
        let second = NodeId(first.0 + 1);
        let refused = |change: &dyn Fn(&mut SavedTree)| {
            let mut saved = library().0.saved();
            saved.next = NodeId(first.0 + 2);
            let parent = match &saved.nodes[&workspace].kind {
                SavedKind::Folder { parent, .. } => *parent,
                _ => panic!("a folder"),
            };
            saved.nodes.insert(workspace, folder(parent, &[("a", first)]));
            saved.nodes.insert(first, folder(workspace, &[("f", second)]));
            saved.nodes.insert(second, file(1, 3));
            assert!(library().0.with_saved(saved.clone()).is_some());
            change(&mut saved);
            library().0.with_saved(saved).is_none()
        };
        let cases: [&dyn Fn(&mut SavedTree); 11] = [
            &|saved| saved.next = NodeId(u64::MAX),
            &|saved| drop(saved.nodes.remove(&second)),
            &|saved| drop(saved.nodes.remove(&workspace)),
            &|saved| drop(saved.nodes.insert(second, file(2, 3))),
            &|saved| drop(saved.nodes.insert(second, file(1, 2))),
            &|saved| drop(saved.nodes.insert(first, folder(workspace, &[("..", second)]))),
            &|saved| drop(saved.nodes.insert(first, folder(second, &[("f", second)]))),
            &|saved| drop(saved.nodes.insert(second, folder(first, &[("up", first)]))),
            &|saved| drop(saved.nodes.insert(NodeId::ROOT, folder(NodeId::ROOT, &[]))),
            &|saved| drop(saved.nodes.insert(NodeId(1 << 40), file(1, 3))),
            &|saved| saved.next = NodeId(0),
        ];
        for (index, case) in cases.into_iter().enumerate() {
            assert!(refused(case), "case {index}");
        }
    }
}
