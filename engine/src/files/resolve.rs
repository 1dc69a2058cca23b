//! Path resolution by POSIX rules.
//!
//! `..` at the root stays there, so no path leaves the tree. In a mounted folder of the host, `..`
//! is resolved here, by name. The host is only asked for plain paths below the folder.

use std::sync::Arc;

use super::mount::Mount;
use super::quota::{MOST_LINKS, MOST_NAME_BYTES, MOST_PATH_BYTES};
use super::tree::names::check_name;
use super::tree::{NodeId, NodeKind, Tree};
use crate::errno::{Errno, Result};

/// The folder in which a lookup starts.
#[derive(Debug, Clone)]
pub(crate) enum Base {
    Node(NodeId),
    Host(HostPlace),
}

#[derive(Debug, Clone)]
pub(crate) enum ResolvedPath {
    Node(NodeId),
    /// Nothing yet; a new node would get this name in this folder.
    Vacant {
        folder: NodeId,
        name: Arc<str>,
    },
    /// Something in a mounted folder, which may not exist.
    Host(HostPlace),
}

#[derive(Debug, Clone)]
pub(crate) struct HostPlace {
    pub(crate) mount: Arc<Mount>,
    /// The node of the mount.
    node: NodeId,
    /// Plain names below the mounted folder.
    names: Vec<Arc<str>>,
}

impl HostPlace {
    /// Returns the place with these names below a mount; `None` if one of them isn't plain.
    pub(crate) fn below(mount: Arc<Mount>, node: NodeId, names: Vec<Arc<str>>) -> Option<Self> {
        let is_plain =
            names.iter().all(|name| check_name(name).is_ok() && !name.contains(['/', '\0']));
        is_plain.then_some(Self { mount, node, names })
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the names below the mounted folder.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Returns the path below the mounted folder; `.` for the folder itself.
    pub(crate) fn path(&self) -> String {
        if self.names.is_empty() { ".".to_owned() } else { self.names.join("/") }
    }
}

/// Whether a link in the last part of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Follow,
    Keep,
}

/// Resolves `path` from `base`.
pub(crate) fn resolve(tree: &Tree, base: Base, path: &str, links: Links) -> Result<ResolvedPath> {
    let mut parts = check(path)?;
    parts.reverse();
    walk(tree, base, parts, links)
}

/// Returns the folder and the last name of `path`, which is not looked up, and whether it ends in
/// `/`.
pub(crate) fn resolve_parent(
    tree: &Tree,
    base: Base,
    path: &str,
) -> Result<(NodeId, Arc<str>, bool)> {
    let is_folder = path.ends_with('/');
    let mut parts = check(path.trim_end_matches('/'))?;
    let name = parts.pop().ok_or(Errno::NoEntry)?;
    match &*name {
        "" => return Err(Errno::Exists),
        // They name existing folders, not entries that can be created or removed.
        "." | ".." => return Err(Errno::Invalid),
        _ => {}
    }
    if path.starts_with('/') && parts.is_empty() {
        parts.push("".into());
    }
    parts.reverse();
    // The last part must be a folder, as if a `/` followed.
    parts.insert(0, ".".into());
    match walk(tree, base, parts, Links::Follow)? {
        ResolvedPath::Node(folder) => Ok((folder, name, is_folder)),
        ResolvedPath::Vacant { .. } => Err(Errno::NoEntry),
        ResolvedPath::Host(_) => Err(Errno::ReadOnly),
    }
}

/// Returns the absolute path of a folder that exists, without links, `.` and `..`.
pub(crate) fn absolute(tree: &Tree, folder: &Base) -> Result<String> {
    let (mut node, below) = match folder {
        Base::Node(node) => (*node, &[][..]),
        Base::Host(place) => (place.node, &place.names[..]),
    };
    let mut names: Vec<Arc<str>> = below.iter().rev().cloned().collect();
    while node != NodeId::ROOT {
        let parent = tree.parent(node)?;
        let is_node = |(_, id): &(&Arc<str>, &NodeId)| **id == node;
        let (name, _) = tree.entries(parent)?.iter().find(is_node).ok_or(Errno::NoEntry)?;
        names.push(Arc::clone(name));
        node = parent;
    }
    names.reverse();
    Ok(format!("/{}", names.join("/")))
}

