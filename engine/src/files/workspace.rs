//! A snapshot of a session's files, which can be read without running a program.

use std::fmt;

use super::changes::files;
use super::resolve::{Base, Links, Place, resolve};
use super::tree::{Kind, Node, NodeId, Tree};

/// A snapshot of a session's files.
///
/// It shares their contents with the session until the session writes to them, so it and its clones
/// take little memory. Later changes of the session don't affect it.
#[derive(Clone)]
pub struct Workspace {
    tree: Tree,
    folder: NodeId,
}

impl Workspace {
    pub(crate) fn new(tree: &Tree, folder: NodeId) -> Self {
        Self { tree: tree.clone(), folder }
    }

    /// Returns each file of the workspace, sorted by path: its path relative to the workspace, with
    /// `/` between the parts, and its length in bytes. Leaves out links, folders and mounts.
    pub fn files(&self) -> Vec<(String, u64)> {
        let files = files(&self.tree, self.folder).into_iter();
        files.map(|(path, contents)| (path, contents.len())).collect()
    }

    /// Whether there is a file at `path`, which has the form that [`read`](Self::read) takes.
    pub fn contains(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// Returns the contents of the file at `path`, which is relative to the workspace, or absolute
    /// as programs see it, such as `/tmp/log`. Follows links. Returns `None` if there is no such
    /// file, or if it is in a mounted folder.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        match &self.find(path)?.kind {
            Kind::File(contents) => Some(contents.to_vec()),
            Kind::Fixed(contents) => Some(contents.to_vec()),
            Kind::Device(_) | Kind::Folder { .. } | Kind::Link(_) | Kind::Mount { .. } => None,
        }
    }

    fn find(&self, path: &str) -> Option<&Node> {
        match resolve(&self.tree, Base::Node(self.folder), path, Links::Follow).ok()? {
            Place::Node(node) => self.tree.node(node).ok().filter(|node| node.is_file()),
            Place::Vacant { .. } | Place::Host(_) => None,
        }
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.files()).finish()
    }
}
