//! The files of a session at one moment, for whoever wants them without running a program.

use std::fmt;

use super::changes::files;
use super::resolve::{Base, Links, Place, resolve};
use super::tree::{Kind, Node, NodeId, Tree};

/// The files that a session has, as they were at one moment.
///
/// It shares their contents with the session until that writes to them, so this and its clones
/// take little memory of their own. It is independent of the session from then on.
#[derive(Clone)]
pub struct Workspace {
    tree: Tree,
    folder: NodeId,
}

impl Workspace {
    pub(crate) fn new(tree: &Tree, folder: NodeId) -> Self {
        Self { tree: tree.clone(), folder }
    }

    /// Each file of the workspace, sorted by path: its path relative to the workspace, with `/`
    /// between its parts, and its length in bytes. Links, folders and what is mounted are none.
    pub fn files(&self) -> Vec<(String, u64)> {
        let files = files(&self.tree, self.folder).into_iter();
        files.map(|(path, contents)| (path, contents.len())).collect()
    }

    /// Whether there is a file at `path`, which is as for [`read`](Self::read).
    pub fn contains(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// The contents of the file at `path`: one relative to the workspace, or an absolute one as
    /// programs have it, such as `/tmp/log`. Links are followed. `None` if there is no such file;
    /// those of mounted folders are the host's own.
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