/// Splits a path into parts. An empty first part means the root, a `.` at the end a folder.
fn check(path: &str) -> Result<Vec<Arc<str>>> {
    if path.is_empty() {
        return Err(Errno::NoEntry);
    }
    if path.len() > MOST_PATH_BYTES {
        return Err(Errno::NameTooLong);
    }
    if path.contains('\0') {
        return Err(Errno::Invalid);
    }
    if path.split('/').any(|part| part.len() > MOST_NAME_BYTES) {
        return Err(Errno::NameTooLong);
    }
    let mut parts: Vec<Arc<str>> = Vec::new();
    if path.starts_with('/') {
        parts.push("".into());
    }
    parts.extend(path.split('/').filter(|part| !part.is_empty()).map(Arc::from));
    if path.ends_with('/') {
        parts.push(".".into());
    }
    Ok(parts)
}

/// Resolves `pending`, which has the last part first. A link pushes the parts of its target.
fn walk(tree: &Tree, base: Base, mut pending: Vec<Arc<str>>, links: Links) -> Result<ResolvedPath> {
    let mut at = match base {
        Base::Node(node) => ResolvedPath::Node(node),
        Base::Host(place) => ResolvedPath::Host(place),
    };
    let mut followed = 0;
    while let Some(part) = pending.pop() {
        let is_last = pending.is_empty();
        at = match (at, &*part) {
            (_, "") => ResolvedPath::Node(NodeId::ROOT),
            (ResolvedPath::Node(folder), ".") => {
                tree.entries(folder)?;
                ResolvedPath::Node(folder)
            }
            (ResolvedPath::Node(folder), "..") => ResolvedPath::Node(tree.parent(folder)?),
            (ResolvedPath::Node(folder), name) => match tree.lookup(folder, name)? {
                None if is_last => ResolvedPath::Vacant { folder, name: part },
                None => return Err(Errno::NoEntry),
                Some(child) => match &tree.node(child)?.kind {
                    NodeKind::Link(_) if is_last && links == Links::Keep => {
                        ResolvedPath::Node(child)
                    }
                    NodeKind::Link(target) => {
                        followed += 1;
                        if followed > MOST_LINKS {
                            return Err(Errno::Loop);
                        }
                        pending.extend(check(target)?.into_iter().rev());
                        ResolvedPath::Node(folder)
                    }
                    NodeKind::Mount { mount, .. } => ResolvedPath::Host(HostPlace {
                        mount: Arc::clone(mount),
                        node: child,
                        names: Vec::new(),
                    }),
                    NodeKind::File(_)
                    | NodeKind::Fixed(_)
                    | NodeKind::Device(_)
                    | NodeKind::Folder { .. } => ResolvedPath::Node(child),
                },
            },
            (ResolvedPath::Host(place), ".") => ResolvedPath::Host(place),
            (ResolvedPath::Host(mut place), "..") => match place.names.pop() {
                Some(_) => ResolvedPath::Host(place),
                None => ResolvedPath::Node(tree.parent(place.node)?),
            },
            (ResolvedPath::Host(mut place), _) => {
                place.names.push(part);
                ResolvedPath::Host(place)
            }
            (ResolvedPath::Vacant { .. }, _) => unreachable!("only the last part can be vacant"),
        };
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample {
        tree: Tree,
        folder: NodeId,
        file: NodeId,
    }

    fn sample() -> Sample {
        let mut tree = Tree::default();
        tree.fix(&[NodeId::ROOT]);
        tree.begin(super::super::quota::FileQuota { bytes: 100, count: 100, open: 10 }, false);
        let folder = tree.create_folder(NodeId::ROOT, "d", 0).unwrap();
        let file = tree.create_file(folder, "f", 0).unwrap();
        for (name, target) in [
            ("to-file", "f"),
            ("to-root", "/"),
            ("up", ".."),
            ("dangling", "new"),
            ("self", "self"),
            ("dot", "."),
            ("absolute", "/d/f"),
            ("slash", "f/"),
        ] {
            tree.create_link(folder, name, target, 0).unwrap();
        }
        Sample { tree, folder, file }
    }

    fn named(sample: &Sample, path: &str, links: Links) -> Result<String> {
        resolve(&sample.tree, Base::Node(sample.folder), path, links).map(|place| match place {
            ResolvedPath::Node(node) if node == sample.folder => "d".to_owned(),
            ResolvedPath::Node(node) if node == sample.file => "f".to_owned(),
            ResolvedPath::Node(NodeId::ROOT) => "root".to_owned(),
            ResolvedPath::Node(_) => "other".to_owned(),
            ResolvedPath::Vacant { name, .. } => format!("no {name}"),
            ResolvedPath::Host(place) => place.path(),
        })
    }

    #[test]
    fn paths_resolve_by_posix_rules() {
        let sample = sample();
        for (path, links, expected) in [
            ("f", Links::Follow, Ok("f")),
            ("./f", Links::Follow, Ok("f")),
            ("../d/f", Links::Follow, Ok("f")),
            ("../../../../../d", Links::Follow, Ok("d")),
            ("//d//f", Links::Follow, Ok("f")),
            ("/", Links::Follow, Ok("root")),
            ("..", Links::Follow, Ok("root")),
            ("f/", Links::Follow, Err(Errno::NotFolder)),
            ("f/.", Links::Follow, Err(Errno::NotFolder)),
            ("f/..", Links::Follow, Err(Errno::NotFolder)),
            ("f/x", Links::Follow, Err(Errno::NotFolder)),
            ("x", Links::Follow, Ok("no x")),
            ("x/y", Links::Follow, Err(Errno::NoEntry)),
            ("x/", Links::Follow, Err(Errno::NoEntry)),
            ("x/../f", Links::Follow, Err(Errno::NoEntry)),
            ("", Links::Follow, Err(Errno::NoEntry)),
            ("a\0b", Links::Follow, Err(Errno::Invalid)),
            ("to-file", Links::Follow, Ok("f")),
            ("to-file", Links::Keep, Ok("other")),
            ("to-file/", Links::Keep, Err(Errno::NotFolder)),
            ("to-root/d/f", Links::Keep, Ok("f")),
            ("up/d", Links::Keep, Ok("d")),
            ("dangling", Links::Follow, Ok("no new")),
            ("self", Links::Follow, Err(Errno::Loop)),
            ("self", Links::Keep, Ok("other")),
            ("dot/dot/f", Links::Follow, Ok("f")),
            ("absolute", Links::Follow, Ok("f")),
            ("slash", Links::Follow, Err(Errno::NotFolder)),
        ] {
            let named = named(&sample, path, links);
            assert_eq!(named.as_deref().map_err(|errno| *errno), expected, "{path}");
        }
        assert_eq!(named(&sample, &"d/".repeat(2049), Links::Keep), Err(Errno::NameTooLong));
        assert_eq!(named(&sample, &"n".repeat(256), Links::Keep), Err(Errno::NameTooLong));
        let dots = "./".repeat(2000);
        assert_eq!(named(&sample, &dots, Links::Keep).as_deref(), Ok("d"));
    }

    #[test]
    fn a_folders_path_has_no_links() {
        let mut sample = sample();
        let inner = sample.tree.create_folder(sample.folder, "inner", 0).unwrap();
        for (path, expected) in [("inner", "/d/inner"), ("to-root/d", "/d"), ("to-root", "/")] {
            let place = resolve(&sample.tree, Base::Node(sample.folder), path, Links::Follow);
            let Ok(ResolvedPath::Node(node)) = place else { panic!("{path} is a folder") };
            assert_eq!(absolute(&sample.tree, &Base::Node(node)).as_deref(), Ok(expected));
        }
        sample.tree.remove_folder(sample.folder, "inner", 0).unwrap();
        assert_eq!(absolute(&sample.tree, &Base::Node(inner)), Err(Errno::Stale));
    }

    #[test]
    fn the_last_name_is_not_looked_up() {
        let sample = sample();
        let parent = |path| {
            resolve_parent(&sample.tree, Base::Node(sample.folder), path)
                .map(|(folder, name, is_folder)| (folder, name.to_string(), is_folder))
        };
        assert_eq!(parent("new/"), Ok((sample.folder, "new".to_owned(), true)));
        assert_eq!(parent("/new"), Ok((NodeId::ROOT, "new".to_owned(), false)));
        assert_eq!(parent("self"), Ok((sample.folder, "self".to_owned(), false)));
        assert_eq!(parent("f/new"), Err(Errno::NotFolder));
        assert_eq!(parent("x/new"), Err(Errno::NoEntry));
        assert_eq!(parent(".."), Err(Errno::Invalid));
        assert_eq!(parent("/"), Err(Errno::NoEntry));
    }
}
